"""From per-second metrics to the fifteen inputs: the same code for training files and for a live agent.

A vehicle measures nine metrics once a second (:data:`METRICS`). The inputs at second t summarise the ten seconds that
end at t; the target is the share of frames displayed three seconds later. Windows never cross runs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.alignment import Series, align
from glassfleet.data.timeplan import QOE, ready_plan

FloatArray = NDArray[np.float64]

WINDOW = 10
"""Seconds summarised by one row."""

HORIZON = 3
"""Seconds from the end of the window to the second that is forecast."""

TIME_PLAN = ready_plan(QOE)
"""The fifteen inputs as a live forecaster is told them; see ``glassfleet forecast``."""

METRICS = TIME_PLAN.signals
"""What a vehicle measures each second, in this order. ``occupied_blocks`` is announced by the serving cell."""

FEATURES = tuple(TIME_PLAN.inputs)
"""The inputs, in column order; the last part of each name is its unit."""

TARGET = "displayed_in_3s_share"
"""Share of the frames due in the third second from now that are displayed, [0, 1]."""

LABEL = "quality_in_3s"
"""The same as a class, for classifiers: one of :data:`GOOD` and :data:`POOR`."""

DRIVE, SECOND = "drive", "second"
"""Columns of a file with drives: which drive a row is of, and its second in it."""

GOOD, POOR = "Good", "Poor"
GOOD_ABOVE = 0.8
"""A larger share displayed is good; below it people notice."""

_COLUMNS: Mapping[str, tuple[str, float, float]] = {
    "sinr_mean_db": ("dB", -40.0, 70.0),
    "sinr_min_db": ("dB", -40.0, 70.0),
    "sinr_slope_db_per_s": ("dB/s", -10.0, 10.0),
    "rsrp_mean_dbm": ("dBm", -150.0, -40.0),
    "distance_mean_m": ("m", 0.0, 1500.0),
    "distance_slope_mps": ("m/s", -60.0, 60.0),
    "speed_mean_mps": ("m/s", 0.0, 60.0),
    "occupied_blocks_mean": ("blocks", 0.0, 50.0),
    "occupied_blocks_last": ("blocks", 0.0, 50.0),
    "cqi_mean": ("", 0.0, 15.0),
    "throughput_mean_mbps": ("Mbit/s", 0.0, 55.0),
    "throughput_last_mbps": ("Mbit/s", 0.0, 55.0),
    "buffer_mean_s": ("s", 0.0, 1.0),
    "buffer_last_s": ("s", 0.0, 1.0),
    "displayed_mean_share": ("", 0.0, 1.0),
    TARGET: ("", 0.0, 1.0),
}

UNITS = {name: unit for name, (unit, _, _) in _COLUMNS.items()}
"""Unit of each column."""

BOUNDS = {name: (low, high) for name, (_, low, high) in _COLUMNS.items()}
"""What is physically possible: the bounds that a run declares, known without looking at any vehicle's data."""


def labels_of(target: FloatArray, above: float = GOOD_ABOVE) -> NDArray[np.str_]:
    """Return ``Good`` where `target` is larger than `above`, else ``Poor``; the same shape."""
    return np.where(target > above, GOOD, POOR)


def rows_of_run(series: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the rows of one run: inputs, shape (n, 15), and target, shape (n,).

    Parameters
    ----------
    series : ndarray of float64, shape (seconds, 9)
        One run's metrics; ``n = seconds - 12`` rows come of it, none of a run shorter than 13 seconds.
    """
    count = series.shape[0] - WINDOW + 1 - HORIZON
    if count <= 0:
        return np.empty((0, len(FEATURES))), np.empty(0)
    seconds, drive = np.arange(len(series), dtype=np.float64), np.zeros(len(series), dtype=np.int64)
    metrics = {name: Series(seconds, series[:, index], drive) for index, name in enumerate(METRICS)}
    inputs = np.stack(list(align(metrics, TIME_PLAN).columns.values()), axis=1)[:count]
    return inputs, series[WINDOW - 1 + HORIZON :, METRICS.index("displayed_share")].copy()
