"""A vehicle's rows, as the client halves see them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


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
        Inputs in their own units, finite; NaN where a cell is empty.
    y : ndarray, shape (n,)
        Target: float64 and finite for regression, text labels for classification.
    categories : Mapping of str to tuple of str
        Of each column of text: its categories here, in lexicographic order; its column of `X` holds positions among
        them. Another vehicle may have others: a scheme that takes categories maps them to the domain's.
    key : bytes
        A secret of the vehicle, by which made-up rows are drawn (:mod:`glassfleet.data.condense`); empty where rows
        need no protection.
    memo : dict
        A cache for the client halves (scaled rows, memberships, path strengths). It never changes an answer.
    weights : ndarray of int64, shape (n,), or None
        How much each row counts, >= 1, in parts of a row; None: all as one. Schemes that know no weights do not look.
    parts : int
        So many of these parts are a row.
    """

    features: tuple[str, ...]
    target: str
    X: NDArray[np.float64]
    y: NDArray[Any]
    memo: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    key: bytes = field(default=b"", compare=False, repr=False)
    weights: NDArray[np.int64] | None = None
    parts: int = 1

    def __post_init__(self) -> None:
        if self.X.ndim != 2 or self.X.shape[1] != len(self.features):
            raise ValueError(f"X has shape {self.X.shape}, expected (n, {len(self.features)})")
        if self.y.shape != (self.X.shape[0],):
            raise ValueError(f"y has shape {self.y.shape}, expected ({self.X.shape[0]},)")
        if np.isinf(self.X).any() or (self.y.dtype.kind == "f" and not np.isfinite(self.y).all()):
            raise ValueError("X and y must be finite")

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.X.shape[0])

    def at(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_]) -> Dataset:
        """Return some of the rows: a slice, their places, or a mask."""
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, X=self.X[rows], y=self.y[rows], memo={}, weights=weights)

    def select(self, features: Sequence[str]) -> Dataset:
        """Return the columns `features`, in that order; raises KeyError naming the first that is missing."""
        if tuple(features) == self.features:
            return self
        position = {name: index for index, name in enumerate(self.features)}
        columns = [position[name] for name in features]
        kept = {name: self.categories[name] for name in features if name in self.categories}
        X = self.X[:, columns]
        return replace(self, features=tuple(features), X=X, memo={}, categories=kept)


def remembered(memo: dict[Any, Any], what: Hashable, key: object, make: Callable[[], T]) -> T:
    """Return what `make` makes for `key`; the latest of each `what` is kept in `memo`."""
    known: tuple[object, T] | None = memo.get(what)
    if known is None or known[0] != key:
        known = memo[what] = (key, make())
    return known[1]


def pool(parts: Sequence[Dataset]) -> Dataset:
    """Join the rows of several datasets, in the given order: what a central server would hold."""
    if not parts:
        raise ValueError("nothing to pool")
    first = parts[0]
    columns = [part.select(first.features) for part in parts]
    union = _union_of_categories(columns)
    return Dataset(
        first.features,
        first.target,
        np.concatenate([_recoded(part, union) for part in columns]),
        np.concatenate([part.y for part in columns]),
        categories=union,
    )


def _union_of_categories(parts: Sequence[Dataset]) -> dict[str, tuple[str, ...]]:
    """Return all categories of each column of text; raises ValueError where only some parts have text in it."""
    union: dict[str, tuple[str, ...]] = {}
    for name in {name: None for part in parts for name in part.categories}:
        texts = [part.categories.get(name) for part in parts if part.rows]
        if any(own is None for own in texts):
            raise ValueError(f"column {name!r} holds text in some of the datasets and numbers in others")
        union[name] = tuple(sorted({text for part in parts for text in part.categories.get(name, ())}))
    return union


def _recoded(part: Dataset, union: Mapping[str, tuple[str, ...]]) -> NDArray[np.float64]:
    """Return the inputs with the positions of categories among those of all datasets."""
    X = part.X
    for name, texts in union.items():
        own = part.categories.get(name)
        if own and own != texts:
            X = X.copy() if X is part.X else X
            place = {text: number for number, text in enumerate(texts)}
            column = part.features.index(name)
            codes = np.array([place[text] for text in own], dtype=np.float64)
            X[:, column] = codes[part.X[:, column].astype(np.intp)]
    return X
