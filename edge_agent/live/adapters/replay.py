"""Tables and recordings, replayed at the speed at which they were measured, or another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge_agent.live.objects import seconds_of
from edge_agent.live.port import Adapter, Asked, Sample
from edge_agent.sources import SPLIT, read_table

LONGEST = 60.0
"""Seconds; a longer step of time, or one back, is waited for a second."""


def read(asked: Asked) -> Iterator[Sample | str]:
    """Read a table; its rows follow each other as its time says, or a second apart when it has none."""
    table = read_table(Path(asked.source), missing=None)  # the model says which cells may be empty
    names = [name for name in table.names if name != SPLIT]
    columns = [table.column(name).tolist() for name in names]
    rows = (dict(zip(names, cells, strict=True)) for cells in zip(*columns, strict=True))
    return _paced(asked, (Sample(row, _time(row, number, asked.time)) for number, row in enumerate(rows)))


def _time(row: dict[str, Any], number: int, column: str) -> float | None:
    if not column:
        return float(number)
    try:
        return seconds_of(row.get(column))
    except ValueError:
        return None  # which is told of the row where it is taken


def _paced(asked: Asked, samples: Iterator[Sample]) -> Iterator[Sample]:
    begun, passed, before = time.monotonic(), 0.0, None
    for sample in samples:
        step = 0.0 if before is None or sample.time is None else sample.time - before
        passed += step if 0 <= step <= LONGEST else 1.0
        before = before if sample.time is None else sample.time
        due = begun + passed / asked.speed if asked.speed else begun
        if asked.stopping.wait(max(0.0, due - time.monotonic())) if asked.speed else asked.stopping.is_set():
            return
        yield sample


ADAPTER = Adapter("a table, replayed by its own time", read, files="table")
