"""What runs write, and what they say while they wait."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from broker.port import Message
from coordinator.engine import AgentDown, AgentUp, Answer, Offer, RunState, asking, gives_up_at, waiting
from coordinator.engine.events import to_value
from coordinator.messages import Decoder
from coordinator.runs.transaction import entry_of
from glassfleet.contract.messages import Contribution
from schemas.codec import digest_of, encode
from schemas.envelope import Envelope, frames_for_contribution
from schemas.errors import StorageError
from schemas.messages import AgentState, ContributionBody
from tests.support.coordinator_bench import TOPICS, Fleet, answer_of
from tests.support.engine_bench import OFFER, Play, central, toy_spec


def test_coordinator_changes_nothing_when_the_disk_is_full() -> None:
    fleet = Fleet().begin("a", "b")
    state, entries = fleet.core.runs.live.get("r1"), list(fleet.journal.entries)
    message = answer_of("a", fleet.task())
    fleet.journal.is_full = True
    with pytest.raises(StorageError):
        fleet.core.handle([message])
    assert fleet.core.runs.live.get("r1") is state
    assert fleet.journal.entries == entries
    fleet.hub.pump()
    assert fleet.receipts("a") == [], "what is not stored is not acknowledged"
    fleet.journal.is_full = False
    fleet.finish("a", "b")
    assert fleet.core.runs.document("r1")["outcome"] == "finished"


def test_an_answer_has_one_digest_and_one_record_in_one_message_and_in_parts() -> None:
    decoder, seen = Decoder(TOPICS), []
    contribution = Contribution("toy", 3, {"sum": np.arange(1000)}).to_value()
    body = ContributionBody(task_digest="0" * 64, rows=3, data_digest="1" * 64, contribution=contribution)
    envelope = Envelope(fleet=TOPICS.fleet, body=body, run="r1", agent="a")
    for limit in (10_000, 4_096):
        for frame in frames_for_contribution(envelope, TOPICS, limit):
            decoded = decoder.decode(Message(*frame), 1.0)
        assert isinstance(decoded, tuple)
        assert isinstance(decoded[1], Answer)
        seen.append(replace(decoded[1], size=0))
    for event in seen:
        assert event.answer_digest == digest_of({"rows": 3, "data": "1" * 64, "contribution": contribution})
        assert entry_of("r1", event, 0.0).body == encode(to_value(seen[0]))


def test_coordinator_writes_one_transaction_for_a_batch() -> None:
    fleet = Fleet()
    agents = [f"agent-{number}" for number in range(20)]
    fleet.begin(*agents)
    before = fleet.core.metrics["journal.transactions"]
    task = fleet.task()
    fleet.core.handle([answer_of(agent, task) for agent in agents])
    assert fleet.core.metrics["journal.transactions"] == before + 1
    assert len(fleet.state().cohort) == 20


def test_coordinator_journals_a_flood_of_answers_that_change_nothing_as_one_record() -> None:
    fleet = Fleet().begin("a", "b", "c")
    fleet.answer("a")
    size = len(fleet.journal.entries)
    nonsense = Envelope(fleet="f", body=AgentState(status="up", incarnation="x"), run="r1", agent="d").to_bytes()
    for _ in range(500):
        fleet.answer("a")
        for agent in ("c", "stranger"):
            fleet.publish(TOPICS.contribution(agent), nonsense)
    assert len(fleet.journal.entries) == size, "what changes nothing is not written"
    assert Counter(fleet.receipts("a"))["duplicate"] == 500, "each has its receipt"
    assert len(fleet.receipts("c")) == len(fleet.receipts("stranger")) == 500
    assert (fleet.core.metrics["receipts.duplicate"], fleet.core.metrics["receipts.rejected"]) == (500, 1000)
    fleet.answer("b")
    added = fleet.journal.entries[size:]
    assert [entry.kind for entry in added] == ["counted", "answer"]
    assert len(added[0].body) < 300
    before = fleet.core.runs.live.get("r1")
    fleet.crash()
    after = fleet.state()
    assert after.open is not None
    assert after == before
    assert (after.open.duplicate, after.open.rejected) == (500, 1000)


BLIND = Offer(frozenset({"toy"}), ("p", "q"), "y")
AIMLESS = Offer(frozenset({"toy"}), ("x",), "z")
OTHER = Offer(frozenset({"other"}), ("x",), "y")


def test_coordinator_loses_nothing_but_counts_when_it_is_killed_amid_a_flood() -> None:
    fleet = Fleet().begin("a", "b", model="m")
    fleet.answer("a")
    for _ in range(10):
        fleet.answer("a")
    fleet.crash()
    state = fleet.state()
    assert state.open is not None
    assert (state.open.duplicate, state.accepted) == (0, ("a",))
    fleet.finish("b", "a")
    record = fleet.record("m")
    assert record.document == central(toy_spec(), "ab").to_document()


def waits_for(state: RunState) -> str:
    result = waiting(state)
    return "" if result is None else result.words("12:00:00")


def test_run_says_at_once_who_cannot_take_part_when_it_gathers() -> None:
    play = Play(toy_spec(rounds={"gather_agents": 3, "gather_timeout": 5}), agents=())
    for agent, offer in {"a": OFFER, "v1": BLIND, "v2": BLIND, "v3": AIMLESS, "v4": OTHER}.items():
        play.send(AgentUp(play.at, agent, offer))
    assert waits_for(play.state) == (
        "needs 3 vehicles that can answer (to learn from fewer: rounds.gather_agents): 5 are up, 1 can; waits until "
        "12:00:00 for others; not counted: has no column 'x' (v1, v2); cannot run 'toy' (v4); has the target 'z', not "
        "'y' (v3)"
    )
    assert gives_up_at(play.state) == 5


def test_run_says_that_the_quorum_cannot_be_met_until_others_come() -> None:
    play = Play(toy_spec(rounds={"min_agents": 5, "deadline": 10, "grace": 1, "extensions": 2}))
    play.send(AgentUp(play.at, "v1", BLIND))
    lacks = (
        "needs 5 answers: 3 vehicles that can answer are up; waits until 12:00:00 for others; not counted: "
        "has no column 'x' (v1)"
    )
    assert waits_for(play.state) == lacks
    assert gives_up_at(play.state) == 33
    play.answer("a", "b")
    assert waits_for(play.state) == lacks, "nothing new as long as answers come from those that are up"
    play.send(AgentDown(play.at, "b"))
    assert ": 2 vehicles that can answer are up, 1 more has answered; waits" in waits_for(play.state)
    play.pass_time(11)
    assert gives_up_at(play.state) == 33, "an extension was one of those that it had"
    play.up("d")
    assert waits_for(play.state), "four of five"
    play.up("e")
    assert waits_for(play.state) == ""


def test_run_names_the_members_that_are_down_when_its_cohort_is_fixed() -> None:
    play = Play(toy_spec(rounds={"min_agents": 1.0}))
    play.answer("a", "b", "c")
    assert (play.phase, waits_for(play.state)) == ("learning", "")
    play.send(AgentDown(play.at, "c"))
    play.up("d")
    lacks = "needs 3 answers: 2 vehicles of the cohort are up; waits until 12:00:00 for c"
    assert waits_for(play.state) == lacks
    play.answer("a")
    assert waits_for(play.state) == lacks
    play.up("c")
    assert waits_for(play.state) == ""


@pytest.mark.parametrize("columns", [("x",), ("x", "snr"), None])
def test_vehicles_can_answer_or_are_told_why_not_when_they_are_up(columns: tuple[str, ...] | None) -> None:
    spec = toy_spec(rounds={"gather_agents": 99})
    spec = spec.model_copy(update={"domain": None, "features": columns, "target": "y" if columns else None})
    play = Play(spec, agents=())
    offers = [OFFER, BLIND, AIMLESS, OTHER, Offer(), Offer(frozenset({"toy"})), Offer(frozenset({"toy"}), ("x", "snr"))]
    for number, offer in enumerate(offers):
        play.send(AgentUp(play.at, f"v{number}", offer))
    settled = asking.settled(play.state)

    assert settled.features
    assert {*asking.able(settled)} == {*settled.agents} - {*asking.unable(settled)}


def test_coordinator_says_that_it_has_no_broker_and_does_not_blame_the_agents() -> None:
    fleet = Fleet().begin("a", "b", rounds={"deadline": 10, "extensions": 0})
    fleet.hub.advance(3)
    fleet.core.outages.lost()
    since = fleet.core.runs.document("r1")["reason"]
    assert since == "the coordinator has had no broker since 22:13:23 UTC"
    fleet.hub.advance(4)
    fleet.core.outages.regained()
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
