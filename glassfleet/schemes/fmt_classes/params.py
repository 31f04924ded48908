"""Parameters of the fuzzy model tree for classes."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from glassfleet.data.documents import RunParameters
from glassfleet.schemes.fmt.params import MAX_INPUTS, MAX_REGRESSORS

MAX_HINGES: Final = 32

MAX_CLASSES: Final = 16
"""Most classes: the sums of a Newton round grow with their square."""

RIDGE: Final = 0.3
"""Pull of a side's coefficients towards its parent's while splits are compared, in rows."""

SIZE_RIDGE: Final = 0.1
"""The same when numbers of rules are compared."""

FIRST_PULL: Final = 0.03
"""The same of the scores' slopes until the rows tell a better one, in rows, for columns with a variance of one."""

LEAST_PULL: Final = 0.001
MOST_PULL: Final = 1000.0
"""Between these is the pull that the rows tell."""

LEAST_SPREAD: Final = 1e-6
"""Least variance of a column that a pull is scaled by."""

INTERCEPT_PULL: Final = 0.03
"""The pull of intercepts, in rows. Scores of ten are usual, and a stronger pull punishes them."""

STEPS: Final = 8
"""Newton rounds at most; fewer where no coefficient moves any more."""

LARGEST_STEP: Final = 8.0
"""No coefficient of a node moves farther in one round; else the round is shortened for the node."""

STILL: Final = 0.01
"""Scores whose coefficients moved less than this are found: it changes a probability by a quarter of it at most."""


class Parameters(RunParameters):
    """What a run of the classifier can be told.

    Attributes
    ----------
    n_sets : int
        Most fuzzy sets per input of numbers.
    max_rules : int
        Most rules (leaves).
    max_slopes : int
        Most inputs and bends in a score; 0: constants. What rows cannot tell is pulled towards the rule above.
    max_hinges : int
        Most bends of the lines that scores are made of, over all inputs; 0: scores are straight in each.
    max_regressors : int
        Inputs that scores may use: the best of a forward selection on the root's sums. All may be split on.
    max_split_features : int
        After the root, only this many inputs, those with the highest gain at the root, are split on.
    holdout : float
        Share of the rows, chosen by a hash of the row, that decide on the number of rules. 0: `max_rules` rules
        are kept.
    size_tolerance : float
        The smallest tree is taken whose held-out squared error (Brier) is within this fraction of the best one's.
    min_rows : int
        A vehicle answers from condensed rows (:mod:`glassfleet.data.condense`), of groups of at least this many of one
        class, and of more rows than there are columns. 1: from its own rows.
    """

    n_sets: int = Field(default=11, ge=2, le=31)
    max_rules: int = Field(default=20, ge=1, le=256)
    max_slopes: int = Field(default=32, ge=0, le=MAX_REGRESSORS)
    max_hinges: int = Field(default=6, ge=0, le=MAX_HINGES)
    max_regressors: int = Field(default=32, ge=1, le=MAX_REGRESSORS)
    max_split_features: int = Field(default=8, ge=1, le=MAX_INPUTS)
    holdout: float = Field(default=0.2, ge=0.0, le=0.5)
    size_tolerance: float = Field(default=0.01, ge=0.0, le=1.0)
    min_rows: int = Field(default=3, ge=1, le=1_000_000)

    @property
    def group_rows(self) -> int:
        """Fewest rows of a group of condensed rows; 1: rows are not condensed."""
        return self.min_rows

    @property
    def most_knots(self) -> int:
        """Most knots that a partition of this run can have; an input of text has at most nine."""
        return max(self.n_sets, 9)

    @property
    def ridge(self) -> float:
        """Pull while splits are compared; see :class:`~glassfleet.schemes.fmt.growth.GrowthParameters`."""
        return RIDGE

    @property
    def min_weight_fraction(self) -> float:
        """Least share of the training rows' weight on either side of a split."""
        return 0.01
