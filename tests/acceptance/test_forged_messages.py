"""Real processes on a broker that lets everybody write everything: seals alone keep a good certificate to its owner.

The attacker has a valid certificate, another vehicle's. The broker's rules, which would stop it as well, are lifted: so
would who runs the broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.credentials import FolderCredentials
from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.servers.mosquitto import MosquittoProcess
from broker.tls import tls_of
from console.main import run as command
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import AgentState
from schemas.topics import Topics
from tests.support.agent_bench import write_rows
from tests.support.authorities import FleetCa, number_in
from tests.support.cloud import SOURCES, CoordinatorProcess, begin_run, central_digest, ended, record_of, spec
from tests.support.forgeries import forgeries
from tests.support.processes import Processes, eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.needs("mosquitto"), pytest.mark.timeout(180)]
TOPICS = Topics("fleet")
OPEN = "topic readwrite gf/1/#\n\npattern readwrite gf/1/#\n"


class Attacker:
    """Reads everything; forges under each name, in each way that it can, with the certificate of ``stolen``."""

    def __init__(self, url: str, folder: Path) -> None:
        self.signer = FolderCredentials(folder).signer
        self.sent = 0
        self.own: set[bytes] = set()
        self.births: list[Envelope] = []
        self.transport = PahoTransport(Link(url, "stolen", tls=tls_of(folder)))
        self.transport.subscribe(f"{TOPICS.prefix}#")
        self.transport.start(Handlers(self._message, lambda: None, lambda _why: None))

    def say(self, topic: str, envelope: Envelope, seal: bytes = b"") -> None:
        payload = replace(envelope, signature=seal).to_bytes()
        payload = payload if seal else self.signer.seal(topic, payload)
        self.own.add(payload)
        self.transport.publish(topic, payload)
        self.sent += 1

    def _message(self, message: Message) -> None:
        # What it said itself comes back: answered, too, it would have said all it may before a vehicle has answered.
        if not message.payload or message.payload in self.own or self.sent > 300:
            return
        try:
            envelope = Envelope.from_bytes(message.payload, fleet="fleet")
        except WireError:
            return
        for topic, forged in forgeries(envelope, message.topic, TOPICS, SOURCES):
            for seal in (b"", envelope.signature):
                self.say(topic, forged, seal)
        if isinstance(envelope.body, AgentState) and envelope.agent in SOURCES:
            self.births.append(envelope)

    def birth(self, number: int) -> None:
        """Announce itself, as it honestly may."""
        state = self.births[0]
        assert isinstance(state.body, AgentState)
        body = state.body.model_copy(update={"incarnation": f"stolen-{number}"})
        self.say(TOPICS.agent_state("stolen"), replace(state, body=body, agent="stolen", time=time.time()))


@pytest.fixture
def ca(tmp_path: Path) -> FleetCa:
    made = FleetCa(tmp_path / "fleet")
    for name in (*SOURCES, "stolen"):
        made.identity("agent", name)
    made.identity("coordinator", "cloud")
    return made


@pytest.fixture
def broker(ca: FleetCa) -> Iterator[MosquittoProcess]:
    made = MosquittoProcess(ca.folder / "state", identity=ca.identity("broker", "broker"), acl=OPEN)
    made.start()
    yield made
    made.stop()


@pytest.fixture
def agents(ca: FleetCa, broker: MosquittoProcess, processes: Processes) -> Processes:
    for name, source in SOURCES.items():
        rows = write_rows(processes.folder / f"{name}.csv", source.train)
        processes.start(
            *("agent", "--id", name, "--broker", broker.url, "--identity", str(ca.folder / name)),
            *("--data", str(rows), "--target", "t"),
        )
    return processes


def test_fleet_takes_nothing_that_another_vehicle_forged_and_shuts_it_out_when_it_is_revoked(
    ca: FleetCa, broker: MosquittoProcess, agents: Processes, tmp_path: Path
) -> None:
    cloud = ca.folder / "cloud"
    coordinator = CoordinatorProcess(broker.url, tmp_path / "cloud", "--identity", str(cloud), "--api-port", "0")
    attacker = Attacker(broker.url, ca.folder / "stolen")
    try:
        with coordinator.api() as api:

            def agent(name: str) -> dict[str, Any]:
                return next((one for one in api.get("/api/agents").json() if one["agent"] == name), {})

            def refused(code: str) -> int:
                return int(api.get("/api/metrics").json().get(f"refused.{code}", 0))

            eventually(lambda: all(agent(name) for name in SOURCES), "all agents are known")
            begin_run(api, spec("r", model="m"))
            assert ended(api, "r", 120)["outcome"] == "finished", agents.logs()
            assert attacker.sent > 50
            assert refused("wrong-signer") > 0
            eventually(lambda: refused("bad-signature"), "a lie under the seal of another message is refused")

            # A certificate that is good may say what is its own; once it is revoked, nothing, without a restart.
            attacker.birth(1)
            eventually(lambda: agent("stolen"), "the vehicle is known before it is revoked")
            revoke = ["ca", "revoke", "stolen", "--reason", "stolen", "--ca-dir", str(ca.authority.folder)]
            assert command([*revoke, "--into", str(cloud)]) == 0
            births = iter(range(2, 1000))

            def is_shut_out() -> bool:
                attacker.birth(next(births))
                time.sleep(0.1)
                return refused("revoked-certificate") > 0

            eventually(is_shut_out, "the coordinator refuses its seal")
            newest = number_in(ca.authority.crl_pem)
            for name in SOURCES:
                folder = ca.folder / name
                eventually(
                    lambda folder=folder: number_in((folder / "crl.pem").read_bytes()) == newest,
                    f"{name} heard of the list and keeps it",
                )
            # An operator sees it, too.
            anna = ("--broker", broker.url, "--identity", str(ca.identity("operator", "anna")))
            result = agents.call("broker", "tap", *anna, "--for", "2", "--json").stdout.splitlines()
            seals = {line["topic"]: line["seal"] for line in map(json.loads, result)}
            assert seals["coordinator/state"] == "coordinator cloud"
            assert seals["agent/va/state"] == "agent va"
            assert seals["authority/revoked"] == "by the CA: 1 revoked"
            assert all(process.is_running for process in agents.values())
    finally:
        attacker.transport.stop()
        coordinator.end()
    assert "Traceback" not in coordinator.logged()
    record = record_of(tmp_path / "cloud", "r")
    assert record.cohort == list(SOURCES)
    assert record.digest == central_digest(record)
