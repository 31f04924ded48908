"""A coordinator remembers so many ended runs, and forgets the oldest."""

from __future__ import annotations

import pytest

from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Link
from coordinator.journal import MemoryJournal
from coordinator.main import assemble
from coordinator.runs.defaults import default_engine
from coordinator.specification.run import RunSpec
from schemas.errors import NotFoundError


def test_coordinator_forgets_the_oldest_runs_when_it_is_told_to_keep_a_few() -> None:
    transport = MemoryTransport(MemoryHub(), Link("mqtt://memory", "coordinator"))
    journal = MemoryJournal()
    coordinator = assemble("fleet", transport, journal, default_engine(), kept_runs=3)
    coordinator.start_run(RunSpec(run="live", scheme="frt"))
    for number in range(6):
        coordinator.start_run(RunSpec(run=f"r{number}", scheme="frt"))
        coordinator.cancel(f"r{number}")
    assert coordinator.runs.ids() == ["r3", "r4", "r5", "live"]
    assert coordinator.runs.document("r3")["outcome"] == "cancelled"
    with pytest.raises(NotFoundError):
        coordinator.runs.document("r2")
    assert journal.unfinished() == ["live"]

    journal.close()
    again = assemble("fleet", transport, MemoryJournal(journal), default_engine(), kept_runs=3)
    assert again.runs.ids() == ["r3", "r4", "r5", "live"]
