"""F1 from counts of rows by class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

MOST_CONFUSED: Final = 16
"""Of models with more classes than that, no confusion matrix is told."""


def class_counts(
    predicted: NDArray[Any], true: NDArray[Any], classes: Sequence[Any] | NDArray[Any]
) -> tuple[Counts, Counts, Counts]:
    """Return for each class how many rows are right, are said to be of it, and are of it; each of shape (classes,)."""
    is_said, is_so = (np.array([labels == label for label in classes]) for labels in (predicted, true))
    return (is_said & is_so).sum(axis=1), is_said.sum(axis=1), is_so.sum(axis=1)


def confusion(true: NDArray[Any], named: NDArray[Any], classes: Sequence[str]) -> Counts:
    """Return how many rows of each class are said to be of each, shape (classes + 1, classes + 1).

    A line is what rows are, a column what is said of them; the last of each is any other label.
    """
    size = len(classes) + 1
    place = {label: at for at, label in enumerate(classes)}
    line, column = (np.array([place.get(str(each), size - 1) for each in labels], np.intp) for labels in (true, named))
    return np.bincount(line * size + column, minlength=size * size).reshape(size, size)


def class_f1(right: Counts, predicted: Counts, true: Counts) -> NDArray[np.float64]:
    """Return F1 = 2 right / (said + true) of each class, in [0, 1]; 0 for one that is neither there nor said."""
    result: NDArray[np.float64] = 2.0 * right / np.maximum(predicted + true, 1)
    return result


def macro_f1(right: Counts, predicted: Counts, true: Counts) -> float:
    """Return the mean F1 over the classes that are there; some must be."""
    return float(np.mean(class_f1(right, predicted, true)[true > 0]))
