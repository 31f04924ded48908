"""Cables that are pulled, in real networks: peers that fall silent, which no kill shows (a kernel says goodbye).

Broker, coordinator and each agent are processes in a network namespace of their own, over mutual TLS.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.servers.mosquitto import MosquittoConfig, certificate_acl, find_mosquitto, mutual
from broker.servers.process import prepare_state_dir
from broker.tls import Tls, wait_for_server
from lab.chaos.audit import Evidence, examine
from lab.chaos.fleet import FLEET, write_data
from lab.processes import PROGRAM, ProcessFleet
from schemas.topics import Topics
from tests.support.authorities import FleetCa
from tests.support.cloud import EXACT
from tests.support.needs.programs import needs
from tests.support.netns import Network
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(240)]
KEEPALIVE = 2
VEHICLES = 4
CLOUD, BROKER = "coordinator", "broker"
TOPICS = Topics(FLEET)


class Fleet:
    """The processes, their networks, and what they say."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = write_data(folder / "data", VEHICLES, 7)
        self.names = list(self.files)
        self.network = Network([BROKER, CLOUD, *self.names])
        settings = {
            "KEEPALIVE": str(KEEPALIVE),
            "CONNECT_TIMEOUT": "2",
            "RECONNECT_LONGEST": "1",
            "AGENT_EVALUATE": "false",
        }
        named = {f"GLASSFLEET_{name}": value for name, value in settings.items()}
        self.processes = ProcessFleet(folder / "logs", {**os.environ, **named})
        self.runs: list[str] = []
        ca = FleetCa(folder / "authority")
        self.host = self.network.address(BROKER)
        self._start_broker(ca)
        self._common = [*("--broker", f"mqtts://{self.host}:8883", "--fleet", FLEET, "--log-format", "json")]
        self._start(
            CLOUD,
            *("coordinator", "--state-dir", str(folder / "coordinator"), "--api-port", "8080", "--log-level", "debug"),
            *("--identity", str(ca.identity("coordinator", CLOUD))),
        )
        for index, name in enumerate(self.names):
            self._start(
                name,
                *("agent", "--id", name, "--data", str(self.files[name]), "--state-dir", str(folder / "vehicles")),
                *("--identity", str(ca.identity("agent", name)), "--slow", f"{0.1 * index:.1f}"),
            )
        for name in (CLOUD, *self.names):
            self.hears(name, "connected")

    def _start_broker(self, ca: FleetCa) -> None:
        state = prepare_state_dir(self.folder / "broker")
        identity = ca.identity("broker", "broker", hosts=(self.host,))
        acl = certificate_acl(TOPICS, coordinators=[CLOUD])
        mutual(MosquittoConfig(8883, state, host=self.host), identity, acl).write(state / "mosquitto.conf")
        program = find_mosquitto()
        assert program is not None
        machine = self.network.machines[BROKER]
        words = ["-c", str(state / "mosquitto.conf")]
        self.processes.add(BROKER, words, {}, machine.command([program])).start()
        trust = Tls(str(identity / "ca.pem"))
        machine.visit(lambda: wait_for_server(self.host, 8883, trust, 30))

    def _start(self, name: str, *arguments: str) -> None:
        program = self.network.machines[name].command(PROGRAM)
        self.processes.add(name, [*arguments, *self._common], {}, program).start()

    # What is said

    def log_lines(self, name: str) -> list[dict[str, Any]]:
        lines = self.processes[name].logged().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def count(self, name: str, event: str) -> int:
        return sum(line.get("event") == event for line in self.log_lines(name))

    def hears(self, name: str, event: str, *, more_than: int = 0) -> None:
        def is_logged() -> bool:
            assert self.processes[name].is_running, self.log_lines(name)[-3:]
            return self.count(name, event) > more_than

        eventually(is_logged, what=f"{name} never said {event!r}")

    def thrown_out(self, name: str) -> int:
        """How often the broker has noticed that a client is silent."""
        log = self.folder / "broker" / "mosquitto.log"
        return log.read_text(encoding="utf-8").count(f"Client {name} has exceeded timeout")

    # Runs

    def ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        token = (self.folder / "coordinator" / "api-token").read_text(encoding="ascii").strip()

        def call() -> dict[str, Any]:
            with httpx.Client(base_url="http://127.0.0.1:8080", timeout=30, trust_env=False, verify=False) as client:
                answer = client.request(method, path, headers={"Authorization": f"Bearer {token}"}, **options)
            assert answer.is_success, answer.text
            result: dict[str, Any] = answer.json()
            return result

        return self.network.machines[CLOUD].visit(call)

    def start_run(self) -> str:
        run = f"cable-{len(self.runs) + 1}"
        policy = {"min_agents": 1, "deadline": 2.0, "gather_agents": VEHICLES, "extensions": 50, "max_restarts": 100}
        self.ask(
            "POST", "/api/runs",
            json={"run": run, "scheme": "frt", "parameters": EXACT, "rounds": policy, "model": "cable"},
        )  # fmt: skip
        self.runs.append(run)
        return run

    def wait_for_learning(self, run: str, answers: int) -> None:
        def is_there() -> bool:
            status = self.ask("GET", f"/api/runs/{run}")
            assert status["state"] != "ended", "the run was too fast for the cable"
            return bool(status["phase"] == "learning" and (status["open"] or {}).get("accepted", 0) >= answers)

        eventually(is_there)

    def finish(self, run: str) -> list[str]:
        """Wait for the end of a run; return its cohort."""
        eventually(lambda: self.ask("GET", f"/api/runs/{run}")["state"] == "ended", seconds=120)
        status = self.ask("GET", f"/api/runs/{run}")
        assert status["outcome"] == "finished", status["reason"]
        return sorted(status["cohort"])

    def stop(self) -> None:
        self.processes.end(patience=10.0)
        self.network.remove()


@pytest.fixture(scope="module")
@needs("namespaces", "mosquitto")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet in namespaces, connected."""
    made = Fleet(tmp_path_factory.mktemp("cables"))
    yield made
    made.stop()


def test_fleet_goes_on_when_cables_are_pulled_and_finds_out_by_keepalive(fleet: Fleet) -> None:
    network, lost = fleet.network, fleet.names[-1]

    # A vehicle's cable, in an open round that it has not answered: neither end is told anything.
    run = fleet.start_run()
    fleet.wait_for_learning(run, 1)
    network.pull(lost)
    assert fleet.finish(run) == fleet.names[:-1]
    fleet.hears(lost, "disconnected")
    eventually(lambda: fleet.thrown_out(lost) == 1, what="the broker never noticed the silent vehicle")
    eventually(lambda: fleet.count(lost, "broker-unreachable") > 0, what="the vehicle never tried to connect again")
    connected = fleet.count(lost, "connected")
    network.plug_in(lost)
    fleet.hears(lost, "connected", more_than=connected)

    # The broker's own cable: everybody is silent to everybody. The link is down where it is seen, this time.
    run = fleet.start_run()
    fleet.wait_for_learning(run, 1)
    before = {name: fleet.count(name, "disconnected") for name in (CLOUD, *fleet.names)}
    again = {name: fleet.count(name, "connected") for name in (CLOUD, *fleet.names)}
    network.pull_here(BROKER)
    for name, count in before.items():
        fleet.hears(name, "disconnected", more_than=count)
    network.plug_in_here(BROKER)
    for name, count in again.items():
        fleet.hears(name, "connected", more_than=count)
    fleet.finish(run)

    # Whole again: all of them are in the next model.
    run = fleet.start_run()
    assert fleet.finish(run) == fleet.names


def test_run_ends_when_packets_are_lost_and_late(fleet: Fleet) -> None:
    narrowed = (CLOUD, *fleet.names[:2])
    for name in narrowed:
        fleet.network.narrow(name, "1mbit", 3000)
    assert fleet.finish(fleet.start_run())
    assert sum(fleet.network.lost(name) for name in narrowed) > 0
    for name in narrowed:
        fleet.network.widen(name)


def test_nothing_was_lost_and_every_model_is_the_central_one_after_all_that(fleet: Fleet) -> None:
    assert fleet.finish(fleet.start_run())
    fleet.stop()
    result = examine(Evidence(fleet.folder, fleet.names, fleet.runs), fleet.files)
    assert (result.lost, result.double_counted, result.unequal) == ([], [], [])
    assert [run["equal"] for run in result.runs] == [True] * len(fleet.runs)
    assert result.accepted > 0
