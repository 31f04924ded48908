"""The project's own QoE simulator: vehicles drive through seven cells while a video plays.

A vehicle is a function of (seed, number): it can be simulated alone, on its own machine, and is the same whichever
fleet it is part of. Vehicles differ in where they drive, how fast, what their antenna gains, and at which hours (how
loaded the cells are); each run differs again. Conditions that one vehicle meets seldom, another meets daily: that is
what federation is for.
"""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from lab.qoe import cells
from lab.qoe.windows import DRIVE, FEATURES, HORIZON, LABEL, METRICS, SECOND, TARGET, WINDOW, labels_of, rows_of_run

FloatArray = NDArray[np.float64]

RUNS, TEST_RUNS = 24, 4
"""Drives of a vehicle, and how many of them are kept for testing."""

ROWS_PER_RUN = (114, 124)
"""Shortest and longest drive, in rows of one second."""


@dataclass(frozen=True)
class Habits:
    """What makes a vehicle itself.

    Attributes
    ----------
    home : tuple of float
        Centre of where it starts, metres.
    roaming : float
        Standard deviation of its starting points, metres.
    speed : float
        Cruising speed, metres per second.
    antenna_gain : float
        dB.
    load : float
        Usual share of occupied resource blocks at the hours when it drives, (0, 1).
    """

    home: tuple[float, float]
    roaming: float
    speed: float
    antenna_gain: float
    load: float


@dataclass(frozen=True)
class Vehicle:
    """A simulated vehicle.

    Attributes
    ----------
    habits : Habits
    series : tuple of ndarray, each of shape (seconds, 9)
        The per-second metrics of each run, in the order of ``lab.qoe.windows.METRICS``.
    test_runs : frozenset of int
        Which runs are kept for testing.
    """

    habits: Habits
    series: tuple[FloatArray, ...]
    test_runs: frozenset[int]

    def dataset(self, split: str) -> Dataset:
        """Return the rows of ``"train"`` or ``"test"`` runs."""
        chosen = [
            rows_of_run(run)
            for number, run in enumerate(self.series)
            if (number in self.test_runs) == (split == "test")
        ]
        return Dataset(FEATURES, TARGET, np.concatenate([X for X, _ in chosen]), np.concatenate([y for _, y in chosen]))


def simulate_vehicle(number: int, seed: int = 0) -> Vehicle:
    """Simulate vehicle `number` (from 0) of the world `seed`; takes a fraction of a second."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
    habits = _habits(rng)
    rows = rng.integers(ROWS_PER_RUN[0], ROWS_PER_RUN[1] + 1, size=RUNS)
    seconds = int(rows.max()) + WINDOW - 1 + HORIZON
    test_runs = frozenset(int(run) for run in rng.permutation(RUNS)[:TEST_RUNS])

    x, y, speed = _drive(rng, habits, seconds)
    distance = cells.distances(x, y)
    slow, power = cells.received_power(rng, distance, speed, habits.antenna_gain)
    load = _load(rng, habits, seconds)
    serving = cells.serving_cell(slow)
    sinr = cells.sinr(power, serving, load)
    cqi = cells.channel_quality(sinr)

    def at_serving(values: FloatArray) -> FloatArray:
        return np.asarray(np.take_along_axis(values, serving[..., None], axis=2)[..., 0])

    occupied = np.rint(at_serving(load) * cells.RESOURCE_BLOCKS)
    # The scheduler leaves everyone a minimum, however loaded the cell is.
    free = np.maximum(cells.RESOURCE_BLOCKS - occupied, 2.0)
    throughput = cells.EFFICIENCY[cqi] * free * cells.BLOCK_BANDWIDTH
    # A handover costs half of the second in which it happens.
    moved = np.diff(serving, axis=1, prepend=serving[:, :1]) != 0
    throughput = np.where(moved, 0.5 * throughput, throughput)
    displayed, buffer = play(rng, throughput)

    metrics = {
        "sinr_db": sinr,
        "rsrp_dbm": at_serving(power) - 10.0 * np.log10(12 * cells.RESOURCE_BLOCKS),
        "distance_m": at_serving(distance),
        "speed_mps": speed,
        "occupied_blocks": occupied,
        "cqi": cqi.astype(np.float64),
        "throughput_mbps": throughput / 1e6,
        "buffer_s": buffer,
        "displayed_share": displayed,
    }
    table = np.stack([metrics[name] for name in METRICS], axis=-1)
    lengths = rows + WINDOW - 1 + HORIZON
    series = tuple(table[run, : lengths[run]] for run in range(RUNS))
    return Vehicle(habits, series, test_runs)


def write_vehicle(path: Path, vehicle: Vehicle, *, good_above: float | None = None) -> None:
    """Write a vehicle's rows as a real one would have them: csv (or csv.gz), a ``split`` column, the target last.

    Rows keep the order of time within a run. With `good_above` the target is a class, Good for a share above it, else
    Poor, and the share itself is left out: a classifier must not find it among its inputs. Raises OSError when the file
    cannot be written.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["split", *FEATURES, TARGET if good_above is None else LABEL])
    for number, run in enumerate(vehicle.series):
        X, y = rows_of_run(run)
        split = "test" if number in vehicle.test_runs else "train"
        numbers = [f"{value:.6g}" for value in y.tolist()]
        targets = numbers if good_above is None else labels_of(y, good_above).tolist()
        rows = zip(X.tolist(), targets, strict=True)
        for row, target in rows:
            writer.writerow([split, *(f"{value:.6g}" for value in row), target])
    data = text.getvalue().encode()
    # mtime=0: the same vehicle is the same file, byte for byte.
    path.write_bytes(gzip.compress(data, compresslevel=3, mtime=0) if path.suffix == ".gz" else data)


def write_samples(path: Path, vehicle: Vehicle, drive: int) -> None:
    """Write one drive as it was measured: drive, second and the nine metrics, a line each second.

    That is what a live forecaster replays. Raises OSError when the file cannot be written.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([DRIVE, SECOND, *METRICS])
        for second, row in enumerate(vehicle.series[drive].tolist()):
            writer.writerow([drive, second, *(repr(value) for value in row)])


def _habits(rng: np.random.Generator) -> Habits:
    angle, radius = rng.uniform(0.0, 2.0 * np.pi), rng.uniform(100.0, 600.0)
    return Habits(
        home=(float(radius * np.cos(angle)), float(radius * np.sin(angle))),
        roaming=float(rng.uniform(80.0, 260.0)),
        speed=float(rng.uniform(5.0, 17.0)),
        antenna_gain=float(rng.normal(0.0, 2.5)),
        load=float(rng.uniform(0.35, 0.75)),
    )


def _drive(rng: np.random.Generator, habits: Habits, seconds: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return x, y (metres) and speed (metres per second), each of shape (runs, seconds)."""
    shape = (RUNS, seconds)
    cruising = habits.speed * rng.lognormal(0.0, 0.2, size=(RUNS, 1))
    traffic = 1.0 / (1.0 + np.exp(-(1.2 + 1.6 * cells.autoregressive(rng, shape, 0.93))))
    stopped = cells.autoregressive(rng, shape, 0.9) < -1.5
    speed = np.where(stopped, 0.0, 1.25 * cruising * traffic)
    # Streets cross at right angles: now and then a vehicle that moves turns left or right.
    turns = (rng.random(shape) < 0.03) & ~stopped
    quarter = np.where(rng.random(shape) < 0.5, -1.0, 1.0) * (np.pi / 2.0)
    heading = rng.uniform(0.0, 2.0 * np.pi, size=(RUNS, 1)) + np.cumsum(turns * quarter, axis=1)
    start = np.array(habits.home) + habits.roaming * rng.standard_normal((RUNS, 2))
    x = _fold(start[:, :1] + np.cumsum(speed * np.cos(heading), axis=1))
    y = _fold(start[:, 1:] + np.cumsum(speed * np.sin(heading), axis=1))
    return x, y, speed


def _fold(position: FloatArray) -> FloatArray:
    """Mirror positions at the edges of the area: whoever reaches the edge comes back."""
    width = cells.AREA_HALF_WIDTH
    return np.asarray(width - np.abs(np.mod(position + width, 4.0 * width) - 2.0 * width))


def _load(rng: np.random.Generator, habits: Habits, seconds: int) -> FloatArray:
    """Return the share of occupied resource blocks of each cell, shape (runs, seconds, 7), within (0, 1)."""
    shape = (RUNS, seconds, cells.sites().shape[0])
    usual = np.log(habits.load / (1.0 - habits.load))
    hour = 0.9 * rng.standard_normal((RUNS, 1, 1))
    cell = 0.7 * rng.standard_normal((RUNS, 1, shape[2]))
    moment = 0.6 * cells.autoregressive(rng, shape, 0.95)
    return np.asarray(1.0 / (1.0 + np.exp(-(usual + hour + cell + moment))))


# --- A live video stream through a cell: queue at the base station, playout buffer in the vehicle, frames shown or lost
#
# A frame is made every 1/fps seconds and must be on the screen a fixed playout delay later. It waits in the queue of
# the base station (first in, first out; a full queue drops what comes) and leaves it at the rate that the radio offers.
# A frame that arrives after its moment is not shown.


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


def play(rng: np.random.Generator, capacity: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Play the stream over links of `capacity`, bits per second, shape (runs, seconds).

    Work is counted in bits served since the start of the run. A frame that enters a queue of b bits, when the link
    could have served w, has arrived when the link could have served w + b + its own size.

    Returns
    -------
    ndarray, ndarray, of shape (runs, seconds)
        Share of the second's frames that were shown, [0, 1]; seconds of video in the playout buffer at its end.
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
    return _share_shown(shown, seconds), _buffered(rng, arrival, shown, due, clock[1:])


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
