"""Signals, each at its own times, become rows: declared once, for recordings and for a live vehicle.

`align` makes the rows of a recording at once, `Aligner` those of a vehicle as samples come. Both take every value by
the same function, from samples that are not later than the row: they give the same rows, to the last bit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.clock import TICKS, Clock, Cut, FloatArray, IntArray, is_missing, ticks
from glassfleet.data.timeplan import TimePlan, taken


@dataclass(frozen=True)
class Series:
    """The samples of one signal, in the order of arrival.

    Attributes
    ----------
    time : ndarray of float64, shape (n,)
        Seconds; in a drive nowhere smaller than before.
    value : ndarray of float64 or of object, shape (n,)
        NaN, or None among texts: the sample says that there is no value.
    drive : ndarray of int64, shape (n,)
        Number of the drive, as from `glassfleet.data.clock.cleaned` over all of the recording's times.
    """

    time: FloatArray
    value: NDArray[Any]
    drive: IntArray


@dataclass(frozen=True)
class Aligned:
    """Rows in time.

    Attributes
    ----------
    time : ndarray of float64, shape (m,)
        Seconds.
    drive : ndarray of int64, shape (m,)
    columns : dict of str to ndarray, shape (m,)
        float64 with NaN, or object with None, where a value is missing.
    """

    time: FloatArray
    drive: IntArray
    columns: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Row:
    """A row of a live vehicle; a cell is None where its value is missing."""

    time: float
    drive: int
    cells: dict[str, Any]


def align(signals: Mapping[str, Series], plan: TimePlan) -> Aligned:
    """Make the rows of a recording.

    Parameters
    ----------
    signals : mapping of str to Series
        One that is not there has no samples.
    plan : TimePlan

    Raises
    ------
    ValueError
        A statistic of a signal of texts, or time goes back within a drive.
    """
    known = {name: (signals[name], ticks(signals[name].time)) for name in plan.signals if name in signals}
    for name, (series, at) in known.items():
        if ((np.diff(at) < 0) & (np.diff(series.drive) == 0)).any():
            raise ValueError(f"the time of {name!r} goes back within a drive")
    drives = np.unique(np.concatenate([series.drive for series, _ in known.values()] or [np.zeros(0, np.int64)]))
    none = np.zeros(0, np.int64), np.zeros(0)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in plan.inputs}
    stands: list[IntArray] = [none[0]]
    for drive in drives.tolist():
        of_drive = {}
        for name, (series, at) in known.items():
            begin, end = np.searchsorted(series.drive, [drive, drive + 1])
            of_drive[name] = at[begin:end], series.value[begin:end]
        heard = [at for at, _ in of_drive.values() if at.size]
        first, last = min(int(at[0]) for at in heard), max(int(at[-1]) for at in heard)
        begin = first + int(ticks(plan.starts_after))
        if plan.every_ms is not None:
            rows = _grid(plan.every_ms, begin - 1, last)
        else:
            rows = np.unique(of_drive.get(plan.rows, none)[0])
            rows = rows[rows >= begin]
        stands.append(rows)
        for name, part in plan.inputs.items():
            parts[name].append(taken(part, *of_drive.get(part.signal, none), rows))
    return Aligned(
        np.concatenate(stands) / TICKS,
        np.repeat(drives, np.array([rows.size for rows in stands[1:]], dtype=np.int64)),
        {name: np.concatenate(columns) if columns else np.zeros(0) for name, columns in parts.items()},
    )


def _grid(every_ms: int, after: int, last: int) -> IntArray:
    """Return the multiples of so many milliseconds in (`after`, `last`], in microseconds."""
    step = every_ms * (TICKS // 1000)
    return np.arange(after // step + 1, last // step + 1, dtype=np.int64) * step


class Aligner:
    """The rows of a live vehicle.

    Parameters
    ----------
    plan : TimePlan

    Attributes
    ----------
    cuts : list of Cut
        Where drives began, other than the first; who has told them may clear it.
    left_out : int
        Samples of a time that was taken already.

    Examples
    --------
    >>> from glassfleet.data.timeplan import Input
    >>> plan = TimePlan(rows="speed", inputs={"mean": Input(signal="speed", take="mean", seconds=2)})
    >>> live = Aligner(plan)
    >>> [row.cells for time in range(4) for row in live.push(time, {"speed": float(time)}, is_whole=True)]
    [{'mean': 1.5}, {'mean': 2.5}]
    """

    def __init__(self, plan: TimePlan) -> None:
        self._plan = plan
        self._clock = Clock(plan.gap)
        self._drive = 0
        self._samples: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in plan.signals}
        # Twice the width of what is interpolated: the sample before the moment is needed, too.
        self._kept = {
            name: max(
                (int(ticks(2 * part.past)) for part in plan.inputs.values() if part.signal == name),
                default=0,
            )
            for name in plan.signals
        }
        self._statistics = {part.signal: part.of_numbers for part in plan.inputs.values() if part.of_numbers}
        self._done = self._begin = 0
        self.cuts: list[Cut] = []
        self.left_out = 0

    @property
    def late(self) -> int:
        """Samples that came after a later one, by at most a second; they count as if they came in time."""
        return self._clock.late

    def push(self, time: float, values: Mapping[str, Any], *, is_whole: bool = False) -> list[Row]:
        """Take what came at a time; return the rows that are made by it.

        Parameters
        ----------
        time : float
            Seconds.
        values : mapping of str to float, str or None
            Signal -> value; None or NaN says that there is none. Others than the plan's are passed over.
        is_whole : bool
            Whether all values of this time come at once, as in an object of JSON or a row of a table. Then its row is
            there with it, and what comes again for a time is left out; else with the first sample of a later time.

        Raises
        ------
        ValueError
            The time is no number, or a value is none where a statistic is asked for. Nothing is taken.
        """
        tick = int(ticks(time))
        new = {name: self._cell(name, values[name]) for name in self._samples if name in values}
        if not new:
            return []
        before = self._clock.now
        cut = self._clock.step(tick)
        now = self._clock.now
        assert now is not None
        rows: list[Row] = []
        if before is None:
            self._start(now)
        elif cut is not None:
            rows += self._due(before)
            self.cuts.append(cut)
            self._drive += 1
            self._start(now)
        elif now > before:
            rows += self._due(now - 1)
        elif is_whole:
            self.left_out += 1
            return []
        for name, value in new.items():
            at, kept = self._samples[name]
            at.append(now)
            kept.append(value)
        if is_whole:
            rows += self._due(now)
        return rows

    def flush(self) -> list[Row]:
        """Return the rows that wait for a later time: the source has ended."""
        return [] if self._clock.now is None else self._due(self._clock.now)

    def end_drive(self) -> list[Row]:
        """Begin a new drive with the next sample; return the rows that wait."""
        rows = self.flush()
        self._drive += self._clock.now is not None
        self._clock.now = None
        return rows

    def _start(self, now: int) -> None:
        for at, kept in self._samples.values():
            at.clear()
            kept.clear()
        self._begin = now + int(ticks(self._plan.starts_after))
        self._done = self._begin - 1

    def _cell(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, str):
            if value is not None and name in self._statistics:
                raise ValueError(f"{name!r} is {value[:40]!r}, and its {self._statistics[name]} is asked for")
            return value
        try:
            return float(value)
        except TypeError as fault:
            raise ValueError(f"{name!r} is neither a number nor a text") from fault

    def _due(self, until: int) -> list[Row]:
        """Return the rows that stand up to a time and were not returned yet."""
        plan = self._plan
        if plan.every_ms is not None:
            rows = _grid(plan.every_ms, self._done, until)
        else:
            at, _ = self._samples[plan.rows]
            rows = np.array(at[-1:], dtype=np.int64)
            rows = rows[(rows > self._done) & (rows <= until)]
        self._done = max(self._done, until)
        columns = []
        for part in plan.inputs.values() if rows.size else ():
            at, kept = self._samples[part.signal]
            values = np.array(kept, dtype=np.float64 if part.of_numbers else object)
            cells = taken(part, np.array(at, dtype=np.int64), values, rows)
            columns.append(
                [None if gone else cell for gone, cell in zip(is_missing(cells), cells.tolist(), strict=True)]
            )
        self._forget()
        return [
            Row(row / TICKS, self._drive, dict(zip(plan.inputs, cells, strict=True)))
            for row, *cells in zip(rows.tolist(), *columns, strict=bool(columns))
        ]

    def _forget(self) -> None:
        """Drop the samples that no later row can see, when they are half of what is kept."""
        for name, (at, kept) in self._samples.items():
            oldest = self._done - self._kept[name]
            if at and at[len(at) // 2] < oldest:
                gone = bisect_left(at, oldest)
                del at[:gone], kept[:gone]
