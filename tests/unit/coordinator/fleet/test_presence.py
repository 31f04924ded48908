"""The coordinator without threads, over the in-memory broker: who comes and goes, agents and other coordinators."""

from __future__ import annotations

from collections import Counter

import pytest

from coordinator.limits import FleetLimits
from coordinator.messages.publisher import birth
from schemas.envelope import Envelope
from schemas.messages import (
    AgentState,
    CoordinatorState,
    Evaluation,
)
from tests.support.coordinator_bench import TOPICS, Fleet


def test_coordinator_forgets_the_agents_that_left_first_when_ids_are_endless() -> None:
    fleet = Fleet(fleet_limits=FleetLimits(max_agents=20))
    fleet.birth("good")
    for index in range(100):
        fleet.birth(f"v{index}")
        fleet.birth(f"v{index}", status="down")
    known = {each["agent"] for each in fleet.core.fleet.document()}
    assert len(known) <= 20
    assert "good" in known, "who is up is not forgotten"
    fleet.birth(*(f"w{index}" for index in range(40)))
    assert len(fleet.core.fleet.document()) == 20
    assert fleet.core.metrics["births.refused"] > 0


def test_coordinator_bounds_what_birth_certificates_make_it_remember() -> None:
    fleet = Fleet(fleet_limits=FleetLimits(fleet_bytes=15_000))
    for index in range(50):
        body = AgentState(status="up", incarnation="1", schemes=["toy"], features=[f"{'x' * 90}{index}"], target="y")
        payload = Envelope(fleet="f", body=body, agent=f"v{index}").to_bytes()
        fleet.publish(TOPICS.agent_state(f"v{index}"), payload, retain=True)
    assert 5 <= len(fleet.core.fleet.document()) <= 11
    assert fleet.core.metrics["births.refused"] >= 39


def test_coordinator_turns_no_newcomer_away_for_the_scores_of_others_and_keeps_the_newest_of_all() -> None:
    fleet = Fleet(fleet_limits=FleetLimits(fleet_bytes=100_000))
    for index in range(30):
        fleet.birth(f"v{index}")
        for version in range(1, 101):
            body = Evaluation(
                name="m",
                version=version,
                digest="0" * 64,
                metric="f1",
                federated=1.0,
                local=1.0,
                rows=900,
                confusion=None if version % 2 else [[900, 0, 0], [0, 0, 0], [0, 0, 0]],
            )
            for agent in range(index + 1):
                fleet.core.fleet.evaluated(f"v{agent}", body)
    assert len(fleet.core.fleet.document()) == 30
    assert fleet.core.fleet.size <= 100_000
    assert len(fleet.core.fleet.evaluations("m", 100)) == 30, "that of the newest version, of each"


def test_coordinator_holds_back_births_that_come_too_often_and_takes_the_last_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.fleet.directory.BIRTHS_BURST", 10)
    monkeypatch.setattr("coordinator.fleet.directory.BIRTHS_PER_MINUTE", 6.0)
    fleet = Fleet().begin("a", "b", policy={"gather_agents": 3, "gather_timeout": 3600.0})
    size = len(fleet.journal.content.entries)
    for index in range(200):
        fleet.birth("a", incarnation=str(index // 2), status="down" if index % 2 else "up")
    assert len(fleet.journal.content.entries) - size <= 10
    assert fleet.core.metrics["births.held"] >= 80
    fleet.birth("a", incarnation="last")
    for _ in range(30):
        fleet.pass_time(1.0)
    last = {each["agent"]: each for each in fleet.core.fleet.document()}["a"]
    assert (last["status"], last["incarnation"]) == ("up", "last")
    assert fleet.core.next_wake() is not None


def test_coordinator_knows_vehicles_that_are_down_after_a_restart_from_what_the_broker_kept() -> None:
    fleet = Fleet()
    fleet.birth("a", "b", "gone")
    fleet.birth("b", status="down")
    fleet.publish(TOPICS.agent_state("gone"), b"", retain=True)
    fleet.hub.advance(60.0)
    fleet.crash()
    known = {each["agent"]: each for each in fleet.core.fleet.document()}
    assert {agent: each["status"] for agent, each in known.items()} == {"a": "up", "b": "down"}
    assert known["b"]["since"] == 1.7e9 + fleet.hub.now, "when it went down is not known: since it was met so"
    assert fleet.core.fleet.counts() == {"up": 1, "down": 1}
    fleet.birth("b", incarnation="2")
    assert {each["agent"]: each["status"] for each in fleet.core.fleet.document()} == {"a": "up", "b": "up"}
    fleet.begin(policy={"gather_agents": 2})
    assert fleet.core.runs.document("r1")["phase"] == "recruiting"


def test_coordinator_makes_no_room_for_vehicles_that_it_never_saw_up() -> None:
    fleet = Fleet(fleet_limits=FleetLimits(max_agents=3))
    fleet.birth("a")
    for index in range(10):
        fleet.birth(f"v{index}", status="down")
    assert sorted(each["agent"] for each in fleet.core.fleet.document()) == ["a", "v0", "v1"]
    fleet.birth("b", "c")
    assert {agent for agent, count in fleet.core.fleet.offers().items() if count} == {"a", "b", "c"}


def test_coordinator_repeats_its_birth_when_something_else_stands_in_its_place() -> None:
    fleet = Fleet()
    will = birth(TOPICS, fleet.core.incarnation, "", "down")
    fleet.publish(will.topic, will.payload, retain=True)
    fleet.pass_time(1.0)
    body = Envelope.from_bytes(fleet.hub.retained[TOPICS.coordinator_state()], fleet="f").body
    assert isinstance(body, CoordinatorState)
    assert (body.status, body.incarnation) == ("up", fleet.core.incarnation)


def test_coordinator_asks_for_no_repetition_of_births_in_a_flood_of_foreign_states() -> None:
    fleet = Fleet()
    for index in range(100):
        other = birth(TOPICS, f"x{index}", "", "down")
        fleet.publish(other.topic, other.payload)
        fleet.core.tick()
        fleet.hub.advance(0.01)
    assert fleet.core.metrics["births.repeated"] <= 5, "one in a quarter of a second"


def test_coordinator_repeats_open_requests_and_pointers_for_a_newcomer_whom_the_broker_told_nothing() -> None:
    fleet = Fleet().begin("a", "b", run="r0", model="m")
    fleet.finish("a", "b", run="r0")
    fleet.core.models.promote("m", 1)
    fleet.begin()
    fleet.pass_time(5.0)
    del fleet.seen[:]
    fleet.birth(*(f"new{index}" for index in range(20)))
    fleet.pass_time(1.5)
    counted = Counter(message.topic for message in fleet.seen)
    assert counted[TOPICS.request("r1")] == 1, "one repetition for all of them"
    assert counted[TOPICS.model_current("m")] == 1
    # A broker that gives what is retained to wildcards, as this one does when the coordinator comes back, needs none.
    fleet.crash()
    del fleet.seen[:]
    fleet.birth("newer")
    fleet.pass_time(5.0)
    assert TOPICS.model_current("m") not in {message.topic for message in fleet.seen}


def test_coordinator_ignores_the_will_of_an_earlier_life() -> None:
    fleet = Fleet()
    fleet.birth("a", incarnation="1")
    fleet.birth("a", incarnation="2")
    fleet.birth("a", incarnation="1", status="down")
    assert list(fleet.core.fleet.offers()) == ["a"]
    fleet.birth("a", incarnation="2", status="down")
    assert fleet.core.fleet.offers() == {}
