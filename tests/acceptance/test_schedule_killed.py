"""A schedule while coordinators are killed, with one that stands by: no night comes twice, none is lost."""

from __future__ import annotations

import random
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lab.fleet import Fleet
from tests.support.cloud import SOURCES, CoordinatorProcess, Start, spec
from tests.support.postgres import PostgresServer
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(600)]

KILLS = 5
STEP = 3
"""Seconds from a time of the schedule to the next."""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'journal.sqlite'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(server.database())


def until_it_leads(coordinator: CoordinatorProcess) -> None:
    with coordinator.api() as api:
        eventually(lambda: api.get("/api/health").json()["status"] == "ok")


def until_one_more_starts(coordinator: CoordinatorProcess) -> None:
    with coordinator.api() as api:
        last = newest(api.get("/api/schedules/s").json())
        eventually(lambda: newest(api.get("/api/schedules/s").json()) not in ("", last))


def newest(document: dict[str, Any]) -> str:
    """Return the run that was started last; empty: none was."""
    return next((night["run"] for night in document["nights"] if night["outcome"] == "started"), "")


def test_every_night_ends_once_and_starts_one_run_whoever_is_killed(
    journal: str, start: Start, broker: str, tmp_path: Path
) -> None:
    chance = random.Random(5)
    flags = ("--journal", journal, "--standby")
    run = {name: value for name, value in spec("").items() if name != "run"}
    with Fleet(SOURCES, broker=broker, state_dir=tmp_path / "agents", resend_first=0.5):
        first = start(tmp_path / "0", *flags)
        until_it_leads(first)
        with first.api() as api:
            wanted = {"name": "s", "at": f"*/{STEP} * * * * *", "vehicles": len(SOURCES), "spec": run}
            answer = api.post("/api/schedules", json=wanted)
            assert answer.status_code == 201, answer.text
        for number in range(1, KILLS + 1):
            second = start(tmp_path / str(number), *flags)
            until_one_more_starts(first)
            time.sleep(chance.uniform(0, STEP))
            first.kill()
            first = second
            until_it_leads(first)
        until_one_more_starts(first)
        with first.api() as api:
            assert api.post("/api/schedules/s/pause", json={"reason": "enough"}).status_code == 200
            eventually(lambda: all(each["state"] == "ended" for each in api.get("/api/runs").json()))
            document, runs = api.get("/api/schedules/s").json(), api.get("/api/runs").json()
        assert first.end() == 0

    nights = document["nights"][::-1]
    times = [datetime.fromisoformat(night["at"]).timestamp() for night in nights]
    steps = [later - earlier for earlier, later in pairwise(times)]
    assert steps == [STEP * night["count"] for night in nights[1:]], "each time is in one line"
    ids = [night["run"] for night in nights if night["outcome"] == "started"]
    assert len(set(ids)) == len(ids)
    runs = [each for each in runs if each["run"] >= ids[0]]  # of the nights that are shown: the newest
    assert sorted(ids) == sorted(each["run"] for each in runs), "a run without its night, or a night without its run"
    spans = sorted((each["started"], each["ended"]) for each in runs)
    assert all(ended <= began for (_, ended), (began, _) in pairwise(spans)), "two at a time"
    assert {each["outcome"] for each in runs} <= {"finished", "failed"}
    assert any(night["outcome"] == "missed" for night in nights), "no coordinator was there for a while"
