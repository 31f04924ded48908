"""Elastic runs whose coordinator is killed at the moment when its journal begins anew, on SQLite and PostgreSQL."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.journal.sql import SqlJournal
from lab.fleet import Fleet
from schemas.record import ModelRecord
from tests.support.cloud import SOURCES, Start, begin_run, central_digest, ended, spec
from tests.support.dying import BOUND, VARIABLE
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(300)]

PLACES = (
    "coordinator.journal.sql:SqlJournal.append/before/checkpoint=1",
    "coordinator.journal.tables:_begin_anew/before/2",
    "coordinator.journal.tables:_begin_anew/after/3",
    "coordinator.journal.sql:SqlJournal.append/after/checkpoint=1",
)
"""Before the transaction; in it, before and after the former records are gone; and committed, with nothing said yet."""


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.needs("postgresql"), pytest.mark.slow])]
)
def journal_at(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """URL of an empty journal."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'journal.sqlite'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    yield server.url(server.database())


@pytest.mark.parametrize("places", [PLACES[1::2], pytest.param(PLACES, marks=pytest.mark.slow)], ids=["some", "all"])
def test_elastic_run_loses_nothing_when_its_coordinator_is_killed_while_its_journal_begins_anew(
    start: Start, broker: str, journal_at: str, places: tuple[str, ...], tmp_path: Path
) -> None:
    settings = {"GLASSFLEET_COORDINATOR_JOURNAL": journal_at, BOUND: "1"}
    program = (sys.executable, "-m", "tests.support.dying")
    with Fleet(SOURCES, broker=broker, state_dir=tmp_path / "agents", resend_first=0.3):
        for number, place in enumerate(places):
            dying = start(tmp_path / "cloud", program=program, environment={**settings, VARIABLE: place})
            if number == 0:
                with dying.api() as api:
                    wanted = spec("r1", participation="elastic", parameters={"min_rows": 1, "nullify": False})
                    begin_run(api, wanted)
            assert dying.reap(60) == -signal.SIGKILL, dying.logged()
        last = start(tmp_path / "cloud", program=program, environment=settings)
        with last.api() as api:
            run = ended(api, "r1")
        assert last.end() == 0
    assert (run["outcome"], run["cohort"]) == ("finished", sorted(SOURCES))
    assert all(each["accepted_agents"] == sorted(SOURCES) for each in run["rounds"])
    journal = SqlJournal(journal_at)
    kinds = [entry.kind for entry in journal.records("r1")]
    record = next(ModelRecord.from_bytes(model.record) for model in journal.models())
    journal.close()
    assert (kinds[0], kinds.count("checkpoint"), kinds.count("answer")) == ("checkpoint", 1, len(SOURCES))
    assert len(run["rounds"]) > len(places)
    assert record.digest == central_digest(record)
