"""A vehicle's rows as tree learns from them: condensed, scaled, with levels for categories, some held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.rows import class_numbers, known_class_numbers, select_columns, select_numbers
from glassfleet.data.categories import encode_inputs
from glassfleet.data.condense import condensed
from glassfleet.data.dataset import Dataset, remembered
from glassfleet.data.domain import Domain
from glassfleet.data.sampling import is_first, is_held_out, row_hashes
from glassfleet.fuzzy.levels import Levels, scaled_inputs
from glassfleet.numerics.statistics import blocks

MOST_TIMES = 64
"""What a row may count at a time, so that sums of products of few rows stay exact."""

MANY_ROWS = 1 << 18
"""More than these are no vehicle's: a library that saves time then may take its room."""

BLOCK_ROWS = 1 << 13
"""Rows of a block: what is computed of them fits into a processor's cache, and outweighs the calls."""


@dataclass(frozen=True)
class TrainingRows:
    """Rows for one domain.

    Attributes
    ----------
    domain : Domain
    X : ndarray of float64, shape (m, F)
        The domain's features in their own units, with empty cells; categories as positions among the domain's.
    order : ndarray of intp, shape (n,)
        Which of `X` the rows are: not a copy of what the vehicle has in memory.
    y : ndarray, shape (n,)
        The scaled target (float64), or class numbers (int64).
    training : int
        So many rows come first; the others are held out.
    levels : tuple of tuple of float
        Of categories, see :mod:`glassfleet.fuzzy.levels`; empty where there are none, or not yet.
    memo : dict
        A cache for what follows from the inputs.
    times : ndarray of float64, shape (n,), or None
        How often each row counts, a whole number up to :data:`MOST_TIMES`; None: all once.
    parts : int
        So many times are one row.
    many : bool
        Whether the table, of which these may be a block, has more rows than a vehicle.
    """

    domain: Domain
    X: NDArray[np.float64]
    order: NDArray[np.intp]
    y: NDArray[Any]
    training: int
    levels: Levels = ()
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    times: NDArray[np.float64] | None = None
    parts: int = 1
    many: bool = False

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def total(self) -> int:
        """Number of rows, each as often as it counts."""
        return self.count if self.times is None else int(self.times.sum())

    @property
    def weighed(self) -> tuple[int, int]:
        """How many rows train and are held out, by their weights; a part of a row counts as one."""
        if self.times is None:
            return self.training, self.count - self.training
        sums = [int(part.sum()) for part in (self.times[: self.training], self.times[self.training :])]
        return -(-sums[0] // self.parts), -(-sums[1] // self.parts)

    @property
    def part(self) -> int:
        """Of a block: 0 of training rows, 1 of those held out."""
        return int(self.training == 0)

    def times_of(self, chosen: slice | NDArray[np.intp]) -> NDArray[np.float64] | None:
        """Return how often chosen rows count; None: all once."""
        return None if self.times is None else self.times[chosen]

    @property
    def completed(self) -> NDArray[np.float64]:
        """The domain's inputs in their own units, shape (n, F): made anew, as excess and indicators take much room."""
        return self.domain.completed(self.X[self.order])

    @property
    def every(self) -> NDArray[np.float64]:
        """All inputs in [0, 1], shape (F, n); made anew, as are :attr:`completed`."""
        return np.minimum(scaled_inputs(self.domain, self.levels, self.completed), 1.0)  # excess may be more

    @cached_property
    def inputs(self) -> NDArray[np.float64]:
        """Those that may be split on, all but the excess, which comes last; shape (F', n)."""
        return self.every[: len(self.domain.inputs) - len(self.domain.excess)].copy()

    def columns(self, regressors: Sequence[int]) -> NDArray[np.float64]:
        """Return the columns ``[1, x]``, shape (k, n); of excess those of the latest regressors are kept."""
        last = len(self.inputs)
        plain = self.inputs[[each for each in regressors if each < last]]
        beyond = tuple(each for each in regressors if each >= last)
        excess = remembered(self.memo, "excess", beyond, lambda: self.every[list(beyond)]) if beyond else plain[:0]
        return np.concatenate([np.ones((1, self.count)), plain, excess])

    @property
    def target(self) -> NDArray[np.float64]:
        """The target in [0, 1], shape (n,): of classes their numbers, at equal steps."""
        return self.y if self.domain.target else class_values(self.domain)[self.y]

    @cached_property
    def blocks(self) -> list[Self]:
        """The same rows in parts, at least one, for sums that add up; those held out in parts of their own."""
        return [
            replace(
                self,
                order=self.order[block],
                y=self.y[block],
                times=self.times_of(block),
                training=min(max(self.training - block.start, 0), block.stop - block.start),
                memo={},
            )
            for part in (blocks(self.training, BLOCK_ROWS), blocks(self.count, BLOCK_ROWS, self.training))
            for block in part
        ] or [self]

    @cached_property
    def hashes(self) -> NDArray[np.uint64]:
        """A hash of each row with a number as its target, shape (n,)."""
        return row_hashes(self.every, self.y)

    @cached_property
    def different(self) -> NDArray[np.bool_]:
        """Which rows are no repetition of another one, shape (n,)."""
        return is_first(self.hashes)


def class_values(domain: Domain) -> NDArray[np.float64]:
    """Return a value of the target in [0, 1] for each class, shape (C,)."""
    return np.arange(len(domain.classes)) / max(1, len(domain.classes) - 1)


def training_rows(data: Dataset, domain: Domain, min_rows: int, holdout: float, levels: Levels = ()) -> TrainingRows:
    """Return the rows of `data` for a run, prepared once and kept in the dataset's memo.

    Parameters
    ----------
    data : Dataset
    domain : Domain
        The run's. Rows of classes that it lacks are left out.
    min_rows : int
        Fewest rows of a group of condensed rows; 1: rows are not condensed.
    holdout : float
        Share of the rows that are held out, in [0, 1).
    levels : tuple of tuple of float
        Of the domain's categories, where they are known.

    Raises
    ------
    TaskError
        The vehicle lacks a column, has another target or one of the other kind, or has none of the run's classes.
    """
    key = (domain, min_rows, holdout)
    plain = remembered(data.memo, "training rows", key, lambda: _prepared(data, *key))
    return remembered(plain.memo, "levels", levels, lambda: replace(plain, levels=levels, memo={}))


def _prepared(data: Dataset, domain: Domain, min_rows: int, holdout: float) -> TrainingRows:
    y: NDArray[Any]
    if domain.target is None:
        known_class_numbers(data, domain)
        own = condensed(select_columns(data, domain), domain, min_rows)
        y = class_numbers(own, domain)
        known = y >= 0
        X, y = encode_inputs(own, domain)[known], y[known]
    else:
        own = condensed(select_numbers(data, domain), domain, min_rows)
        X, y = encode_inputs(own, domain), domain.scale_target(own.y)
    held = np.empty(len(y), dtype=np.bool_)
    for block in blocks(len(y), BLOCK_ROWS):
        inputs = domain.scale_inputs(domain.completed(X[block]))
        held[block] = is_held_out(inputs.T, y[block].astype(np.float64), holdout)
    order = np.argsort(held, kind="stable")
    if own.weights is None:
        return TrainingRows(domain, X, order, y[order], int((~held).sum()), many=len(y) > MANY_ROWS)
    weights = own.weights if domain.target is not None else own.weights[known]
    pieces = -(-weights // MOST_TIMES)  # a heavy row stands there several times
    begins = np.cumsum(pieces[order]) - pieces[order]
    order, training = np.repeat(order, pieces[order]), int(pieces[~held].sum())
    before = MOST_TIMES * (np.arange(len(order)) - np.repeat(begins, pieces[order[begins]]))
    times = np.minimum(weights[order] - before, MOST_TIMES).astype(np.float64)
    return TrainingRows(domain, X, order, y[order], training, times=times, parts=own.parts)
