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


@dataclass(frozen=True)
class Stream:
    """What is streamed.

    Attributes
    ----------
    bitrate : float
        Mean bits per second.
    fps : int
        Frames per second.
    playout_delay : float
        Seconds between a frame's making and its moment on the screen.
    queue_seconds : float
        Room in the base station's queue, in seconds of video. As it is shorter than the playout delay, a link
        too slow shows part of the frames, and one much too slow shows none in time.
    group : int
        Frames from one key frame to the next.
    key_ratio : float
        How many times larger a key frame is than the others.
    """

    bitrate: float = 11e6
    fps: int = 25
    playout_delay: float = 1.0
    queue_seconds: float = 0.42
    group: int = 25
    key_ratio: float = 4.0


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


def play(rng: np.random.Generator, capacity: FloatArray, stream: Stream) -> Playback:
    """Play `stream` over links of `capacity`, bits per second, shape (runs, seconds).

    Work is counted in bits served since the start of the run: a frame that enters a queue of b bits, when the link
    could have served w, has arrived when the link could have served w + b + its own size.
    """
    runs, seconds = capacity.shape
    frames = seconds * stream.fps
    made = np.arange(frames) / stream.fps
    size = _sizes(rng, runs, frames, stream)
    served = np.concatenate([np.zeros((runs, 1)), np.cumsum(capacity, axis=1)], axis=1)
    clock = np.arange(seconds + 1.0)
    offered = np.stack([np.interp(made, clock, row) for row in served])
    room = stream.queue_seconds * stream.bitrate

    # The one loop over frames: whether a frame still fits depends on those before it.
    finish = np.empty((runs, frames))
    last = np.zeros(runs)
    for frame in range(frames):
        begin = np.maximum(last, offered[:, frame])
        fits = begin - offered[:, frame] + size[:, frame] <= room
        last = np.where(fits, begin + size[:, frame], last)
        finish[:, frame] = np.where(fits, last, np.inf)

    arrival = np.stack([_when(row, clock, work) for row, work in zip(served, finish, strict=True)])
    due = made + stream.playout_delay
    shown = arrival <= due
    return Playback(_share_shown(shown, seconds, stream), _buffered(rng, arrival, shown, due, clock[1:], stream))


def _sizes(rng: np.random.Generator, runs: int, frames: int, stream: Stream) -> FloatArray:
    scene = rng.integers(0, stream.group, size=(runs, 1))
    key = (np.arange(frames) + scene) % stream.group == 0
    weight = np.where(key, stream.key_ratio, 1.0) * rng.lognormal(0.0, 0.25, size=(runs, frames))
    mean = (stream.group - 1 + stream.key_ratio) / stream.group * np.exp(0.25**2 / 2)
    return np.asarray(weight * (stream.bitrate / stream.fps / mean))


def _when(served: FloatArray, clock: FloatArray, work: FloatArray) -> FloatArray:
    """Return when the link had served `work` bits; infinity when it never did."""
    # interp needs rising abscissae; an outage (no service at all) is a step, made steep instead of vertical.
    rising = served + np.arange(served.size) * 1e-6
    arrival = np.interp(np.where(np.isfinite(work), work, 0.0), rising, clock)
    return np.where(work <= rising[-1], arrival, np.inf)


def _share_shown(shown: NDArray[np.bool_], seconds: int, stream: Stream) -> FloatArray:
    """Count by the second in which frames were due on the screen; before the first is due, all is well."""
    delay = round(stream.playout_delay * stream.fps)
    due = np.concatenate([np.ones((shown.shape[0], delay), dtype=bool), shown], axis=1)[:, : shown.shape[1]]
    return np.asarray(due.reshape(shown.shape[0], seconds, stream.fps).mean(axis=2))


def _buffered(  # noqa: PLR0917 - one call, above
    rng: np.random.Generator,
    arrival: FloatArray,
    shown: NDArray[np.bool_],
    due: FloatArray,
    ends: FloatArray,
    stream: Stream,
) -> FloatArray:
    """Seconds of video that are there at `ends` and not yet due; the frame on the screen is partly over by then."""
    level = np.empty((arrival.shape[0], ends.size))
    for index, moment in enumerate(ends):
        first, last = np.searchsorted(due, (moment, moment + stream.playout_delay), side="right")
        ready = shown[:, first:last] & (arrival[:, first:last] <= moment)
        level[:, index] = ready.sum(axis=1) / stream.fps
    return np.maximum(level - rng.uniform(0.0, 1.0 / stream.fps, size=level.shape), 0.0)
