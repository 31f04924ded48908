"""What the tests of models share: journals that can be opened again, in memory and in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.journal import Journal, MemoryJournal
from coordinator.journal.sql import SqlJournal


@pytest.fixture(params=["memory", "sqlite"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Journal]:
    """Open the same journal each time it is called."""
    if request.param == "sqlite":
        return lambda: SqlJournal(f"sqlite:///{tmp_path / 'journal.sqlite'}")
    kept: list[MemoryJournal] = []

    def open_memory() -> Journal:
        kept.append(MemoryJournal(kept[-1] if kept else None))
        return kept[-1]

    return open_memory
