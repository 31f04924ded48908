"""Strong uniform triangular partitions of [0, 1], what their sets are called, and trees that split by them.

A partition of T sets has its peaks at j / (T - 1), j = 0 .. T - 1; the first and the last set are shoulders. Two
neighbouring sets overlap and their memberships add up to one, so a value is described by the lower of the two sets that
fire and the membership in the upper one. That sparse form is all that the learning and the inference use: work per row
does not grow with T.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.progress import OutlineNode, outlined
from glassfleet.data.domain import Variable
from glassfleet.fuzzy.levels import level_condition
from glassfleet.model.rules import Condition
from schemas.codec import Value

MAX_SETS = 63
"""Most sets of a partition; set numbers are stored in int8."""


@dataclass(frozen=True)
class Memberships:
    """Memberships of n rows in the sets of F partitions, sparse.

    Attributes
    ----------
    n_sets : int
        Sets per partition, T.
    lower : ndarray of int8, shape (F, n)
        The lower of the two sets that fire, in [0, T - 2]. Features come first, so that one feature is contiguous.
    upper : ndarray of float64, shape (F, n)
        Membership in set ``lower + 1``, in [0, 1]. The membership in set ``lower`` is one minus it.
    """

    n_sets: int
    lower: NDArray[np.int8]
    upper: NDArray[np.float64]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.lower.shape[1])

    def degree(self, feature: int, row: int, fuzzy_set: int) -> float:
        """Return the membership of one row in one set of one feature."""
        lower, upper = int(self.lower[feature, row]), float(self.upper[feature, row])
        if fuzzy_set == lower:
            return 1.0 - upper
        return upper if fuzzy_set == lower + 1 else 0.0


def fuzzify(scaled: NDArray[np.float64], n_sets: int) -> Memberships:
    """Return the memberships of rows `scaled`, shape (n, F), in [0, 1] (Eq. 1 of the FRT paper, uniform)."""
    position = np.ascontiguousarray(scaled.T) * float(n_sets - 1)
    lower = np.minimum(np.floor(position), float(n_sets - 2))
    position -= lower
    return Memberships(n_sets, lower.astype(np.int8), position)


# --- linguistic terms: what the sets of a partition are called --------------------------------------------------------


_STANDARD: dict[int, tuple[str, ...]] = {
    2: ("Low", "High"),
    3: ("Low", "Medium", "High"),
    4: ("VeryLow", "Low", "High", "VeryHigh"),
    5: ("VeryLow", "Low", "Medium", "High", "VeryHigh"),
    7: ("ExtremelyLow", "VeryLow", "Low", "Medium", "High", "VeryHigh", "ExtremelyHigh"),
}


def linguistic_terms(n_sets: int, variable: Variable | None = None) -> tuple[str, ...]:
    """Return `n_sets` terms, lowest first: the variable's own if it names as many, else the standard ones.

    >>> linguistic_terms(3)
    ('Low', 'Medium', 'High')
    >>> linguistic_terms(6)[0]
    'Level1of6'
    """
    if variable is not None and len(variable.terms) == n_sets:
        return variable.terms
    return _STANDARD.get(n_sets) or tuple(f"Level{j + 1}of{n_sets}" for j in range(n_sets))


def limits_words(variable: Variable, low: float | None, high: float | None) -> str:
    """Return limits in the variable's own unit in words; None: there is no limit on that side.

    >>> limits_words(Variable(name="speed", low=0, high=120, unit="km/h"), None, 45.0)
    'below 45 km/h'
    """
    unit = f" {variable.unit}" if variable.unit else ""
    if low is None:
        return "anything" if high is None else f"below {high:.4g}{unit}"
    return f"above {low:.4g}{unit}" if high is None else f"between {low:.4g} and {high:.4g}{unit}"


def condition(variable: Variable, fuzzy_set: int, n_sets: int) -> Condition:
    """Return ``variable is term`` with the set's support and peak in the variable's own unit."""
    width = (variable.high - variable.low) / (n_sets - 1)
    low = None if fuzzy_set == 0 else variable.low + (fuzzy_set - 0.5) * width
    high = None if fuzzy_set == n_sets - 1 else variable.low + (fuzzy_set + 0.5) * width
    return Condition(
        feature=variable.name,
        term=linguistic_terms(n_sets, variable)[fuzzy_set],
        low=variable.low + max(fuzzy_set - 1, 0) * width,
        high=variable.low + min(fuzzy_set + 1, n_sets - 1) * width,
        peak=variable.low + fuzzy_set * width,
        unit=variable.unit,
        limits=limits_words(variable, low, high),
    )


# --- A binary tree as a list of splits, whatever a split cuts by ------------------------------------------------------
#
# The i-th split turns one leaf into the two nodes 2 i + 1 (the lower side) and 2 i + 2 (the upper one); node 0 is the
# root. So the first s - 1 splits of a tree are a tree of s leaves: sizes are prefixes.


class NodeSplit(Protocol):
    """A split of a node."""

    @property
    def node(self) -> int:
        """Which leaf is split."""


S = TypeVar("S", bound=NodeSplit)


@dataclass(frozen=True)
class BinaryTree(Generic[S]):
    """The splits, in order.

    Attributes
    ----------
    splits : tuple
        Split i makes the nodes 2 i + 1 and 2 i + 2.
    """

    splits: tuple[S, ...] = ()

    @property
    def size(self) -> int:
        """Number of nodes, the root included."""
        return 2 * len(self.splits) + 1

    @cached_property
    def split_of(self) -> dict[int, int]:
        """Which split cuts a node; leaves are left out."""
        return {split.node: index for index, split in enumerate(self.splits)}

    @cached_property
    def leaves(self) -> list[int]:
        """Nodes that are not cut, from the lower sides to the upper ones."""
        return [node for node, _ in self.walk() if node not in self.split_of]

    def walk(self) -> Iterator[tuple[int, int]]:
        """Yield all nodes and their depths: depth first, lower sides first."""
        stack = [(0, 0)]
        while stack:
            node, depth = stack.pop()
            yield node, depth
            index = self.split_of.get(node)
            if index is not None:
                stack += [(2 * index + 2, depth + 1), (2 * index + 1, depth + 1)]

    def parent(self, node: int) -> int:
        """Return the node above `node`; -1 for the root."""
        return self.splits[(node - 1) // 2].node if node else -1

    def path(self, node: int) -> list[tuple[S, bool]]:
        """Return the splits from the root to `node`, and whether the path takes the upper side."""
        steps = []
        while node > 0:
            split = self.splits[(node - 1) // 2]
            steps.append((split, node % 2 == 0))
            node = split.node
        return steps[::-1]

    @cached_property
    def depth(self) -> int:
        """Length of the longest path."""
        return max(depth for _, depth in self.walk())

    def grown(self, splits: Sequence[S]) -> Self:
        """Return this tree with more splits at the end."""
        return type(self)((*self.splits, *splits))

    def first(self, n_splits: int) -> Self:
        """Return the tree of the first `n_splits` splits."""
        return type(self)(self.splits[:n_splits])

    def progress(self, asked: Collection[int], words: Callable[[int], tuple[str, str]]) -> dict[str, Value]:
        """Return the size so far and a drawing, for displays.

        Parameters
        ----------
        asked : collection of int
            Nodes that the vehicles are asked about.
        words : callable
            Returns what leads to a node below the root: an input's name, and its side in words.
        """
        nodes = (OutlineNode(depth, *(words(node) if node else ("", "")), node in asked) for node, depth in self.walk())
        return {
            "nodes": self.size - 1,
            "leaves": len(self.splits) + 1,
            "open": len(asked),
            "depth": self.depth,
            **outlined(nodes, self.size),
        }


# --- ramps on an input as words: "below 45 km/h" rather than two numbers of a trapezoid -------------------------------


Ramp = tuple[float, float]
"""Where the degree of the lower side begins to fall, and where it ends, over the scaled range."""

Span = tuple[Ramp | None, Ramp | None]
"""The ramps that bound a set of values from below and from above; None: no bound. The first ends where the second
begins, or earlier."""


def lower_degree(value: float, ramp: Ramp) -> float:
    """Return the degree of the lower side of a ramp at a scaled value, in [0, 1]."""
    low, high = ramp
    return min(max((high - value) / (high - low), 0.0), 1.0)


def span_degree(value: float, span: Span) -> float:
    """Return the degree of a scaled value in a span, in [0, 1]."""
    below, above = span
    degree = 1.0 if above is None else lower_degree(value, above)
    return degree if below is None else degree * (1.0 - lower_degree(value, below))


def ramp_words(variable: Variable, below: Ramp | None, above: Ramp | None) -> str:
    """Return a span in words: its limits are where a ramp has one half.

    >>> speed = Variable(name="speed", low=0, high=120, unit="km/h")
    >>> ramp_words(speed, None, (0.25, 0.5)), ramp_words(speed, (0.0, 0.5), (0.5, 1.0))
    ('below 45 km/h', 'between 30 and 90 km/h')
    """
    low, high = (None if ramp is None else _value(variable, 0.5 * (ramp[0] + ramp[1])) for ramp in (below, above))
    return limits_words(variable, low, high)


def ramp_condition(
    variable: Variable, below: Ramp | None, above: Ramp | None, levels: Sequence[float] = ()
) -> Condition:
    """Return ``variable is ...`` for a span; `peak` is the middle of where the degree is one.

    `levels` are those of an input of text, of which none is on a ramp.
    """
    first, second = below or (0.0, 0.0), above or (1.0, 1.0)
    if levels:
        return level_condition(variable, levels, first[1], second[0])
    return Condition(
        feature=variable.name,
        term=ramp_words(variable, below, above),
        low=_value(variable, first[0]),
        high=_value(variable, second[1]),
        peak=_value(variable, 0.5 * (first[1] + second[0])),
        unit=variable.unit,
        in_numbers=True,
    )


def _value(variable: Variable, scaled: float) -> float:
    return variable.low + scaled * (variable.high - variable.low)
