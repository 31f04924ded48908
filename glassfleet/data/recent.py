"""The rows of a vehicle that are in a run's window: the same rows wherever they are chosen.

The record of a model names the window. Whoever pools the rows of its cohort that are in it learns the same model.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import numpy as np

from glassfleet.data.clock import TIMES
from glassfleet.data.dataset import Dataset
from schemas.errors import DataError
from schemas.rounds import Window

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
