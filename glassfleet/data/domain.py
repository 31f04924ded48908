"""Feature domains: names, limits, units; and the scaling that they define."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from glassfleet.data.cells import MISSING
from schemas import limits

INPUT_QUANTILES: Final = (0.025, 0.975)
"""Quantiles of an input that become its limits, unless a scheme wants others."""

FARTHEST: Final = 10.0
"""Lines go on for so many times as far beyond a limit as the fleet's own values, so that forecasts from a broken
sensor are bounded."""


class Variable(BaseModel):
    """One input, or the target, with the limits that map to 0 and 1.

    Attributes
    ----------
    name : str
        Column name.
    low, high : float
        Limits in the variable's own unit, low <= high; values outside are clipped. Equal limits: a constant.
    unit : str
        Printed after numbers, e.g. ``"dB"``.
    terms : tuple of str
        Names for the fuzzy sets, lowest first; empty: the standard terms (Low, Medium, High ...).
    categories : tuple of str
        Of a column of text: its categories in lexicographic order; a value is then a position among them (low is 0,
        high the last). Empty for numbers.
    missing : float or None
        What an empty cell (NaN) is taken for, within the limits; an :class:`Indicator` then says that it was empty.
        None: the run knows no empty cells of this column.
    lowest, highest : float or None
        How far the fleet's values go beyond the limits, where straight lines go on, see :class:`Excess`. None: values
        beyond that limit are clipped.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(min_length=1, max_length=200)
    low: float
    high: float
    unit: str = Field(default="", max_length=40)
    terms: tuple[str, ...] = ()
    categories: tuple[str, ...] = Field(default=(), max_length=limits.MAX_CATEGORIES)
    missing: float | None = None
    lowest: float | None = None
    highest: float | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Variable:
        if self.categories and (self.low, self.high) != (0.0, len(self.categories) - 1.0):
            raise ValueError(f"{self.name}: categories are the values from 0 to their number less one")
        if list(self.categories) != sorted(set(self.categories)):
            raise ValueError(f"{self.name}: categories must be in lexicographic order, each once")
        if self.low > self.high:
            raise ValueError(f"{self.name}: low {self.low} is above high {self.high}")
        if not np.isfinite(self.high - self.low):
            raise ValueError(f"{self.name}: the range from {self.low} to {self.high} is too wide")
        if self.missing is not None and (self.categories or not self.low <= self.missing <= self.high):
            raise ValueError(f"{self.name}: an empty cell is taken for a number within the limits, of numbers alone")
        lowest = self.low if self.lowest is None else self.lowest
        highest = self.high if self.highest is None else self.highest
        if self.categories and (self.lowest, self.highest) != (None, None):
            raise ValueError(f"{self.name}: categories have nothing beyond their limits")
        if not lowest <= self.low <= self.high <= highest or not np.isfinite(highest - lowest):
            raise ValueError(f"{self.name}: the lowest and highest values are beyond the limits, or there are none")
        return self

    @property
    def may_be_empty(self) -> bool:
        """Whether cells of the column may be empty: the run knows what they are taken for, or the category of such."""
        return self.missing is not None or MISSING in self.categories

    def text(self, value: float) -> str:
        """Return a value as people read it: category, or number with unit; NaN is a missing one."""
        if np.isnan(value):
            return "missing"
        if self.categories:
            code = round(value)
            if code == value and 0 <= code < len(self.categories):
                return self.categories[code]
            return "an unknown category"
        return f"{value:.6g} {self.unit}".rstrip()


class Indicator(Variable):
    """Whether a cell of an input is empty: an input of its own, with the categories given and missing.

    Attributes
    ----------
    of : Variable
        The input.
    """

    of: Variable

    @classmethod
    def about(cls, variable: Variable) -> Indicator:
        """Return the indicator of an input."""
        categories = ("given", "missing")
        return cls(name=f"{variable.name} is missing", low=0.0, high=1.0, categories=categories, of=variable)


class Excess(Variable):
    """How far an input is beyond one of its limits: an input of its own, zero for nearly all rows.

    Sets and ramps end at limits that few values are beyond; so a rule's line over the input ends there, too. Over this
    one it goes on, with a slope of its own: what is far out moves no ordinary forecast.

    Attributes
    ----------
    of : Variable
        The input.
    side : "below" or "above"
        Which limit.
    """

    of: Variable
    side: Literal["below", "above"]

    @classmethod
    def about(cls, variable: Variable) -> list[Excess]:
        """Return what an input has beyond its limits: one, two, or none."""
        found = []
        for side, limit, end in (("below", variable.low, variable.lowest), ("above", variable.high, variable.highest)):
            if end is not None and variable.low < variable.high and abs(end - limit) > 0.0:
                name = f"{variable.name} {side} {limit:.12g}"
                found.append(cls(name=name, low=0.0, high=abs(end - limit), unit=variable.unit, of=variable, side=side))
        return found

    def of_values(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how far values of the input are beyond the limit, in its unit, same shape."""
        beyond = self.of.low - values if self.side == "below" else values - self.of.high
        return np.maximum(beyond, 0.0)


class Domain(BaseModel):
    """The agreed limits of a run: part of the model's document, found federatedly or declared.

    Attributes
    ----------
    features : tuple of Variable
        Inputs, in column order.
    target : Variable or None
        Numeric target (regression).
    classes : tuple of str
        Class labels in lexicographic order (classification; `target` then is None and `label` names the column).
    label : str
        Column name of the class label.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    features: tuple[Variable, ...] = Field(min_length=1, max_length=limits.MAX_FEATURES)
    target: Variable | None = None
    label: str = ""
    classes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Domain:
        names = self.input_names
        if len(set(names)) != len(names):
            raise ValueError("feature names must differ from each other")
        if (self.target is None) == (not self.classes):
            raise ValueError("a domain has either a numeric target or classes")
        if any(name.endswith("\0") for name in self.classes):
            raise ValueError("a class ends with a NUL character, which arrays of texts do not keep")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Feature names in column order."""
        return tuple(variable.name for variable in self.features)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The features, and the numeric target if there is one."""
        return self.features if self.target is None else (*self.features, self.target)

    @property
    def gaps(self) -> list[int]:
        """Positions of the features that may have empty cells."""
        return [index for index, variable in enumerate(self.features) if variable.missing is not None]

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """What is learned from: the features, an indicator of each that may have empty cells, then all excess."""
        return (*self.features, *(Indicator.about(self.features[index]) for index in self.gaps), *self.excess)

    @cached_property
    def excess(self) -> tuple[Excess, ...]:
        """What the features have beyond their limits, in their order."""
        return tuple(part for variable in self.features for part in Excess.about(variable))

    @cached_property
    def _limits(self) -> tuple[tuple[float, ...], ...]:
        """Low and high of all inputs, and where they are clipped once scaled; no arrays, as domains are compared."""
        inputs = self.inputs
        most = tuple(FARTHEST if isinstance(variable, Excess) else 1.0 for variable in inputs)
        return tuple(variable.low for variable in inputs), tuple(variable.high for variable in inputs), most

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Domain:
        """Return a copy; what is known of its features is that of its own."""
        copy = super().model_copy(update=update, deep=deep)
        for known in ("excess", "_limits"):
            copy.__dict__.pop(known, None)
        return copy

    @property
    def excess_of(self) -> list[int]:
        """Of each excess the position of its feature."""
        return [self.names.index(part.of.name) for part in self.excess]

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of :attr:`inputs`, by which documents name coefficients."""
        return tuple(variable.name for variable in self.inputs)

    def by_feature(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what is told of inputs, shape (inputs,), by feature, shape (F,): with that of indicator and excess."""
        n, gaps = len(self.features), self.gaps
        summed = values[:n].copy()
        summed[gaps] += values[n : n + len(gaps)]
        for place, value in zip(self.excess_of, values[n + len(gaps) :].tolist(), strict=True):
            summed[place] += value
        return summed

    @property
    def target_name(self) -> str:
        """Column name of the target or class label."""
        return self.target.name if self.target is not None else self.label

    @property
    def target_unit(self) -> str:
        """Unit of the numeric target; empty: it has none, or is a class."""
        return self.target.unit if self.target is not None else ""

    def variable(self, name: str) -> Variable:
        """Return an input, or the numeric target, by name; raises KeyError when there is none."""
        for variable in self.variables:
            if variable.name == name:
                return variable
        raise KeyError(f"no variable {name!r} in this domain")

    def reworded(self, change: Callable[[Variable], Variable]) -> Domain:
        """Return the domain with each of its variables changed."""
        target = None if self.target is None else change(self.target)
        return self.model_copy(update={"features": tuple(map(change, self.features)), "target": target})

    def check_rows(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows of features as rows of inputs (:meth:`completed`), in float64.

        Raises ValueError unless they have the domain's columns, and are finite; NaN where there may be empty cells.
        """
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.features):
            raise ValueError(f"X has shape {rows.shape}, expected (n, {len(self.features)})")
        rows = self.completed(rows)
        if not np.isfinite(rows).all():
            for index in np.flatnonzero(np.isnan(rows).any(axis=0)).tolist():
                raise ValueError(
                    f"X must be finite: {self.names[index]!r} has an empty cell, and none was there to learn from"
                )
            raise ValueError("X must be finite")
        return rows

    def completed(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows of features, shape (n, F), as rows of :attr:`inputs`.

        An empty cell (NaN) gets the number that it is taken for, and its indicator is 1.
        """
        if not self.gaps and not self.excess:
            return X
        empty = np.isnan(X[:, self.gaps])
        filled = X.copy()
        taken_for = np.array([self.features[index].missing for index in self.gaps], dtype=np.float64)
        filled[:, self.gaps] = np.where(empty, taken_for, X[:, self.gaps])
        beyond = [own.of_values(filled[:, at])[:, None] for at, own in zip(self.excess_of, self.excess, strict=True)]
        return np.concatenate([filled, empty.astype(np.float64), *beyond], axis=1)

    def as_given(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows of inputs, within their limits, as rows of features: cells are empty (NaN), excess is added."""
        if not self.gaps and not self.excess:
            return X
        n, gaps = len(self.features), self.gaps
        given = X[:, :n].copy()
        for column, (at, own) in enumerate(zip(self.excess_of, self.excess, strict=True), start=n + len(gaps)):
            given[:, at] += X[:, column] if own.side == "above" else -X[:, column]
        given[:, gaps] = np.where(X[:, n : n + len(gaps)] == 1.0, np.nan, given[:, gaps])
        return given

    def scale_inputs(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map rows of inputs `X` to [0, 1]: (x - low) / (high - low), clipped; a constant input becomes 0.

        Excess is clipped at :data:`FARTHEST` times what the fleet has. Element-wise, hence independent of how rows are
        spread.
        """
        return _scale(X, *map(np.array, self._limits))

    def scale_target(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map the target, shape (n,), to [0, 1]."""
        assert self.target is not None
        return _scale(y, np.float64(self.target.low), np.float64(self.target.high))

    def unscale_target(self, y: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map scaled targets back to the target's own unit; not clipped."""
        assert self.target is not None
        return self.target.low + y * (self.target.high - self.target.low)

    def to_document(self) -> dict[str, Any]:
        """Return the domain as JSON values (defaults left out)."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Domain:
        """Rebuild a domain; raises pydantic's ValidationError when it is malformed."""
        return cls.model_validate(document)


def _scale(values: NDArray[np.float64], low: Any, high: Any, most: Any = 1.0) -> NDArray[np.float64]:
    width = high - low
    varies = width > 0
    scaled = ((values - low) / np.where(varies, width, 1.0)).clip(0.0, most)
    return np.where(varies, scaled, 0.0)
