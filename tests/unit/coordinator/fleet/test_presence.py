"""Who comes and goes, which coordinator leads, and whose scores are far out."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.config import FleetLimits
from coordinator.fleet.differences import far_out, in_lines
from coordinator.fleet.leadership import QUIET, Election
from coordinator.messages import birth
from schemas.envelope import Envelope
from schemas.messages import AgentState, CoordinatorState
from tests.support.coordinator_bench import TOPICS, Fleet


def test_coordinator_forgets_the_agents_that_left_first_when_ids_are_endless() -> None:
    fleet = Fleet(fleet_limits=FleetLimits(max_agents=20))
    fleet.birth("good")
    for index in range(100):
        fleet.birth(f"v{index}")
        fleet.birth(f"v{index}", status="down")
    known = fleet.core.fleet.known()
    assert len(known) <= 20
    assert "good" in known, "who is up is not forgotten"
    fleet.birth(*(f"w{index}" for index in range(40)))
    assert len(fleet.core.fleet.known()) == 20
    assert fleet.core.metrics["births.refused"] > 0


def test_coordinator_bounds_what_birth_certificates_make_it_remember() -> None:
    fleet = Fleet(fleet_limits=FleetLimits(fleet_bytes=15_000))
    for index in range(50):
        body = AgentState(status="up", incarnation="1", schemes=["toy"], features=[f"{'x' * 90}{index}"], target="y")
        payload = Envelope(fleet="f", body=body, agent=f"v{index}").to_bytes()
        fleet.publish(TOPICS.agent_state(f"v{index}"), payload, retain=True)
    assert 5 <= len(fleet.core.fleet.known()) <= 11
    assert fleet.core.metrics["births.refused"] >= 39


def test_coordinator_holds_back_births_that_come_too_often_and_takes_the_last_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.fleet.directory.BIRTHS_BURST", 10)
    monkeypatch.setattr("coordinator.fleet.directory.BIRTHS_PER_MINUTE", 6.0)
    fleet = Fleet().begin("a", "b", rounds={"gather_agents": 3, "gather_timeout": 3600.0})
    size = len(fleet.journal.entries)
    for index in range(200):
        fleet.birth("a", incarnation=str(index // 2), status="down" if index % 2 else "up")
    assert len(fleet.journal.entries) - size <= 10
    assert fleet.core.metrics["births.held"] >= 80
    fleet.birth("a", incarnation="last")
    for _ in range(30):
        fleet.pass_time(1.0)
    last = fleet.core.fleet.known()["a"]
    assert (last.status, last.incarnation) == ("up", "last")
    assert fleet.core.next_wake() is not None


def test_coordinator_knows_vehicles_that_are_down_after_a_restart_from_what_the_broker_kept() -> None:
    fleet = Fleet()
    fleet.birth("a", "b", "gone")
    fleet.birth("b", status="down")
    fleet.publish(TOPICS.agent_state("gone"), b"", retain=True)
    fleet.hub.advance(60.0)
    fleet.crash()
    known = fleet.core.fleet.known()
    assert {agent: each.status for agent, each in known.items()} == {"a": "up", "b": "down"}
    assert known["b"].since == 1.7e9 + fleet.hub.now, "nobody said when it was up: since it was met"
    assert fleet.core.fleet.counts() == {"up": 1, "down": 1}
    fleet.birth("b", incarnation="2")
    assert fleet.core.fleet.counts() == {"up": 2}
    fleet.begin(rounds={"gather_agents": 2})
    assert fleet.core.runs.document("r1")["phase"] == "recruiting"


def test_coordinator_makes_no_room_for_vehicles_that_it_never_saw_up() -> None:
    fleet = Fleet(fleet_limits=FleetLimits(max_agents=3))
    fleet.birth("a")
    for index in range(10):
        fleet.birth(f"v{index}", status="down")
    assert sorted(fleet.core.fleet.known()) == ["a", "v0", "v1"]
    fleet.birth("b", "c")
    assert {agent for agent, count in fleet.core.fleet.offers().items() if count} == {"a", "b", "c"}


def test_coordinator_repeats_its_birth_when_something_else_stands_in_its_place() -> None:
    fleet = Fleet()
    will = birth(TOPICS, fleet.core.presence.incarnation, "", "down")
    fleet.publish(will.topic, will.payload, retain=True)
    fleet.pass_time(1.0)
    body = Envelope.from_bytes(fleet.hub.retained[TOPICS.coordinator_state()], fleet="f").body
    assert isinstance(body, CoordinatorState)
    assert (body.status, body.incarnation) == ("up", fleet.core.presence.incarnation)


def test_coordinator_asks_for_no_repetition_of_births_in_a_flood_of_foreign_states() -> None:
    fleet = Fleet()
    for index in range(100):
        other = birth(TOPICS, f"x{index}", "", "down")
        fleet.publish(other.topic, other.payload)
        fleet.core.tick()
        fleet.hub.advance(0.01)
    assert fleet.core.metrics["births.repeated"] <= 5, "one in a quarter of a second"


def test_coordinator_ignores_the_will_of_an_earlier_life() -> None:
    fleet = Fleet()
    fleet.birth("a", incarnation="1")
    fleet.birth("a", incarnation="2")
    fleet.birth("a", incarnation="1", status="down")
    assert list(fleet.core.fleet.offers()) == ["a"]
    fleet.birth("a", incarnation="2", status="down")
    assert fleet.core.fleet.offers() == {}


def test_coordinator_of_a_later_term_is_obeyed_when_it_is_seen_again() -> None:
    me = Election("me", 10.0)
    assert not me.is_lost("other", "up", 11.0, 0.0, retained=True)
    assert not me.is_lost("other", "up", 11.0, 0.1, retained=False), "a copy"
    assert me.is_lost("other", "up", 11.0, 0.3, retained=False)


def test_coordinator_that_was_not_seen_for_long_is_forgotten() -> None:
    me = Election("me", 10.0)
    assert [me.is_lost("other", "up", 11.0, (QUIET + 1.0) * index, retained=False) for index in range(5)] == [False] * 5


@pytest.mark.parametrize(("status", "term"), [("up", 9.0), ("down", 11.0), ("down", 9.0)])
def test_coordinator_that_is_down_or_earlier_is_answered_and_never_obeyed(status: str, term: float) -> None:
    me = Election("me", 10.0)
    for index in range(20):
        at = float(index)
        assert not me.is_lost("other", status, term, at, retained=False)
        assert me.due is not None
        assert me.due <= at + 0.25
        me.published(me.due)


def test_exactly_one_of_two_coordinators_stops_when_both_keep_coming_back() -> None:
    for one, two in (((1.0, "b"), (2.0, "a")), ((1.0, "a"), (1.0, "b"))):
        first, second = Election(one[1], one[0]), Election(two[1], two[0])
        flags = {"first": False, "second": False}
        for index in range(10):
            flags["first"] |= first.is_lost(second.own, "up", second.term, 0.3 * index, retained=False)
            flags["second"] |= second.is_lost(first.own, "up", first.term, 0.3 * index, retained=False)
        assert flags == {"first": True, "second": False}


def fleet(*others: tuple[float, float | None], metric: str = "rmse", sound: int = 4) -> dict[str, dict[str, Any]]:
    """Return what sound vehicles send (score 0.5, the constant's 1.2; of F1: 0.9 and 0.4), and others their own."""
    usual = (0.9, 0.4) if metric == "f1" else (0.5, 1.2)
    pairs = [*[usual] * sound, *others]
    return {
        f"v{number}": {"metric": metric, "federated": score, "constant": constant}
        for number, (score, constant) in enumerate(pairs, 1)
    }


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        (fleet((40.0, 1.2)), ["v5"]),
        (fleet((1.6, 1.5), (9.0, 2.0)), ["v6", "v5"]),
        (fleet((1.4, 1.3)), []),  # not three times the median
        (fleet((40.0, 41.0)), []),  # its target varies more: so does what forecasts without inputs
        (fleet((40.0, None)), []),  # it did not tell of the constant
        (fleet((40.0, 1.2), sound=3), []),  # of four nobody can tell who is wrong
        (fleet((0.1, 0.3), metric="f1"), ["v5"]),
        (fleet((0.1, 0.05), metric="f1"), []),
        (fleet((0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (2.0, 1.0), sound=0), ["v5"]),
        (fleet((40.0, 1.2)) | {"v9": {"metric": "f1", "federated": 0.1, "constant": 0.9}}, ["v5"]),
        ({}, []),
    ],
)
def test_vehicle_is_named_when_its_error_is_far_above_the_median_and_above_its_constants(
    sent: dict[str, dict[str, Any]], named: list[str]
) -> None:
    assert [agent for agent, _ in far_out(sent)] == named


def test_line_says_what_the_numbers_are_of_when_a_score_is_far_out() -> None:
    assert in_lines(far_out(fleet((0.1, 0.3), metric="f1"))) == [
        "v5: its F1 is 0.1, the median vehicle's is 0.9; always forecasting the most frequent class would have 0.3"
    ]
