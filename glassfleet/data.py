"""A vehicle's rows, as the client halves see them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Dataset:
    """Rows of one vehicle (or, for a central reference, the pooled rows of several).

    Attributes
    ----------
    features : tuple of str
        Column names, in the order of the columns of `X`.
    target : str
        Name of the target.
    X : ndarray of float64, shape (n, F)
        Inputs in their own units, finite.
    y : ndarray, shape (n,)
        Target: float64 and finite for regression, text labels for classification.
    memo : dict
        A cache for the client halves (scaled rows, memberships, path strengths). It never changes an answer.
    """

    features: tuple[str, ...]
    target: str
    X: NDArray[np.float64]
    y: NDArray[Any]
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.X.ndim != 2 or self.X.shape[1] != len(self.features):
            raise ValueError(f"X has shape {self.X.shape}, expected (n, {len(self.features)})")
        if self.y.shape != (self.X.shape[0],):
            raise ValueError(f"y has shape {self.y.shape}, expected ({self.X.shape[0]},)")
        if not np.isfinite(self.X).all() or (self.y.dtype.kind == "f" and not np.isfinite(self.y).all()):
            raise ValueError("X and y must be finite")

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def select(self, features: Sequence[str]) -> Dataset:
        """Return the columns `features`, in that order; raises KeyError naming the first that is missing."""
        if tuple(features) == self.features:
            return self
        position = {name: index for index, name in enumerate(self.features)}
        columns = [position[name] for name in features]
        return Dataset(tuple(features), self.target, self.X[:, columns], self.y)


def pool(parts: Sequence[Dataset]) -> Dataset:
    """Join the rows of several datasets, in the given order: what a central server would hold."""
    if not parts:
        raise ValueError("nothing to pool")
    first = parts[0]
    columns = [part.select(first.features) for part in parts]
    return Dataset(
        first.features,
        first.target,
        np.concatenate([part.X for part in columns]),
        np.concatenate([part.y for part in columns]),
    )
