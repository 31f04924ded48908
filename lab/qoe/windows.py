"""From per-second metrics to the fifteen inputs: the same code for training files and for a live agent.

A vehicle measures nine metrics once a second (:data:`METRICS`). The inputs at second t summarise the ten seconds that
end at t; the target is the share of frames displayed three seconds later. Windows never cross runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from glassfleet.data import presets

FloatArray = NDArray[np.float64]

WINDOW = 10
"""Seconds summarised by one row."""

HORIZON = 3
"""Seconds from the end of the window to the second that is forecast."""

METRICS = (
    "sinr_db",
    "rsrp_dbm",
    "distance_m",
    "speed_mps",
    "occupied_blocks",
    "cqi",
    "throughput_mbps",
    "buffer_s",
    "displayed_share",
)
"""What a vehicle measures each second, in this order. ``occupied_blocks`` is announced by the serving cell."""

FEATURES = (
    "sinr_mean_db",
    "sinr_min_db",
    "sinr_slope_db_per_s",
    "rsrp_mean_dbm",
    "distance_mean_m",
    "distance_slope_mps",
    "speed_mean_mps",
    "occupied_blocks_mean",
    "occupied_blocks_last",
    "cqi_mean",
    "throughput_mean_mbps",
    "throughput_last_mbps",
    "buffer_mean_s",
    "buffer_last_s",
    "displayed_mean_share",
)
"""The inputs, in column order; the last part of each name is its unit."""

TARGET = "displayed_in_3s_share"
"""Share of the frames due in the third second from now that are displayed, [0, 1]."""

LABEL = "quality_in_3s"
"""The same as a class, for classifiers: one of :data:`GOOD` and :data:`POOR`."""

DRIVE, SECOND = "drive", "second"
"""Columns of a file with drives: which drive a row is of, and its second in it. They are no inputs."""

GOOD, POOR = "Good", "Poor"
GOOD_ABOVE = 0.8
"""A larger share displayed is good; below it people notice."""

UNITS: Mapping[str, str] = {
    "sinr_mean_db": "dB",
    "sinr_min_db": "dB",
    "sinr_slope_db_per_s": "dB/s",
    "rsrp_mean_dbm": "dBm",
    "distance_mean_m": "m",
    "distance_slope_mps": "m/s",
    "speed_mean_mps": "m/s",
    "occupied_blocks_mean": "blocks",
    "occupied_blocks_last": "blocks",
    "cqi_mean": "",
    "throughput_mean_mbps": "Mbit/s",
    "throughput_last_mbps": "Mbit/s",
    "buffer_mean_s": "s",
    "buffer_last_s": "s",
    "displayed_mean_share": "",
    TARGET: "",
}
"""Unit of each column."""

BOUNDS: Mapping[str, tuple[float, float]] = {
    "sinr_mean_db": (-40.0, 70.0),
    "sinr_min_db": (-40.0, 70.0),
    "sinr_slope_db_per_s": (-10.0, 10.0),
    "rsrp_mean_dbm": (-150.0, -40.0),
    "distance_mean_m": (0.0, 1500.0),
    "distance_slope_mps": (-60.0, 60.0),
    "speed_mean_mps": (0.0, 60.0),
    "occupied_blocks_mean": (0.0, 50.0),
    "occupied_blocks_last": (0.0, 50.0),
    "cqi_mean": (0.0, 15.0),
    "throughput_mean_mbps": (0.0, 55.0),
    "throughput_last_mbps": (0.0, 55.0),
    "buffer_mean_s": (0.0, 1.0),
    "buffer_last_s": (0.0, 1.0),
    "displayed_mean_share": (0.0, 1.0),
    TARGET: (0.0, 1.0),
}
"""What is physically possible: the bounds that a run declares, known without looking at any vehicle's data."""


def labels_of(target: FloatArray, above: float = GOOD_ABOVE) -> NDArray[np.str_]:
    """Return ``Good`` where `target` is larger than `above`, else ``Poor``; the same shape."""
    return np.where(target > above, GOOD, POOR)


_POSITION = {name: index for index, name in enumerate(METRICS)}
WINDOW_PLAN = presets.window(presets.QOE)
"""The fifteen inputs as a live forecaster is told them; see ``glassfleet forecast``."""

assert WINDOW_PLAN.metrics == METRICS
assert tuple(WINDOW_PLAN.inputs) == FEATURES

MEMORY = presets.memory(presets.QOE)
"""The memory inputs of the case study: how each input changed within the last second."""


def summarise(block: FloatArray) -> FloatArray:
    """Return the inputs of windows.

    Parameters
    ----------
    block : ndarray of float64, shape (..., 10, 9)
        Ten seconds of the metrics, oldest first.

    Returns
    -------
    ndarray of float64, shape (..., 15)
        In the order of :data:`FEATURES`.
    """
    return WINDOW_PLAN.summarise(block)


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
    blocks = sliding_window_view(series, WINDOW, axis=0)[:count]
    target = series[WINDOW - 1 + HORIZON :, _POSITION["displayed_share"]]
    return summarise(np.swapaxes(blocks, 1, 2)), target.copy()


class LiveWindow:
    """The last ten seconds of one vehicle, for serving.

    Examples
    --------
    >>> window = LiveWindow()
    >>> second = dict.fromkeys(METRICS, 1.0)
    >>> [window.push(second) is not None for _ in range(11)][-3:]
    [False, True, True]
    """

    def __init__(self) -> None:
        self._seconds: deque[list[float]] = deque(maxlen=WINDOW)

    def push(self, second: Mapping[str, float]) -> FloatArray | None:
        """Add one second's metrics; return the inputs, shape (15,), once ten seconds are there.

        Raises KeyError naming a metric that is missing. A second that was not measured must be told by :meth:`clear`:
        a window with a gap would be another feature than the one that was learned.
        """
        self._seconds.append([float(second[name]) for name in METRICS])
        if len(self._seconds) < WINDOW:
            return None
        return summarise(np.array(self._seconds))

    def clear(self) -> None:
        """Forget what was measured: a new drive, or a gap in the measurements."""
        self._seconds.clear()
