"""What a run says while it waits for what may not come, and whom it blames when the coordinator had no broker."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest

from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Link
from console.client import Coordinator as Client
from console.run import follow
from coordinator.engine import (
    AgentDown,
    AgentUp,
    NoBroker,
    Offer,
    Refused,
    RunState,
    Waiting,
    asking,
    gives_up_at,
    waiting,
)
from coordinator.journal import MemoryJournal
from coordinator.main import assemble
from coordinator.runs import directory
from coordinator.runs.outages import Outages
from coordinator.runs.view import time_in_words
from tests.support.coordinator_bench import Fleet
from tests.support.engine_bench import OFFER, TOY_ENGINE, Play, toy_spec

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


def test_run_says_when_it_gives_up_at_the_first_deadline() -> None:
    play = Play(toy_spec(policy={"min_agents": 5, "deadline": 10, "on_missed_quorum": "fail"}))

    assert gives_up_at(play.state) == 10


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


def test_run_says_that_nobody_else_is_asked_when_a_sample_is_too_small() -> None:
    play = Play(toy_spec(policy={"min_agents": 4, "sample": 4}))
    play.up("d")
    play.up("e")

    assert said(play.state) == (
        "needs 4 answers: 3 vehicles of those asked are up; cannot be met: nobody else is asked; fails at 12:00:00"
    )


def test_run_lacks_nothing_when_it_has_ended_or_merely_goes_on() -> None:
    play = Play(toy_spec())
    assert said(play.state) == ""
    play.answer("a")
    assert said(play.state) == ""
    play.finish("a", "b", "c")
    assert (play.phase, said(play.state), gives_up_at(play.state)) == ("finished", "", None)


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


def test_reason_names_the_missing_broker_when_no_agent_could_be_seen() -> None:
    play = Play(toy_spec(policy={"gather_agents": 2, "gather_timeout": 5}), agents=())
    play.pass_time(4)
    play.send(NoBroker(play.at, -20.0))
    play.pass_time(1)

    assert play.state.reason.endswith("); the coordinator had no broker for 4.0 s of that time")


def test_reason_is_silent_about_brokers_that_were_missed_before_the_round_or_for_a_moment() -> None:
    play = Play(toy_spec(policy={"min_agents": 3, "deadline": 10, "extensions": 0, "gather_agents": 3}), agents=("a",))
    play.at = 5
    play.send(NoBroker(5.0, 1.0))
    play.up("b")
    play.up("c")
    play.send(NoBroker(5.0, 3.0))
    play.send(NoBroker(5.04, 5.0))
    play.pass_time(10)

    assert play.state.reason.startswith("quorum-not-met: 0 of 3")
    assert "broker" not in play.state.reason


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


def test_outages_are_joined_when_the_broker_flaps() -> None:
    clock = [0.0]
    outages = Outages(lambda: clock[0])
    for _ in range(100):
        outages.lost()
        clock[0] += 0.01
        outages.found()
        clock[0] += 1.0
    told = outages.pop_events(clock[0])
    assert len(told) <= 10
    assert sum(event.at - event.since for event in told) == pytest.approx(1.0, abs=0.1)
    assert all(one.at <= other.since for one, other in pairwise(told)), "no two overlap"


def test_outage_that_goes_on_is_told_when_a_tenth_of_a_second_is_full() -> None:
    clock = [5.0]
    outages = Outages(lambda: clock[0])
    outages.lost()
    assert outages.pop_events(5.05) == []
    assert outages.pop_events(5.25) == [NoBroker(5.25, 5.0)]
    clock[0] = 5.3
    outages.found()
    assert (outages.since, outages.are_over, outages.pop_events(9.0)) == (None, False, [])


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


def test_coordinator_looks_at_its_vehicles_once_when_a_waiting_run_is_looked_at_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet()
    looks: list[RunState] = []

    def look(state: RunState) -> Waiting | None:
        looks.append(state)
        return waiting(state)

    monkeypatch.setattr(directory, "waiting", look)
    fleet.birth("a")
    fleet.core.start_run(toy_spec(policy={"gather_agents": 3}))
    fleet.core.start_run(toy_spec(policy={"gather_agents": 4}).model_copy(update={"run": "r2"}))
    first = [fleet.core.runs.document(run)["reason"] for run in ("r1", "r2")]
    assert first[0].startswith("needs 3 vehicles that can answer (")
    assert first[1].startswith("needs 4 vehicles that can answer (")
    assert [fleet.core.runs.document(run)["reason"] for run in ("r1", "r2")] == first
    assert len(looks) == 2
    fleet.birth("b")
    assert ": 2 are up; " in fleet.core.runs.document("r1")["reason"], "another state is looked at anew"
    assert len(looks) == 3


def test_coordinator_forgets_what_a_run_lacked_when_it_is_closed_during_the_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet()
    fleet.core.start_run(toy_spec(policy={"gather_agents": 3}))

    def slow(state: RunState) -> Waiting | None:
        fleet.core.cancel("r1")
        return waiting(state)

    monkeypatch.setattr(directory, "waiting", slow)
    assert fleet.core.runs.document("r1")["reason"].startswith("needs 3 vehicles")
    assert not fleet.core.runs.lacks
    assert fleet.core.runs.document("r1")["reason"] == "cancelled by an operator"


def test_coordinator_tells_the_same_end_at_every_look_when_the_wall_clock_is_set() -> None:
    clock, wall = [0.0], [1.7e9]
    transport = MemoryTransport(MemoryHub(), Link("mqtt://m", "c"))
    core = assemble("f", transport, MemoryJournal(), TOY_ENGINE, clock=lambda: clock[0], wall=lambda: wall[0])
    core.start_run(toy_spec(policy={"gather_timeout": 60}))
    first = core.runs.document("r1")["reason"]
    clock[0], wall[0] = 2.0, 1.7e9 + 5

    assert "waits until 22:14:20 UTC" in first
    assert core.runs.document("r1")["reason"] == first


def test_time_has_its_date_when_it_is_of_another_day() -> None:
    assert time_in_words(1.7e9, 1.7e9) == "22:13:20 UTC"
    assert time_in_words(1.7e9 + 3 * 86400, 1.7e9) == "2023-11-17 22:13:20 UTC"


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


class Desk:
    """Answers what it was given, one document a look."""

    url = "http://nowhere"

    def __init__(self, *reasons: str) -> None:
        self._documents = [{"rounds": [], "state": "running", "phase": "gathering", "reason": each} for each in reasons]

    def run(self, _run: str) -> dict[str, Any]:
        return self._documents.pop(0) if self._documents else {"rounds": [], "state": "ended", "reason": "over"}


@pytest.mark.parametrize(
    ("reasons", "lines"),
    [
        (("one",) * 5, ["r1: one"]),
        (("", "one", "two", "three"), []),
        (("one", "one", "", "", "two", "two", "two"), ["r1: one", "r1: two"]),
    ],
)
def test_follower_says_what_a_run_lacks_once_it_has_stood_for_two_looks(
    reasons: tuple[str, ...], lines: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(follow, "POLL", 0.0)
    follow.follow_run(cast("Client", Desk(*reasons)), "r1", as_json=False, patience=0.0)

    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == ("", lines)
