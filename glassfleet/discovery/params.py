"""What discovery shall find, and how finely."""

from __future__ import annotations

import math
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from glassfleet.data.domain import INPUT_QUANTILES
from glassfleet.numerics.grids import narrowest
from schemas import limits

RESOLUTION: Final = 128
"""A limit is accepted when a fine bin is at most this fraction of the range found."""


class DiscoveryParameters(BaseModel):
    """What to find, and how finely.

    Attributes
    ----------
    features : tuple of str
        Input columns, in the order that the domain shall have.
    target : str
        Target column.
    bounds : dict of str to (float, float)
        Declared bounds, low < high, of any of the columns, in the column's unit. Not needed; they save bytes and clip
        nonsense.
    input_quantiles, target_quantiles : (float, float)
        Which quantiles become the limits, in [0, 1], lower first.
    bins : int
        Bins of the fine rounds.
    max_rounds : int
        Most rounds; a third is opened only for columns that two do not resolve.
    min_count : int
        Vehicles send no count in 1 .. ``min_count - 1``. 0 or 1 turns this off: the domain then equals, bit for bit,
        that of the pooled rows.
    units : dict of str to str
        Units, for texts.
    terms : dict of str to tuple of str
        Names for the fuzzy sets of a column, lowest first.
    classes : tuple of str
        Labels when the target is a class: it then has no limits to be found.
    labels : bool
        The target is a class; unless `classes` declares its labels they are found, as the union of the vehicles'.
    either : bool
        The target is a class where the vehicles have text in it, else a number.
    categories : bool
        Columns of text are taken; their categories are found, as the union of the vehicles'.
    missing : bool
        Inputs may have empty cells; what these are taken for is found: the middle of the fleet's values.
    excess : bool
        How far values go beyond the limits of inputs is found, too: the edge of the coarse round's outermost rows.
    guarded : bool
        One vehicle alone sets no limit, see :mod:`glassfleet.discovery.guard`. Off: all rows count.
    summed : bool
        Only sums over vehicles are seen, as in private runs, and each vehicle counts itself in them. Else the
        coordinator counts vehicles by what each tells.
    readable : bool
        Limits that were found are widened to numbers that people read at once, by less than a hundredth of the range,
        never beyond `bounds`. A column that lies between 0 and 1 ends there, where its last bin goes beyond.
    max_rows_each : int
        At most so many rows of a vehicle count; 0: found, where `guarded`, else all.
    support : int
        Of private runs, which set it: a limit has so many rows at it or beyond it, at least, of those that count; 0:
        one, whatever the quantiles say.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    features: tuple[str, ...] = Field(min_length=1, max_length=limits.MAX_FEATURES)
    target: str = Field(min_length=1, max_length=200)
    bounds: dict[str, tuple[float, float]] = Field(default_factory=dict)
    input_quantiles: tuple[float, float] = INPUT_QUANTILES
    target_quantiles: tuple[float, float] = (0.0, 1.0)
    bins: int = Field(default=1024, ge=2 * RESOLUTION, le=2**16)
    max_rounds: int = Field(default=4, ge=2, le=5)
    min_count: int = Field(default=3, ge=0, le=2**20)
    units: dict[str, str] = Field(default_factory=dict)
    terms: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    classes: tuple[str, ...] = ()
    labels: bool = False
    either: bool = False
    categories: bool = False
    missing: bool = False
    excess: bool = False
    guarded: bool = True
    summed: bool = False
    readable: bool = False
    max_rows_each: int = Field(default=0, ge=0, lt=2**31)
    support: int = Field(default=0, ge=0, le=1_000_000)

    @model_validator(mode="after")
    def _consistent(self) -> DiscoveryParameters:
        known = {*self.features, self.target}
        if len(known) != len(self.features) + 1:
            raise ValueError("features and target must be different names, each given once")
        for option, names in (("bounds", self.bounds), ("units", self.units), ("terms", self.terms)):
            unknown = sorted(set(names) - known)
            if unknown:
                raise ValueError(f"{option} names {unknown[0]!r}, which is neither a feature nor the target")
        for name, (low, high) in self.bounds.items():
            if not (low < high and math.isfinite(high - low)):
                raise ValueError(f"bounds of {name!r} must be finite with low < high, got {low} and {high}")
            if high - low <= narrowest(low, high, self.bins):
                raise ValueError(f"bounds of {name!r} are too close to each other to hold {self.bins} bins")
        for option, (lower, upper) in (("input", self.input_quantiles), ("target", self.target_quantiles)):
            if not 0 <= lower <= upper <= 1:
                raise ValueError(f"{option}_quantiles must satisfy 0 <= lower <= upper <= 1, got {lower} and {upper}")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose limits are to be found."""
        return self.features if self.classes or self.labels or self.either else (*self.features, self.target)

    def quantiles_of(self, column: str) -> tuple[float, float]:
        """Return the two quantiles that limit `column`."""
        return self.target_quantiles if column == self.target else self.input_quantiles

    def exact(self) -> DiscoveryParameters:
        """Return these parameters with nothing withheld or left out: the domain is then that of the pooled rows."""
        return self.model_copy(update={"min_count": 0, "guarded": False})
