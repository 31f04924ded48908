"""Seven hexagonal cells: where they stand, what a vehicle receives from each, and which one serves it.

Everything is an array over (runs, seconds) or (runs, seconds, cells), so that all drives are computed at once. The
numbers are textbook ones for a small urban layout: they make the radio plausible, they do not model one operator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

SITE_DISTANCE = 500.0
"""Metres between neighbouring sites."""

AREA_HALF_WIDTH = 720.0
"""Vehicles stay in a square of twice this side, in metres, around the middle cell."""

RESOURCE_BLOCKS = 50
"""Resource blocks of a 10 MHz carrier."""

BLOCK_BANDWIDTH = 180e3
"""Hertz."""

TRANSMIT_POWER = 30.0
"""dBm, a small cell."""

PENETRATION_LOSS = 9.0
"""dB lost on the way into the vehicle."""

NOISE = -174.0 + 10.0 * np.log10(RESOURCE_BLOCKS * BLOCK_BANDWIDTH) + 9.0
"""dBm in the whole carrier, with a 9 dB receiver."""

SHADOWING_SD = 6.0
"""dB."""

SHADOWING_DISTANCE = 35.0
"""Metres after which the correlation of shadowing has fallen to 1/e."""

HYSTERESIS = 3.0
"""dB by which another cell must be better before the vehicle is handed over."""

EFFICIENCY = np.array(
    [
        *(0.0, 0.1523, 0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766),
        *(1.9141, 2.4063, 2.7305, 3.3223, 3.9023, 4.5234, 5.1152, 5.5547),
    ]
)
"""Bits per second and hertz for channel quality indicators 0 to 15 (3GPP TS 36.213, table 7.2.3-1)."""

CQI_FIRST, CQI_STEP = -6.9, 1.95
"""SINR, in dB, at which CQI 1 begins, and the dB that each further step takes."""


def sites() -> FloatArray:
    """Return the positions of the seven base stations in metres, shape (7, 2); the first is in the middle."""
    angles = np.deg2rad(30.0 + 60.0 * np.arange(6))
    ring = SITE_DISTANCE * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return np.concatenate([np.zeros((1, 2)), ring])


def autoregressive(rng: np.random.Generator, shape: tuple[int, ...], correlation: FloatArray | float) -> FloatArray:
    """Return a standard normal first-order autoregressive series along axis 1 of `shape`.

    Parameters
    ----------
    correlation : float or ndarray
        Lag-1 correlation in [0, 1); an array broadcasts to `shape` and may change from second to second.
    """
    noise = rng.standard_normal(shape)
    rho = np.broadcast_to(correlation, shape)
    fresh = np.sqrt(1.0 - rho**2)
    series = noise.copy()
    for second in range(1, shape[1]):
        series[:, second] = rho[:, second] * series[:, second - 1] + fresh[:, second] * noise[:, second]
    return series


def distances(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the metres from positions, shape (runs, seconds), to each site: shape (runs, seconds, 7)."""
    place = sites()
    return np.hypot(x[..., None] - place[:, 0], y[..., None] - place[:, 1])


def received_power(
    rng: np.random.Generator, distance: FloatArray, speed: FloatArray, antenna_gain: float
) -> tuple[FloatArray, FloatArray]:
    """Return the power received from each cell in dBm: its slow part (path loss, shadowing), and with fading.

    Path loss is 128.1 + 37.6 log10(d / km). Shadowing is correlated along the way driven, and half of it is common to
    all cells (what stands around the vehicle shadows them all). Fading is what is left of it in the mean over a second.
    """
    path_loss = 128.1 + 37.6 * np.log10(np.maximum(distance, 15.0) / 1000.0)
    rho = np.exp(-np.maximum(speed, 0.5) / SHADOWING_DISTANCE)
    common = autoregressive(rng, speed.shape, rho)[..., None]
    own = autoregressive(rng, distance.shape, rho[..., None])
    shadowing = SHADOWING_SD * np.sqrt(0.5) * (common + own)
    slow = TRANSMIT_POWER + antenna_gain - PENETRATION_LOSS - path_loss + shadowing
    fading = 2.2 * autoregressive(rng, distance.shape, 0.35)
    return slow, slow + fading


def serving_cell(slow: FloatArray) -> NDArray[np.int64]:
    """Return the serving cell, shape (runs, seconds), by the strongest smoothed power with hysteresis."""
    runs, seconds, _ = slow.shape
    rows = np.arange(runs)
    smoothed = slow[:, 0].copy()
    serving = np.empty((runs, seconds), dtype=np.int64)
    current = smoothed.argmax(axis=1)
    for second in range(seconds):
        smoothed += 0.5 * (slow[:, second] - smoothed)
        best = smoothed.argmax(axis=1)
        better = smoothed[rows, best] > smoothed[rows, current] + HYSTERESIS
        current = np.where(better, best, current)
        serving[:, second] = current
    return serving


def sinr(power: FloatArray, serving: NDArray[np.int64], load: FloatArray) -> FloatArray:
    """Return signal over interference and noise in dB, shape (runs, seconds).

    A neighbour interferes in proportion to its load: the share of its resource blocks in use.
    """
    watts = 10.0 ** (power / 10.0)
    signal = np.take_along_axis(watts, serving[..., None], axis=2)[..., 0]
    others = watts * load
    interference = others.sum(axis=2) - np.take_along_axis(others, serving[..., None], axis=2)[..., 0]
    return np.asarray(10.0 * np.log10(signal / (interference + 10.0 ** (NOISE / 10.0))))


def channel_quality(sinr_db: FloatArray) -> NDArray[np.int64]:
    """Return the channel quality indicator, 0 (out of range) to 15."""
    steps = np.floor((sinr_db - CQI_FIRST) / CQI_STEP).astype(np.int64) + 1
    return np.clip(steps, 0, 15)
