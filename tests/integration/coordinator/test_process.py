"""The coordinator as a real process on a real broker: HTTP API, SIGKILL in mid-run, clean ends, clear faults."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.servers.launch import launch
from glassfleet import catalogue, local
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.scheme import Task
from schemas.documents import document_digest
from schemas.envelope import Envelope
from schemas.messages import AgentState, ContributionBody, Receipt, Request
from schemas.topics import Topics

TOPICS = Topics("fleet")
FRT = catalogue.load("frt")
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0, high=1) for name in ("p", "q")),
    target=Variable(name="t", low=0, high=2),
)
MAIN = textwrap.dedent(
    """
    import sys
    from pathlib import Path
    from coordinator.config import load_config
    from coordinator.main import run_coordinator
    from schemas.errors import GlassfleetError
    try:
        run_coordinator(load_config(broker=sys.argv[1], state_dir=Path(sys.argv[2]), broker_wait=float(sys.argv[3])))
    except GlassfleetError as fault:
        print(fault, file=sys.stderr)
        sys.exit(fault.exit_code)
    """
)


def rows(agent: str, count: int = 60) -> Dataset:
    rng = np.random.default_rng(int.from_bytes(agent.encode(), "big"))
    X = rng.random((count, 2))
    return Dataset(("p", "q"), "t", X, X[:, 0] + np.sin(4 * X[:, 1]) ** 2)


class Vehicle:
    """A minimal agent: answers every request, again until a receipt comes; while `held`, only what was released."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.data = rows(name)
        self.held = False
        self.released: set[str] = set()
        self.accepted: list[str] = []
        self.transport = PahoTransport(Link(url, name))
        self.transport.subscribe(f"{TOPICS.prefix}run/+/request")
        self.transport.subscribe(TOPICS.receipt(name))
        self.pending: dict[str, bytes] = {}
        self.stopping = threading.Event()
        self.transport.start(Handlers(self.arrived, self.connected, lambda _why: None))
        self.thread = threading.Thread(target=self.resend, daemon=True)
        self.thread.start()

    def connected(self) -> None:
        body = AgentState(
            status="up", incarnation=self.name, schemes=["frt"], features=list(self.data.features), target="t"
        )
        payload = Envelope(fleet="fleet", body=body, agent=self.name).to_bytes()
        self.transport.publish(TOPICS.agent_state(self.name), payload, retain=True)

    def arrived(self, message: Message) -> None:
        if not message.payload:
            return
        envelope = Envelope.from_bytes(message.payload, fleet="fleet")
        if isinstance(envelope.body, Receipt):
            self.pending.pop(envelope.body.task_digest, None)
            if envelope.body.outcome == "accepted":
                self.accepted.append(envelope.body.task_digest)
        elif isinstance(envelope.body, Request):
            task = Task.from_value(envelope.body.task)
            answer = FRT.client.contribute(task, self.data, np.random.default_rng(0))
            body = ContributionBody(
                task_digest=task.digest,
                rows=answer.rows,
                data_digest=hashlib.sha256(self.name.encode()).hexdigest(),
                contribution=answer.to_value(),
            )
            whole = Envelope(fleet="fleet", body=body, run=envelope.run, agent=self.name).to_bytes()
            self.pending[task.digest] = whole
            self.send(task.digest, whole)

    def send(self, digest: str, whole: bytes) -> None:
        if not self.held or digest in self.released:
            self.transport.publish(TOPICS.contribution(self.name, "r1"), whole)

    def release(self) -> None:
        """Let go what waits now, and nothing later."""
        self.released |= set(self.pending)

    def resend(self) -> None:
        while not self.stopping.wait(0.1):
            for digest, whole in list(self.pending.items()):
                self.send(digest, whole)

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.transport.stop()


class Process:
    """The coordinator under test."""

    def __init__(self, url: str, state_dir: Path, *, wait: float = 10.0) -> None:
        self.state_dir = state_dir
        (state_dir / "api-url").unlink(missing_ok=True)
        self.process = subprocess.Popen(
            [sys.executable, "-c", MAIN, url, str(state_dir), str(wait)],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )

    def api(self) -> httpx.Client:
        wait_for(lambda: (self.state_dir / "api-url").exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()[1]
        token = (self.state_dir / "api-token").read_text().strip()
        url = (self.state_dir / "api-url").read_text().strip()
        return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, trust_env=False)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        self.process.communicate(timeout=20)
        return self.process.returncode


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[str]:
    """Whichever broker is preferred on this machine."""
    running = launch(state_dir=tmp_path / "broker")
    yield running.url
    running.stop()


@pytest.fixture
def started(broker: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts coordinators and kills what is left of them."""
    processes: list[Process] = []

    def start(**how: Any) -> Process:
        processes.append(Process(broker, tmp_path / "state", **how))
        return processes[-1]

    yield start
    for each in processes:
        if each.process.poll() is None:
            each.end(signal.SIGKILL)


@pytest.fixture
def vehicles(broker: str) -> Iterator[list[Vehicle]]:
    fleet = [Vehicle(name, broker) for name in ("va", "vb", "vc")]
    yield fleet
    for vehicle in fleet:
        vehicle.stop()


def run_of(api: httpx.Client) -> dict[str, Any]:
    run: dict[str, Any] = api.get("/api/runs/r1").json()
    return run


def two_have_answered(api: httpx.Client, third: Vehicle) -> bool:
    run = run_of(api)
    return run["open"] is not None and run["open"]["accepted"] == 2 and bool(third.pending)


def has_more_rounds(api: httpx.Client, rounds: int) -> bool:
    return len(run_of(api)["rounds"]) > rounds


def test_coordinator_finishes_the_run_when_it_is_killed_again_and_again(
    started: Callable[..., Process], vehicles: list[Vehicle]
) -> None:
    coordinator = started()
    parameters = {"max_depth": 3} if "max_depth" in FRT.Parameters.model_fields else {}
    parameters = FRT.exact(FRT.Parameters.model_validate(parameters)).model_dump(mode="json")
    spec = {
        "run": "r1",
        "scheme": "frt",
        "parameters": parameters,
        "domain": DOMAIN.to_document(),
        "policy": {"gather_agents": 3, "deadline": 60, "min_agents": 3},
    }
    with coordinator.api() as api:
        wait_for(lambda: len(api.get("/api/agents").json()) == 3)
        # Each life of the coordinator accepts two of three answers; the third comes only to the next one.
        vehicles[2].held = True
        assert api.post("/api/runs", json=spec).status_code == 201
    for _ in range(3):
        with coordinator.api() as api:
            wait_for(partial(two_have_answered, api, vehicles[2]))
        coordinator.end(signal.SIGKILL)
        coordinator = started()
        with coordinator.api() as api:
            rounds = len(run_of(api)["rounds"])
            vehicles[2].release()
            wait_for(partial(has_more_rounds, api, rounds))
    vehicles[2].held = False
    with coordinator.api() as api:
        wait_for(lambda: api.get("/api/runs/r1").json()["state"] == "ended")
        run = api.get("/api/runs/r1").json()
        assert (run["outcome"], run["cohort"], run["restarts"]) == ("finished", ["va", "vb", "vc"], 0)
        central = local.central(
            FRT, FRT.Parameters.model_validate(parameters), DOMAIN, pool([vehicle.data for vehicle in vehicles])
        )
        assert run["model"]["digest"] == document_digest(central.model.to_document())
        assert [model["version"] for model in api.get("/api/models/model").json()] == [1]
    for vehicle in vehicles:
        assert len(vehicle.accepted) == len(set(vehicle.accepted)), "accepted once, however often it was sent"
    assert coordinator.end(signal.SIGTERM) == 0


def start_frt(coordinator: Process, vehicles: list[Vehicle]) -> str:
    """Begin a run of all vehicles; returns the digest of the model that it must end with."""
    parameters = FRT.exact(FRT.Parameters.model_validate({"max_depth": 3}))
    spec = {
        "run": "r1",
        "scheme": "frt",
        "parameters": parameters.model_dump(mode="json"),
        "domain": DOMAIN.to_document(),
        "policy": {"gather_agents": len(vehicles), "deadline": 60, "min_agents": len(vehicles)},
    }
    with coordinator.api() as api:
        wait_for(lambda: len(api.get("/api/agents").json()) == len(vehicles))
        assert api.post("/api/runs", json=spec).status_code == 201
    central = local.central(FRT, parameters, DOMAIN, pool([vehicle.data for vehicle in vehicles]))
    return document_digest(central.model.to_document())


def finished_digest(coordinator: Process) -> str:
    with coordinator.api() as api:
        wait_for(lambda: run_of(api)["state"] == "ended")
        run = run_of(api)
        assert (run["outcome"], run["cohort"]) == ("finished", ["va", "vb", "vc"])
        return str(run["model"]["digest"])


def test_coordinator_stops_by_name_when_the_disk_is_full_and_goes_on_when_there_is_room(
    started: Callable[..., Process], vehicles: list[Vehicle]
) -> None:
    coordinator = started()
    vehicles[2].held = True
    digest = start_frt(coordinator, vehicles)
    with coordinator.api() as api:
        wait_for(lambda: two_have_answered(api, vehicles[2]))
    # From here on no file of the process may grow: what a full disk does, to this process only.
    size = max(path.stat().st_size for path in coordinator.state_dir.glob("journal.sqlite*"))
    resource.prlimit(coordinator.process.pid, resource.RLIMIT_FSIZE, (size, size))
    vehicles[2].held = False
    _, told = coordinator.process.communicate(timeout=20)
    assert coordinator.process.returncode == 5, told
    assert "no room to write the journal" in told.splitlines()[-1]
    assert vehicles[2].accepted == [], "what is not stored is not acknowledged"
    assert finished_digest(started()) == digest


def test_coordinator_goes_on_when_its_last_record_is_torn(
    started: Callable[..., Process], vehicles: list[Vehicle]
) -> None:
    coordinator = started()
    vehicles[2].held = True
    digest = start_frt(coordinator, vehicles)
    with coordinator.api() as api:
        wait_for(lambda: two_have_answered(api, vehicles[2]))
    coordinator.end(signal.SIGKILL)
    # An append that never returned: half a record, and half a page behind it.
    (journal,) = coordinator.state_dir.glob("journal.sqlite")
    with contextlib.closing(sqlite3.connect(journal)) as database, database:
        database.execute(
            "INSERT INTO records (run, kind, at, wall, body, checksum) SELECT run, kind, at, wall, "
            "substr(body, 1, length(body) / 2), checksum FROM records ORDER BY seq DESC LIMIT 1"
        )
    with journal.with_name(journal.name + "-wal").open("ab") as file:
        file.write(b"\x37\x7f\x06\x82" * 300)
    coordinator = started()
    with coordinator.api() as api:
        assert api.get("/api/metrics").json()["journal.mended"] == 1
        assert two_have_answered(api, vehicles[2]), "what was acknowledged is still there"
    vehicles[2].held = False
    assert finished_digest(coordinator) == digest


def test_coordinator_serves_its_api_and_guards_actions(started: Callable[..., Process]) -> None:
    coordinator = started()
    with coordinator.api() as api:
        # The API is there before the broker: the coordinator first looks whether another one is up.
        wait_for(lambda: api.get("/api/health").json()["status"] == "ok")
        assert api.get("/api/runs").json() == []
        assert api.get("/api/models").json() == []
        assert api.get("/api/runs/none").status_code == 404
        assert api.get("/api/models/none").status_code == 404
        refused = api.post("/api/runs", json={"scheme": "frt"}, headers={"Authorization": "Bearer wrong"})
        assert refused.status_code == 401
        assert api.post("/api/runs/none/cancel").status_code == 404
        faulty = api.post("/api/runs", json={"scheme": "frt", "policy": {"deadline": -1}})
        assert faulty.status_code == 422
        assert "policy.deadline" in faulty.json()["detail"]
        assert api.post("/api/runs", json={"scheme": "nope"}).status_code == 404
        run = api.post("/api/runs", json={"scheme": "frt"}).json()["run"]
        assert api.get(f"/api/runs/{run}").json()["phase"] == "gathering"
        assert api.post(f"/api/runs/{run}/cancel").status_code == 200
        assert api.get(f"/api/runs/{run}").json()["outcome"] == "cancelled"
        assert api.get("/api/metrics").json()["runs.cancelled"] == 1
    token = coordinator.state_dir / "api-token"
    assert token.stat().st_mode & 0o077 == 0, "only the owner reads the token"
    assert coordinator.end(signal.SIGINT) == 0
    assert not (coordinator.state_dir / "api-url").exists()


def test_run_says_that_there_is_no_broker_while_it_waits_and_when_it_has_failed(tmp_path: Path) -> None:
    broker = launch(state_dir=tmp_path / "broker")
    coordinator = Process(broker.url, tmp_path / "state")
    vehicle = Vehicle("va", broker.url)
    spec = {"run": "r1", "scheme": "frt", "domain": DOMAIN.to_document(), "policy": {"deadline": 4, "extensions": 0}}
    try:
        with coordinator.api() as api:
            wait_for(lambda: any(agent["status"] == "up" for agent in api.get("/api/agents").json()))
            vehicle.held = True
            api.post("/api/runs", json=spec).raise_for_status()
            assert run_of(api)["reason"] == ""
            broker.kill()
            wait_for(lambda: run_of(api)["reason"].startswith("the coordinator has had no broker since "))
            wait_for(lambda: run_of(api)["state"] == "ended")
            reason = run_of(api)["reason"]
    finally:
        vehicle.stop()
        coordinator.end(signal.SIGKILL)
        broker.stop()
    assert re.fullmatch(
        r"quorum-not-met: 0 of 1 asked had answered at the deadline, 1 must; the coordinator had no broker for "
        r"[\d.]+ s of this round; not counted: no answer by the deadline \(va\)",
        reason,
    )


def test_coordinator_refuses_to_share_a_journal(started: Callable[..., Process]) -> None:
    first = started()
    first.api().close()
    url = (first.state_dir / "api-url").read_text()
    second = started()
    _, told = second.process.communicate(timeout=20)
    assert second.process.returncode == 5
    assert "in use by another coordinator" in told
    (first.state_dir / "api-url").write_text(url)
    assert first.end(signal.SIGTERM) == 0


def test_coordinator_names_a_broker_that_is_not_there(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    process = Process(f"mqtt://127.0.0.1:{port}", tmp_path, wait=0.5)
    _, told = process.process.communicate(timeout=20)
    assert process.process.returncode == 4
    assert f"127.0.0.1:{port}" in told
