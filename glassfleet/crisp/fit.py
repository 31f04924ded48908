"""Fitting given structures to a vehicle's rows, all of them together, and scoring them.

The nodes of one level of all structures are fitted at once. Two nodes that are reached by the same splits hold the same
rows, and if they then split on the same input they find the same cut: such nodes are fitted once. A population that
has evolved for a while shares most of its upper nodes, so this saves most of the work.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.crisp.cuts import GRID, Columns, Rows, Sets, Summary, best_cuts, part, summarise
from glassfleet.crisp.forest import Forest
from glassfleet.crisp.tree import CrispTree
from glassfleet.evaluation.f1 import class_f1


@dataclass
class _Record:
    """What each node of the forest became, for those who want the trees."""

    split: NDArray[np.bool_]
    threshold: NDArray[np.float64]
    total: NDArray[np.float64]
    squares: NDArray[np.float64]
    rows: NDArray[np.float64]

    @classmethod
    def of(cls, forest: Forest, columns: Columns) -> _Record:
        n = len(forest.feature)
        zeros = [np.zeros(n) for _ in range(3)]
        return cls(np.zeros(n, dtype=np.bool_), zeros[0], np.zeros((n, max(1, columns.classes))), zeros[1], zeros[2])


def score_forest(
    columns: Columns, forest: Forest, train: Rows, test: Rows, *, positive: int | None
) -> NDArray[np.float64]:
    """Fit every structure to the rows `train` and return its fitness on the rows `test`.

    Parameters
    ----------
    forest : Forest
    train, test : ndarray of intp
        Row numbers, increasing; `train` has at least one.
    positive : int or None
        Class whose F1 is the fitness; None: the mean over the classes.

    Returns
    -------
    ndarray of float64, shape (C,)
        F1, or minus the mean squared error of the scaled target: higher is better.
    """
    tally = TreeTally(columns, forest.size, test)
    _fit(columns, forest, train, test, tally=tally)
    return tally.fitness(positive)


def fit_tree(columns: Columns, forest: Forest, train: Rows) -> CrispTree:
    """Return the tree that the one structure of `forest` becomes on the rows `train`, at least one."""
    assert forest.size == 1
    record = _Record.of(forest, columns)
    _fit(columns, forest, train, train[:0], record=record)
    return _assemble(columns, forest, record)


def _fit(
    columns: Columns,
    forest: Forest,
    train: Rows,
    test: Rows,
    *,
    tally: TreeTally | None = None,
    record: _Record | None = None,
) -> None:
    here, beyond = Sets(train, np.array([len(train)])), Sets(test, np.array([len(test)]))
    node, owner = forest.root, np.arange(forest.size)
    held = np.zeros(forest.size, dtype=np.intp)  # the set of rows at each node
    features = columns.features
    while node.size:
        summary = summarise(columns, here)
        wanted = forest.feature[node]
        opens = (wanted >= 0) & ~summary.pure[held]
        pair, place = np.unique(held[opens] * features + wanted[opens], return_inverse=True)
        source, feature = pair // features, pair % features
        cuts = best_cuts(columns, here.take(source), feature, summary.total[source])
        split = opens.copy()
        split[opens] = cuts.left[place] > 0
        if tally is not None:
            tally.add(summary, beyond, owner[~split], held[~split])
        if record is not None:
            record.total[node], record.rows[node] = summary.total[held], summary.count[held]
            if not columns.classes:
                record.squares[node] = spreads(columns, here)[held]
            record.split[node] = split
            record.threshold[node[opens]] = cuts.threshold[place]
        good = cuts.left > 0
        rank = np.cumsum(good) - 1  # of each cut among the good ones
        sons = np.where(split[opens], rank[place], 0)[split[opens]]
        here = _children(cuts.ordered, cuts.left, good)
        beyond = part(columns, beyond.take(source[good]), feature[good], cuts.threshold[good])
        node, owner = node[split], owner[split]
        node, owner, held = (
            np.concatenate([node + 1, forest.right[node]]),
            np.concatenate([owner, owner]),
            np.concatenate([2 * sons, 2 * sons + 1]),
        )


def _children(ordered: Sets, left: NDArray[np.intp], good: NDArray[np.bool_]) -> Sets:
    """Return left and right of every good cut; the sets are in the order of their input, so both are slices."""
    rows = ordered.rows if good.all() else ordered.rows[np.repeat(good, ordered.count)]
    count = np.empty(2 * int(good.sum()), dtype=np.intp)
    count[::2] = left[good]
    count[1::2] = ordered.count[good] - left[good]
    return Sets(rows, count)


def spreads(columns: Columns, sets: Sets) -> NDArray[np.float64]:
    """Return the mean squared distance of the scaled target from its mean, of each set; whatever the order of rows.

    Distances from the nearest whole number to the mean are split in two halves, whose products add up exactly.
    """
    number, y, size = sets.number(), columns.y[sets.rows], len(sets.count)
    rows = np.maximum(sets.count, 1)
    total = np.bincount(number, weights=y, minlength=size).astype(np.int64)
    centre = total // rows
    distance = y - centre[number]
    high, low = distance >> 15, distance & 0x7FFF
    squares, mixed, rest = (
        np.bincount(number, weights=product, minlength=size) for product in (high * high, high * low, low * low)
    )
    beside = (total - centre * sets.count).astype(np.float64) / rows
    mean = (squares * 2.0**30 + mixed * 2.0**16 + rest) / rows - beside * beside
    return np.maximum(mean, 0.0) / GRID**2


def _assemble(columns: Columns, forest: Forest, record: _Record) -> CrispTree:
    """Keep the nodes that are there: the root, and both children of every split; in pre-order."""
    n = len(forest.feature)
    there = np.zeros(n, dtype=np.bool_)
    level = forest.root
    while level.size:
        there[level] = True
        level = level[record.split[level]]
        level = np.concatenate([level + 1, forest.right[level]])
    kept = np.flatnonzero(there)
    new = np.cumsum(there) - 1
    split = record.split[kept]
    rows = record.rows[kept]
    return finish_tree(
        columns,
        feature=np.where(split, forest.feature[kept], -1).astype(np.int32),
        threshold=np.where(split, record.threshold[kept], 0.0),
        right=np.where(split, new[np.where(split, forest.right[kept], 0)], -1).astype(np.intp),
        total=record.total[kept],
        variance=record.squares[kept],
        rows=rows,
    )


def finish_tree(
    columns: Columns,
    *,
    feature: NDArray[np.int32],
    threshold: NDArray[np.float64],
    right: NDArray[np.intp],
    total: NDArray[np.float64],
    variance: NDArray[np.float64],
    rows: NDArray[np.float64],
) -> CrispTree:
    """Turn sums into shares or scaled means, and into impurities."""
    size = np.maximum(rows, 1.0)[:, None]
    if columns.classes:
        value = total / size
        impurity = np.maximum(1.0 - (value * value).sum(axis=1), 0.0)
    else:
        value, impurity = total / size / GRID, variance
    return CrispTree(feature, threshold, right, value, rows, impurity)


# --- fitness of trees from what their leaves hold: F1 from counts, squared error from sums ----------------------------


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
