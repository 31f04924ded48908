"""Intake workers receive what the fleet answers; killed at any moment, they lose nothing and double nothing."""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.servers.mosquitto import MosquittoProcess, certificate_acl
from coordinator.journal.sql import SqlJournal
from lab.fleet import Fleet
from schemas.topics import Topics, shard_of
from tests.support.authorities import FleetCa
from tests.support.brokers import NatsProcess
from tests.support.cloud import (
    SOURCES,
    CoordinatorProcess,
    Start,
    begin_run,
    central_digest,
    ended,
    record_of,
    rows,
    spec,
)
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]

FLEET = {**SOURCES, "vd": rows(3)}
ALL = {"gather_agents": 4, "min_agents": 4}
WORKERS = {"GLASSFLEET_INTAKE_WORKERS": "2"}


@pytest.fixture(
    params=[
        pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto")),
        pytest.param("nats", marks=[pytest.mark.slow, pytest.mark.needs("nats")]),
    ]
)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    running = {"mosquitto": MosquittoProcess, "nats": NatsProcess}[request.param](tmp_path / "broker")
    running.start()
    yield running.url
    running.stop()


def workers(cloud: CoordinatorProcess) -> dict[str, int]:
    """Return the processes that are workers now, by number."""
    return dict(map(_started, re.findall(r"intake-worker-started.*", cloud.logged())))


def _started(line: str) -> tuple[str, int]:
    number, pid = re.search(r"worker=(\d)", line), re.search(r"pid=(\d+)", line)
    assert number is not None
    assert pid is not None
    return number[1], int(pid[1])


def has_ended(left: Mapping[str, int]) -> bool:
    """Whether none of these processes runs."""
    return not any(Path(f"/proc/{pid}/cmdline").exists() for pid in left.values())


def check(folder: Path) -> None:
    """Check that each answer of the run was counted once, and that it learned the central model."""
    record = record_of(folder, "r1")
    assert record.digest == central_digest(record, sources=FLEET)
    journal = SqlJournal(f"sqlite:///{folder / 'journal.sqlite'}")
    answers = Counter(entry.body for entry in journal.records("r1") if entry.kind == "answer")
    journal.close()
    assert set(answers.values()) == {1}


def goes_on(api: httpx.Client) -> None:
    """Wait until another round of the run is closed."""
    closed = len(api.get("/api/runs/r1").json()["rounds"])
    eventually(lambda: len(api.get("/api/runs/r1").json()["rounds"]) > closed, "it goes on")


@pytest.mark.parametrize("protocol", [pytest.param("3.1.1", marks=pytest.mark.slow), "auto"])
def test_run_goes_on_when_each_worker_is_killed(broker: str, protocol: str, start: Start, tmp_path: Path) -> None:
    assert {shard_of(name) % 2 for name in FLEET} == {0, 1}, "each worker has vehicles"
    settings: dict[str, Any] = {"broker": broker, "state_dir": tmp_path / "agents", "slow": 0.2, "resend_first": 0.5}
    environment = {**WORKERS, "GLASSFLEET_PROTOCOL": protocol}
    with Fleet(FLEET, **settings):
        cloud = start(tmp_path / "cloud", "--log-level", "info", environment=environment)
        with cloud.api() as api:
            begin_run(api, spec("r1", rounds=ALL), 1)
            first = workers(cloud)
            for number, pid in first.items():
                os.kill(pid, signal.SIGKILL)
                eventually(lambda: f"worker {number} is not" in api.get("/api/health").json()["status"], "it is named")  # noqa: B023
                eventually(lambda: workers(cloud)[number] != pid, "another takes its place")  # noqa: B023 - called now
                goes_on(api)
            run = ended(api, "r1")
            page = api.get("/metrics").text
        assert (run["outcome"], run["cohort"], run["restarts"]) == ("finished", sorted(FLEET), 0)
        assert set(first.values()).isdisjoint(workers(cloud).values())
        assert "glassfleet_intake_workers_ended_total 2.0" in page
        last = workers(cloud)
        assert cloud.end() == 0
        assert has_ended(last)
    check(tmp_path / "cloud")


@pytest.mark.slow
def test_run_goes_on_with_another_number_of_workers_when_the_coordinator_is_killed(
    broker: str, start: Start, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"broker": broker, "state_dir": tmp_path / "agents", "slow": 0.2, "resend_first": 0.5}
    with Fleet(FLEET, **settings):
        for count in ("2", "1", "3"):
            how = {"GLASSFLEET_INTAKE_WORKERS": count}
            cloud = start(tmp_path / "cloud", "--log-level", "info", environment=how)
            with cloud.api() as api:
                if count == "2":
                    begin_run(api, spec("r1", rounds=ALL), 1)
                if count == "3":
                    run = ended(api, "r1")
                else:
                    goes_on(api)
            left = workers(cloud)
            if count != "3":
                cloud.kill()
                eventually(partial(has_ended, left), "workers end with their coordinator")
        assert (run["outcome"], run["cohort"], run["restarts"]) == ("finished", sorted(FLEET), 0)
        assert cloud.end() == 0
    check(tmp_path / "cloud")


@pytest.mark.needs("mosquitto")
def test_signed_fleet_learns_through_workers_with_certificates_of_their_own(tmp_path: Path) -> None:
    ca = FleetCa(tmp_path / "ca")
    names = ["cloud", "cloud-1", "cloud-2"]
    cloud, *own = [ca.identity("coordinator", name) for name in names]
    for number, folder in enumerate(own, 1):
        folder.rename(cloud / f"intake-{number}")
    acl = certificate_acl(Topics("fleet"), coordinators=names)
    server = MosquittoProcess(tmp_path / "broker", identity=ca.identity("broker", "broker"), acl=acl)
    server.start()
    try:
        agents = [
            Fleet(
                {name: FLEET[name]},
                broker=server.url,
                state_dir=tmp_path / "agents",
                resend_first=0.5,
                identity=ca.identity("agent", name),
            )
            for name in FLEET
        ]
        folder = tmp_path / "cloud"
        folder.mkdir()
        arguments = ["--log-level", "info", "--identity", str(cloud)]
        process = CoordinatorProcess(server.url, folder, *arguments, environment=WORKERS)
        for each in agents:
            each.__enter__()
        with process.api() as api:
            begin_run(api, spec("r1", rounds=ALL))
            assert ended(api, "r1")["cohort"] == sorted(FLEET)
            assert "broker-lost" not in process.logged()
        for each in agents:
            each.__exit__(None, None, None)
        assert process.end() == 0
    finally:
        server.stop()
    check(folder)
