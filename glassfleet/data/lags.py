"""Lagged features: differences and lags of columns, computed at the vehicle from rows in the order of time.

A row says what is; how it changed is often worth more. A `Memory` declares further inputs, each from one column:

- a *lag* L: the value L rows ago, ``x[t - L]``;
- a *difference* D: the change over D rows, ``x[t] - x[t - D]``; with a lag L as well, ``x[t - L] - x[t - L - D]``.

They never cross drives: memory starts anew where the column `Memory.drive` changes and, with `Memory.step`, after a gap
in `Memory.time`. Rows are put in the order of `Memory.time` first; without such a column they are taken as they stand.

At the start of a drive older rows are missing. With ``start="hold"`` the drive's first row stands in for them (a lag is
then its value, a difference the change since then): no row is lost, and a forecast can be made from the first second
on. With ``start="drop"`` such rows are left out, in learning and in serving.

The target may be remembered too, under the name ``target``, but only what was known at the time: the target of a row
tells what happens `Memory.horizon` rows later, so its lag must be at least that. Before the first is known there is
nothing to hold, hence ``start`` must be ``drop``.

There are two implementations, `remember` over whole tables and `Recollection` row by row; both do one subtraction of
the same two float64 numbers per value, so they agree to the last bit (a property test holds them together).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from glassfleet.data.dataset import Dataset
from schemas import limits
from schemas.errors import DataError, UsageError
from schemas.text import first_fault

TARGET: Final = "target"
"""How a declaration names the run's target, whatever its column is called."""

MAX_STEPS: Final = 3600
"""Most rows that an input may look back."""

Column = Annotated[str, Field(min_length=1, max_length=200)]
FloatArray = NDArray[np.float64]


class Recall(BaseModel):
    """One lagged feature.

    Attributes
    ----------
    input : str
        Column; ``target``: the run's target.
    difference : int
        Rows over which the change is taken, 0 (no difference) to `MAX_STEPS`.
    lag : int
        Rows ago, 0 to `MAX_STEPS`. At least one of the two is above 0.
    name : str
        Of the new column; empty: made of the others, as ``speed_mps_change_1`` or ``speed_mps_before_5``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: Column
    difference: int = Field(default=0, ge=0, le=MAX_STEPS)
    lag: int = Field(default=0, ge=0, le=MAX_STEPS)
    name: str = Field(default="", max_length=200)

    @model_validator(mode="after")
    def _looks_back(self) -> Recall:
        if not self.difference and not self.lag:
            raise ValueError(f"{self.input!r}: give a difference or a lag of at least one row")
        return self

    @property
    def column(self) -> str:
        """Name of the new column."""
        change = f"_change_{self.difference}" if self.difference else ""
        before = f"_before_{self.lag}" if self.lag else ""
        return self.name or f"{self.input}{change}{before}"

    @property
    def depth(self) -> int:
        """Rows that it looks back."""
        return self.lag + self.difference


class Memory(BaseModel):
    """The lagged features of a run: part of its domain, so that every vehicle and every forecast computes the same.

    Attributes
    ----------
    inputs : tuple of Recall
    drive : str
        Column that tells drives apart (any number, or a category); empty: all rows are of one. It is no input itself.
    time : str
        Column with the rows' time within a drive, in any unit; empty: rows are in order. It is no input itself.
    step : float or None
        Time from a row to the next, > 0; a row that is off by more than half of it starts memory anew. None: gaps are
        not looked for. Needs `time`.
    horizon : int
        Rows from a row to the moment that its target tells; needed to remember the target.
    start : "hold" or "drop"
        What the first rows of a drive remember (see the module).

    Examples
    --------
    >>> memory = Memory.from_document({"memory": [{"input": "speed", "difference": 1}], "drive": "trip"})
    >>> memory.columns
    ('speed_change_1',)
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    inputs: tuple[Recall, ...] = Field(min_length=1, max_length=limits.MAX_FEATURES)
    drive: str = Field(default="", max_length=200)
    time: str = Field(default="", max_length=200)
    step: float | None = Field(default=None, gt=0)
    horizon: int = Field(default=0, ge=0, le=MAX_STEPS)
    start: Literal["hold", "drop"] = "hold"

    @model_validator(mode="after")
    def _consistent(self) -> Memory:
        names = [*self.columns, *self._roles]
        if len(set(names)) != len(names):
            raise ValueError("new columns, drive and time must have different names")
        if self.step is not None and not self.time:
            raise ValueError("step is the time between two rows: name the time column too")
        for recall in self.inputs:
            if recall.input in self._roles:
                raise ValueError(f"{recall.input!r} says when a row was, and is no input")
            if recall.input != TARGET:
                continue
            if not self.horizon:
                raise ValueError("to remember the target, say how many rows ahead it lies: horizon")
            if recall.lag < self.horizon:
                raise ValueError(
                    f"the target of {recall.lag} rows ago is not known yet: with horizon {self.horizon} a lag of the "
                    f"target must be at least {self.horizon}"
                )
            if self.start != "drop":
                raise ValueError('a drive has no known target at first: remembering the target needs start "drop"')
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the new columns, in order."""
        return tuple(recall.column for recall in self.inputs)

    @property
    def sources(self) -> tuple[str, ...]:
        """Columns that a vehicle must have for them, drive and time included."""
        return (*dict.fromkeys(recall.input for recall in self.inputs if recall.input != TARGET), *self._roles)

    @property
    def uses_target(self) -> bool:
        """Whether the target is remembered."""
        return any(recall.input == TARGET for recall in self.inputs)

    @property
    def depth(self) -> int:
        """Rows that the deepest of them looks back."""
        return max(recall.depth for recall in self.inputs)

    @property
    def _roles(self) -> tuple[str, ...]:
        return tuple(name for name in (self.drive, self.time) if name)

    def plain(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return those of `names` that are inputs as they stand: neither new columns, nor drive, nor time."""
        others = {*self.columns, *self._roles}
        return tuple(name for name in names if name not in others)

    def extended(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the inputs of a run over columns `names`: the plain ones, then the new ones."""
        return (*self.plain(names), *self.columns)

    def needed(self, names: Iterable[str]) -> frozenset[str]:
        """Return the columns that a vehicle must have to give the inputs `names`."""
        return frozenset({*self.plain(names), *self.sources})

    def bounds(self, known: Mapping[str, tuple[float, float]], target: str) -> dict[str, tuple[float, float]]:
        """Return bounds of new columns that follow from the `known` ones of their columns."""
        ranges = {}
        for recall in self.inputs:
            own = known.get(target if recall.input == TARGET else recall.input)
            if own is not None:
                low, high = own
                ranges[recall.column] = (low - high, high - low) if recall.difference else (low, high)
        return ranges

    def units(self, known: Mapping[str, str], target: str) -> dict[str, str]:
        """Return units of new columns: those of their columns."""
        names = {recall.column: target if recall.input == TARGET else recall.input for recall in self.inputs}
        return {column: known[name] for column, name in names.items() if name in known}

    def to_document(self) -> dict[str, Any]:
        """Return the declaration as JSON values (defaults left out)."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_document(cls, document: Any) -> Memory:
        """Read a declaration as people write it, the list called ``memory`` or ``inputs``; raises UsageError."""
        if isinstance(document, Mapping) and "memory" in document and "inputs" not in document:
            document = {"inputs" if name == "memory" else name: value for name, value in document.items()}
        try:
            return cls.model_validate(document)
        except ValidationError as fault:
            raise UsageError(f"lagged features: {first_fault(fault)}") from fault


def remember(data: Dataset, memory: Memory | None) -> Dataset:
    """Return `data` with the columns of `memory`, and without drive and time.

    Rows keep their places (those that ``start="drop"`` leaves out are missing). Data that have the new columns already
    come back unchanged, as do all without a memory. The result is kept in ``data.memo``.

    Raises
    ------
    DataError
        A column is missing or holds text; two rows of a drive have the same time; a drive's rows are not together and
        there is no time to put them in order.
    """
    if memory is None or set(memory.columns) <= set(data.features):
        return data
    key = ("memory", memory.model_dump_json())
    remembered: Dataset | None = data.memo.get(key)
    if remembered is None:
        remembered = data.memo[key] = _remember(data, memory)
    return remembered


def _remember(data: Dataset, memory: Memory) -> Dataset:
    place = {name: index for index, name in enumerate(data.features)}
    for name in memory.sources:
        if name not in place:
            raise DataError(f"lagged features: there is no column {name!r} here")
    clash = sorted(set(memory.columns) & {*data.features, data.target})
    if clash:
        raise DataError(f"lagged features: there is a column {clash[0]!r} already; give the new one another name")
    order, first = _drives(data, memory)
    position = np.arange(data.rows)
    columns = []
    for recall in memory.inputs:
        values = _source(data, recall.input, place)[order]
        now = values[np.maximum(position - recall.lag, first)]
        if recall.difference:
            now = now - values[np.maximum(position - recall.depth, first)]
        column = np.empty(data.rows)
        column[order] = now
        columns.append(column)
    plain = memory.plain(data.features)
    X = np.column_stack([data.X[:, [place[name] for name in plain]], *columns])
    y = data.y
    if memory.start == "drop":
        kept = np.empty(data.rows, dtype=np.bool_)
        kept[order] = position - first >= memory.depth
        X, y = X[kept], y[kept]
    texts = {name: own for name, own in data.categories.items() if name in plain}
    return Dataset((*plain, *memory.columns), data.target, X, y, categories=texts, key=data.key)


def _source(data: Dataset, name: str, place: Mapping[str, int]) -> FloatArray:
    if name == TARGET:
        if data.y.dtype.kind != "f":
            raise DataError(f"lagged features: the target {data.target!r} is a class, which has no lag or difference")
        return data.y
    if name in data.categories:
        raise DataError(f"lagged features: column {name!r} holds text, which has no lag or difference")
    values = data.X[:, place[name]]
    if np.isnan(values).any():
        raise DataError(f"lagged features: column {name!r} has empty cells, of which there is no lag: fill them")
    return values


def _drives(data: Dataset, memory: Memory) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows in order, and for each place in that order where its drive begins."""
    count = data.rows
    position = np.arange(count)
    drive = data.X[:, data.features.index(memory.drive)] if memory.drive else np.zeros(count)
    if not memory.time:
        new = np.ones(count, dtype=np.bool_)
        new[1:] = drive[1:] != drive[:-1]
        if int(new.sum()) > len(np.unique(drive)):
            what = f"lagged features: rows of one drive ({memory.drive!r}) are not together"
            raise DataError(what, "Sort the file, or declare its time column")
        return position, np.maximum.accumulate(np.where(new, position, 0))
    time = data.X[:, data.features.index(memory.time)]
    order = np.lexsort((time, drive))
    drive, time = drive[order], time[order]
    same = drive[1:] == drive[:-1]
    gaps = time[1:] - time[:-1]
    twice = np.flatnonzero(same & (gaps <= 0))
    if twice.size:
        what = f"lagged features: two rows of one drive have the same time {time[twice[0]]:g} ({memory.time!r})"
        raise DataError(what, "Name the column that tells drives apart as drive, or leave out the doubles")
    new = np.ones(count, dtype=np.bool_)
    new[1:] = ~same if memory.step is None else ~same | (np.abs(gaps - memory.step) > memory.step / 2)
    return order, np.maximum.accumulate(np.where(new, position, 0))


class Recollection:
    """The same, row by row: what a live forecaster has.

    Parameters
    ----------
    memory : Memory

    Examples
    --------
    >>> recollection = Recollection(Memory(inputs=(Recall(input="speed", difference=1),)))
    >>> recollection.push({"speed": 3.0}), recollection.push({"speed": 5.0})
    ({'speed': 3.0, 'speed_change_1': 0.0}, {'speed': 5.0, 'speed_change_1': 2.0})
    """

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        deepest = memory.depth + 1
        self._past: dict[str, deque[float]] = {
            recall.input: deque(maxlen=deepest - (memory.horizon if recall.input == TARGET else 0))
            for recall in memory.inputs
        }
        self._rows = 0
        self._drive: float | None = None
        self._time: float | None = None

    def clear(self) -> None:
        """Forget all rows: a new drive, or a gap."""
        for past in self._past.values():
            past.clear()
        self._rows = 0
        self._drive = self._time = None

    def push(self, row: Mapping[str, float], *, observed: float | None = None) -> dict[str, float] | None:
        """Take the next row; return it with the new columns, without drive and time.

        Parameters
        ----------
        row : mapping of str to float
            Columns by name, drive and time among them where they are declared.
        observed : float or None
            The target that has become known now: that of the row `Memory.horizon` rows ago. None: not known; memory
            of the target then starts anew.

        Returns
        -------
        dict or None
            None: the drive is too young (``start="drop"``).

        Raises
        ------
        KeyError
            A column is missing.
        ValueError
            A value is not finite, or the row is not later than the one before. The row is not taken.
        """
        memory = self._memory
        values = {name: float(row[name]) for name in memory.sources}
        for name, value in values.items():
            if not math.isfinite(value):
                raise ValueError(f"{name!r} is {value}, not a finite number")
        drive = values[memory.drive] if memory.drive else None
        time = values[memory.time] if memory.time else None
        if self._rows and self._is_new(drive, time):
            self.clear()
        self._drive, self._time = drive, time
        for name, past in self._past.items():
            if name != TARGET:
                past.append(values[name])
            elif self._rows >= memory.horizon:
                if observed is None:
                    past.clear()
                else:
                    past.append(float(observed))
        self._rows += 1
        if memory.start == "drop" and not self._is_full():
            return None
        new = {recall.column: self._recalled(recall) for recall in memory.inputs}
        plain = memory.plain(row)
        return {**{name: float(row[name]) for name in plain}, **new}

    def _is_new(self, drive: float | None, time: float | None) -> bool:
        if drive != self._drive:
            return True
        if time is None or self._time is None:
            return False
        gap = time - self._time
        if gap <= 0:
            raise ValueError(f"a row of time {time:g} after one of {self._time:g}: rows must come in the order of time")
        step = self._memory.step
        return step is not None and abs(gap - step) > step / 2

    def _is_full(self) -> bool:
        if self._rows <= self._memory.depth:
            return False
        return all(len(self._past[recall.input]) > recall.depth - self._ahead(recall) for recall in self._memory.inputs)

    def _ahead(self, recall: Recall) -> int:
        return self._memory.horizon if recall.input == TARGET else 0

    def _recalled(self, recall: Recall) -> float:
        past, ahead = self._past[recall.input], self._ahead(recall)

        def ago(rows: int) -> float:
            return past[-1 - min(rows - ahead, len(past) - 1)]

        return ago(recall.lag) - ago(recall.depth) if recall.difference else ago(recall.lag)


def recalled_names(memory: Memory | None, features: Sequence[str]) -> tuple[str, ...]:
    """Return a run's inputs over the columns `features`; all of them without a memory."""
    return tuple(features) if memory is None else memory.extended(features)
