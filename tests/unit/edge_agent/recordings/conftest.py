"""Recordings and databases as files, and what is read of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_agent.recordings import RECORDINGS, Signal
from edge_agent.recordings.process import read_here
from tests.support.vehicle.recordings import DBC

Read = Callable[..., tuple[dict[str, Signal], dict[str, int]]]


@pytest.fixture
def dbc(tmp_path: Path) -> Path:
    path = tmp_path / "bus.dbc"
    path.write_text(DBC, encoding="utf-8")
    return path


@pytest.fixture
def read() -> Read:
    """Return a reader of a recording, in this process: signals by name, and what was left out."""
    return _reader(lambda path, *given: read_here("mf4" if path.suffix in {".mf4", ".mdf"} else "bus", path, *given))


@pytest.fixture
def read_apart() -> Read:
    """Return a reader of a recording in a process of its own, as an import reads it."""
    return _reader(lambda path, *given: RECORDINGS[path.suffix](path, *given))


def _reader(reader: Callable[..., Any]) -> Read:
    def read(path: Path, *databases: Path) -> tuple[dict[str, Signal], dict[str, int]]:
        left_out: Counter[str] = Counter()
        signals = list(reader(path, databases, left_out))
        names = [signal.name for signal in signals]
        assert len(set(names)) == len(names)
        return dict(zip(names, signals, strict=True)), {why: number for why, number in left_out.items() if number}

    return read
