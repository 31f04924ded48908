"""The quality-of-experience set from a raw export: windows of ten seconds, forecast three seconds ahead.

The export is a long CSV table (several files belong together), one line per measurement: vehicle, run, time in seconds,
metric, value; the columns' and metrics' names can be told. Metrics are measured when something happens (a packet is
received), or once a second; the displayed share is the target.

Two forms come of it. ``15``: the inputs of :mod:`lab.qoe.windows`, from nine metrics that are averaged per second.
``30``: ten statistics each of SINR at packet reception, occupied resource blocks, and distance from the serving cell,
over all measurements of the window.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lab.datasets.formats import RawTable
from lab.qoe.windows import FEATURES, HORIZON, LABEL, METRICS, TARGET, WINDOW, labels_of, rows_of_run
from schemas.errors import DataError

FloatArray = NDArray[np.float64]

WIDE_METRICS = ("sinr_db", "occupied_blocks", "distance_m")
"""Metrics of the 30-input form."""

STATISTICS = ("mean", "median", "max", "min", "variance", "std", "kurtosis", "skewness", "q1", "q3")
"""Of each of them."""

WIDE_FEATURES = tuple(f"{metric}_{statistic}" for metric in WIDE_METRICS for statistic in STATISTICS)

DISPLAYED = "displayed_share"

Form = Literal["15", "30"]


@dataclass(frozen=True)
class Layout:
    """What an export calls its columns and metrics.

    Attributes
    ----------
    vehicle, run, time, metric, value : str
        Columns.
    metrics : Mapping of str to str
        The export's name of a metric -> ours (one of ``lab.qoe.windows.METRICS``); others are left out.
    """

    vehicle: str = "vehicle"
    run: str = "run"
    time: str = "time"
    metric: str = "metric"
    value: str = "value"
    metrics: Mapping[str, str] = field(default_factory=lambda: {name: name for name in METRICS})


Measured = dict[str, tuple[FloatArray, FloatArray]]
"""Of one vehicle and run: metric -> (times in seconds, values), in the order of time."""


def read_export(texts: Sequence[tuple[str, str]], layout: Layout) -> dict[tuple[str, str], Measured]:
    """Read the files, (name, text) each, of an export; returns the measurements by (vehicle, run), sorted.

    Raises
    ------
    DataError
        A column is missing, a time or value is not a finite number, or nothing that is known was measured.
    """
    series: dict[tuple[str, str], dict[str, list[tuple[float, float]]]] = {}
    wanted = (layout.vehicle, layout.run, layout.time, layout.metric, layout.value)
    for name, text in texts:
        reader = csv.reader(io.StringIO(text))
        header = [cell.strip() for cell in next(reader, [])]
        for column in wanted:
            if column not in header:
                raise DataError(f"{name}: no column {column!r}; there are {', '.join(header) or 'none'}. Use --column")
        vehicle, run, time, metric, value = (header.index(column) for column in wanted)
        for line, row in enumerate(reader, 2):
            if not row:
                continue
            if len(row) != len(header):
                raise DataError(f"{name}: line {line} has {len(row)} cells, the header has {len(header)}")
            ours = layout.metrics.get(row[metric])
            if ours is None:
                continue
            pair = _number(name, line, row[time]), _number(name, line, row[value])
            series.setdefault((row[vehicle], row[run]), {}).setdefault(ours, []).append(pair)
    if not series:
        known = ", ".join(layout.metrics)
        raise DataError(f"no line of the export has one of the metrics {known}; name them with --metric THEIRS=OURS")
    return {key: {name: _sorted(pairs) for name, pairs in series[key].items()} for key in sorted(series, key=_natural)}


def rows_of(measured: Measured, form: Form, where: str) -> tuple[FloatArray, FloatArray, int]:
    """Return inputs, target, and the number of seconds left out (nothing was measured in their window).

    Parameters
    ----------
    measured : Measured
        One run.
    form : {"15", "30"}
    where : str
        Names the run in errors.

    Raises
    ------
    DataError
        A metric that the form needs was not measured in this run.
    """
    needed = METRICS if form == "15" else (*WIDE_METRICS, DISPLAYED)
    for metric in needed:
        if metric not in measured:
            raise DataError(f"{where}: {metric} was not measured. The {form}-input form needs {', '.join(needed)}")
    return _narrow(measured) if form == "15" else _wide(measured)


def _narrow(measured: Measured) -> tuple[FloatArray, FloatArray, int]:
    """Average each metric per second, then let :mod:`lab.qoe.windows` summarise; a gap ends a series."""
    seconds = [{math.floor(time) for time in times.tolist()} for times, _ in measured.values()]
    series, parts, lost = [], [], 0
    per_second = {metric: _per_second(*pair) for metric, pair in measured.items()}
    last = max(max(whole) for whole in seconds)
    first = min(min(whole) for whole in seconds)
    for second in range(first, last + 2):
        if all(second in per_second[metric] for metric in METRICS):
            series.append([per_second[metric][second] for metric in METRICS])
            continue
        lost += second <= last
        if series:
            parts.append(rows_of_run(np.array(series)))
            series = []
    inputs = np.concatenate([X for X, _ in parts]) if parts else np.empty((0, len(FEATURES)))
    return inputs, np.concatenate([y for _, y in parts]) if parts else np.empty(0), lost


def _wide(measured: Measured) -> tuple[FloatArray, FloatArray, int]:
    displayed = _per_second(*measured[DISPLAYED])
    rows, target, lost = [], [], 0
    for due in sorted(displayed):
        end = due - HORIZON + 1  # the window is [end - WINDOW, end): ten whole seconds
        if end - WINDOW < min(displayed):
            continue
        line: list[float] = []
        for metric in WIDE_METRICS:
            times, values = measured[metric]
            chosen = values[np.searchsorted(times, end - WINDOW) : np.searchsorted(times, end)]
            line += _statistics(chosen) if len(chosen) else []
        if len(line) < len(WIDE_FEATURES):
            lost += 1
            continue
        rows.append(line)
        target.append(displayed[due])
    return np.array(rows).reshape(len(rows), len(WIDE_FEATURES)), np.array(target), lost


def _statistics(values: FloatArray) -> list[float]:
    """Return :data:`STATISTICS`; kurtosis (Fisher's) and skewness of equal values are 0."""
    mean, variance = float(values.mean()), float(values.var())
    centred = values - mean
    # Equal values can leave a variance of rounding dust.
    spread = math.sqrt(variance) if np.ptp(values) > 0 else 0.0
    skewness = float((centred**3).mean()) / spread**3 if spread else 0.0
    kurtosis = float((centred**4).mean()) / spread**4 - 3.0 if spread else 0.0
    q1, median, q3 = (float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))
    return [mean, median, float(values.max()), float(values.min()), variance, math.sqrt(variance), kurtosis, skewness,
            q1, q3]  # fmt: skip


def prepare(
    runs: Mapping[tuple[str, str], Measured], form: Form, *, test_runs: int, labels: bool = False
) -> tuple[dict[str, RawTable], int]:
    """Return each vehicle's table, with a ``split`` column, and the number of seconds left out.

    Parameters
    ----------
    runs : Mapping
        Of :func:`read_export`.
    test_runs : int
        As many runs of each vehicle, its last ones, are for testing; the papers keep 4 of 24.
    labels : bool
        The target is the class, Good or Poor, instead of the share.

    Raises
    ------
    DataError
        A vehicle has no run left to train on, or no window is complete.
    """
    vehicles: dict[str, list[str]] = {}
    for vehicle, run in runs:
        vehicles.setdefault(vehicle, []).append(run)
    names = ("split", *(FEATURES if form == "15" else WIDE_FEATURES), LABEL if labels else TARGET)
    tables, lost = {}, 0
    for vehicle, own in vehicles.items():
        if len(own) <= test_runs:
            raise DataError(
                f"vehicle {vehicle} has {len(own)} runs and {test_runs} of them are for testing; lower --test-runs"
            )
        lines: list[list[str]] = []
        for index, run in enumerate(own):
            X, y, missing = rows_of(runs[vehicle, run], form, f"vehicle {vehicle}, run {run}")
            lost += missing
            split = "test" if index >= len(own) - test_runs else "train"
            shown = labels_of(y).tolist() if labels else [repr(value) for value in y.tolist()]
            lines += [[split, *map(repr, row), last] for row, last in zip(X.tolist(), shown, strict=True)]
        if not lines:
            raise DataError(f"vehicle {vehicle}: no run has {WINDOW + HORIZON} seconds without a gap")
        tables[vehicle] = RawTable(names, lines)
    return tables, lost


def _number(name: str, line: int, cell: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{name}: line {line}: {cell!r} is not a finite number")
    return value


def _sorted(pairs: list[tuple[float, float]]) -> tuple[FloatArray, FloatArray]:
    table = np.array(pairs, dtype=np.float64)
    table = table[np.argsort(table[:, 0], kind="stable")]
    return table[:, 0].copy(), table[:, 1].copy()


def _per_second(times: FloatArray, values: FloatArray) -> dict[int, float]:
    """Return the mean of the values in each second that has some."""
    seconds, position = np.unique(np.floor(times).astype(np.int64), return_inverse=True)
    means = np.bincount(position, weights=values) / np.bincount(position)
    return dict(zip(seconds.tolist(), means.tolist(), strict=True))


def _natural(key: tuple[str, str]) -> list[tuple[int, float, str]]:
    """Order run 10 after run 9."""
    return [(0, float(part), "") if part.isdigit() else (1, 0.0, part) for part in key]
