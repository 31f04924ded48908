"""Categories of columns of text, and class labels, found federatedly: the union of the vehicles' ones, by discovery.

A vehicle tells the categories that it has in at least ``min_count`` rows. The union, in lexicographic order, becomes
the variable's categories, and a value of the column is a position among them. A rarer category stays at home; where a
vehicle meets it, it stands between its neighbours in that order.

A vehicle tells its labels and how many rows have each, likewise; the union becomes the domain's classes. Rows whose
label no vehicle told are left out by the classifiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.cells import MISSING
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.errors import ContributionError, TaskError
from schemas.codec import Value
from schemas.errors import RunFailedError
from schemas.limits import MAX_CATEGORIES

MAX_LENGTH: Final = 200
"""Most characters of a category, and of a label."""

MAX_LABELS: Final = 4096
"""Most different labels of a vehicle: a column with more is hardly a class."""


def tell_categories(data: Dataset, columns: Sequence[str], min_count: int) -> tuple[dict[str, Value], int]:
    """Return the categories of each column of text among `columns`, and how many categories were not told.

    Raises
    ------
    TaskError
        A column has too many or too long categories.
    """
    texts: dict[str, Value] = {}
    withheld = 0
    for name in columns:
        own = data.categories.get(name)
        if own is None:
            continue
        if len(own) > MAX_CATEGORIES or not all(0 < len(text) <= MAX_LENGTH for text in own):
            raise TaskError(
                f"column {name!r} has {len(own)} different texts here; at most {MAX_CATEGORIES}, of 1 to {MAX_LENGTH} "
                "characters, make categories"
            )
        codes = data.X[:, data.features.index(name)].astype(np.intp)
        rows = np.bincount(codes, minlength=len(own))
        texts[name] = [text for text, count in zip(own, rows, strict=True) if count >= max(1, min_count)]
        withheld += int(np.count_nonzero((rows > 0) & (rows < min_count)))
    return texts, withheld


def _check_texts(texts: Any, what: str, most: int) -> None:
    if not isinstance(texts, list) or len(texts) > most:
        raise ContributionError(f"{what} must be a list of {most} texts at most")
    if not all(isinstance(text, str) and 0 < len(text) <= MAX_LENGTH for text in texts):
        raise ContributionError(f"{what} must be texts of 1 to {MAX_LENGTH} characters")
    if texts != sorted(set(texts)):
        raise ContributionError(f"{what} must be in lexicographic order, each once")


def check_categories(categories: Any, columns: Sequence[str], rows: int, min_count: int) -> None:
    """Raise ContributionError unless `categories` can be a true answer of :func:`tell_categories` over `rows` rows."""
    if not isinstance(categories, dict) or not set(categories) <= set(columns):
        raise ContributionError("categories must be lists of texts by column, of columns that were asked for")
    for name, texts in categories.items():
        _check_texts(texts, f"the categories of {name!r}", MAX_CATEGORIES)
        if len(texts) * max(1, min_count) > rows:
            raise ContributionError(f"{len(texts)} categories of {name!r} need more than {rows} rows")


def union_of_categories(answers: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the categories of each column that any answer tells, in lexicographic order.

    Raises
    ------
    RunFailedError
        ``no-categories``: a column of text of which no category may be told; or there are too many in all.
    """
    union: dict[str, set[str]] = {}
    for answer in answers:
        for name, texts in answer.items():
            union.setdefault(name, set()).update(texts)
    for name, texts in union.items():
        if not texts:
            raise RunFailedError(
                f"column {name!r} holds text, and no vehicle has one of its categories in enough rows to tell it; "
                "leave the column out, or lower min_count",
                "no-categories",
            )
        if len(texts) > MAX_CATEGORIES:
            raise RunFailedError(f"column {name!r} has {len(texts)} categories, at most {MAX_CATEGORIES} are possible")
    return {name: sorted(union[name]) for name in sorted(union)}


def encode_inputs(data: Dataset, domain: Domain) -> NDArray[np.float64]:
    """Return the inputs of `data`, whose columns are those of `domain`, with categories as the domain's codes.

    Raises
    ------
    TaskError
        A column holds categories here and numbers in the run, or the other way round.
    """
    X = data.X
    for index, variable in enumerate(domain.features):
        own, column = data.categories.get(variable.name), data.X[:, index]
        if own is None and variable.categories and np.isnan(column).all():  # no cell says that the column is of text
            own, column = (MISSING,), np.zeros(data.rows)
        if (own is None) == (not variable.categories):
            if own is None or own == variable.categories:
                continue
        elif own is not None:
            raise TaskError(f"column {variable.name!r} holds categories here, numbers in the run")
        elif data.rows and not _are_codes(column, len(variable.categories)):
            raise TaskError(f"column {variable.name!r} holds numbers here, categories in the run")
        else:
            continue  # codes of the agreed categories already
        if X is data.X:
            X = X.copy()
        if own:
            codes = np.array([code_of(text, variable.categories) for text in own])
            X[:, index] = codes[column.astype(np.intp)]
    return X


def code_of(text: str, categories: Sequence[str]) -> float:
    """Return the position of a category among those of a domain.

    One that the domain does not have stands half a step before the next one in lexicographic order, so that it is on
    the same side of any split as its neighbours.
    """
    at = int(np.searchsorted(np.array(categories, dtype=np.str_), text))
    return float(at) if at < len(categories) and categories[at] == text else at - 0.5


def _are_codes(column: NDArray[np.float64], size: int) -> bool:
    twice = column * 2.0
    return bool(((column >= -0.5) & (column <= size - 0.5) & (twice == np.rint(twice))).all())


def count_labels(data: Dataset, target: str, min_count: int) -> tuple[dict[str, Value], int]:
    """Return ``{labels, label_rows}`` of the rows in `data`, and how many labels were not told.

    Raises
    ------
    TaskError
        The target is another one, or numeric, or has too many or too long labels.
    """
    if data.target != target:
        raise TaskError(f"the target here is {data.target!r}, not {target!r}")
    if data.y.dtype.kind not in "UO":
        raise TaskError(f"target {target!r} is numeric here, the run needs class labels; read it as text (labels)")
    labels, rows = np.unique(data.y.astype(np.str_), return_counts=True)
    if labels.size > MAX_LABELS or any(len(label) > MAX_LENGTH or not label for label in labels.tolist()):
        raise TaskError(
            f"target {target!r} has {labels.size} different labels here; at most {MAX_LABELS}, of 1 to {MAX_LENGTH} "
            "characters, make classes"
        )
    enough = rows >= min_count
    kept = {"labels": labels[enough].tolist(), "label_rows": rows[enough].astype(np.int64)}
    return kept, int(np.count_nonzero(~enough))


def check_labels(values: Mapping[str, Any], rows: int, min_count: int) -> None:
    """Raise ContributionError unless `values` can be a true answer of :func:`count_labels` over `rows` rows."""
    if set(values) != {"labels", "label_rows"}:
        raise ContributionError("expected the labels and their rows")
    labels, counts = values["labels"], values["label_rows"]
    _check_texts(labels, "labels", MAX_LABELS)
    if any(label.endswith("\0") for label in labels):
        raise ContributionError("a label must not end with a NUL character: arrays of texts do not keep it")
    if not isinstance(counts, np.ndarray) or counts.dtype != np.int64 or counts.shape != (len(labels),):
        raise ContributionError("label_rows must be an int64 array, one count per label")
    if counts.size and (int(counts.min()) < max(min_count, 1) or int(counts.max()) > rows or int(counts.sum()) > rows):
        raise ContributionError(f"label_rows must be at least {max(min_count, 1)} and add up to {rows} rows at most")


def union_of(answers: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the labels of all answers, in lexicographic order, with the rows of each."""
    total: dict[str, int] = {}
    for answer in answers:
        for label, rows in zip(answer["labels"], answer["label_rows"].tolist(), strict=True):
            total[label] = total.get(label, 0) + rows
    return dict(sorted(total.items()))
