"""What the tests of models share: journals that can be opened again, in memory and in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.journal import Journal
from coordinator.journal.sql import SqlJournal
from tests.support.coordinator_bench import memory_opener


@pytest.fixture(params=["memory", "sqlite"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Journal]:
    """Open the same journal each time it is called."""
    if request.param == "sqlite":
        return lambda: SqlJournal(f"sqlite:///{tmp_path / 'journal.sqlite'}")
    return memory_opener()
