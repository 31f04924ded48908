"""The shape of a multi-way tree as a table of nodes, the numbers of its rules, and the rows that reach its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.partition import Memberships

MAX_NODES = 1_000_000
"""Most nodes of a tree that is accepted from a peer or a document."""


@dataclass(frozen=True)
class FrtTree:
    """Nodes in order of creation: a parent comes before its children, the root is node 0.

    Attributes
    ----------
    n_sets : int
        Sets per feature, T.
    parent : ndarray of int32, shape (n,)
        Parent of each node; -1 for the root.
    feature : ndarray of int32, shape (n,)
        The feature that the parent splits on; -1 for the root.
    fuzzy_set : ndarray of int32, shape (n,)
        The set of that feature that leads here; -1 for the root.
    """

    n_sets: int
    parent: NDArray[np.int32]
    feature: NDArray[np.int32]
    fuzzy_set: NDArray[np.int32]

    @classmethod
    def root(cls, n_sets: int) -> FrtTree:
        """Return the tree of one node."""
        lone = np.full(1, -1, dtype=np.int32)
        return cls(n_sets, lone, lone, lone)

    @property
    def size(self) -> int:
        """Number of nodes, the root included."""
        return int(self.parent.shape[0])

    @cached_property
    def depth(self) -> NDArray[np.intp]:
        """Depth of each node, shape (n,); the root has 0."""
        above = self.parent.tolist()
        depth = [0] * self.size
        for node in range(1, self.size):  # nodes, not rows: a few hundred
            depth[node] = depth[above[node]] + 1
        return np.array(depth, dtype=np.intp)

    @cached_property
    def split(self) -> NDArray[np.intp]:
        """The feature each node splits on, shape (n,); -1 for a node without children."""
        split = np.full(self.size, -1, dtype=np.intp)
        split[self.parent[1:]] = self.feature[1:]
        return split

    @cached_property
    def child(self) -> NDArray[np.intp]:
        """The child for each node and set, shape (n, T); -1 where there is none."""
        child = np.full((self.size, self.n_sets), -1, dtype=np.intp)
        child[self.parent[1:], self.fuzzy_set[1:]] = np.arange(1, self.size)
        return child

    def path(self, node: int) -> list[tuple[int, int]]:
        """Return the (feature, set) pairs from the root to `node`."""
        steps = []
        while node > 0:
            steps.append((int(self.feature[node]), int(self.fuzzy_set[node])))
            node = int(self.parent[node])
        return steps[::-1]

    def used(self, nodes: NDArray[np.intp], n_features: int) -> NDArray[np.bool_]:
        """Return which features the path to each of `nodes` uses, shape (len(nodes), n_features)."""
        used = np.zeros((len(nodes), n_features), dtype=bool)
        at, line = np.asarray(nodes, dtype=np.intp), np.arange(len(nodes))
        while at.size:
            below = at > 0
            at, line = at[below], line[below]
            used[line, self.feature[at]] = True
            at = self.parent[at].astype(np.intp)
        return used

    def grown(self, parent: NDArray[np.intp], feature: NDArray[np.intp], fuzzy_set: NDArray[np.intp]) -> FrtTree:
        """Return this tree with more nodes at the end of its table."""
        return FrtTree(
            self.n_sets,
            np.concatenate([self.parent, parent]).astype(np.int32),
            np.concatenate([self.feature, feature]).astype(np.int32),
            np.concatenate([self.fuzzy_set, fuzzy_set]).astype(np.int32),
        )

    def depth_first(self) -> list[int]:
        """Return all nodes, children after their parent and in the order of sets."""
        order, stack = [], [0]
        while stack:
            node = stack.pop()
            order.append(node)
            stack.extend(int(c) for c in self.child[node][::-1] if c >= 0)
        return order

    def to_value(self) -> dict[str, Any]:
        """Return the table as a codec value."""
        return {"parent": self.parent, "feature": self.feature, "set": self.fuzzy_set}

    @classmethod
    def from_value(cls, value: Any, n_sets: int, n_features: int) -> FrtTree:
        """Rebuild a tree; raises ValueError, with the reason, unless the table is a tree as FRT grows it."""
        if not isinstance(value, Mapping):
            raise ValueError("the tree is not a map")  # noqa: TRY004 - one kind of error for bad content
        columns = []
        for name in ("parent", "feature", "set"):
            column = value.get(name)
            if not isinstance(column, np.ndarray) or column.ndim != 1 or column.dtype.kind not in "iu":
                raise ValueError(f"the tree's {name!r} is not a list of integers")
            if not 1 <= column.size <= MAX_NODES or column.size != np.size(value["parent"]):
                raise ValueError(f"the tree's {name!r} has the wrong length")
            if column.min() < -1 or column.max() > MAX_NODES:
                raise ValueError(f"the tree's {name!r} is out of range")
            columns.append(column.astype(np.int32))
        tree = cls(n_sets, *columns)
        tree._validate(n_features)
        return tree

    def _validate(self, n_features: int) -> None:
        parent, feature, fuzzy_set = self.parent, self.feature, self.fuzzy_set
        if parent[0] != -1 or feature[0] != -1 or fuzzy_set[0] != -1:
            raise ValueError("the first node is not a root")
        parent, feature, fuzzy_set = parent[1:], feature[1:], fuzzy_set[1:]
        if ((parent < 0) | (parent >= np.arange(1, self.size))).any():
            raise ValueError("a node comes before its parent")
        if ((feature < 0) | (feature >= n_features)).any():
            raise ValueError("a node uses a feature that the domain lacks")
        if ((fuzzy_set < 0) | (fuzzy_set >= self.n_sets)).any():
            raise ValueError("a node uses a set that the partition lacks")
        if (self.split[parent] != feature).any():
            raise ValueError("a node splits on two features")
        if len(set((parent.astype(np.int64) * self.n_sets + fuzzy_set).tolist())) != parent.size:
            raise ValueError("a node has two children for one set")
        if int(self.depth.max()) > n_features:
            raise ValueError("a path is longer than the number of features")


@dataclass(frozen=True)
class Reached:
    """Rows that reach nodes with a strength above zero; one entry per (row, node).

    Attributes
    ----------
    row, node : ndarray of intp, shape (e,)
        Which row reaches which node.
    strength : ndarray of float64, shape (e,)
        Product of the memberships from the root down, in that order (Eq. 3, 21), in (0, 1].
    """

    row: NDArray[np.intp]
    node: NDArray[np.intp]
    strength: NDArray[np.float64]

    @classmethod
    def root(cls, rows: int) -> Reached:
        """Return the start: every row reaches the root with strength one."""
        return cls(np.arange(rows), np.zeros(rows, dtype=np.intp), np.ones(rows))

    @property
    def size(self) -> int:
        """Number of entries."""
        return int(self.row.shape[0])

    def only(self, keep: NDArray[np.bool_]) -> Reached:
        """Return the entries where `keep` is true."""
        return Reached(self.row[keep], self.node[keep], self.strength[keep])

    def only_at(self, position: NDArray[np.intp]) -> Reached:
        """Return the entries of the nodes whose `position` is not negative."""
        keep = position[self.node] >= 0
        return self if keep.all() else self.only(keep)

    def descend(self, tree: FrtTree, members: Memberships) -> Reached:
        """Return the entries of the children: at most two per entry, as two neighbouring sets fire."""
        split = tree.split.take(self.node)
        if (split < 0).any():
            return self.only(split >= 0).descend(tree, members)
        upper = members.upper[split, self.row]
        cell = self.node * tree.n_sets + members.lower[split, self.row]
        node = tree.child.take(np.concatenate([cell, cell + 1]))
        strength = np.concatenate([self.strength * (1.0 - upper), self.strength * upper])
        (keep,) = ((node >= 0) & (strength > 0.0)).nonzero()
        return Reached(np.concatenate([self.row, self.row]).take(keep), node.take(keep), strength.take(keep))


def reach_leaves(tree: FrtTree, members: Memberships) -> Reached:
    """Return the entries of all nodes without children."""
    at, parts = Reached.root(members.rows), []
    while at.size:
        leaf = tree.split.take(at.node) < 0
        if leaf.any():
            parts.append(at.only(leaf))
            at = at.only(~leaf)
        at = at.descend(tree, members) if at.size else at
    if len(parts) < 2:
        return parts[0] if parts else at
    return Reached(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "node", "strength")))


@dataclass(frozen=True)
class Rules:
    """Consequents and weights of the leaves, one line per rule.

    Attributes
    ----------
    node : ndarray of intp, shape (r,)
        Each rule's leaf in the tree.
    coefficients : ndarray of float64, shape (r, F + 1)
        Polynomial over the scaled inputs, intercept last; its value is the scaled target (Eq. 4).
    mean_strength : ndarray of float64, shape (r,)
        Mean strength over the training rows that reach the leaf (Eq. 22), (0, 1].
    weight, support, confidence : ndarray of float64, shape (r,)
        Rule weight, the harmonic mean of the other two; all in [0, 1].
    """

    node: NDArray[np.intp]
    coefficients: NDArray[np.float64]
    mean_strength: NDArray[np.float64]
    weight: NDArray[np.float64]
    support: NDArray[np.float64]
    confidence: NDArray[np.float64]

    def take(self, lines: Sequence[int]) -> Rules:
        """Return the given lines, in that order."""
        at = np.array(lines, dtype=np.intp)
        return Rules(*(getattr(self, one.name)[at] for one in fields(self)))
