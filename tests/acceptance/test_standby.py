"""Two coordinators on one journal, one of which stands by: real processes, SIGKILL, a database that is away."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from lab.fleet import Fleet
from schemas.record import ModelRecord
from tests.support.cloud import SOURCES, CoordinatorProcess, Start, begin_run, central_digest, ended, spec
from tests.support.postgres import PostgresServer
from tests.support.processes import eventually, glassfleet

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.needs("postgresql"), pytest.mark.slow])]
)
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'journal.sqlite'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(server.database())


def status(api: httpx.Client) -> str:
    return str(api.get("/api/health").json()["status"])


def pair(start: Start, tmp_path: Path, journal: str) -> tuple[CoordinatorProcess, CoordinatorProcess]:
    """Start a coordinator, and one that stands by."""
    flags = ("--journal", journal, "--standby")
    first = start(tmp_path / "one", *flags)
    with first.api() as api:
        eventually(lambda: status(api) == "ok")
    return first, start(tmp_path / "two", *flags)


def test_run_goes_on_when_the_coordinator_is_killed_and_another_stands_by(
    journal: str, start: Start, broker: str, tmp_path: Path
) -> None:
    with Fleet(SOURCES, broker=broker, state_dir=tmp_path / "agents", slow=0.3, resend_first=0.5):
        first, second = pair(start, tmp_path, journal)
        with first.api() as api, second.api() as other:
            assert (status(other), other.get("/api/ready").status_code) == ("stand-by", 503)
            assert other.post("/api/runs", json=spec("r2")).status_code == 503
            begin_run(api, spec("r1"), 1)
            first.kill()
            eventually(lambda: status(other) == "ok")
            assert other.get("/api/ready").json() == {"status": "ok"}
            run: dict[str, Any] = ended(other, "r1")
            record = other.get("/api/models/model/1").json()
        assert second.end() == 0
    assert (run["outcome"], run["cohort"], run["restarts"]) == ("finished", ["va", "vb", "vc"], 0)
    assert record["digest"] == central_digest(ModelRecord.model_validate(record))


@pytest.mark.slow
def test_coordinator_that_lost_its_database_connection_ends_and_the_stand_by_leads(
    postgres: PostgresServer, start: Start, tmp_path: Path
) -> None:
    database = postgres.database()
    first, second = pair(start, tmp_path, postgres.url(database))
    with second.api() as other:
        eventually(lambda: status(other) == "stand-by")
        postgres.end_holder(database)
        # It had nothing to write: that another one asks who leads has it look, and it never leads beside that one.
        assert (first.reap(60), "with it the lock" in first.logged()) == (5, True), first.logged()
        eventually(lambda: status(other) == "ok")
        # Started again, it stands by, and leaves when it is told to: it has nothing to lose.
        third = start(tmp_path / "one", "--journal", postgres.url(database), "--standby")
        with third.api() as back:
            assert status(back) == "stand-by"
            doctor = glassfleet("doctor", "--coordinator", str(back.base_url), "--state-dir", str(tmp_path / "one"))
            assert "stands by for the one that leads" in doctor.stdout, doctor.stdout
        assert third.end() == 0
        assert status(other) == "ok"
    assert second.end() == 0


@pytest.mark.slow
@pytest.mark.needs("postgresql")
def test_stand_by_waits_on_while_the_database_server_is_started_again(start: Start, tmp_path: Path) -> None:
    with PostgresServer() as server:
        first, second = pair(start, tmp_path, server.url(server.database()))
        with second.api() as other:
            eventually(lambda: status(other) == "stand-by")
            server.kill()
            server.start()
            assert first.reap(60) == 5, first.logged()
            eventually(lambda: status(other) == "ok")
        code = second.end()
    assert (code, second.logged().count("journal-away")) == (0, 1), second.logged()
