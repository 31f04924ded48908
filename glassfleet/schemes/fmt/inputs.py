"""How inputs become numbers in [0, 1] and sets: limits, levels of categories, knots; and conditions in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy.levels import Levels, level_condition, scaled_inputs
from glassfleet.fuzzy.spans import span_condition
from glassfleet.rules import Condition
from glassfleet.schemes.fmt.partition import Knots, positions, up_to

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

    def condition(self, feature: int, first: int, last: int) -> Condition:
        """Return that an input is in the sets `first` .. `last`, or is one of their categories."""
        variable, own = self.domain.features[feature], self.knots[feature]
        if not variable.categories:
            return span_condition(variable, own, first, last)
        return level_condition(variable, self.levels[feature], own[first], own[last])
