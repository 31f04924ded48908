"""How inputs become numbers in [0, 1] and sets: limits, levels of categories, knots; and conditions in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy.hinges import Hinges, with_hinges
from glassfleet.fuzzy.levels import Levels, scaled_inputs
from glassfleet.fuzzy.spans import span_condition
from glassfleet.rules import Condition
from glassfleet.schemes.fmt.partition import Knots, positions, up_to
from glassfleet.schemes.fmt.tree import Tree
from glassfleet.tables import CutTree

Array = NDArray[np.float64]


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
    hinges : tuple of (int, float)
        Where polynomials bend; see :mod:`glassfleet.fuzzy.hinges`.
    """

    domain: Domain
    levels: Levels
    knots: Knots
    hinges: Hinges = ()

    def scaled(self, X: Array) -> Array:
        """Return rows in own units, shape (n, F), as inputs in [0, 1], shape (F, n)."""
        return scaled_inputs(self.domain, self.levels, X)

    def bent(self, scaled: Array) -> Array:
        """Return inputs in [0, 1], shape (F, n), and below them their hinges: what polynomials take."""
        return with_hinges(scaled, self.hinges)

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
