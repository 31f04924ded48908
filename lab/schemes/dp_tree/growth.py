"""The tree as it grows, level by level, from counts per bin and class: its bins, its cuts, and the finished tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.tasks import check_array
from glassfleet.crisp import CrispTree
from glassfleet.data.domain import Domain
from schemas.codec import Value

GRID = 64
"""Bins of the histogram that finds the edges; a column of fewer categories has a bin for each."""


@dataclass(frozen=True)
class Growth:
    """The tree as far as it has grown, level by level; the right child of a node is the one after the left.

    Attributes
    ----------
    feature, cut, left : ndarray of int32, shape (n,)
        Input that a node splits on, the last bin that goes left, and the left child; -1 for leaves and open nodes.
    level : ndarray of int32, shape (n,)
        Depth of each node; the open ones are those of the last level.
    """

    feature: NDArray[np.int32]
    cut: NDArray[np.int32]
    left: NDArray[np.int32]
    level: NDArray[np.int32]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.feature)

    @property
    def depth(self) -> int:
        """Deepest level."""
        return int(self.level[-1])

    @property
    def open(self) -> NDArray[np.intp]:
        """The open nodes: those of the last level."""
        return np.flatnonzero(self.level == self.depth)

    def to_value(self) -> dict[str, Value]:
        """Return the tree as codec values."""
        return {"feature": self.feature, "cut": self.cut, "left": self.left}

    @classmethod
    def root(cls) -> Growth:
        """Return the tree of one open node."""
        nothing = np.full(1, -1, dtype=np.int32)
        return cls(nothing, nothing, nothing, np.zeros(1, dtype=np.int32))

    @classmethod
    def from_value(cls, value: Any, n_features: int, n_bins: int, depth: int) -> Growth:
        """Read :meth:`to_value`; raises ValueError with the reason, whatever it holds."""
        if not isinstance(value, Mapping) or set(value) != {"feature", "cut", "left"}:
            raise ValueError("a tree is feature, cut and left, and nothing else")
        feature, cut, left = (check_array(name, value[name], np.int32, (None,)) for name in ("feature", "cut", "left"))
        size = len(feature)
        if not len(cut) == len(left) == size:
            raise ValueError("the parts of a tree must be of one length")
        if not 1 <= size < 2 << depth:
            raise ValueError(f"a tree of {size} nodes, expected 1 to {(2 << depth) - 1}")
        split = left >= 0
        if (split != (feature >= 0)).any() or (split != (cut >= 0)).any():
            raise ValueError("a node of the tree is neither a split nor a leaf")
        if (feature >= n_features).any() or (cut >= n_bins - 1).any():
            raise ValueError("a node of the tree names an unknown input or bin")
        # Children follow in the order of their parents: so the tree is one, and levels come one after the other.
        parents = np.flatnonzero(split)
        if not np.array_equal(left[parents], 1 + 2 * np.arange(len(parents))) or 2 * len(parents) + 1 != size:
            raise ValueError("the children in the tree are not in the order of their parents")
        if (left[parents] <= parents).any():
            raise ValueError("a child in the tree comes before its parent")
        level = np.zeros(size, dtype=np.int32)
        for parent in parents:
            level[left[parent] : left[parent] + 2] = level[parent] + 1
        if level[-1] > depth:
            raise ValueError(f"the tree is deeper than {depth}")
        return cls(feature, cut, left, level)

    def split(self, chosen: Mapping[int, tuple[int, int]]) -> Growth:
        """Return the tree with nodes split by (input, last bin on the left); the children come last, in their order."""
        nothing = np.full(2 * len(chosen), -1, dtype=np.int32)
        feature, cut, left = (np.concatenate([part, nothing]) for part in (self.feature, self.cut, self.left))
        level = np.concatenate([self.level, nothing + self.depth + 2], dtype=np.int32)
        for number, (node, own) in enumerate(sorted(chosen.items())):
            (feature[node], cut[node]), left[node] = own, self.size + 2 * number
        return Growth(feature, cut, left, level)

    def reached(self, bins: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the node that each row, shape (n, F), has reached."""
        node = np.zeros(len(bins), dtype=np.intp)
        for _ in range(self.depth):
            moving = np.flatnonzero(self.left[node] >= 0)
            at = node[moving]
            node[moving] = self.left[at] + (bins[moving, self.feature[at]] > self.cut[at])
        return node


def grid_edges(domain: Domain) -> NDArray[np.float64]:
    """Return the inner edges of the grid of each input, shape (F, GRID - 1), in its own unit.

    Equal bins between the domain's limits; a bin for each category where there are at most GRID of them.
    """
    steps = np.arange(1, GRID) / GRID
    edges = np.empty((len(domain.features), GRID - 1))
    for line, variable in enumerate(domain.features):
        if variable.categories and len(variable.categories) <= GRID:
            edges[line] = np.minimum(np.arange(GRID - 1) + 0.5, len(variable.categories) - 0.5)
        else:
            edges[line] = variable.low + steps * (variable.high - variable.low)
    return edges


def bin_rows(X: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the bin of each value: how many edges are below it; shape of `X`, (n, F)."""
    lines = [np.searchsorted(line, column, side="left") for line, column in zip(edges, X.T, strict=True)]
    return np.stack(lines, axis=1)


def quantile_edges(domain: Domain, n_bins: int, histogram: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the inner edges of about equal shares of the rows, from the noisy histogram; some may coincide."""
    grid = grid_edges(domain)
    edges = np.empty((len(grid), n_bins - 1))
    for feature, counts in enumerate(np.maximum(histogram, 0)):
        running = np.cumsum(counts)
        ranks = np.arange(1, n_bins) / n_bins * max(1, int(running[-1]))
        edges[feature] = grid[feature, np.minimum(np.searchsorted(running, ranks), GRID - 2)]
    return edges


def best_cut(cells: NDArray[np.float64]) -> tuple[int, int] | None:
    """Return (input, last bin on the left) of the least weighted Gini index, or None when nothing can be cut.

    `cells` has shape (F, B, K). A gain of zero is no cut: it would be paid for with rows.
    """
    left = np.cumsum(cells, axis=1)[:, :-1]
    whole = cells.sum(axis=1)[:, None, :]
    right = whole - left
    n_left, n_right = left.sum(axis=2), right.sum(axis=2)
    possible = (n_left > 0) & (n_right > 0)
    squares = (left**2).sum(axis=2) / np.maximum(n_left, 1.0) + (right**2).sum(axis=2) / np.maximum(n_right, 1.0)
    # Each input has its own noisy total, so gains are compared per row.
    n = np.maximum(whole.sum(axis=2), 1.0)
    gain = np.where(possible, (squares - (whole**2).sum(axis=2) / n) / n, 0.0)
    feature, cut = np.unravel_index(gain.argmax(), gain.shape)
    return None if gain[feature, cut] <= 1e-12 else (int(feature), int(cut))


def finished_tree(growth: Growth, edges: NDArray[np.float64], counts: NDArray[np.int64]) -> CrispTree:
    """Return the tree in pre-order, from the counts per node and class, shape (n, K).

    Noisy counts below 0 count as 0; a node of which nothing is left answers as its parent does.
    """
    held = np.maximum(counts, 0).astype(np.float64)
    rows = held.sum(axis=1)
    share = np.where(rows[:, None] > 0, held / np.maximum(rows, 1.0)[:, None], 0.0)
    if rows[0] == 0:
        share[0] = 1.0 / share.shape[1]
    order: list[int] = []
    stack: list[int] = [0]
    while stack:
        node = stack.pop()
        order.append(node)
        left = int(growth.left[node])
        if left >= 0:
            for son in (left, left + 1):
                if rows[son] == 0:
                    share[son] = share[node]
            stack += [left + 1, left]
    at = np.array(order, dtype=np.intp)
    place = np.argsort(at)
    split = growth.left[at] >= 0
    feature = growth.feature[at].astype(np.int32)
    threshold: Any = np.where(split, edges[np.maximum(feature, 0), np.maximum(growth.cut[at], 0)], 0.0)
    return CrispTree(
        feature=feature,
        threshold=threshold,
        right=np.where(split, place[np.where(split, growth.left[at] + 1, 0)], -1).astype(np.intp),
        value=share[at],
        rows=rows[at],
        impurity=np.maximum(1.0 - (share[at] ** 2).sum(axis=1), 0.0),
    )
