"""A real fleet finishes its run though one vehicle filled the coordinator's queue, so that answers were dropped."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.port import Link
from broker.servers.mosquitto import MosquittoProcess, certificate_acl
from broker.tls import tls_of
from lab.processes import Process
from schemas.topics import Topics
from tests.support.agent_bench import write_rows
from tests.support.authorities import FleetCa
from tests.support.brokers import HostileClient
from tests.support.cloud import SOURCES, CoordinatorProcess, begin_run, central_digest, ended, record_of, spec
from tests.support.processes import Processes, eventually
from tests.support.transports import Client, connected

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.needs("mosquitto"), pytest.mark.timeout(180)]
TOPICS = Topics("fleet")
LARGEST = 16 * 1024
LIMIT = {"GLASSFLEET_MAX_MESSAGE_BYTES": str(LARGEST)}


def test_fleet_finishes_though_a_vehicle_filled_the_coordinators_queue(processes: Processes, tmp_path: Path) -> None:
    ca = FleetCa(tmp_path / "fleet")
    for name in (*SOURCES, "evil"):
        ca.identity("agent", name)
    acl = certificate_acl(TOPICS, coordinators=["cloud"], operators=["anna"])
    identity = ca.identity("broker", "broker")
    broker = MosquittoProcess(ca.folder / "state", identity=identity, acl=acl, max_message_bytes=LARGEST)
    broker.start()
    cloud = ["--identity", str(ca.identity("coordinator", "cloud")), "--api-port", "0"]
    coordinator = CoordinatorProcess(broker.url, tmp_path / "cloud", *cloud, environment=LIMIT)
    evil = HostileClient(broker.url, ca.folder / "evil")
    clients: list[Client] = []
    try:
        with coordinator.api() as api:
            vehicles = [started(processes, broker.url, ca.folder / name, name) for name in SOURCES]
            eventually(lambda: len(api.get("/api/agents").json()) == len(SOURCES), "all agents are known")
            for vehicle in vehicles:
                vehicle.freeze()
            anna = Link(broker.url, "x", tls=tls_of(ca.identity("operator", "anna")), session_expiry=0)
            watcher = connected(anna, TOPICS.request("r"), TOPICS.contributions())
            clients.append(watcher)
            begin_run(api, spec("r", model="m"))
            eventually(lambda: watcher.payloads(TOPICS.request("r")), "the vehicles are asked")
        coordinator.kill()
        evil.flood(TOPICS.contribution("evil"), 2 * broker.config.max_queued_bytes, qos=1)
        for topic in (TOPICS.contribution("evil"), TOPICS.evaluation("evil")):
            evil.publish(topic, b"retained rubbish", qos=1, retain=True)
        log = broker.config.state_dir / "mosquitto.log"
        eventually(lambda: "dropped for client cloud" in log.read_text(encoding="utf-8"), "the queue is full")
        for vehicle in vehicles:
            vehicle.thaw()
        eventually(lambda: heard(watcher) >= set(SOURCES), "all have answered, and the broker dropped it")
        coordinator = CoordinatorProcess(broker.url, tmp_path / "cloud", *cloud)
        with coordinator.api() as api:
            assert ended(api, "r", 120)["outcome"] == "finished", processes.logs()
            eventually(lambda: api.get("/api/metrics").json().get("retained.cleared") == 2, "rubbish was cleared")
        late = connected(anna, TOPICS.contributions(), TOPICS.evaluation("+"), TOPICS.agent_state("+"))
        clients.append(late)
        eventually(lambda: late.payloads(TOPICS.agent_state("va")), "what shall be retained is there")
        assert late.payloads(TOPICS.contribution("evil")) == late.payloads(TOPICS.evaluation("evil")) == []
    finally:
        for client in clients:  # else one would go on and write into what other tests print
            client.transport.stop()
        evil.close()
        coordinator.end()
        processes.end()
        broker.stop()
    record = record_of(tmp_path / "cloud", "r")
    assert record.cohort == list(SOURCES)
    assert record.digest == central_digest(record)


def heard(watcher: Client) -> set[str]:
    """Whose answers came, without the attacker's."""
    return {message.topic.split("/")[4] for message in watcher.messages if not message.retained}


def started(processes: Processes, url: str, identity: Path, name: str) -> Process:
    rows = write_rows(processes.folder / f"{name}.csv", SOURCES[name].train)
    words = ("agent", "--id", name, "--broker", url, "--identity", str(identity), "--data", str(rows), "--target", "t")
    return processes.start(*words, environment=LIMIT)
