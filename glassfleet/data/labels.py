"""Class labels, found federatedly: the union of the vehicles' labels with their counts, a part of domain discovery.

A vehicle tells its labels and how many rows have each; a label with fewer rows than the run's ``min_count`` stays at
home. The union, in lexicographic order, becomes the domain's classes. Rows whose label no vehicle told are left out by
the classifiers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from glassfleet.data.dataset import Dataset
from glassfleet.errors import ContributionError, TaskError
from schemas.codec import Value

MAX_LABELS: Final = 4096
"""Most different labels of a vehicle: a column with more is hardly a class."""

MAX_LABEL: Final = 200
"""Most characters of a label."""


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
    if labels.size > MAX_LABELS or any(len(label) > MAX_LABEL or not label for label in labels.tolist()):
        raise TaskError(
            f"target {target!r} has {labels.size} different labels here; at most {MAX_LABELS}, of 1 to {MAX_LABEL} "
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
    if not isinstance(labels, list) or len(labels) > MAX_LABELS:
        raise ContributionError(f"labels must be a list of {MAX_LABELS} texts at most")
    if not all(isinstance(label, str) and 0 < len(label) <= MAX_LABEL for label in labels):
        raise ContributionError(f"a label must be a text of 1 to {MAX_LABEL} characters")
    if any(label.endswith("\0") for label in labels):
        raise ContributionError("a label must not end with a NUL character: arrays of texts do not keep it")
    if labels != sorted(set(labels)):
        raise ContributionError("labels must be in lexicographic order, each once")
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
