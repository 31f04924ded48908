"""A finished binary tree as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class CrispTree:
    """Nodes in pre-order; the left child of node i is i + 1.

    Attributes
    ----------
    feature : ndarray of int32, shape (n,)
        What a node splits on; -1 for a leaf.
    threshold : ndarray of float64, shape (n,)
        Rows with a value of at most this go left; 0 for a leaf. In the input's own unit.
    right : ndarray of intp, shape (n,)
        Right child; -1 for a leaf.
    value : ndarray of float64, shape (n, K)
        Shares of the K classes among a node's rows, or (K = 1) their mean target, for inner nodes too.
    rows : ndarray of float64, shape (n,)
        Training rows of each node, >= 0 (noisy counts need not be whole).
    impurity : ndarray of float64, shape (n,)
        Gini index, or variance of the target, >= 0.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    right: NDArray[np.intp]
    value: NDArray[np.float64]
    rows: NDArray[np.float64]
    impurity: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.feature)

    @cached_property
    def leaves(self) -> NDArray[np.intp]:
        """The leaves, left to right."""
        return np.flatnonzero(self.feature < 0)

    @cached_property
    def parent(self) -> NDArray[np.intp]:
        """Parent of each node, -1 for the root."""
        parent = np.full(self.size, -1, dtype=np.intp)
        inner = np.flatnonzero(self.feature >= 0)
        parent[inner + 1] = inner
        parent[self.right[inner]] = inner
        return parent

    @cached_property
    def depth(self) -> NDArray[np.intp]:
        """Splits above each node."""
        depth = np.zeros(self.size, dtype=np.intp)
        for node in range(1, self.size):  # a parent comes before its children
            depth[node] = depth[self.parent[node]] + 1
        return depth

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root to `node`, both included."""
        steps = [node]
        while steps[-1]:
            steps.append(int(self.parent[steps[-1]]))
        return steps[::-1]

    def reach(self, X: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the leaf of each row of `X`, shape (n, F), by comparisons alone."""
        node = np.zeros(X.shape[0], dtype=np.intp)
        moving = np.arange(X.shape[0])
        while True:
            feature = self.feature[node[moving]]
            moving = moving[feature >= 0]
            if not moving.size:
                return node
            at = node[moving]
            left = X[moving, self.feature[at]] <= self.threshold[at]
            node[moving] = np.where(left, at + 1, self.right[at])
