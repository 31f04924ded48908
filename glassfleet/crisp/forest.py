"""Structures: binary trees that hold features only, several of them side by side, and how they travel.

A structure is its nodes in pre-order, left before right; every node that splits has two children, and a node that does
not split is nil. The list delimits itself: with +1 for a split and -1 for nil, the running sum first falls below 0 at
the end of the tree. The right child of a split is the next place where the running sum has the split's own value, which
finds all children of all structures with one sort.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

NIL = -1

Genes = NDArray[np.int32]
"""A structure: features in pre-order, -1 where nothing is split."""


@dataclass(frozen=True)
class Forest:
    """Structures, one after the other.

    Attributes
    ----------
    feature : ndarray of int32, shape (N,)
        Features of all structures in pre-order, -1 for nil.
    root : ndarray of intp, shape (C,)
        Where each structure begins.
    """

    feature: Genes
    root: NDArray[np.intp]

    @classmethod
    def of(cls, structures: Sequence[Genes]) -> Forest:
        """Put structures side by side; they are trusted to be well formed."""
        lengths = np.array([len(genes) for genes in structures], dtype=np.intp)
        return cls(
            np.concatenate([*structures, np.empty(0, dtype=np.int32)]).astype(np.int32), np.cumsum(lengths) - lengths
        )

    @property
    def size(self) -> int:
        """Number of structures, C."""
        return len(self.root)

    @cached_property
    def right(self) -> NDArray[np.intp]:
        """Right child of each split, shape (N,); the left child of node i is i + 1. Meaningless for nil."""
        level = self._running[:-1]
        order = np.argsort(level, kind="stable")
        following = np.append(order[1:], len(level))
        right = np.empty(len(level), dtype=np.intp)
        right[order] = following
        return right

    @cached_property
    def _running(self) -> NDArray[np.intp]:
        return np.concatenate([[0], np.cumsum(np.where(self.feature >= 0, 1, -1))]).astype(np.intp)

    def structures(self) -> list[Genes]:
        """Return the structures one by one."""
        return np.split(self.feature, self.root[1:]) if self.size else []

    def to_value(self, n_features: int) -> dict[str, Any]:
        """Return the forest as codec values: one byte a node where the features fit."""
        return {"genes": narrow(self.feature, n_features), "starts": self.root.astype(np.int32)}

    @classmethod
    def from_value(cls, value: Any, n_features: int, depth: int, most: int) -> Forest:
        """Read :meth:`to_value`; raises ValueError with the reason, whatever it holds.

        Parameters
        ----------
        n_features : int
            Features are below it.
        depth : int
            Deepest level of a nil, >= 1.
        most : int
            Most structures.
        """
        if not isinstance(value, dict) or set(value) != {"genes", "starts"}:
            raise ValueError("structures are genes and starts, and nothing else")
        genes = widen(value["genes"], n_features)
        starts = value["starts"]
        if not isinstance(starts, np.ndarray) or starts.dtype != np.int32 or starts.ndim != 1:
            raise ValueError("the starts of structures must be a list of int32")
        if not 1 <= len(starts) <= most:
            raise ValueError(f"{len(starts)} structures, expected 1 to {most}")
        if len(genes) > len(starts) * (2 << depth):
            raise ValueError(f"the structures are longer than depth {depth} allows")
        forest = cls(genes, starts.astype(np.intp))
        forest.check(depth)
        return forest

    def check(self, depth: int) -> None:
        """Raise ValueError unless every structure is complete, splits at its root, and is at most `depth` deep."""
        size, running = len(self.feature), self._running
        # Minima of the running sum on the way: -c is first reached where structure c begins.
        lowest = np.minimum.accumulate(running)
        begins = np.flatnonzero(np.diff(lowest, prepend=1))[:-1]
        if running[-1] != -self.size or lowest[-1] != -self.size or not np.array_equal(begins, self.root):
            raise ValueError("a structure is incomplete, or followed by something else")
        if (self.feature[self.root] < 0).any():
            raise ValueError("a structure does not split at its root")
        level, right = self.root, self.right
        for _ in range(depth + 1):
            level = level[self.feature[level] >= 0]
            if not level.size:
                return
            level = np.concatenate([level + 1, right[level]])
            assert bool((level < size).all())
        raise ValueError(f"a structure is deeper than {depth}")

    def depths(self) -> NDArray[np.intp]:
        """Return the depth of each structure: splits on its longest path."""
        deepest = np.zeros(self.size, dtype=np.intp)
        which, level, depth = np.arange(self.size), self.root, 0
        while True:
            split = self.feature[level] >= 0
            which, level, depth = which[split], level[split], depth + 1
            if not level.size:
                return deepest
            deepest[which] = depth
            which, level = np.concatenate([which, which]), np.concatenate([level + 1, self.right[level]])

    def splits(self) -> NDArray[np.intp]:
        """Return the number of splits of each structure."""
        if not self.size:
            return np.zeros(0, dtype=np.intp)
        return np.add.reduceat((self.feature >= 0).astype(np.intp), self.root)


def narrow(genes: Genes, n_features: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return genes in one byte each, or two where there are more than 255 features; the largest value is nil."""
    if n_features <= 255:
        return genes.astype(np.uint8)  # -1 becomes 255
    return genes.astype(np.uint16)


def widen(value: Any, n_features: int) -> Genes:
    """Undo :func:`narrow`; raises ValueError with the reason."""
    wanted = np.uint8 if n_features <= 255 else np.uint16
    if not isinstance(value, np.ndarray) or value.dtype != wanted or value.ndim != 1:
        raise ValueError(f"genes must be a list of {wanted.__name__}")
    genes = value.astype(np.int32)
    genes[genes == np.iinfo(wanted).max] = NIL
    if genes.size and int(genes.max()) >= n_features:
        raise ValueError(f"a gene names feature {int(genes.max())}, there are {n_features}")
    return genes
