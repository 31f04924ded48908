"""Hashes of rows, and the rows that are chosen by them: those that count of a large vehicle, and those held out.

A row's place in a file, or the vehicle that holds it, would make a choice depend on how rows are spread, and the
fleet's model would differ from the central one. A hash chooses the same rows, and equal rows together, wherever they
are: whoever learns the run again (a central reference, an audit) gets the same sums and the same model.

`draw` takes at most so many rows of a vehicle (``max_rows_each``), so that none weighs more than its share. Its hash is
of the run's columns alone, in their order, so that other columns of a vehicle change nothing. It has no salt: two runs
with the same columns and limit are answered from the same rows, and tell no more together than one. It is not a secret
either: it decides which rows count, and no hash leaves the vehicle.

Hashes are SplitMix64 (Steele, Lea and Flood, 2014) over a row's numbers: one after the other is mixed in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.clock import TIMES
from glassfleet.data.dataset import Dataset
from schemas.errors import DataError
from schemas.rounds import Window

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS: Final = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def mixed_in(state: NDArray[np.uint64], values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hashes of lines, shape (n,), from those of their beginnings and the next number of each."""
    state = (state ^ values) + _STEP
    for shift, factor in _ROUNDS:
        state = (state ^ (state >> shift)) * factor
    return state ^ (state >> np.uint64(31))


def bits_of(numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return the bits of numbers, to be mixed in; zero has one sign."""
    return (np.ascontiguousarray(numbers, dtype=np.float64) + 0.0).view(np.uint64)


def is_held_out(inputs: NDArray[np.float64], target: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    """Return which rows are held out, about `share` of different rows.

    Parameters
    ----------
    inputs : ndarray of float64, shape (F, n)
        Scaled inputs.
    target : ndarray of float64, shape (n,)
        Scaled target.
    share : float
        In [0, 1).
    """
    return (row_hashes(inputs, target) >> np.uint64(11)).astype(np.float64) < share * 2.0**53


def is_first(hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which rows are the first of those that are equal to them, shape (n,), from :func:`row_hashes`."""
    first = np.zeros(hashes.shape, dtype=np.bool_)
    first[np.unique(hashes, return_index=True)[1]] = True
    return first


def row_hashes(inputs: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return a hash of each row, shape (n,), from scaled inputs, shape (F, n), and the scaled target, shape (n,)."""
    state = np.zeros(target.shape, dtype=np.uint64)
    for column in (*inputs, target):
        state = mixed_in(state, bits_of(column))
    return state


def draw(data: Dataset, columns: Sequence[str], most: int) -> Dataset:
    """Return the `most` rows of `data` with the lowest hashes, in their order; `data` itself when it has no more.

    Parameters
    ----------
    data : Dataset
        Rows of one vehicle.
    columns : sequence of str
        The run's inputs, in the order of its domain.
    most : int
        At least 1; 0: no limit.

    Raises
    ------
    KeyError
        A column is missing.

    Examples
    --------
    >>> rows = Dataset(("a",), "y", np.arange(5.0)[:, None], np.zeros(5))
    >>> draw(rows, ["a"], 2).X[:, 0]
    array([1., 4.])
    """
    if not most or data.rows <= most:
        return data
    key = ("drawn", tuple(columns), most)
    drawn: Dataset | None = data.memo.get(key)
    if drawn is None:
        # Equal rows have equal hashes: whichever of them is kept, the same values are.
        kept = np.sort(np.argsort(_hashes(data.select(columns)), kind="stable")[:most])
        drawn = data.memo[key] = data.at(kept)
    return drawn


def _hashes(data: Dataset) -> NDArray[np.uint64]:
    """Return a hash of each row, shape (n,): its values, mixed in one by one."""
    mixed = np.zeros(data.rows, dtype=np.uint64)
    for index, name in enumerate(data.features):
        column, own = data.X[:, index], data.categories.get(name)
        mixed = mixed_in(mixed, bits_of(column) if own is None else _of_texts(own)[column.astype(np.intp)])
    if data.y.dtype.kind == "f":
        return mixed_in(mixed, bits_of(data.y))
    texts, places = np.unique(data.y.astype(np.str_), return_inverse=True)
    return mixed_in(mixed, _of_texts(texts)[places.reshape(-1)])


def _of_texts(texts: Sequence[str] | NDArray[Any]) -> NDArray[np.uint64]:
    """Return a hash of each text: positions among categories differ from vehicle to vehicle, texts do not."""
    return np.array(
        [int.from_bytes(hashlib.sha256(str(text).encode()).digest()[:8], "little") for text in texts], dtype=np.uint64
    )


# --- the rows of a vehicle that are in a run's window: the same rows wherever they are chosen -------------------------
#
# The record of a model names the window. Whoever pools the rows of its cohort that are in it learns the same model.


FEWEST: Final = 20
"""Rows; a vehicle with fewer in a window of days has too little to learn from."""

_TIMES: Final = (1e8, 1e11)
"""Seconds since 1970 from 1973 on, and before the year 5138: no milliseconds, and no seconds of a drive."""


def recent(data: Dataset, window: Window) -> Dataset:
    """Return the rows in a window, in their order.

    Parameters
    ----------
    data : Dataset
        All rows of one vehicle.
    window : Window
        Of a run that was started.

    Raises
    ------
    DataError
        It has too few rows in the window, or no column tells when they were.

    Examples
    --------
    >>> rows = Dataset(("a",), "y", np.arange(5.0)[:, None], np.zeros(5))
    >>> recent(rows, Window(rows=2)).X[:, 0]
    array([3., 4.])
    """
    if window.rows is not None:
        kept = np.arange(max(0, data.rows - window.rows), data.rows)
    else:
        times = data.X[:, data.features.index(_column(data, window))]
        kept = np.flatnonzero((times > window.since) & (times <= (window.until or 0.0)))
        if kept.size < FEWEST:
            begin = datetime.fromtimestamp(window.since, tz=UTC)
            raise DataError(
                f"{kept.size} rows of the last {window.days:g} days, since {begin:%Y-%m-%d %H:%M} UTC; a run needs "
                f"{FEWEST}"
            )
    if kept.size == data.rows:
        return data
    return data.at(kept)


def _column(data: Dataset, window: Window) -> str:
    """Return the column that tells when a row was."""
    if window.time and window.time not in data.features:
        raise DataError(f"there is no column {window.time!r}, which tells when a row was")
    named = [window.time] if window.time else [name for name in data.features if name.strip().lower() in TIMES]
    if len(named) != 1:
        what = f"{' and '.join(named)} may tell when a row was" if named else "no column tells when a row was"
        raise DataError(f"{what}: the run must name it (window.time)")
    (name,) = named
    newest = np.nanmax(data.X[:, data.features.index(name)], initial=-np.inf)
    if name in data.categories or not _TIMES[0] < newest < _TIMES[1]:
        raise DataError(f"column {name!r} does not hold seconds since 1970")
    return name
