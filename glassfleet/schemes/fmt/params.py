"""Parameters of the fuzzy model tree."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from glassfleet.data.documents import RunParameters
from glassfleet.fuzzy.partition import MAX_SETS
from glassfleet.numerics.statistics import EXACT_BITS, capacity
from glassfleet.schemes.fmt.partition import Kind

MAX_INPUTS = 256
"""Most inputs: each is scanned once in pairs with all others (the root's Gram sums)."""

MAX_REGRESSORS = 64
"""Most inputs of the rules' polynomials: the sums of each cut grow with their square."""

GRID_BITS = 20
"""Memberships and products of columns are rounded to multiples of 2^-20; a term of a sum is a product of both."""

SUPPORT_BITS = 6
"""In a run with `support` memberships are rounded to multiples of 2^-6, so that each row that counts weighs something.

Beside few others, a row of weight 0.001 hides nobody.
"""

BLOCK_ROWS = 1 << 11
"""Rows in one product: 2^(20 + 20 + 11) is exact in float64, with room to spare."""

ERROR_BITS = 32
"""Grid of squared errors."""

assert 1 << (2 * GRID_BITS) <= (1 << EXACT_BITS) // BLOCK_ROWS

MAX_ROWS = capacity(2 * GRID_BITS)
"""Largest total number of rows of a run for which no sum can overflow."""


class Parameters(RunParameters):
    """What a run of FMT can be told.

    Attributes
    ----------
    n_sets : int
        Fuzzy sets per input, K: of a mixed partition at most, in the uniform part of a union.
    other_sets : tuple of int
        Further values of `n_sets`: a tree is grown with each, one after the other, and the held-out rows choose.
    partition : {"mixed", "uniform", "quantile", "union"}
        Where the sets have their peaks, from summed histograms. In this order: at equal steps of half the input's range
        and half its ranks, at least 1/256 of the range apart; at equal steps of its range; at equal steps of its ranks.
        Last, at both of these, without those that come closer than 0.4 of the uniform step to another.
    max_rules : int
        Most rules (leaves).
    inference : {"averaged", "one_rule"}
        All rules that fire are averaged by their degrees, or the one on whose side the row is at every split answers.
    max_slopes : int
        Most inputs in a rule's polynomial; 0: constants. The held-out rows decide whether 8, 6, 4 or 2 are enough.
    max_regressors : int
        Inputs that polynomials may use: the best of a forward selection on the root's sums. All may be split on.
    max_split_features : int
        After the root, only this many inputs, those with the highest gain at the root, are split on.
    min_weight_fraction : float
        Least share of the training rows' weight on either side of a split.
    ridge : float
        Strength, in rows, of the pull of a side's coefficients towards its parent's while splits are compared.
    holdout : float
        Share of the rows, chosen by a hash of the row, that decide on the number of rules and slopes. 0: `max_rules`
        rules are kept.
    size_tolerance : float
        The simplest tree is taken whose held-out squared error is within this fraction of the best one's.
    min_rows : int
        A vehicle answers from condensed rows (:mod:`glassfleet.data.condense`), of groups of at least this many, and of
        more rows than there are columns. 1: from its own rows.
    support : int
        Of private runs, which set it. Nothing is asked that rests on fewer rows, and no sum of products of fewer rows
        than it has columns: where a set holds too few in a node or its sibling, it is joined to the next one. One
        number of sets is tried; costs one round more for each level. 0: all is asked.
    """

    later = ("support",)

    n_sets: int = Field(default=7, ge=2, le=31)
    other_sets: tuple[Annotated[int, Field(ge=2, le=31)], ...] = Field(default=(5,), max_length=8)
    partition: Kind = "mixed"
    max_rules: int = Field(default=40, ge=1, le=256)
    inference: Literal["averaged", "one_rule"] = "averaged"
    max_slopes: int = Field(default=12, ge=0, le=MAX_REGRESSORS)
    max_regressors: int = Field(default=32, ge=1, le=MAX_REGRESSORS)
    max_split_features: int = Field(default=8, ge=1, le=MAX_INPUTS)
    min_weight_fraction: float = Field(default=0.01, ge=0.0, le=0.5)
    ridge: float = Field(default=0.3, gt=1e-3, le=1e6)
    holdout: float = Field(default=0.2, ge=0.0, le=0.5)
    size_tolerance: float = Field(default=0.03, ge=0.0, le=1.0)
    min_rows: int = Field(default=3, ge=1, le=1_000_000)
    support: int = Field(default=0, ge=0, le=1_000_000)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.support and self.inference == "one_rule":
            raise ValueError('inference="one_rule" decides by rows that support does not count')
        return self

    @property
    def group_rows(self) -> int:
        """Fewest rows of a group of condensed rows; 1: rows are not condensed."""
        return self.min_rows

    @property
    def tried_sets(self) -> tuple[int, ...]:
        """The numbers of sets that are tried, in order.

        With `support` one: two cuts of different partitions differ by rows that neither partition's bands count.
        """
        return (self.n_sets, *(() if self.support else self.other_sets))

    @property
    def most_knots(self) -> int:
        """Most knots that a partition of this run can have; an input of text has at most nine."""
        return max(2 * self.n_sets, *(2 * sets for sets in self.other_sets), 9)


assert MAX_SETS >= 31 * 2 - 1  # a union of knots still has a partition's number of sets
