"""What people give estimators, as schemes take it: texts of a data frame's columns, names and labels of targets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.categories import MAX_LENGTH
from glassfleet.data.cells import MISSING, truth_of
from glassfleet.scheme import Scheme
from glassfleet.traits import takes_categories, takes_missing


def text_columns(tables: Sequence[Any]) -> set[str]:
    """Return the columns of data frames that are of text: to all of them, also where one has other cells alone."""
    frames = [table for table in tables if hasattr(table, "select_dtypes")]
    return {name for frame in frames for name, column in frame.items() if _has_text(column)}


def _has_text(column: Any) -> bool:
    return column.dtype.kind not in "bfciu" and any(isinstance(cell, str) for cell in column)


def coded(X: Any, scheme: Scheme, learner: str, texts: Collection[str] = ()) -> tuple[Any, dict[str, tuple[str, ...]]]:
    """Return a data frame with its texts as positions among them, and the texts by column; other rows as given.

    Columns `texts` are of text, though only whole numbers or empty cells may be here.

    Raises
    ------
    ValueError
        A column is of a kind that `scheme`, whose estimator is called `learner`, does not take.
    """
    categories: dict[str, tuple[str, ...]] = {}
    if not hasattr(X, "select_dtypes"):
        return X, categories
    for name, column in X.items():
        kind = column.dtype.kind
        if kind in "mM":
            raise ValueError(f"column {name!r} holds times: make numbers of it, e.g. the hour, or leave it out")
        if name not in texts and not _has_text(column):
            continue
        if kind in "bc" or (kind == "f" and not column.isna().all()):
            continue
        if not takes_categories(scheme):
            truth = truth_of(cell for cell in column if isinstance(cell, str))
            if truth is None:
                raise ValueError(f"column {name!r} holds text, and {learner} takes numbers: leave it out, or encode it")
            X = X.assign(**{name: column.map(truth)})
            continue
        if column.isna().any():
            if not takes_missing(scheme):
                raise ValueError(f"column {name!r} has empty cells: fill them, or leave these rows out")
            column = column.astype(object).where(column.notna(), MISSING)  # noqa: PLW2901
        own, codes = np.unique(column.astype(str).to_numpy(dtype=np.str_), return_inverse=True)
        X, categories[name] = X.assign(**{name: codes}), tuple(own.tolist())
    return X, categories


def without_sign_of_zero(labels: NDArray[Any]) -> NDArray[Any]:
    """Return labels; -0.0 becomes 0.0, which is the same label and another text."""
    return labels + 0 if labels.dtype.kind == "f" else labels


def name_of(y: Any) -> str:
    """Return the name of a column of targets as pandas knows it; ``"y"`` where it has none."""
    names = getattr(y, "columns", [getattr(y, "name", None)])
    return names[0] if len(names) == 1 and isinstance(names[0], str) and names[0] else "y"


def label_texts(labels: Iterable[Any]) -> list[str]:
    """Return labels as the texts that name them in documents and rules: 1 is ``"1"``."""
    texts = [str(label) for label in labels]
    for text in texts:
        if not 0 < len(text) <= MAX_LENGTH:
            raise ValueError(f"a class label must be a text of 1 to {MAX_LENGTH} characters, got {text[:20]!r}")
    return texts
