"""Tables and recordings, replayed at the speed at which they were measured, or another."""

from __future__ import annotations

import csv
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import numpy as np

from edge_agent.imports import judge
from edge_agent.imports.inputs import as_text
from edge_agent.imports.plan import Plan
from edge_agent.live.port import Adapter, LiveSample, SampleRequest, seconds_of
from edge_agent.recordings import RECORDINGS, Recording
from edge_agent.sources import SPLIT, read_table
from edge_agent.sources.readers import kind_of
from glassfleet.data.clock import cleaned_together
from schemas.errors import DataError, UsageError

_NO_GAP: Final = 1e12
"""Seconds; where a drive ends, the plan says."""

LONGEST = 60.0
"""Seconds; a longer step of time, or one back, is waited for a second."""


def read(asked: SampleRequest) -> Iterator[LiveSample | str]:
    """Read a table, whose rows follow each other as its time says, or a second apart; or a recording's signals.

    With a plan, a text is read as it says, and no other judgement asked for.
    """
    path, _, query = asked.source.partition("?")
    reader = RECORDINGS.get(Path(path).suffix.lower())
    if reader is not None:
        return _paced(asked, _recorded(reader, Path(path), query, asked))
    kind = kind_of(path)[1]
    if asked.plan is not None and kind is not None and kind.is_text:
        return _paced(asked, _planned(asked, asked.plan))
    table = read_table(Path(asked.source), missing=None)  # the model says which cells may be empty
    asked.units.update(table.units)
    names = [name for name in table.names if name != SPLIT]
    columns = [table.column(name).tolist() for name in names]
    rows = (dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True))
    return _paced(asked, (LiveSample(row, _time(row, number, asked.time)) for number, row in enumerate(rows)))


def _planned(asked: SampleRequest, plan: Plan) -> Iterator[LiveSample]:
    """Yield a text's rows with the cells as they stand in it."""
    with tempfile.TemporaryDirectory(prefix="glassfleet-") as folder:
        text = as_text(Path(asked.source), Path(folder), plan)
        dialect = judge.layout(text, plan)
        names = judge.unique(dialect.names)
        asked.units.update({name: unit for name, unit in zip(names, dialect.units, strict=False) if unit})
        with text.path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.reader(islice(lines, dialect.data - 1, None), delimiter=dialect.separator)
            for number, cells in enumerate(_whole(rows, asked.source)):
                row = {name: cell.strip() for name, cell in zip(names, cells, strict=False)}
                if any(row.values()) and tuple(row.values()) != dialect.names:
                    yield LiveSample(row, _planned_time(asked, row, number))


def _whole(rows: Iterator[list[str]], where: str) -> Iterator[list[str]]:
    try:
        yield from rows
    except csv.Error as fault:
        raise DataError(f"it cannot be read ({fault})", "Look for a quote that is not closed", where) from fault


def _planned_time(asked: SampleRequest, row: dict[str, Any], number: int) -> float | None:
    if not asked.time or asked.seconds is None:
        return float(number)
    try:
        return asked.seconds(row)
    except (KeyError, ValueError):
        return None  # which is told of the row where it is taken


def _recorded(reader: Recording, path: Path, query: str, asked: SampleRequest) -> Iterator[LiveSample]:
    """Yield a recording's samples in the order of its drives and times."""
    options = parse_qs(query)
    databases = [Path(file) for file in options.pop("database", [])]
    if options:
        raise UsageError(f"--source {asked.source}: write {path}?database=FILE, if it is of a bus")
    read = reader(path, databases, Counter())
    signals = [signal for signal in read if not asked.signals or signal.name in asked.signals]
    asked.units.update({signal.name: signal.unit for signal in signals})
    clean = cleaned_together([signal.time for signal in signals], _NO_GAP)
    whose = np.repeat(np.arange(len(signals)), [each.time.size for each in clean])
    places = np.concatenate([np.arange(each.time.size) for each in clean] or [np.zeros(0, np.int64)])
    time = np.concatenate([each.time for each in clean] or [np.zeros(0)])
    drive = np.concatenate([each.drive for each in clean] or [np.zeros(0, np.int64)])
    for index in np.lexsort((time, drive)).tolist():
        signal = signals[int(whose[index])]
        value = signal.value[int(places[index])]
        yield LiveSample(
            {signal.name: value if isinstance(value, str | None) else float(value)}, float(time[index]), is_whole=False
        )


def _time(row: dict[str, Any], number: int, column: str) -> float | None:
    if not column:
        return float(number)
    try:
        return seconds_of(row.get(column))
    except ValueError:
        return None  # which is told of the row where it is taken


def _paced(asked: SampleRequest, samples: Iterator[LiveSample]) -> Iterator[LiveSample]:
    begun, passed, before = time.monotonic(), 0.0, None
    for sample in samples:
        step = 0.0 if before is None or sample.time is None else sample.time - before
        passed += step if 0 <= step <= LONGEST else 1.0
        before = before if sample.time is None else sample.time
        due = begun + passed / asked.speed if asked.speed else begun
        if asked.stopping.wait(max(0.0, due - time.monotonic())) if asked.speed else asked.stopping.is_set():
            return
        yield sample


ADAPTER = Adapter("a table or a recording, replayed by its own time", read, files="table")
