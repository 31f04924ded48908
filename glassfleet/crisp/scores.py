"""Fitness of trees from what their leaves hold: F1 from counts, squared error from sums."""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

from glassfleet.crisp.columns import GRID, Columns, Rows
from glassfleet.crisp.cuts import Sets, Summary
from glassfleet.evaluation.f1 import class_f1


class TreeTally:
    """Adds up, for several trees, what their leaves say about the test rows.

    Parameters
    ----------
    columns : Columns
    size : int
        Number of trees.
    test : ndarray of intp
        The test rows.
    """

    def __init__(self, columns: Columns, size: int, test: Rows) -> None:
        self._columns = columns
        self._size = size
        self._rows = len(test)
        k = columns.classes
        if k:
            self._true = np.bincount(columns.y[test], minlength=k)
            self._counts = {part: np.zeros((size, k), dtype=np.int64) for part in ("right", "said")}
        else:
            self._error = np.zeros(size)

    def copy(self) -> TreeTally:
        """Return a tally that goes on from here."""
        return copy.deepcopy(self, {id(self._columns): self._columns})

    def add(self, summary: Summary, test: Sets, owner: NDArray[np.intp], held: NDArray[np.intp]) -> None:
        """Count leaves: tree `owner[i]` answers the test rows of set `held[i]` by the training rows of that set."""
        if not len(owner):
            return
        k, number = self._columns.classes, test.number()
        y = self._columns.y[test.rows]
        sets = len(test.count)
        if k:
            answer = summary.total.argmax(axis=1)
            right = np.bincount(number, weights=y == answer[number], minlength=sets).astype(np.int64)
            where = owner * k + answer[held]
            for part, counts in (("right", right), ("said", test.count)):
                added = np.bincount(where, weights=counts[held], minlength=self._size * k)
                self._counts[part] += added.astype(np.int64).reshape(self._size, k)
        else:
            mean = summary.total[:, 0] / np.maximum(summary.count, 1) / GRID
            error = np.bincount(number, weights=(y / GRID - mean[number]) ** 2, minlength=sets)
            self._error += np.bincount(owner, weights=error[held], minlength=self._size)

    def fitness(self, positive: int | None) -> NDArray[np.float64]:
        """Return F1 of class `positive`, or its mean over classes, or minus the mean squared error; shape (size,)."""
        if not self._columns.classes:
            return -self._error / max(1, self._rows)
        return f1(self._counts["right"], self._counts["said"], self._true, positive)


def f1(
    right: NDArray[np.int64], predicted: NDArray[np.int64], true: NDArray[np.int64], positive: int | None
) -> NDArray[np.float64]:
    """Return one F1 for all classes, which are the last axis of the counts.

    Parameters
    ----------
    positive : int or None
        Of which class; None: the mean over the classes that are there or were said. 0 where there is nothing.
    """
    score = class_f1(right, predicted, true)
    if positive is not None:
        chosen: NDArray[np.float64] = score[..., positive]
        return chosen
    result: NDArray[np.float64] = score.sum(axis=-1) / np.maximum((predicted + true > 0).sum(axis=-1), 1)
    return result
