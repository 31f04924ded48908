"""A vehicle's rows, prepared for crisp trees: numbers, orders of every column, classes as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.rows import known_class_numbers, select_columns, select_numbers
from glassfleet.data.categories import encode_inputs
from glassfleet.data.dataset import Dataset, remembered
from glassfleet.data.domain import Domain
from glassfleet.numerics.statistics import to_grid

MEMO = "crisp"
GRID_BITS = 30
"""Fraction bits of a numeric target."""

GRID = float(1 << GRID_BITS)

Rows = NDArray[np.intp]


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
