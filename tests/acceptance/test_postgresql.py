"""A fleet whose coordinator keeps its journal on PostgreSQL: coordinator and database server are killed in mid-run."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from coordinator.journal.sql import SqlJournal
from lab.fleet import Fleet
from schemas.record import ModelRecord
from tests.support.cloud import SOURCES, Start, begin_run, central_digest, ended, spec
from tests.support.postgres import PASSWORD, PostgresServer

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_run_on_postgresql_survives_sigkill_of_the_coordinator_and_of_the_database_server(
    workers: str, mortal: PostgresServer, broker: str, start: Start, tmp_path: Path
) -> None:
    url = mortal.url(mortal.database())
    journal_at = {"GLASSFLEET_COORDINATOR_JOURNAL": url, "GLASSFLEET_COORDINATOR_INTAKE_WORKERS": workers}
    with Fleet(SOURCES, broker=broker, state_dir=tmp_path / "agents", slow=0.3, resend_first=0.5):
        first = start(tmp_path / "cloud", environment=journal_at)
        with first.api() as api:
            begin_run(api, spec("r1"), 1)
        first.kill()

        second = start(tmp_path / "cloud", environment=journal_at)
        with second.api() as api:
            assert api.get("/api/runs/r1").json()["state"] == "running"
            mortal.kill()
            code, result = second.reap(60), second.logged()
        assert code == 5, result
        last = result.strip().splitlines()[-1]
        # Which of them noticed first: what writes, over the connection with the lock, or what reads.
        assert re.match("glassfleet: error: the (connection to|server of) the journal", last), result
        assert "start the coordinator again" in last
        assert "it goes on where it was" in last
        assert PASSWORD not in result
        assert "Traceback" not in result

        down = start(tmp_path / "cloud", environment=journal_at)
        code, result = down.reap(60), down.logged()
        assert (code, "cannot be reached" in result) == (5, True), result

        mortal.start()
        third = start(tmp_path / "cloud", environment=journal_at)
        with third.api() as api:
            run: dict[str, Any] = ended(api, "r1")
            room = next(
                line for line in api.get("/metrics").text.splitlines() if line.startswith("glassfleet_journal_b")
            )
        assert (run["outcome"], run["cohort"], run["restarts"]) == ("finished", ["va", "vb", "vc"], 0)
        assert float(room.split()[1]) > 10_000
        assert third.end() == 0

    journal = SqlJournal(url)
    record = next(ModelRecord.from_bytes(model.record) for model in journal.models() if model.run == "r1")
    answers = Counter(entry.body for entry in journal.records("r1") if entry.kind == "answer")
    journal.close()
    assert record.digest == central_digest(record)
    assert set(answers.values()) == {1}
