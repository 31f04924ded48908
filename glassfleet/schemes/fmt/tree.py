"""A binary tree of fuzzy cuts as a list of splits, its inputs, and the degree to which rows reach its nodes.

The lower side of a split has the sets up to the cut, the upper side the rest (:mod:`glassfleet.fuzzy.splits`).

A path may cut an input several times. Cuts of one input blend over disjoint stretches (between two neighbouring knots),
so the product of the degrees along the path is the membership in one run of adjacent sets, times that of other inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy.levels import Levels, scaled_inputs
from glassfleet.fuzzy.spans import span_condition
from glassfleet.fuzzy.splits import SplitTree
from glassfleet.numerics.statistics import to_grid
from glassfleet.rules import Condition
from glassfleet.schemes.fmt.params import ERROR_BITS
from glassfleet.schemes.fmt.partition import Knots, positions, up_to
from glassfleet.tables import CutTree

Array = NDArray[np.float64]

MAX_SPLITS = 1023
"""Most splits of a tree that is accepted from a peer or a document."""

Span = dict[int, tuple[int, int]]
"""The first and last set of each input that a node's rows may be in; inputs that were not cut are left out."""

Cut = tuple[int, int]
"""Input, and the last set of the lower side."""


@dataclass(frozen=True)
class Split:
    """Leaf `node` is cut: the sets 0 .. `cut` of input `feature` on one side, the others on the other."""

    node: int
    feature: int
    cut: int


class Tree(SplitTree[Split]):
    """A tree of cuts between fuzzy sets."""

    def span(self, node: int, n_sets: Sequence[int]) -> Span:
        """Return which sets of each input lead to `node`, in the order in which inputs first appear on the path."""
        spans: Span = {}
        for split, upper in self.path(node):
            first, last = spans.get(split.feature, (0, n_sets[split.feature] - 1))
            spans[split.feature] = (split.cut + 1, last) if upper else (first, split.cut)
        return spans

    def reordered(self, order: Sequence[int]) -> tuple[Tree, list[int]]:
        """Return the tree whose splits are those numbered `order` here, and each new node's old number."""
        old_of = [0]
        new_of = {0: 0}
        splits = []
        for index in order:
            split = self.splits[index]
            splits.append(Split(new_of[split.node], split.feature, split.cut))
            for child in (2 * index + 1, 2 * index + 2):
                new_of[child] = len(old_of)
                old_of.append(child)
        return Tree(tuple(splits)), old_of

    def to_value(self) -> dict[str, Any]:
        """Return the splits as a codec value."""
        table = np.array([(s.node, s.feature, s.cut) for s in self.splits], dtype=np.int32).reshape(-1, 3)
        return {"splits": table}

    @classmethod
    def from_value(cls, value: Any, knots: Knots) -> Tree:
        """Rebuild a tree; raises ValueError, with the reason, unless it is one over these partitions."""
        if not isinstance(value, Mapping) or set(value) != {"splits"}:
            raise ValueError("the tree is not a map of splits")
        table = value["splits"]
        if not isinstance(table, np.ndarray) or table.ndim != 2 or table.shape[1] != 3 or table.dtype.kind not in "iu":
            raise ValueError("the tree's splits are not a table of integers with three columns")
        return cls.from_rows(table.tolist(), knots)

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]], knots: Knots) -> Tree:
        """Build a tree from (node, feature, cut) triples; raises ValueError unless each cuts a leaf into two."""
        if len(rows) > MAX_SPLITS:
            raise ValueError(f"a tree of {len(rows)} splits; at most {MAX_SPLITS} are accepted")
        spans: dict[int, dict[int, tuple[int, int]]] = {0: {}}
        for index, (node, feature, cut) in enumerate(rows):
            if node not in spans:
                raise ValueError(f"split {index} cuts node {node}, which is no leaf")
            if not 0 <= feature < len(knots):
                raise ValueError(f"split {index} is on input {feature}, which the domain lacks")
            span = spans.pop(node)
            first, last = span.get(feature, (0, len(knots[feature]) - 1))
            if not first <= cut < last:
                raise ValueError(f"split {index} cuts behind set {cut}; the node holds the sets {first} to {last}")
            spans[2 * index + 1] = {**span, feature: (first, cut)}
            spans[2 * index + 2] = {**span, feature: (cut + 1, last)}
        return cls(tuple(Split(*row) for row in rows))


def degrees(tree: Tree, position: NDArray[np.float64], nodes: Sequence[int]) -> dict[int, NDArray[np.float64]]:
    """Return the degree to which rows reach each of `nodes`: the product along the path, root first.

    Parameters
    ----------
    tree : Tree
        The splits.
    position : ndarray of float64, shape (F, n)
        From :func:`~glassfleet.schemes.fmt.partition.positions`.
    nodes : sequence of int
        Nodes wanted.

    Returns
    -------
    dict of int to ndarray of float64, shape (n,)
        By node.
    """
    wanted = {0}
    for node in nodes:
        above = node
        while above > 0:
            wanted.add(above)
            above = tree.parent(above)
    reached = {0: np.ones(position.shape[1])}
    for index, split in enumerate(tree.splits):
        lower, upper = 2 * index + 1, 2 * index + 2
        if lower not in wanted and upper not in wanted:
            continue
        whole = reached[split.node]
        low = up_to(float(split.cut), position[split.feature])
        reached[lower], reached[upper] = whole * low, whole * (1.0 - low)
    return {node: reached[node] for node in nodes}


def blends(tree: Tree, reached: Mapping[int, Array], outputs: Sequence[Array]) -> Iterator[Array]:
    """Yield what the first rule, the first two, ... of a tree answer together, shape (n,); one array, changed in place.

    Parameters
    ----------
    tree : Tree
        Its splits are in the order of growth.
    reached : mapping of int to ndarray of float64, shape (n,)
        The degree to which rows reach each node.
    outputs : sequence of ndarray of float64, shape (n,)
        What each node answers.
    """
    answer = outputs[0].copy()
    yield answer
    for index, split in enumerate(tree.splits):
        low, high = 2 * index + 1, 2 * index + 2
        answer -= reached[split.node] * outputs[split.node]
        answer += reached[low] * outputs[low]
        answer += reached[high] * outputs[high]
        yield answer


def squared_error(answer: Array, truth: Array) -> int:
    """Return the sum of squared errors of answers that are kept in [0, 1], each on the grid of errors."""
    error = np.minimum(np.maximum(answer, 0.0), 1.0) - truth
    return int(to_grid(error * error, ERROR_BITS).sum())


def crisp(tree: Tree, position: NDArray[np.float64], node: int) -> NDArray[np.bool_]:
    """Return which rows are on `node`'s side of every split above it: there, with a membership of at least one half."""
    inside = np.ones(position.shape[1], dtype=bool)
    for split, upper in tree.path(node):
        low = up_to(float(split.cut), position[split.feature]) >= 0.5
        inside &= ~low if upper else low
    return inside


@dataclass(frozen=True)
class Inputs:
    """The inputs of a tree.

    Attributes
    ----------
    domain : Domain
    levels : tuple of tuple of float
        Of each input's categories; see :mod:`glassfleet.fuzzy.levels`. May be empty where all inputs are numbers.
    knots : tuple of tuple of float
        Each input's partition.
    """

    domain: Domain
    levels: Levels
    knots: Knots

    def scaled(self, X: Array) -> Array:
        """Return rows in own units, shape (n, F), as inputs in [0, 1], shape (F, n)."""
        return scaled_inputs(self.domain, self.levels, X)

    def positions(self, scaled: Array) -> Array:
        """Return where inputs in [0, 1] lie between knots; both of shape (F, n)."""
        return positions(scaled, self.knots)

    def membership(self, feature: int, value: float, sets: tuple[int, int]) -> float:
        """Return the membership of an input in [0, 1] in a run of sets: up to its last, less below its first."""
        at = positions(np.array([[value]]), (self.knots[feature],))[0]
        upper = float(up_to(float(sets[1]), at)[0])
        return upper if sets[0] == 0 else upper * (1.0 - float(up_to(sets[0] - 1.0, at)[0]))

    def cut_tree(self, tree: Tree, *, crisp: bool) -> CutTree:
        """Return when which leaf of a tree over these inputs fires, for exports."""
        splits = tuple((split.node, split.feature, split.cut) for split in tree.splits)
        return CutTree(self.knots, splits, tuple(tree.leaves), crisp)

    def condition(self, feature: int, first: int, last: int) -> Condition:
        """Return that an input is in the sets `first` .. `last`, or is one of their categories."""
        line = self.levels[feature] if self.levels else ()
        return span_condition(self.domain.inputs[feature], self.knots[feature], first, last, line)
