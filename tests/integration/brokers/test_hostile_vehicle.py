"""What one vehicle with a good certificate can make a broker keep, with the configuration that we write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from broker.port import Link
from broker.servers.mosquitto import MosquittoProcess, certificate_acl
from broker.tls import tls_of
from schemas.topics import Topics
from tests.support.agent_bench import rows
from tests.support.authorities import FleetCa
from tests.support.brokers import HostileClient
from tests.support.processes import Processes, eventually
from tests.support.transports import Client, connected

TOPICS = Topics("fleet")
LARGEST = 4096
"""Bytes of a message; the broker keeps 1024 of these for a client, and has memory for four times that."""

FLOOD = 10 * 1024 * LARGEST


@dataclass
class World:
    broker: MosquittoProcess
    ca: FleetCa

    def client(self, who: str, *patterns: str) -> Client:
        return connected(Link(self.broker.url, "x", tls=tls_of(self.ca.folder / who), session_expiry=3600), *patterns)

    def hostile(self) -> HostileClient:
        return HostileClient(self.broker.url, self.ca.folder / "evil")

    def kept(self) -> float:
        """Bytes of memory and of disk, whichever are more."""
        status = Path(f"/proc/{self.broker.pid}/status").read_text(encoding="utf-8")
        resident = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))
        database = self.broker.config.state_dir / "mosquitto.db"
        return max(resident, database.stat().st_size if database.exists() else 0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    ca = FleetCa(tmp_path)
    for name in ("good", "evil"):
        ca.identity("agent", name)
    ca.identity("coordinator", "cloud")
    acl = certificate_acl(TOPICS, coordinators=["cloud"])
    broker = MosquittoProcess(
        tmp_path / "state", identity=ca.identity("broker", "broker"), acl=acl, max_message_bytes=LARGEST
    )
    broker.start()
    yield World(broker, ca)
    broker.stop()


def honest_passes(world: World) -> None:
    """An honest answer reaches the coordinator, sooner or later: it is sent until there is a receipt."""
    cloud, good = world.client("cloud", TOPICS.contributions()), world.client("good")

    def came() -> bool:
        good.transport.publish(TOPICS.contribution("good"), b"honest")
        return b"honest" in cloud.payloads(TOPICS.contribution("good"))

    eventually(came, "the coordinator has it")
    for client in (cloud, good):
        client.transport.stop()


@pytest.mark.needs("mosquitto")
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("kind", ["to itself", "to an absent coordinator", "under many names"])
def test_vehicle_cannot_fill_mosquitto(world: World, kind: str, qos: int) -> None:
    world.client("cloud", TOPICS.contributions()).transport.stop()
    most = world.kept() + world.broker.config.max_queued_bytes + 100 * LARGEST + 4 * 2**20
    evil = world.hostile()
    if kind == "to itself":
        evil.subscribe("#", min(qos, 1))
        for topic in (TOPICS.agent_state("evil"), TOPICS.contribution("evil"), TOPICS.evaluation("evil")):
            evil.flood(topic, FLOOD // 3, qos=qos)
    elif kind == "to an absent coordinator":
        evil.flood(TOPICS.contribution("evil"), FLOOD, qos=qos)
    else:
        for number in range(FLOOD // 4000):
            for name in (f"agent/evil/run/{number}/contribution", f"agent/evil/{number}"):
                evil.publish(f"{TOPICS.prefix}{name}", bytes(2000), qos=qos, retain=True, number=number + 1)
        for kind_of in (TOPICS.agent_state, TOPICS.contribution, TOPICS.evaluation, TOPICS.forecast):
            evil.flood(kind_of("evil"), FLOOD // 4, qos=qos, retain=True)
    late = world.client("good", "#")
    late.transport.publish(TOPICS.evaluation("good"), b"mark")
    assert late.transport.flush(30), "the broker has done all that came before"
    late.transport.stop()
    assert world.kept() <= most
    honest_passes(world)
    evil.close()
    world.broker.restart()  # it writes what it keeps, and reads it again
    assert world.kept() <= most
    honest_passes(world)


@pytest.mark.needs("mosquitto")
def test_two_processes_with_one_certificate_are_told_why_connections_end(world: World, processes: Processes) -> None:
    table = rows()
    path = processes.folder / "rows.csv"
    header = ",".join([*table.features, table.target])
    np.savetxt(path, np.column_stack([table.X, table.y]), delimiter=",", header=header, comments="")
    words = ["agent", "--id", "good", "--broker", world.broker.url, "--identity", str(world.ca.folder / "good")]
    words += ["--data", str(path), "--target", table.target]
    cloud = world.client("cloud", TOPICS.agent_state("+"))
    first = processes.start(*words)
    processes.until(lambda: cloud.messages, first)
    second = processes.start(*words, "--state-dir", str(processes.folder / "elsewhere"))
    hint = "another process use this certificate"
    processes.until(lambda: hint in first.logged() and hint in second.logged(), second)
    cloud.transport.stop()
