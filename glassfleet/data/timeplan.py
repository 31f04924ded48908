"""What the columns of rows are, declared in time: a table ``[time]`` of a plan, and how a cell is taken by it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from glassfleet.data.clock import TICKS, FloatArray, IntArray, is_missing, ticks
from schemas import limits
from schemas.errors import UsageError
from schemas.text import first_fault

Name = Annotated[str, Field(min_length=1, max_length=200)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Take = Literal["last", "interpolated", "mean", "min", "max", "slope", "count"]

_WINDOWS: Final = frozenset({"mean", "min", "max", "slope", "count"})
_OF_TEXTS: Final = frozenset({"last", "count"})
"""What can be taken of a signal of texts."""

_AT_ONCE: Final = 1 << 20
"""Samples of windows that are laid out side by side for slopes."""


class Input(BaseModel):
    """What a column of a row is, of the samples of one signal that are not later than the row.

    Attributes
    ----------
    signal : str
    take : str
        ``last``: the last known value. ``mean``, ``min``, ``max``, ``slope`` (per second) and ``count`` are of the
        samples in the window before the row. ``interpolated``: the value `seconds` before the row,
        on the line between the samples around that moment; neither may be farther than `seconds` from it.
    seconds : float
        Up to a day. Samples count that are younger than this; if there is none, the value is missing (a count is 0).
        The last sample may itself say that there is no value; windows pass over such samples.
    change : float or None
        Up to a day: the column is by how much this has changed in so many seconds. None: it is the value itself.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    signal: Name
    take: Take = "last"
    seconds: Seconds
    change: Seconds | None = None

    @property
    def past(self) -> float:
        """Seconds before the row, of which samples may be needed."""
        return self.seconds + (self.change or 0.0)

    @property
    def of_numbers(self) -> str:
        """What of it cannot be had of texts; empty: nothing."""
        return "change" if self.change is not None else "" if self.take in _OF_TEXTS else self.take


class TimePlan(BaseModel):
    """Where rows stand in time, and what is in them.

    Attributes
    ----------
    column : str
        What the time is called: in rows, and in samples that come as objects. Empty: rows do not tell it, and samples
        have that of their arrival unless their source tells another.
    drive : str
        What the number of the drive is called in rows; a sample with another value of this field than the one before
        begins a new drive. Empty: rows do not tell it.
    rows : str
        A row stands at each time of this signal.
    every_ms : int or None
        Or: a row stands at each multiple of so many milliseconds, from the first sample of a drive to its last.
    gap : float
        Seconds without any sample of these signals, after which a new drive begins; nothing is held across it.
    start : float or None
        Seconds from a drive's first sample to its first row; None: the longest window and the longest change, so that
        all are full.
    inputs : dict of str to Input
        Column -> what it is, in this order.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str = Field(default="", max_length=200)
    drive: str = Field(default="", max_length=200)
    rows: str = Field(default="", max_length=200)
    every_ms: int | None = Field(default=None, ge=1, le=86_400_000)
    gap: Seconds = 60.0
    start: float | None = Field(default=None, ge=0, le=86_400, allow_inf_nan=False)
    inputs: dict[Name, Input] = Field(min_length=1, max_length=limits.MAX_FEATURES)

    @model_validator(mode="after")
    def _consistent(self) -> TimePlan:
        if bool(self.rows) == (self.every_ms is not None):
            raise ValueError("rows stand at the times of a signal or every so many milliseconds: give rows or every_ms")
        twice = sorted({self.column, self.drive} & set(self.inputs))
        if twice:
            raise ValueError(f"{twice[0]!r} is both an input and the name of the time or the drive")
        return self

    @property
    def signals(self) -> tuple[str, ...]:
        """The signals that are needed, in the order of their first use."""
        used = (part.signal for part in self.inputs.values())
        return tuple(dict.fromkeys([*([self.rows] if self.rows else []), *used]))

    @property
    def starts_after(self) -> float:
        """Seconds from a drive's first sample to its first row."""
        if self.start is not None:
            return self.start
        parts = self.inputs.values()
        return max((part.past if part.take in _WINDOWS else part.change or 0.0 for part in parts), default=0.0)

    def units_of(self, signals: Mapping[str, str]) -> dict[str, str]:
        """Return the units of the inputs by those of the signals, as far as they are known."""
        units = {name: signals.get(part.signal, "") for name, part in self.inputs.items() if part.take != "count"}
        return {
            name: f"{unit}/s" if self.inputs[name].take == "slope" else unit for name, unit in units.items() if unit
        }

    @classmethod
    def from_document(cls, document: Any) -> TimePlan:
        """Read a declaration; raises UsageError naming the first fault."""
        try:
            return cls.model_validate(document)
        except ValidationError as fault:
            raise UsageError(f"time: {first_fault(fault)}") from fault


QOE: Final = "qoe"
"""Name of the case study's plan, which is ready."""


def ready_plan(name: str) -> TimePlan:
    """Return a plan by its name."""
    return TimePlan.from_document(
        json.loads(resources.files("glassfleet.data").joinpath(f"{name}.json").read_text("utf-8"))
    )


def taken(part: Input, at: IntArray, values: NDArray[Any], rows: IntArray) -> NDArray[Any]:
    """Return a column, shape (m,): what each row takes of a signal.

    Parameters
    ----------
    part : Input
    at : ndarray of int64, shape (n,)
        When the signal's samples came, in microseconds, in order.
    values : ndarray of float64 or of object, shape (n,)
    rows : ndarray of int64, shape (m,)
        When the rows stand, in order.

    Raises
    ------
    ValueError
        A statistic or a change of texts.
    """
    if part.change is not None:
        whole = part.model_copy(update={"change": None})
        now, before = (_numbers(part, taken(whole, at, values, moment)) for moment in (rows, rows - ticks(part.change)))
        return now - before
    width = int(ticks(part.seconds))
    if part.take == "interpolated":
        return _interpolated(at, _numbers(part, values), rows, width)
    if part.take in _WINDOWS:
        is_known = ~is_missing(values)
        at, values = at[is_known], values[is_known]
    low, high = np.searchsorted(at, rows - width, "right"), np.searchsorted(at, rows, "right")
    size = high - low
    if part.take == "count":
        return size.astype(np.float64)
    if part.take == "last":
        padded = np.append(values, [None if values.dtype == object else np.nan])
        return np.asarray(padded[np.where(size > 0, high - 1, values.size)])
    numbers = _numbers(part, values) + 0.0  # no -0.0: which of two zeros is the smaller one depends on their order
    if part.take == "slope":
        return _slopes(at, numbers, rows, low, size)
    operation = {"mean": np.add, "min": np.minimum, "max": np.maximum}[part.take]
    # Sums of samples, not differences of running sums: a window's result depends on its own samples alone.
    bounds = np.stack([low, high], axis=1).ravel()
    result = operation.reduceat(np.append(numbers, 0.0), bounds)[::2] if rows.size else np.zeros(0)
    if part.take == "mean":
        result = result / np.maximum(size, 1)
    return np.where(size > 0, result, np.nan)


def _numbers(part: Input, values: NDArray[Any]) -> FloatArray:
    try:
        return values.astype(np.float64)
    except ValueError as fault:
        raise ValueError(f"{part.signal!r} has texts, and its {part.of_numbers} is asked for") from fault


def _interpolated(at: IntArray, values: FloatArray, rows: IntArray, width: int) -> FloatArray:
    moment = rows - width
    padded_at, padded = np.append(at, np.iinfo(np.int64).max), np.append(values, np.nan)
    after = np.searchsorted(at, moment, "left")
    before = np.searchsorted(at, moment, "right") - 1
    is_exact = padded_at[after] == moment
    after = np.where(is_exact, before, after)  # of several samples at the moment the last one
    is_known = is_exact | ((before >= 0) & (padded_at[before] > moment - width) & (padded_at[after] <= rows))
    before, after = np.where(is_known, before, at.size), np.where(is_known, after, at.size)
    span = np.where(is_exact | ~is_known, 1, padded_at[after] - padded_at[before])
    share = np.where(is_exact | ~is_known, 0.0, (moment - padded_at[before]) / span)
    return np.asarray(np.where(is_exact, padded[before], padded[before] + (padded[after] - padded[before]) * share))


def _slopes(at: IntArray, values: FloatArray, rows: IntArray, low: IntArray, size: IntArray) -> FloatArray:
    result = np.full(rows.size, np.nan)
    for chosen in _chunks(np.flatnonzero(size > 1), size):
        count = size[chosen]
        first = np.cumsum(count) - count
        place = np.repeat(low[chosen] - first, count) + np.arange(int(count.sum()))
        moment = (at[place] - np.repeat(rows[chosen], count)) / TICKS
        moment -= np.repeat(np.add.reduceat(moment, first) / count, count)
        spread = np.add.reduceat(moment * moment, first)
        with np.errstate(invalid="ignore", divide="ignore"):
            slope = np.add.reduceat(moment * values[place], first) / spread
        result[chosen] = np.where(spread > 0, slope, np.nan)
    return result


def _chunks(chosen: IntArray, size: IntArray) -> Iterator[IntArray]:
    """Cut rows into parts whose windows hold about `_AT_ONCE` samples together."""
    if chosen.size:
        total = np.cumsum(size[chosen])
        ends = np.unique(np.searchsorted(total, np.arange(_AT_ONCE, int(total[-1]), _AT_ONCE)) + 1)
        yield from (part for part in np.split(chosen, ends) if part.size)
