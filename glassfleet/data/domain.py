"""Feature domains: names, limits, units; and the scaling that they define."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from glassfleet.data.lags import Memory
from schemas import limits

INPUT_QUANTILES: Final = (0.025, 0.975)
"""Quantiles of an input that become its limits, unless a scheme wants others."""


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
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(min_length=1, max_length=200)
    low: float
    high: float
    unit: str = Field(default="", max_length=40)
    terms: tuple[str, ...] = ()
    categories: tuple[str, ...] = Field(default=(), max_length=limits.MAX_CATEGORIES)

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
        return self

    def text(self, value: float) -> str:
        """Return a value as people read it: category, or number with unit."""
        if self.categories:
            code = round(value)
            if code == value and 0 <= code < len(self.categories):
                return self.categories[code]
            return "an unknown category"
        return f"{value:.6g} {self.unit}".rstrip()


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
    memory : Memory or None
        How those of the inputs come about that are differences and lags of columns.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    features: tuple[Variable, ...] = Field(min_length=1, max_length=limits.MAX_FEATURES)
    target: Variable | None = None
    label: str = ""
    classes: tuple[str, ...] = ()
    memory: Memory | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Domain:
        names = self.names
        if len(set(names)) != len(names):
            raise ValueError("feature names must differ from each other")
        if (self.target is None) == (not self.classes):
            raise ValueError("a domain has either a numeric target or classes")
        if self.memory is not None:
            missing = sorted(set(self.memory.columns) - set(names))
            if missing:
                raise ValueError(f"memory input {missing[0]!r} is none of the features")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """Feature names in column order."""
        return tuple(variable.name for variable in self.features)

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that rows must have, beside the target: the features, or what memory makes them of."""
        if self.memory is None:
            return self.names
        return tuple(dict.fromkeys((*self.memory.plain(self.names), *self.memory.sources)))

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
        for variable in (*self.features, *([self.target] if self.target is not None else [])):
            if variable.name == name:
                return variable
        raise KeyError(f"no variable {name!r} in this domain")

    def check_rows(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rows of inputs as float64; raises ValueError unless they are finite and have the domain's columns."""
        rows = np.asarray(X, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.features):
            raise ValueError(f"X has shape {rows.shape}, expected (n, {len(self.features)})")
        if not np.isfinite(rows).all():
            raise ValueError("X must be finite")
        return rows

    def scale_inputs(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Map rows `X`, shape (n, F), to [0, 1]: (x - low) / (high - low), clipped; a constant input becomes 0.

        Element-wise, hence independent of how rows are spread.
        """
        low = np.array([variable.low for variable in self.features])
        high = np.array([variable.high for variable in self.features])
        return _scale(X, low, high)

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


def _scale(values: NDArray[np.float64], low: Any, high: Any) -> NDArray[np.float64]:
    width = high - low
    safe = np.where(width > 0, width, 1.0)
    scaled = np.clip((values - low) / safe, 0.0, 1.0)
    return np.where(width > 0, scaled, 0.0)


def quantile_variables(
    names: Sequence[str],
    X: NDArray[np.float64],
    input_quantiles: tuple[float, float],
    categories: Mapping[str, tuple[str, ...]],
) -> tuple[Variable, ...]:
    """Return the variables of columns `X`, shape (n, F): exact quantiles, or all categories of columns of text."""
    low, high = np.quantile(X, input_quantiles, axis=0)
    texts = [categories.get(name, ()) for name in names]
    return tuple(
        Variable(name=name, low=0.0, high=len(own) - 1.0, categories=own)
        if own
        else Variable(name=name, low=float(a), high=float(b))
        for name, a, b, own in zip(names, low, high, texts, strict=True)
    )


def pooled_domain(
    names: Sequence[str],
    target: str,
    X: NDArray[np.float64],
    y: NDArray[np.float64],
    input_quantiles: tuple[float, float] = INPUT_QUANTILES,
    *,
    categories: Mapping[str, tuple[str, ...]] | None = None,
) -> Domain:
    """Return a domain from pooled rows: for reproducing the papers only, a real run finds its domain federatedly.

    Inputs: the quantiles `input_quantiles`, or all `categories` of a column of text; target: minimum and maximum.
    """
    features = quantile_variables(names, X, input_quantiles, categories or {})
    return Domain(features=features, target=Variable(name=target, low=float(y.min()), high=float(y.max())))
