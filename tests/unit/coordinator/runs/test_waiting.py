"""What a run says while it waits for what may not come, and whom it blames when the coordinator had no broker."""

from __future__ import annotations

import pytest

from coordinator.engine import (
    AgentDown,
    AgentUp,
    NoBroker,
    Offer,
    Refused,
    RunState,
    asking,
    gives_up_at,
    waiting,
)
from coordinator.runs.outages import Outages
from tests.support.coordinator_bench import Fleet
from tests.support.engine_bench import OFFER, Play, toy_spec

BLIND = Offer(frozenset({"toy"}), ("p", "q"), "y")
AIMLESS = Offer(frozenset({"toy"}), ("x",), "z")
OTHER = Offer(frozenset({"other"}), ("x",), "y")


def said(state: RunState) -> str:
    found = waiting(state)
    return "" if found is None else found.words("12:00:00")


@pytest.mark.parametrize(
    ("wanted", "offers", "words"),
    [
        (1, {}, "needs 1 vehicle that can answer: no vehicle is up; waits until 12:00:00 for others"),
        (
            2,
            {"a": OFFER},
            (
                "needs 2 vehicles that can answer (to learn from fewer: gather_agents): 1 is up; waits until 12:00:00 "
                "for others"
            ),
        ),
        (
            1,
            {"v1": BLIND, "v2": BLIND, "v3": AIMLESS, "v4": OTHER},
            (
                "needs 1 vehicle that can answer: 4 are up, none can; waits until 12:00:00 for others; not counted: "
                "has no column 'x' (v1, v2); cannot run 'toy' (v4); has the target 'z', not 'y' (v3)"
            ),
        ),
        (
            3,
            {"a": OFFER, "b": OFFER, "v1": BLIND},
            (
                "needs 3 vehicles that can answer (to learn from fewer: gather_agents): 3 are up, 2 can; waits until "
                "12:00:00 for others; not counted: "
                "has no column 'x' (v1)"
            ),
        ),
    ],
)
def test_run_says_at_once_who_cannot_take_part_when_it_gathers(
    wanted: int, offers: dict[str, Offer], words: str
) -> None:
    play = Play(toy_spec(policy={"gather_agents": wanted, "gather_timeout": 5}), agents=())
    for agent, offer in offers.items():
        play.send(AgentUp(play.at, agent, offer))

    assert said(play.state) == words
    assert gives_up_at(play.state) == 5


def test_run_says_that_its_columns_are_those_of_nobody_when_none_are_settled() -> None:
    spec = toy_spec(policy={"gather_agents": 1}).model_copy(update={"domain": None, "features": ("x", "snr")})
    play = Play(spec, agents=())
    play.send(AgentUp(play.at, "v1", OFFER))

    assert said(play.state).endswith(
        "1 is up, none can; waits until 12:00:00 for others; not counted: has no column 'snr' (v1)"
    )


def test_run_says_that_the_quorum_cannot_be_met_until_others_come() -> None:
    play = Play(toy_spec(policy={"min_agents": 5, "deadline": 10, "grace": 1, "extensions": 2}))
    play.send(AgentUp(play.at, "v1", BLIND))
    lacks = (
        "needs 5 answers: 3 vehicles that can answer are up; waits until 12:00:00 for others; not counted: "
        "has no column 'x' (v1)"
    )
    assert said(play.state) == lacks
    assert gives_up_at(play.state) == 33
    play.answer("a", "b")
    assert said(play.state) == lacks, "nothing new as long as answers come from those that are up"
    play.send(AgentDown(play.at, "b"))
    assert ": 2 vehicles that can answer are up, 1 more has answered; waits" in said(play.state)
    play.pass_time(11)
    assert gives_up_at(play.state) == 33, "an extension was one of those that it had"
    play.up("d")
    assert said(play.state), "four of five"
    play.up("e")
    assert said(play.state) == ""


def test_run_counts_out_whoever_refused_when_it_waits_for_a_quorum() -> None:
    play = Play(toy_spec(policy={"min_agents": 3}))
    assert said(play.state) == ""
    play.send(Refused(play.at, "c", play.task.digest, "no disk"))

    assert said(play.state) == (
        "needs 3 answers: 2 vehicles that can answer are up; waits until 12:00:00 for others; not counted: "
        "refused: no disk (c)"
    )


def test_run_names_the_members_that_are_down_when_its_cohort_is_fixed() -> None:
    play = Play(toy_spec(policy={"min_agents": 1.0}))
    play.answer("a", "b", "c")
    assert (play.phase, said(play.state)) == ("learning", "")
    play.send(AgentDown(play.at, "c"))
    play.up("d")
    lacks = "needs 3 answers: 2 vehicles of the cohort are up; waits until 12:00:00 for c"
    assert said(play.state) == lacks
    play.answer("a")
    assert said(play.state) == lacks
    play.up("c")
    assert said(play.state) == ""


def test_reason_names_the_missing_broker_when_nobody_could_be_heard() -> None:
    play = Play(toy_spec(policy={"min_agents": 2, "deadline": 10, "extensions": 1}))
    play.pass_time(4)
    play.send(NoBroker(play.at, 2.5))
    play.pass_time(6)
    assert play.state.open is not None
    assert play.state.open.attempt == 2
    play.send(NoBroker(18.0, 11.0))
    play.pass_time(10)

    assert play.state.reason == (
        "quorum-not-met: 0 of 3 asked had answered at the deadline, 2 must; the coordinator had no broker for 8.5 s of "
        "this round; not counted: no answer by the deadline (a, b, c)"
    )


def test_missing_broker_lets_no_time_pass_when_it_is_told_before_what_came_in_time() -> None:
    play = Play(toy_spec(policy={"min_agents": 1, "deadline": 10}))
    play.send(NoBroker(30.0, 9.0))
    play.at = 8
    play.answer("a", "b", "c")

    assert play.state.cohort == ("a", "b", "c")


def test_outages_are_told_once_each_when_taken_at_any_moment() -> None:
    clock = [1.0]
    outages = Outages(lambda: clock[0])
    assert (outages.since, outages.are_over, outages.pop_events(9.0)) == (None, False, [])
    outages.found()
    assert outages.pop_events(9.0) == [], "none was lost"
    outages.lost()
    clock[0] = 3.0
    outages.lost()
    assert (outages.since, outages.are_over) == (1.0, False)
    assert outages.pop_events(0.5) == []
    assert outages.pop_events(3.0) == [NoBroker(3.0, 1.0)]
    clock[0] = 4.0
    outages.found()
    outages.lost()
    clock[0] = 6.0
    outages.found()
    assert (outages.since, outages.are_over) == (None, True)
    assert outages.pop_events(6.0) == [NoBroker(4.0, 3.0), NoBroker(6.0, 4.0)]
    assert outages.pop_events(9.0) == []


def test_journal_does_not_fill_when_the_broker_flaps() -> None:
    fleet = Fleet().begin("a", "b", policy={"deadline": 60, "extensions": 0})
    before = fleet.core.metrics["journal.records"]
    for _ in range(20):
        fleet.core.outages.lost()
        fleet.hub.advance(0.03)
        fleet.core.outages.found()
        fleet.core.connected()
    assert fleet.core.metrics["journal.records"] - before == 5
    fleet.pass_time(60)

    assert "had no broker for 0.6 s of this round" in fleet.core.runs.document("r1")["reason"]


@pytest.mark.parametrize("columns", [("x",), ("x", "snr"), None])
def test_vehicles_can_answer_or_are_told_why_not_when_they_are_up(columns: tuple[str, ...] | None) -> None:
    spec = toy_spec(policy={"gather_agents": 99})
    spec = spec.model_copy(update={"domain": None, "features": columns, "target": "y" if columns else None})
    play = Play(spec, agents=())
    offers = [OFFER, BLIND, AIMLESS, OTHER, Offer(), Offer(frozenset({"toy"})), Offer(frozenset({"toy"}), ("x", "snr"))]
    for number, offer in enumerate(offers):
        play.send(AgentUp(play.at, f"v{number}", offer))
    settled = asking.settled(play.state)

    assert settled.features
    assert {*asking.able(settled)} == {*settled.agents} - {*asking.unable(settled)}


def test_coordinator_says_that_it_has_no_broker_and_does_not_blame_the_agents() -> None:
    fleet = Fleet().begin("a", "b", policy={"deadline": 10, "extensions": 0})
    fleet.hub.advance(3)
    fleet.core.outages.lost()
    since = fleet.core.runs.document("r1")["reason"]
    assert since == "the coordinator has had no broker since 22:13:23 UTC"
    fleet.hub.advance(4)
    fleet.core.outages.found()
    fleet.core.connected()
    assert fleet.core.runs.document("r1")["reason"] == ""
    fleet.crash()
    fleet.hub.advance(1)
    fleet.core.outages.lost()
    fleet.pass_time(2)

    document = fleet.core.runs.document("r1")
    assert document["reason"] == (
        "quorum-not-met: 0 of 2 asked had answered at the deadline, 1 must; the coordinator had no broker for 6.0 s of "
        "this round; not counted: no answer by the deadline (a, b)"
    )
