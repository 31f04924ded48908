"""Parameters of the blended model tree, and the grids of its sums."""

from __future__ import annotations

from pydantic import Field

from glassfleet.contract.tasks import check_classes, check_inputs, check_numeric
from glassfleet.data.documents import RunParameters
from glassfleet.data.domain import Domain
from glassfleet.numerics.statistics import EXACT_BITS, capacity
from glassfleet.schemes.tree.rows import MOST_TIMES

NAME = "tree"

MAX_INPUTS = 256
"""Most inputs: each is scanned once in pairs with all others (the root's Gram sums)."""

MAX_REGRESSORS = 32
"""Most inputs of the rules' polynomials: a fit of all rules together has as many unknowns for each rule."""

GRID_BITS = 20
"""Products of degrees, and products of columns, are rounded to multiples of 2^-20; a term of a sum is one of each."""

UNIT = 1 << (2 * GRID_BITS)
"""One row's full weight, in sums of products."""

EXACT_ROWS = 1 << 12
"""Most rows in one product: 2^(20 + 21 + 12) is exact in float64, as degrees are at most 1 and residuals at most 2."""

WEIGHTED_ROWS = EXACT_ROWS // MOST_TIMES
"""The same of rows that count up to `MOST_TIMES` times."""

SCORE_BITS = 28
"""Grid of the terms of sums by bin; a term is at most :data:`MAX_RESIDUAL`."""

MAX_RESIDUAL = 2.0
"""Residuals are clipped here: targets are in [0, 1], and a forecast that is further off is a broken one."""

MAX_ROWS = min(capacity(2 * GRID_BITS), 1 << (EXACT_BITS - SCORE_BITS - 2))
"""Largest total number of rows of a run for which no sum can overflow."""

WAYS = (3.0, 0.0)
"""Ways to grow that are tried: how dear it is to search among many ramps, by `bins.prices`; held-out rows choose."""

TRIAL = 2
"""Steps in which each way is tried."""

GROUP = 4
"""Neighbouring bins whose means are asked for together: means change slowly, and are half of what is sent."""

MAX_STEPS = 10
"""Most steps of growth, of two questions each; those of the way that is given up come on top."""

MAX_BANDED_STEPS = 24
"""Most steps of growth in a run with `support`, of two questions each."""

TOGETHER = 0.5
"""All leaves whose best gain is at least this share of the highest are split in one step."""

LEAST_ROWS = 5.0
"""Least weight on either side of a ramp, in rows."""

LEAST_GAIN = 1e-8
"""A ramp must lower the mean squared error, of the scaled target, by more than this: less is rounding."""

assert 1 << (2 * GRID_BITS + 1) <= (1 << EXACT_BITS) // EXACT_ROWS


MAX_RULES = 128
"""Most rules that a run can be told to have."""

MAX_CLASSES = 16
"""Most classes: the sums of a Newton round grow with their square."""

CLASS_RULES = 20
"""Most rules of classes: each has a line for every class."""

CLASS_WAYS = (0.0,)
"""The same of classes: few rounds are left for another."""

CLASS_STEPS = 8
"""Most steps of growth where Newton rounds follow."""

KAPPA = 5.0
"""Pull while growing, in rows of the leaf."""

CLASS_KAPPA = 20.0
"""The same of classes: a row's indicator tells less than a number."""

LEAST_CURVATURE = 1e-5
"""p (1 - p) counts as this at least, so that nodes of one class alone still have a Newton step."""


class TreeParameters(RunParameters):
    """Parameters of a run of tree.

    Attributes
    ----------
    compact : bool
        Ask for about a third of the bytes: of each input 32 bins instead of 64, of which four have their sums of
        residuals times inputs together, and exact sums of 4 ramps of a leaf instead of 8. Where rules have more than
        12 inputs there are at most 32.
    max_rules : int
        Most rules (leaves). Of classes there are at most 20, as each has a line for every class.
    max_slopes : int
        Most inputs in a rule's polynomial. Scores of classes have all: a slope that the rows say little of is pulled to
        that of the rule above.
    max_regressors : int
        Inputs that polynomials may use: the best of a forward selection on the root's sums. All may be split on.
    max_split_features : int
        After the root, only this many inputs, those with the highest gain at the root, are split on.
    min_weight_fraction : float
        Least share of the training rows' weight on either side of a split.
    holdout : float
        Share of the rows, chosen by a hash of the row, that decide on size, slopes and pull. 0: the largest tree.
    size_tolerance : float
        The simplest model is taken whose held-out squared error (of classes' indicators: Brier) is within this fraction
        of the best one's.
    min_rows : int
        A vehicle answers from condensed rows (:mod:`glassfleet.data.condense`), of groups of at least this many of one
        class, and of more rows than there are columns. 1: from its own rows.
    support : int
        Of private runs, which set it. Nothing is asked that rests on fewer rows, and no sum of products of fewer rows
        than it has columns. No rows are held out then: the size is chosen by a penalised error. 0: all is asked.
    """

    later = ("support",)

    compact: bool = False
    max_rules: int = Field(default=40, ge=1, le=MAX_RULES)
    max_slopes: int = Field(default=8, ge=0, le=MAX_REGRESSORS)
    max_regressors: int = Field(default=24, ge=1, le=MAX_REGRESSORS)
    max_split_features: int = Field(default=8, ge=1, le=MAX_INPUTS)
    min_weight_fraction: float = Field(default=0.01, ge=0.0, le=0.5)
    holdout: float = Field(default=0.2, ge=0.0, le=0.5)
    size_tolerance: float = Field(default=0.01, ge=0.0, le=1.0)
    min_rows: int = Field(default=3, ge=1, le=1_000_000)
    support: int = Field(default=0, ge=0, le=1_000_000)

    @property
    def group_rows(self) -> int:
        """Fewest rows of a group of condensed rows; 1: rows are not condensed."""
        return self.min_rows

    def least_weight(self, training: int) -> float:
        """Return the least weight on either side of a ramp, in rows, of so many training rows."""
        return max(self.min_weight_fraction * float(training), LEAST_ROWS)

    @property
    def bins(self) -> int:
        """Bins of each input; ramps lie between their edges."""
        return 32 if self.compact else 64

    @property
    def slope_bins(self) -> int:
        """Neighbouring bins whose sums of residuals times inputs are asked for together."""
        return GROUP if self.compact else 1

    @property
    def exact_ramps(self) -> int:
        """Ramps of a leaf whose exact sums are asked for."""
        return 4 if self.compact else 8


def check_domain(domain: Domain) -> None:
    """Raise ValueError, with the reason, unless there is a number or classes to learn."""
    if domain.target is not None:
        check_numeric(domain, NAME, MAX_INPUTS)
        return
    check_classes(domain, NAME, MAX_CLASSES)
    if len(domain.classes) < 2:
        raise ValueError(f"all rows are of one class, {domain.classes[0]!r}: there is nothing to tell apart")
    check_inputs(domain, NAME, MAX_INPUTS)
