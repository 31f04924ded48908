"""A live video stream through a cell: queue at the base station, playout buffer in the vehicle, frames shown or lost.

A frame is made every 1/fps seconds and must be on the screen a fixed playout delay later. It waits in the queue of
the base station (first in, first out; a full queue drops what comes) and leaves it at the rate that the radio offers.
A frame that arrives after its moment is not shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]


BITRATE = 11e6
"""Mean bits per second of the stream."""

FPS = 25
"""Frames per second."""

PLAYOUT_DELAY = 1.0
"""Seconds between a frame's making and its moment on the screen."""

QUEUE_SECONDS = 0.42
"""Room in the base station's queue, in seconds of video. As it is shorter than the playout delay, a link too slow shows
part of the frames, and one much too slow shows none in time."""

GROUP, KEY_RATIO = 25, 4.0
"""Frames from one key frame to the next, and how many times larger a key frame is than the others."""


@dataclass(frozen=True)
class Playback:
    """What came of it, second by second, shape (runs, seconds).

    Attributes
    ----------
    displayed : ndarray
        Share of the second's frames that were shown, [0, 1].
    buffer : ndarray
        Seconds of video in the playout buffer at the end of the second.
    """

    displayed: FloatArray
    buffer: FloatArray


def play(rng: np.random.Generator, capacity: FloatArray) -> Playback:
    """Play the stream over links of `capacity`, bits per second, shape (runs, seconds).

    Work is counted in bits served since the start of the run. A frame that enters a queue of b bits, when the link
    could have served w, has arrived when the link could have served w + b + its own size.
    """
    runs, seconds = capacity.shape
    frames = seconds * FPS
    made = np.arange(frames) / FPS
    size = _sizes(rng, runs, frames)
    served = np.concatenate([np.zeros((runs, 1)), np.cumsum(capacity, axis=1)], axis=1)
    clock = np.arange(seconds + 1.0)
    offered = np.stack([np.interp(made, clock, row) for row in served])
    room = QUEUE_SECONDS * BITRATE

    # The one loop over frames: whether a frame still fits depends on those before it.
    finish = np.empty((runs, frames))
    last = np.zeros(runs)
    for frame in range(frames):
        begin = np.maximum(last, offered[:, frame])
        fits = begin - offered[:, frame] + size[:, frame] <= room
        last = np.where(fits, begin + size[:, frame], last)
        finish[:, frame] = np.where(fits, last, np.inf)

    arrival = np.stack([_when(row, clock, work) for row, work in zip(served, finish, strict=True)])
    due = made + PLAYOUT_DELAY
    shown = arrival <= due
    return Playback(_share_shown(shown, seconds), _buffered(rng, arrival, shown, due, clock[1:]))


def _sizes(rng: np.random.Generator, runs: int, frames: int) -> FloatArray:
    scene = rng.integers(0, GROUP, size=(runs, 1))
    key = (np.arange(frames) + scene) % GROUP == 0
    weight = np.where(key, KEY_RATIO, 1.0) * rng.lognormal(0.0, 0.25, size=(runs, frames))
    mean = (GROUP - 1 + KEY_RATIO) / GROUP * np.exp(0.25**2 / 2)
    return np.asarray(weight * (BITRATE / FPS / mean))


def _when(served: FloatArray, clock: FloatArray, work: FloatArray) -> FloatArray:
    """Return when the link had served `work` bits; infinity when it never did."""
    # interp needs rising abscissae; an outage (no service at all) is a step, made steep instead of vertical.
    rising = served + np.arange(served.size) * 1e-6
    arrival = np.interp(np.where(np.isfinite(work), work, 0.0), rising, clock)
    return np.where(work <= rising[-1], arrival, np.inf)


def _share_shown(shown: NDArray[np.bool_], seconds: int) -> FloatArray:
    """Count by the second in which frames were due on the screen; before the first is due, all is well."""
    delay = round(PLAYOUT_DELAY * FPS)
    due = np.concatenate([np.ones((shown.shape[0], delay), dtype=bool), shown], axis=1)[:, : shown.shape[1]]
    return np.asarray(due.reshape(shown.shape[0], seconds, FPS).mean(axis=2))


def _buffered(
    rng: np.random.Generator, arrival: FloatArray, shown: NDArray[np.bool_], due: FloatArray, ends: FloatArray
) -> FloatArray:
    """Seconds of video that are there at `ends` and not yet due; the frame on the screen is partly over by then."""
    level = np.empty((arrival.shape[0], ends.size))
    for index, moment in enumerate(ends):
        first, last = np.searchsorted(due, (moment, moment + PLAYOUT_DELAY), side="right")
        ready = shown[:, first:last] & (arrival[:, first:last] <= moment)
        level[:, index] = ready.sum(axis=1) / FPS
    return np.maximum(level - rng.uniform(0.0, 1.0 / FPS, size=level.shape), 0.0)
