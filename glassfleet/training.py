"""A vehicle's rows for learners that hold some of them out: condensed, scaled, those held out last."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.categories import encode_inputs
from glassfleet.data.condense import condensed
from glassfleet.data.dataset import Dataset, remembered
from glassfleet.data.domain import Domain
from glassfleet.data.holdout import is_held_out
from glassfleet.fuzzy.levels import Levels, scaled_inputs
from glassfleet.untrusted import class_numbers, known_class_numbers, select_columns, select_numbers


@dataclass(frozen=True)
class TrainingRows:
    """Rows for one domain.

    Attributes
    ----------
    domain : Domain
    X : ndarray of float64, shape (n, F)
        The domain's inputs in their own units; categories as positions among the domain's.
    y : ndarray, shape (n,)
        The scaled target (float64), or class numbers (int64).
    training : int
        So many rows come first; the others are held out.
    levels : tuple of tuple of float
        Of categories, see :mod:`glassfleet.fuzzy.levels`; empty where there are none, or not yet.
    memo : dict
        A cache for what follows from the inputs.
    """

    domain: Domain
    X: NDArray[np.float64]
    y: NDArray[Any]
    training: int
    levels: Levels = ()
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def count(self) -> int:
        """Number of rows."""
        return len(self.y)

    @cached_property
    def inputs(self) -> NDArray[np.float64]:
        """The inputs in [0, 1], shape (F, n)."""
        return scaled_inputs(self.domain, self.levels, self.X)


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
        X, y = domain.completed(encode_inputs(own, domain))[y >= 0], y[y >= 0]
    else:
        own = condensed(select_numbers(data, domain), domain, min_rows)
        X, y = domain.completed(encode_inputs(own, domain)), domain.scale_target(own.y)
    held = is_held_out(domain.scale_inputs(X).T, y.astype(np.float64), holdout)
    order = np.argsort(held, kind="stable")
    return TrainingRows(domain, X[order], y[order], int((~held).sum()))
