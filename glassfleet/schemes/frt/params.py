"""Parameters of the fuzzy regression tree, with the names the field uses."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from glassfleet.data.documents import RunParameters
from glassfleet.fuzzy.partition import MAX_SETS
from glassfleet.numerics.statistics import capacity, gram_capacity

LEAST_STRENGTH = 1 / 64
"""Least strength of a row in a leaf for it to hide others in the leaf's Gram sums, in a run with `support`."""

CELL_ROWS = 3
"""A cell of the level statistics that rests on fewer rows of an agent is nullified (Check & nullify)."""


MAX_LINEAR_FEATURES = 256
"""Most inputs of first-order leaves: a leaf's Gram sums grow with their square, its solution with their cube."""


class FrtParameters(RunParameters):
    """Parameters of a run of FRT.

    Attributes
    ----------
    n_sets : int
        Fuzzy sets per input, T.
    min_samples_fraction : float
        A node with fewer strong rows (strength >= 0.5^depth) than this fraction of all rows is a leaf.
    min_gain : float
        Smallest fuzzy variance reduction that justifies a split, in units of the scaled target squared.
    max_depth : int or None
        Deepest level of a leaf; None: the number of features is the only bound.
    order : {0, 1}
        Consequents: constants (Eq. 2) or first-order polynomials (Eq. 4).
    inference : {"maximum_matching", "weighted_average"}
        One rule answers, or all that fire are averaged by strength.
    nullify : bool
        Agents protect their rows: see `min_rows`. False: they do not.
    min_rows : int
        Agents answer from condensed rows (:mod:`glassfleet.data.condense`), of groups of at least this many, and of
        more rows than there are columns. 1 (the paper): from their own, and apply Check & nullify to the statistics of
        splits, from which rows can still be computed.
    fraction_bits : int
        Grid of the terms of sums: multiples of 2^-bits.
    gram_bits : int
        Grid of the entries of leaf regressions.
    support : int
        Not in the paper; of private runs. Nothing is asked that rests on fewer rows. An input with a smaller set in a
        node is not split on there, nor in the node's siblings and below, and no leaf has fewer rows than that, or than
        its regression has columns. 0: all is asked. Costs one round more for each level.
    """

    later = ("support",)

    n_sets: int = Field(default=5, ge=2, le=MAX_SETS)
    min_samples_fraction: float = Field(default=0.1, ge=0.0, le=1.0)
    min_gain: float = Field(default=1e-4, ge=0.0)
    max_depth: int | None = Field(default=None, ge=0)
    order: Literal[0, 1] = 1
    inference: Literal["maximum_matching", "weighted_average"] = "maximum_matching"
    nullify: bool = True
    min_rows: int = Field(default=3, ge=1, le=1_000_000)
    fraction_bits: int = Field(default=32, ge=16, le=40)
    gram_bits: int = Field(default=30, ge=16, le=32)
    support: int = Field(default=0, ge=0, le=1_000_000)

    @property
    def max_rows(self) -> int:
        """Largest total number of rows of a run for which no sum can overflow."""
        return min(capacity(self.fraction_bits), gram_capacity(self.gram_bits))

    @property
    def group_rows(self) -> int:
        """Fewest rows of a group of condensed rows; 1: rows are not condensed."""
        return self.min_rows if self.nullify else 1
