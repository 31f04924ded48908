"""The best cut of many nodes at once, as CART finds it: midpoints, least Gini index or squared error.

All nodes of a level, of all trees that are fitted together, are one list of entries (node, row) sorted by the node and
the value of its input. Running sums over that list give, for every place between two different values, what the cut
there would leave; a maximum per node finds the cut. No loop runs over rows or nodes.

Minimising the weighted impurity of the two sides is maximising ``sum_k l_k^2 / l + sum_k r_k^2 / r``, with the rows of
class k on the left and right (Gini), or the sums of the target in place of ``l_k`` and ``r_k`` (squared error). Ties go
to the lowest cut.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.rows import known_class_numbers, select_columns, select_numbers
from glassfleet.data.categories import encode_inputs
from glassfleet.data.dataset import Dataset, remembered
from glassfleet.data.domain import Domain
from glassfleet.numerics.statistics import to_grid

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Sets:
    """Sets of rows, one after the other.

    Attributes
    ----------
    rows : ndarray of intp
        Row numbers, set by set.
    count : ndarray of intp, shape (R,)
        Size of each set.
    """

    rows: Rows
    count: NDArray[np.intp]

    @property
    def start(self) -> NDArray[np.intp]:
        """Where each set begins."""
        return np.cumsum(self.count) - self.count

    def number(self) -> NDArray[np.intp]:
        """Return the set of each entry."""
        return np.repeat(np.arange(len(self.count)), self.count)

    def take(self, which: NDArray[np.intp]) -> Sets:
        """Return the sets `which`, in that order, perhaps some of them several times."""
        count = self.count[which]
        ends = np.cumsum(count)
        at = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(self.start[which] - (ends - count), count)
        return Sets(self.rows[at], count)


@dataclass(frozen=True)
class Summary:
    """What the rows of each set say: class counts, shape (R, K), or (sum of targets) of shape (R, 1); and purity."""

    total: NDArray[np.float64]
    count: NDArray[np.intp]
    pure: NDArray[np.bool_]


def summarise(columns: Columns, sets: Sets) -> Summary:
    """Add up each set."""
    size, number, y = len(sets.count), sets.number(), columns.y[sets.rows]
    if columns.classes:
        k = columns.classes
        held = np.bincount(number * k + y, minlength=size * k).reshape(size, k).astype(np.float64)
        return Summary(held, sets.count, held.max(axis=1) == sets.count)
    total = np.bincount(number, weights=y, minlength=size).reshape(size, 1).astype(np.float64, copy=False)
    if not len(y):
        return Summary(total, sets.count, np.ones(size, dtype=np.bool_))
    # The first row of a set stands for it; an empty set's index is never looked at.
    first = y[np.minimum(sets.start, len(y) - 1)]
    differs = np.bincount(number, weights=y != first[number], minlength=size)
    return Summary(total, sets.count, differs == 0)


@dataclass(frozen=True)
class Cuts:
    """The best cut of each set.

    Attributes
    ----------
    ordered : Sets
        The same sets, each in the order of its input.
    left : ndarray of intp, shape (S,)
        How many rows of the set go left; 0 where the input is constant there.
    threshold : ndarray of float64, shape (S,)
        Midpoint of the two values beside the cut; 0 where there is none.
    gain : ndarray of float64, shape (S,)
        The sum that the cut maximises; -1 where there is none.
    """

    ordered: Sets
    left: NDArray[np.intp]
    threshold: NDArray[np.float64]
    gain: NDArray[np.float64]


def best_cuts(columns: Columns, sets: Sets, feature: NDArray[np.intp], total: NDArray[np.float64]) -> Cuts:
    """Return the best cut of each set on its `feature`, shape (S,).

    Parameters
    ----------
    sets : Sets
        None of them empty.
    total : ndarray of float64, shape (S, K)
        Of :class:`Summary`.
    """
    number = sets.number()
    n = columns.rows
    which = feature[number]
    key = number * n + columns.position[which, sets.rows]
    key.sort()
    rows = columns.order[which, key - number * n]
    return cut_ordered(columns, Sets(rows, sets.count), number, columns.X[rows, which], total)


def cut_ordered(
    columns: Columns, sets: Sets, number: NDArray[np.intp], value: NDArray[np.float64], total: NDArray[np.float64]
) -> Cuts:
    """Return the best cut of sets that are in the order of their inputs already; see :func:`best_cuts`.

    Parameters
    ----------
    number : ndarray of intp
        The set of each entry.
    value : ndarray of float64
        The input of each entry.
    """
    rows, start = sets.rows, sets.start
    within = np.arange(len(rows)) - start[number]
    possible = np.empty(len(rows), dtype=np.bool_)
    possible[:-1] = (value[1:] != value[:-1]) & (number[1:] == number[:-1])
    possible[-1:] = False
    at = np.flatnonzero(possible)
    nobody = np.zeros(len(sets.count), dtype=np.intp)
    if not at.size:
        nothing = np.zeros(len(nobody))
        return Cuts(Sets(rows, sets.count), nobody, nothing, nothing - 1.0)
    inside = number[at]
    n_left = (within[at] + 1).astype(np.float64)
    n_right = sets.count[inside] - n_left
    left_squares, right_squares = _squares(columns, rows, start, total, at, inside)
    gain = left_squares / n_left + right_squares / n_right
    some = np.flatnonzero(np.diff(inside, prepend=-1))
    owner = inside[some]
    best = np.maximum.reduceat(gain, some)
    top = np.flatnonzero(gain == np.repeat(best, np.diff(some, append=len(at))))
    chosen = at[top[np.searchsorted(inside[top], owner)]]
    left, threshold, gains = nobody, np.zeros(len(nobody)), np.full(len(nobody), -1.0)
    left[owner] = within[chosen] + 1
    threshold[owner] = _midpoint(value[chosen], value[chosen + 1])
    gains[owner] = best
    return Cuts(Sets(rows, sets.count), left, threshold, gains)


def _squares(  # noqa: PLR0917 - the pieces of one computation, cut out to be read
    columns: Columns,
    rows: Rows,
    start: NDArray[np.intp],
    total: NDArray[np.float64],
    at: NDArray[np.intp],
    inside: NDArray[np.intp],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sum_k l_k^2 and sum_k r_k^2 at the places `at`."""
    y = columns.y[rows]
    left_squares, right_squares = np.zeros(len(at)), np.zeros(len(at))
    for k in range(max(1, columns.classes)):
        # Integers: what stands before a set in the list cannot change what is found in it.
        running = np.cumsum(y == k if columns.classes else y, dtype=np.int64)
        before = np.where(start > 0, running[start - 1], 0)
        left = (running[at] - before[inside]).astype(np.float64)
        right = total[inside, k] - left
        left_squares += left * left
        right_squares += right * right
    return left_squares, right_squares


def _midpoint(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the middle of two neighbours, never the upper one itself (rounding), so that `low` goes left alone."""
    middle = low * 0.5 + high * 0.5
    return np.where(middle >= high, low, middle)


def part(columns: Columns, sets: Sets, feature: NDArray[np.intp], threshold: NDArray[np.float64]) -> Sets:
    """Cut each set in two by a given threshold: left of set 0, right of set 0, left of set 1, ..."""
    number = sets.number()
    goes = columns.X[sets.rows, feature[number]] > threshold[number]
    side = 2 * number + goes
    # A row occurs once in a set, so the key is unique and any sort gives the same order.
    key = side * (columns.rows + 1) + sets.rows
    key.sort()
    count = np.bincount(side, minlength=2 * len(sets.count))
    rows = key - np.repeat(np.arange(2 * len(sets.count)), count) * (columns.rows + 1)
    return Sets(rows, count)


# --- A vehicle's rows, prepared for crisp trees: numbers, orders of every column, classes as numbers ------------------


MEMO = "crisp"
GRID_BITS = 30
"""Fraction bits of a numeric target."""

GRID = float(1 << GRID_BITS)


@dataclass(frozen=True)
class Columns:
    """Rows whose label, for classes, is one of the run's.

    Attributes
    ----------
    X : ndarray of float64, shape (n, F)
        Inputs in their own units; categories as positions among the domain's categories.
    y : ndarray of int64, shape (n,)
        Class numbers; or the target, scaled and rounded to multiples of 2^-GRID_BITS, in those units: sums of integers
        are exact, so that what a tree scores does not depend on what else is scored with it.
    classes : int
        Number of classes; 0 for a numeric target.
    order : ndarray of intp, shape (F, n)
        Row numbers of every column, in increasing order of its values.
    position : ndarray of intp, shape (F, n)
        Where each row stands in `order`.
    unknown : int
        Rows left out because the run does not know their label.
    """

    X: NDArray[np.float64]
    y: NDArray[np.int64]
    classes: int
    order: NDArray[np.intp]
    position: NDArray[np.intp]
    unknown: int = 0

    @classmethod
    def of(cls, X: NDArray[np.float64], y: NDArray[np.int64], classes: int, unknown: int = 0) -> Columns:
        """Sort every column once."""
        order = np.ascontiguousarray(np.argsort(X, axis=0, kind="stable").T)
        position = np.empty_like(order)
        np.put_along_axis(position, order, np.arange(X.shape[0], dtype=np.intp)[None, :], axis=1)
        return cls(np.ascontiguousarray(X), y, classes, order, position, unknown)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    @property
    def features(self) -> int:
        """Number of inputs, F."""
        return int(self.X.shape[1])


def prepare(data: Dataset, domain: Domain) -> Columns:
    """Return the rows of `data` for a run with `domain`, kept in the dataset's memo.

    Raises
    ------
    TaskError
        The vehicle lacks a column, has another target or one of the other kind, or has none of the run's classes.
    """
    return remembered(data.memo, MEMO, domain, lambda: _columns(data, domain))


def _columns(data: Dataset, domain: Domain) -> Columns:
    if domain.target is not None:
        chosen = select_numbers(data, domain)
        y = to_grid(domain.scale_target(chosen.y), GRID_BITS).astype(np.int64)
        return Columns.of(encode_inputs(chosen, domain), y, 0)
    chosen, y = select_columns(data, domain), known_class_numbers(data, domain)
    here = y >= 0
    X = encode_inputs(chosen, domain)[here]
    return Columns.of(X, y[here], len(domain.classes), int(here.size - np.count_nonzero(here)))
