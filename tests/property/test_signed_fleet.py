"""A fleet on a broker that lies: what is signed reaches its receiver, what is forged changes nothing.

The attacker reads every message and may publish anything, as whoever runs the broker could. The same attack on a fleet
that does not sign succeeds, which shows that the attack is one.
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from broker.port import Handlers, Link, Message
from coordinator.specification.run import RoundPolicy, RunSpec
from glassfleet.data.dataset import pool
from schemas.envelope import Envelope
from schemas.errors import IdentityError, WireError
from tests.support.agent_bench import domain_of
from tests.support.authorities import TestCa
from tests.support.forgeries import forgeries
from tests.support.memory_broker import Faults, MemoryTransport
from tests.support.sample_models import curve
from tests.support.schedules import central_digest, train_only
from tests.support.simulation import FLEET, URL, Simulation

NAMES = ("a", "b", "c", "d")


pytestmark = pytest.mark.usefixtures("quiet_logs")


SOURCES = {name: train_only(curve(60 + 20 * index, index)) for index, name in enumerate(NAMES)}
DOMAIN = domain_of(pool([each.train for each in SOURCES.values()]))


def spec(run: str) -> RunSpec:
    return RunSpec(
        run=run,
        scheme="frt",
        model="m",
        parameters={"nullify": False, "min_rows": 1, "max_depth": 3},
        domain=DOMAIN,
        rounds=RoundPolicy(min_agents=2, deadline=8.0, gather_agents=len(NAMES), extensions=20, max_restarts=9),
    )


class Attacker:
    """Reads all and writes what it likes, with a certificate of one vehicle of the fleet (a stolen one)."""

    def __init__(self, sim: Simulation, seed: int) -> None:
        self.sim = sim
        self.chance = random.Random(seed)
        self.sent = 0
        self.transport = MemoryTransport(sim.hub, Link(URL, "attacker"))
        self.signer = sim.ca.agent("stolen").signer() if sim.ca else None
        self.transport.subscribe(f"gf/1/{FLEET}/#")
        self.seen: list[Message] = []
        self.transport.start(Handlers(self._message, lambda: None, lambda why: None))

    def _message(self, message: Message) -> None:
        if not message.payload or self.sent > 400 or message.payload[:1] == b"{":
            return
        self.seen.append(message)
        address = self.sim.topics.parse(message.topic)
        if address.kind == "blob":
            return
        try:
            envelope = Envelope.from_bytes(message.payload, fleet=FLEET)
        except WireError:
            return
        for topic, forged in forgeries(envelope, message.topic, self.sim.topics, NAMES):
            payload = forged.to_bytes()
            way = self.chance.choice(["unsigned", "stolen", "spliced"]) if self.signer else "unsigned"
            if way == "stolen" and self.signer:
                payload = self.signer.seal(topic, payload)
            elif way == "spliced":
                payload = replace(forged, signature=envelope.signature).to_bytes()
            self.sent += 1
            self.transport.publish(topic, payload)
        if self.chance.random() < 0.3:  # a replay, as it was, somewhere else or at the same place
            old = self.chance.choice(self.seen)
            topic = self.chance.choice([old.topic, message.topic])
            self.transport.publish(topic, old.payload)


@pytest.mark.parametrize("seed", range(4))
def test_signed_fleet_learns_the_central_model_when_the_network_is_bad_and_refuses_nothing(state_dir: Path, seed: int):
    faults = Faults(loss=0.05, duplicate=0.1, delay=(0.0, 0.3))
    sim = Simulation(SOURCES, state_dir, seed=seed, faults=faults, ca=TestCa(), broker_limit=5000)
    sim.begin(5)
    run = sim.start_run(spec("r"))
    sim.at(sim.hub.now + 3, lambda: sim.kill_agent("b"))
    sim.at(sim.hub.now + 4, lambda: sim.start_agent("b"))
    sim.at(sim.hub.now + 5, sim.kill_coordinator)
    sim.at(sim.hub.now + 6, sim.start_coordinator)
    document = sim.run_until_ended(run, within=400)
    record = sim.record("m")
    assert document["outcome"] == "finished", document["reason"]
    assert record.digest == central_digest(record, SOURCES)
    assert sim.refused == {}


@pytest.mark.parametrize("seed", range(6))
def test_signed_fleet_learns_the_model_of_all_its_vehicles_when_the_broker_lies(state_dir: Path, seed: int):
    sim = Simulation(SOURCES, state_dir, seed=seed, ca=TestCa())
    sim.begin()
    attacker = Attacker(sim, seed)
    sim.advance(5)
    run = sim.start_run(spec("r"))
    document = sim.run_until_ended(run, within=400)
    record = sim.record("m")
    assert document["outcome"] == "finished", document["reason"]
    assert record.cohort == list(NAMES)
    assert record.digest == central_digest(record, SOURCES)
    assert sim.counted_twice() == []
    assert attacker.sent > 50
    assert sum(sim.refused.values()) > 50
    assert {"unsigned", "wrong-signer", "bad-signature"} <= set(sim.refused)


def test_unsigned_fleet_does_not_survive_the_same_attack(state_dir: Path):
    sim = Simulation(SOURCES, state_dir, seed=1)
    sim.begin()
    Attacker(sim, 1)
    try:
        sim.advance(5)
        run = sim.start_run(spec("r"))
        outcome = sim.run_until_ended(run, within=400)["outcome"]
    except IdentityError:  # a replayed birth takes a vehicle's name away
        outcome = "identity"
    assert outcome != "finished" or not sim.journal.models("m") or sim.record("m").cohort != list(NAMES)
