"""A binary tree of ramps as a list of splits, and the degree to which rows reach its nodes.

A ramp (low, high) on a scaled input x gives the
lower side the degree ``clip((high - x) / (high - low), 0, 1)``, and the upper side the rest.

Ramps on one input do not overlap along a path, so that a node's degree is a product of one trapezoid for each input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.tasks import check_array
from glassfleet.errors import TaskError
from glassfleet.fuzzy.partition import BinaryTree, Span

MAX_SPLITS = 255
"""Most splits of a tree that is accepted from a peer or a document."""

LEAST_RAMP = 1e-6
"""Narrowest ramp that is accepted from a peer or a document."""

Array = NDArray[np.float64]
Ramp = tuple[int, float, float]
"""Input, and where the lower side's degree begins to fall and ends."""


@dataclass(frozen=True)
class Split:
    """Leaf `node` is split on input `feature` by the ramp from `low` to `high`, both in [0, 1]."""

    node: int
    feature: int
    low: float
    high: float

    @property
    def ramp(self) -> Ramp:
        """Input, low and high."""
        return self.feature, self.low, self.high


class Tree(BinaryTree[Split]):
    """A tree of ramps."""

    def spans(self, node: int) -> dict[int, Span]:
        """Return the innermost ramps that bound `node`, by input, in the order of the path."""
        spans: dict[int, Span] = {}
        for split, upper in self.path(node):
            below, above = spans.get(split.feature, (None, None))
            bound = (split.low, split.high)
            spans[split.feature] = (bound, above) if upper else (below, bound)
        return spans

    @cached_property
    def overlaps(self) -> list[tuple[int, int]]:
        """Pairs of leaves, the lower number first, that rows may reach both; each leaf with itself, too."""
        boxes = {}
        for leaf in self.leaves:
            spans = self.spans(leaf)
            boxes[leaf] = {f: (a[0] if a else -1.0, b[1] if b else 2.0) for f, (a, b) in spans.items()}
        leaves = sorted(boxes)
        return [
            (i, j)
            for place, i in enumerate(leaves)
            for j in leaves[place:]
            if all(
                max(boxes[i][f][0], boxes[j][f][0]) < min(boxes[i][f][1], boxes[j][f][1])
                for f in boxes[i].keys() & boxes[j].keys()
            )
        ]

    def to_value(self) -> dict[str, Any]:
        """Return the splits as a codec value."""
        places = np.array([(s.node, s.feature) for s in self.splits], dtype=np.int32).reshape(-1, 2)
        return {"places": places, "ramps": np.array([(s.low, s.high) for s in self.splits]).reshape(-1, 2)}

    @classmethod
    def from_value(cls, value: Any, n_inputs: int) -> Tree:
        """Rebuild a tree; raises ValueError, with the reason, unless it is one over so many inputs."""
        if not isinstance(value, Mapping) or set(value) != {"places", "ramps"}:
            raise ValueError("the tree is not a map of places and ramps")
        places, ramps = value["places"], value["ramps"]
        for table, kinds in ((places, "iu"), (ramps, "f")):
            if not isinstance(table, np.ndarray) or table.ndim != 2 or table.shape[1] != 2:
                raise ValueError("the tree's splits are not tables of two columns")
            if table.dtype.kind not in kinds:
                raise ValueError("the tree's splits have numbers of another kind")
        if len(places) != len(ramps):
            raise ValueError("the tree has another number of places than of ramps")
        rows = [(*place, *ramp) for place, ramp in zip(places.tolist(), ramps.tolist(), strict=True)]
        return cls.from_rows(rows, n_inputs)

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[int, int, float, float]], n_inputs: int) -> Tree:
        """Build a tree from (node, feature, low, high); raises ValueError unless each splits a leaf by a new ramp."""
        if len(rows) > MAX_SPLITS:
            raise ValueError(f"a tree of {len(rows)} splits; at most {MAX_SPLITS} are accepted")
        tree, paths = cls(tuple(Split(*row) for row in rows)), {0: frozenset[Ramp]()}
        for index, split in enumerate(tree.splits):
            if split.node not in paths:
                raise ValueError(f"split {index} is of node {split.node}, which is no leaf")
            if not 0 <= split.feature < n_inputs:
                raise ValueError(f"split {index} is on input {split.feature}, which the domain lacks")
            check_ramp(split.ramp)
            path = paths.pop(split.node)
            if overlapping(path, split.ramp):
                raise ValueError(f"the ramp of split {index} overlaps one above it")
            paths[2 * index + 1] = paths[2 * index + 2] = path | {split.ramp}
        return tree


def check_ramp(ramp: Ramp) -> None:
    """Raise ValueError unless a ramp lies in [0, 1] and rises."""
    _, low, high = ramp
    if not 0.0 <= low < low + LEAST_RAMP < high <= 1.0:
        raise ValueError(f"a ramp goes from {low!r} to {high!r}")


def overlapping(path: frozenset[Ramp], ramp: Ramp) -> bool:
    """Return whether `ramp` overlaps one of its input in `path`."""
    return any(f == ramp[0] and low < ramp[2] and ramp[1] < high for f, low, high in path)


def lower_side(scaled: Array, low: float, high: float) -> Array:
    """Return the degree of the lower side of a ramp; element-wise, hence the same for any block of rows."""
    degree = high - scaled
    degree /= high - low
    np.maximum(degree, 0.0, out=degree)
    np.minimum(degree, 1.0, out=degree)
    return degree


def degrees(tree: Tree, scaled: Array, step: float = 0.0) -> list[Array]:
    """Return the degree to which rows reach each node, shapes (n,): the product along the path, root first.

    Parameters
    ----------
    tree : Tree
    scaled : ndarray of float64, shape (F, n)
        Scaled inputs.
    step : float
        Degrees are rounded to multiples of this; an upper side is its node less the lower one. 0: they are not.
    """
    reached = [np.ones(scaled.shape[1])]
    for split in tree.splits:
        low, whole = lower_side(scaled[split.feature], split.low, split.high), reached[split.node]
        if step:
            low = np.rint(low * whole / step) * step
            reached += [low, whole - low]
        else:
            reached += [whole * low, whole * (1.0 - low)]
    return reached


# --- read without trust ---------------------------------------------------------------------------------------------

MAX_CANDIDATES = 4096
"""Most ramps that one question compares."""


def read_way(value: object, ways: int) -> int:
    """Return which of so many ways to grow a question is a step of; raises TaskError."""
    if type(value) is not int or not 0 <= value < ways:
        raise TaskError(f"a step is of one of {ways} ways to grow")
    return value


def read_edges(value: object, shape: tuple[int, int]) -> Array:
    """Return edges of bins, shape `shape`; raises TaskError."""
    edges = check_array("edges", value, np.float64, shape)
    if (edges[:, 0] != 0.0).any() or (edges[:, -1] != 1.0).any() or not (np.diff(edges) > LEAST_RAMP).all():
        raise TaskError("the edges of an input's bins do not increase from 0 to 1")
    return edges


def read_closed(value: object, tree: Tree, layers: int) -> tuple[tuple[int, int, int], ...]:
    """Return pairs of leaves that no row may share, each to a layer; raises TaskError."""
    closed = [(i, j, layer) for i, j, layer in check_array("closed", value, np.int32, (None, 3)).tolist()]
    if len(set(closed)) < len(closed) or not {(i, j) for i, j, _ in closed} <= set(tree.overlaps):
        raise TaskError("a closed pair of leaves is closed twice, or shares no rows")
    if not all(0 <= layer < layers for *_, layer in closed):
        raise TaskError(f"a pair is closed to one of {layers} layers of rows")
    return tuple(closed)


def read_candidates(places: object, ramps: object, tree: Tree, n_inputs: int) -> tuple[tuple[int, Ramp], ...]:
    """Return ramps of leaves; raises TaskError."""
    places = check_array("places", places, np.int32, (None, 2))
    if not 1 <= len(places) <= MAX_CANDIDATES:
        raise TaskError(f"between 1 and {MAX_CANDIDATES} ramps can be asked about")
    limits = check_array("ramps", ramps, np.float64, (len(places), 2)).tolist()
    candidates = []
    for (leaf, feature), (low, high) in zip(places.tolist(), limits, strict=True):
        if not 0 <= leaf < tree.size or leaf in tree.split_of or not 0 <= feature < n_inputs:
            raise TaskError("a ramp is of no leaf, or on an input that the domain lacks")
        check_ramp((feature, low, high))
        if overlapping(frozenset(split.ramp for split, _ in tree.path(leaf)), (feature, low, high)):
            raise TaskError("a ramp overlaps one above it")
        candidates.append((leaf, (feature, low, high)))
    return tuple(candidates)
