"""Clocks of recordings and of live sources: what they do wrong is found, named, and cut into drives.

`cleaned` looks at a whole recording, `Clock` at one time after the other; both decide the same.
Times are whole microseconds inside, so that windows begin and end exactly where they are said to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

TICKS: Final = 1_000_000
"""In a second."""

BACK: Final = TICKS
"""A time so much before the newest one, or less, comes late and counts as the newest; one farther back begins a new
drive: the clock was set."""

TIMES: Final = frozenset(
    {"time", "times", "timestamp", "timestamps", "t", "ts", "time_s", "time_ms", "seconds", "at", "datetime", "zeit"}
)
DRIVES: Final = frozenset({"drive", "trip", "drive_id", "trip_id", "drive_number", "fahrt"})
"""Names, in lower case, of columns that tell the time of a row, and which drive it is of."""

_FARTHEST: Final = 4e12
"""Seconds; what is farther from zero is no time."""

_DAY: Final = 86_400.0


def tells_when(name: str) -> bool:
    """Whether a column of this name tells when a row was: a model that learns from it knows no other day.

    >>> tells_when("Time"), tells_when("trip"), tells_when("speed")
    (True, True, False)
    """
    return name.strip().lower() in TIMES | DRIVES


def ticks(time: FloatArray | float) -> IntArray:
    """Return times in seconds as whole microseconds, of the same shape; raises ValueError for what is no time."""
    seconds = np.asarray(time, dtype=np.float64)
    if not (np.abs(seconds) < _FARTHEST).all():  # NaN is not smaller
        raise ValueError("a time is no finite number of seconds")
    return np.rint(seconds * TICKS).astype(np.int64)


@dataclass(frozen=True)
class Cut:
    """Where a new drive begins.

    Attributes
    ----------
    at : float
        The first time of the new drive, in seconds.
    step : float
        Seconds from the newest time before it: negative when the clock steps back.
    """

    at: float
    step: float

    def __str__(self) -> str:
        """Name what happened."""
        length = abs(self.step)
        words = f"{length / _DAY:.6g} days" if length >= _DAY else f"{length:.6g} s"
        if self.step < 0:
            autumn = ", as local time does when summer ends" if abs(length - 3600) <= 120 else ""
            return f"the clock steps back by {words}, to {self.at:.15g}{autumn}"
        return f"{'the clock jumps ahead by' if length >= _DAY else 'nothing comes for'} {words}, up to {self.at:.15g}"


class Clock:
    """One time after the other, in the order of arrival.

    Parameters
    ----------
    gap : float
        Seconds, > 0; after a longer time without a sample a new drive begins.

    Attributes
    ----------
    now : int or None
        The newest time of this drive, in microseconds.
    late : int
        Times that came after a later one, by at most a second.
    """

    def __init__(self, gap: float) -> None:
        self._gap = int(ticks(gap))
        self.now: int | None = None
        self.late = 0

    def step(self, tick: int) -> Cut | None:
        """Take a time; return a cut when a new drive begins with it. The first drive begins without one."""
        before, self.now = self.now, tick
        if before is None:
            return None
        if tick - before > self._gap or tick < before - BACK:
            return Cut(tick / TICKS, (tick - before) / TICKS)
        self.late += tick < before
        self.now = max(before, tick)
        return None


@dataclass(frozen=True)
class Cleaned:
    """A recording's times, as they count.

    Attributes
    ----------
    time : ndarray of float64, shape (n,)
        Seconds; nowhere smaller than before in the same drive.
    drive : ndarray of int64, shape (n,)
        Number of the drive, from 0.
    is_new : ndarray of bool, shape (n,)
        Where a drive begins or time goes on. Where it does not, a row of a table is left out: its time is taken.
    cuts : tuple of Cut
        Where drives begin, other than the first.
    late : int
        Times that came after a later one, by at most a second.
    """

    time: FloatArray
    drive: IntArray
    is_new: NDArray[np.bool_]
    cuts: tuple[Cut, ...]
    late: int


def cleaned(time: FloatArray, gap: float) -> Cleaned:
    """Find what a clock did wrong.

    Parameters
    ----------
    time : ndarray of float64, shape (n,)
        Seconds, in the order of arrival.
    gap : float
        Seconds, > 0; after a longer time without a sample a new drive begins.

    Raises
    ------
    ValueError
        A time is no finite number.
    """
    at = ticks(time)
    longest = int(ticks(gap))
    step = np.diff(at)
    begins, cuts = [0], []
    now = int(at[0]) if at.size else 0
    # Between two of these, time only grows, and by little: no drive can begin there.
    for index in (np.flatnonzero((step < 0) | (step > longest)) + 1).tolist():
        now, tick = max(now, int(at[index - 1])), int(at[index])
        if tick - now > longest or tick < now - BACK:
            begins.append(index)
            cuts.append(Cut(tick / TICKS, (tick - now) / TICKS))
            now = tick
    drive = np.zeros(at.size, dtype=np.int64)
    is_new = np.ones(at.size, dtype=np.bool_)
    newest = at.copy()
    for number, (begin, end) in enumerate(zip(begins, [*begins[1:], at.size], strict=True)):
        drive[begin:end] = number
        newest[begin:end] = np.maximum.accumulate(at[begin:end])
        is_new[begin + 1 : end] = np.diff(newest[begin:end]) > 0
    return Cleaned(newest / TICKS, drive, is_new, tuple(cuts), int((at < newest).sum()))


def cleaned_together(times: Sequence[FloatArray], gap: float) -> list[Cleaned]:
    """Find what the one clock of several signals did wrong, where only each signal's own order of arrival is known.

    Parameters
    ----------
    times : sequence of ndarray of float64, shape (n_i,)
        Of each signal, seconds, in the order of arrival.
    gap : float
        As in `cleaned`.

    Returns
    -------
    list of Cleaned
        Of each signal; all with the cuts of the recording.

    Raises
    ------
    ValueError
        A time is no finite number.
    """
    each = [cleaned(time, _FARTHEST / 2) for time in times]  # which cuts where the clock steps back, and nowhere else
    time = np.concatenate([clean.time for clean in each] or [np.zeros(0)])
    order = np.lexsort((time, np.concatenate([clean.drive for clean in each] or [np.zeros(0, np.int64)])))
    whole = cleaned(time[order], gap)
    drive = np.empty_like(whole.drive)
    drive[order] = whole.drive
    result, first = [], 0
    for clean in each:
        of_signal = drive[first : (first := first + clean.time.size)]
        is_new = np.diff(clean.time, prepend=-np.inf) != 0
        result.append(Cleaned(clean.time, of_signal, is_new, whole.cuts, clean.late))
    return result


def is_missing(values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Return where there is no value: NaN among numbers, None among texts."""
    if values.dtype == object:
        return np.array([value is None or (isinstance(value, float) and math.isnan(value)) for value in values], bool)
    return np.asarray(np.isnan(values.astype(np.float64)))
