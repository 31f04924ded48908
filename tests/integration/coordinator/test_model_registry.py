"""A real broker, coordinator and vehicles as processes: the registry as an operator uses it, and what a fleet tells."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.servers.mosquitto import MosquittoProcess
from edge_agent.sources import Source
from lab.fleet import Fleet
from lab.processes import Process
from schemas.topics import Topics
from tests.support.cloud import SOURCES, CoordinatorProcess, rows
from tests.support.processes import Call, Processes, eventually, policy_file

pytestmark = [pytest.mark.needs("mosquitto"), pytest.mark.slow, pytest.mark.timeout(120)]


class World:
    """A coordinator and what its operator types."""

    def __init__(self, processes: Processes, call: Call) -> None:
        self.processes, self.call, self.folder = processes, call, processes.folder
        self.broker = MosquittoProcess(self.folder / "broker")
        self.broker.start()
        self.cloud = CoordinatorProcess(self.broker.url, self.folder / "cloud", "--api-port", "0")
        processes.environment["GLASSFLEET_BROKER"] = self.broker.url
        self.vehicles: dict[str, Process] = {}
        self.cloud.api().close()

    def say(self, *words: str, code: int = 0) -> str:
        result = self.call(*words)
        assert result.returncode == code, (words, result.stdout, result.stderr)
        return result.stdout if code == 0 else result.stderr

    def printed(self, *words: str) -> Any:
        return json.loads(self.say(*words, "--json"))

    def learn(self, depth: int, code: int = 0) -> str:
        wanted = policy_file(self.folder, scheme="frt", parameters={"max_depth": depth, "min_rows": 1})
        return self.say("run", "start", "--model", "m", "--exact", *wanted, "--min-agents", "3", "--wait", code=code)

    def vehicle(self, name: str) -> None:
        """A vehicle as a process, its rows in a file; killed first when it runs."""
        data = self.folder / f"{name}.csv"
        if not data.exists():
            source = rows(sum(name.encode()))
            columns = ",".join([*source.train.features, source.train.target, "split"])
            table = np.column_stack([source.train.X, source.train.y])
            lines = [",".join(map(str, row)) + f",{'train' if n % 4 else 'test'}" for n, row in enumerate(table)]
            data.write_text("\n".join([columns, *lines]) + "\n")
        self.end_vehicle(name)
        self.vehicles[name] = self.processes.start(
            "agent", "--id", name, "--data", str(data), "--state-dir", str(self.folder / "vehicles")
        )

    def end_vehicle(self, name: str) -> None:
        if (process := self.vehicles.pop(name, None)) is not None:
            process.kill()

    def held(self, name: str) -> tuple[int, int]:
        """Version on a vehicle's disk, and the highest sequence that it followed; zeros when there is none."""
        folder = self.folder / "vehicles" / "agents" / "fleet" / name / "models"
        try:
            version = json.loads((folder / "m.json").read_bytes())["version"]
            return version, json.loads((folder / ".sequences.json").read_bytes())["m"]
        except FileNotFoundError:
            return 0, 0

    def close(self) -> None:
        self.cloud.end()
        self.broker.stop()


@pytest.fixture
def world(processes: Processes, call: Call, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World(processes, call)
    for name, value in (("BROKER", world.broker.url), ("STATE_DIR", str(world.folder / "cloud"))):
        monkeypatch.setenv(f"GLASSFLEET_{name}", value)
    monkeypatch.setenv("COLUMNS", "200")
    try:
        yield world
    finally:
        world.close()


def pointer_on(url: str, then: Callable[[PahoTransport, bytes], None]) -> None:
    """Hand the retained pointer of the model to `then`, with a connection that may publish."""
    result: list[Message] = []
    transport = PahoTransport(Link(url, "somebody"))
    transport.subscribe(Topics("fleet").model_current("m"))
    transport.start(Handlers(result.append, lambda: None, lambda _why: None))
    try:
        eventually(lambda: result, seconds=10)
        then(transport, result[0].payload)
        assert transport.flush(10)
    finally:
        transport.stop()


def test_rollback_reaches_every_vehicle_and_no_old_pointer_brings_the_model_back(world: World) -> None:
    for name in ("va", "vb", "vc"):
        world.vehicle(name)
    world.learn(1)
    world.learn(2)
    eventually(lambda: {world.held(name)[0] for name in world.vehicles} == {2}, seconds=20)
    changed = world.printed("model", "diff", "m@1", "m@2")
    assert changed["parameters"] == {"max_depth": [1, 2]}
    assert changed["rules"]["added"]
    before = world.held("va")[1]
    pointers: list[bytes] = []
    pointer_on(world.broker.url, lambda _transport, payload: pointers.append(payload))

    world.end_vehicle("vc")
    pointer = world.printed("model", "rollback", "m", "--reason", "false alarms")
    assert (pointer["version"], pointer["reason"]) == (1, "false alarms")
    assert pointer["sequence"] > before
    eventually(lambda: all(world.held(name) == (1, pointer["sequence"]) for name in ("va", "vb")), seconds=20)
    world.vehicle("vc")  # was away
    world.vehicle("vd")  # is new
    eventually(lambda: all(world.held(name) == (1, pointer["sequence"]) for name in ("vc", "vd")), seconds=20)

    def replay(transport: PahoTransport, _payload: bytes) -> None:
        transport.publish(Topics("fleet").model_current("m"), pointers[0], retain=True)

    pointer_on(world.broker.url, replay)
    eventually(lambda: "too-old" in world.vehicles["va"].logged(), "the replay was not refused", seconds=10)
    assert [world.held(name) for name in ("va", "vb", "vc", "vd")] == [(1, pointer["sequence"])] * 4

    result = world.printed("model", "history", "m")
    causes = [each["cause"] for each in result["decisions"] if each["kind"] == "current"]
    assert causes == ["published", "published", "rolled-back"]
    assert "rolled-back: false alarms" in world.say("model", "history", "m")
    assert "is not below the current one" in world.say("model", "rollback", "m", "--to", "2", "--reason", "x", code=2)
    assert world.printed("model", "promote", "m@2")["version"] == 2
    assert "known: m" in world.say("model", "history", "n", code=9)


def test_operator_starts_pauses_resumes_and_stops_a_rollout_and_sees_who_cannot(world: World) -> None:
    able = {name: Source(source.train, rows(10 + n).train) for n, (name, source) in enumerate(SOURCES.items())}
    fleet = {**able, "vb": SOURCES["vb"]}  # vb has no test rows
    with Fleet(fleet, broker=world.broker.url, state_dir=world.folder / "agents"):
        world.learn(1)
        world.learn(2)
        world.say("model", "rollback", "m", "--reason", "to try it again")
        everyone = ("--share", "1", "--deadline", "600")

        world.say("model", "rollout", "start", "m@2", *everyone, *policy_file(world.folder, min_reports=3))
        eventually(lambda: world.printed("model", "rollout", "status", "m")[0]["reports"] == 2, seconds=20)
        assert world.printed("model", "rollout", "pause", "m", "--reason", "roadworks") == {"phase": "paused"}
        assert "paused  (roadworks)" in world.say("model", "rollout", "status", "m")
        assert world.printed("model", "rollout", "resume", "m") == {"phase": "trying"}
        assert "is being tried already" in world.say("model", "rollout", "start", "m@2", code=2)
        assert "cannot score it: vb (no test rows)" in world.say("model", "rollout", "status", "m")
        assert world.printed("model", "rollout", "stop", "m", "--reason", "enough") == {"phase": "stopped"}
        assert "under way" in world.say("model", "rollout", "stop", "m", code=9)

        much_better = policy_file(world.folder, max_worse=-0.99)
        result = world.say("model", "rollout", "start", "m@2", *everyone, *much_better, "--wait", code=6)
        assert "too-bad" in result
        any_at_all = policy_file(world.folder, max_worse=1, max_worse_share=1)
        result = world.printed("model", "rollout", "start", "m@2", *everyone, *any_at_all, "--wait")
        assert (result["phase"], result["reports"], result["cannot"]) == ("promoted", 2, {"vb": "no test rows"})
        assert world.printed("model", "history", "m")["current"]["version"] == 2
