"""The coordinator without threads: runs over crashes, quorums, hostile messages."""

from __future__ import annotations

import pytest

from broker.port import Message
from console.operator.connection import not_asked_lines
from coordinator.duty import look_at
from coordinator.specification.run import RoundPolicy
from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import NotFoundError, UsageError
from schemas.messages import AgentState, ModelPointer, Request
from tests.support.coordinator_bench import TOPICS, Fleet, contribution, hostile
from tests.support.engine_bench import central, toy_spec
from tests.support.memory_broker import Saved


def test_coordinator_publishes_a_model_that_equals_the_central_one() -> None:
    fleet = Fleet().begin("a", "b", model="m")
    fleet.finish("b", "a")
    fleet.core.models.promote("m", 1)
    fleet.hub.pump()
    record = fleet.record("m")
    assert record.document == central(toy_spec(), "ab").to_document()
    assert (record.cohort, record.training.rows, record.training.nullified_cells) == (["a", "b"], 8, 6)
    pointer = Envelope.from_bytes(fleet.hub.retained[TOPICS.model_current("m")], fleet="f").body
    assert isinstance(pointer, ModelPointer)
    assert pointer.sequence > 0
    assert pointer == ModelPointer(name="m", version=1, digest=record.digest, sequence=pointer.sequence)
    assert TOPICS.request("r1") not in fleet.hub.retained, "the request of an ended run is cleared"
    order = [message.topic for message in fleet.seen if "/model/" in message.topic]
    assert order == [TOPICS.model_version("m", 1), TOPICS.model_current("m")]
    document = fleet.core.runs.document("r1")
    assert (document["outcome"], document["model"]["digest"]) == ("finished", record.digest)


def test_record_says_which_rows_its_vehicles_held_back() -> None:
    fleet = Fleet()
    for agent, how in (("a", "drives"), ("b", "rows"), ("c", "drives"), ("d", "")):
        fleet.birth(agent, held_back=how)
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    fleet.finish("a", "b", "c", "d")
    assert fleet.record().parameters["held_back"] == {"drives": 2, "rows": 1}


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ({"kinds": ["words", "numbers"]}, "has words in 'x', where most have numbers"),
        ({"status": "down", "fault": "its log says why"}, "cannot use its data: its log says why"),
    ],
)
@pytest.mark.parametrize("is_early", [True, False])
def test_run_goes_on_without_who_differs_or_cannot_use_its_data_and_names_it(says, reason, is_early) -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    spec = toy_spec(rounds={"min_agents": 2, "gather_agents": 3})
    steps = (lambda: fleet.birth("c", **says), lambda: fleet.core.start_run(spec))
    for step in steps if is_early else reversed(steps):
        step()
        fleet.hub.pump()
    fleet.finish("a", "b")
    document = fleet.core.runs.document("r1")
    assert document["cohort"] == ["a", "b"]
    assert document["agents"]["c"] == {"status": "idle", "reason": reason}
    assert not_asked_lines(document) == [f"  not asked, as it {reason}: c"]


def test_agent_that_can_use_its_data_again_is_up_and_no_cause_is_left() -> None:
    fleet = Fleet()
    for about, cause, counts in (
        ({"status": "down", "fault": "column 'x' has a cell that cannot be used"}, ["bad-data"], {"down": 1}),
        ({"status": "down", "fault": "its log says why"}, ["bad-data"], {"down": 1}),
        ({"incarnation": "2"}, [], {"up": 1}),
    ):
        fleet.birth("a", **about)
        fleet.hub.pump()
        known = fleet.core.fleet.known()
        assert [each.kind for each in look_at(known, [], {}).causes.get("a", ())] == cause
        assert (fleet.core.fleet.counts(), bool(known["a"].offer.fault)) == (counts, bool(cause))


def test_coordinator_takes_the_remaining_time_from_the_journal_after_a_crash() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec(rounds={"deadline": 10}))
    fleet.hub.advance(6)
    fleet.answer("a")
    fleet.crash()
    request = fleet.request().body
    assert isinstance(request, Request)
    assert request.remaining == pytest.approx(4)
    fleet.hub.advance(1000)
    fleet.crash()
    state = fleet.state()
    assert state.phase == "recruiting", "no time passes while nobody counts it"
    fleet.pass_time(4)
    state = fleet.state()
    assert state.cohort == ("a",)


def test_coordinator_publishes_everything_again_when_the_broker_forgot() -> None:
    fleet = Fleet().begin("a", "b", run="r0")
    fleet.finish("a", "b", run="r0")
    fleet.core.models.promote("model", 1)
    fleet.begin()
    before = dict(fleet.hub.retained)
    fleet.hub.stop_broker()
    fleet.hub.start_broker(Saved())
    fleet.hub.advance(10)
    own = {topic for topic in before if "/agent/" not in topic}
    assert own <= set(fleet.hub.retained)
    assert TOPICS.request("r1") in own
    assert TOPICS.model_current("model") in own


def test_coordinator_clears_a_request_that_outlived_its_run() -> None:
    fleet = Fleet()
    fleet.publish(TOPICS.request("ghost"), b"anything", retain=True)
    assert TOPICS.request("ghost") not in fleet.hub.retained


def test_coordinator_refuses_a_run_id_that_is_taken_also_after_its_end() -> None:
    fleet = Fleet()
    fleet.birth("a")
    fleet.core.start_run(toy_spec())
    with pytest.raises(UsageError, match="exists already"):
        fleet.core.start_run(toy_spec())
    fleet.core.cancel("r1")
    fleet.crash()
    with pytest.raises(UsageError, match="exists already"):
        fleet.core.start_run(toy_spec())
    assert fleet.core.runs.document("r1")["outcome"] == "cancelled"
    fleet.core.cancel("r1")
    with pytest.raises(NotFoundError):
        fleet.core.cancel("other")
    with pytest.raises(NotFoundError):
        fleet.core.runs.document("other")


def test_coordinator_answers_for_runs_that_it_does_not_have() -> None:
    fleet = Fleet().begin("a")
    task = fleet.task()
    fleet.finish("a")
    fleet.answer("a", run="nope", task=task)
    fleet.answer("a", run="r1", task=task)
    assert fleet.receipts("a")[-2:] == ["unknown-run", "late the run has ended"]


@pytest.mark.parametrize("kind", ["contribution", "evaluation"])
def test_coordinator_clears_what_a_vehicle_has_retained_where_nothing_is_and_counts_it_for_nothing(kind: str) -> None:
    fleet = Fleet().begin("a", "b")
    topic = getattr(TOPICS, kind)("a")
    good = Envelope(fleet="f", body=contribution("a", fleet.task()), run="r1", agent="a").to_bytes()
    fleet.core.handle([Message(topic, good if kind == "contribution" else b"nonsense", retained=True)])
    fleet.hub.pump()
    assert [message.payload for message in fleet.seen if message.topic == topic] == [b""]
    assert fleet.state().accepted == ()
    assert fleet.receipts("a") == [], "it sends again what is true"
    fleet.answer("a")
    assert fleet.receipts("a") == ["accepted"]


def test_coordinator_answers_hostile_messages_and_counts_none() -> None:
    fleet = Fleet().begin("a", "b")
    task = fleet.task()
    for code, payload in hostile(task):
        before = len(fleet.receipts("a"))
        fleet.publish(TOPICS.contribution("a"), payload)
        receipts = fleet.receipts("a")
        assert len(receipts) == before + 1, (code, payload)
        assert receipts[-1].startswith(f"rejected {code}"), receipts[-1]
    for topic in ("gf/1/f/nonsense", TOPICS.agent_state("a"), TOPICS.evaluation("a")):
        fleet.publish(topic, b"\x00garbage")
    state = fleet.state()
    assert state.store == {}
    fleet.finish("a", "b")
    record = fleet.record()
    assert record.document == central(toy_spec(), "ab").to_document()


def test_birth_that_cannot_be_read_is_answered_and_shown_until_a_good_one_comes() -> None:
    fleet = Fleet()
    body = codec.decode(Envelope(fleet="f", body=AgentState(status="up", incarnation="x"), agent="a").to_bytes())
    broken = codec.encode({**body, "body": {**body["body"], "schemes": "tree"}})
    for _ in range(2):
        fleet.publish(TOPICS.agent_state("a"), broken, retain=True)
    assert len(fleet.receipts("a")) == 1
    assert fleet.receipts("a")[0].startswith("rejected malformed: agent-state.schemes: Input should be a valid list")
    assert [agent for agent, _ in fleet.core.fleet.unreadable.listed()] == ["a"]
    fleet.publish(TOPICS.agent_state("a"), codec.encode(body), retain=True)
    assert fleet.core.fleet.unreadable.listed() == []


DEFAULT = {"min_agents": None, "gather_timeout": 60, "deadline": 10}


def test_fleet_of_which_too_few_are_up_keeps_its_model_until_the_operator_asks_for_fewer() -> None:
    fleet = Fleet().begin("a", "b", rounds=DEFAULT)
    fleet.finish("a", "b")
    fleet.birth("b", status="down")
    fleet.core.start_run(toy_spec("r2", rounds=DEFAULT))
    assert fleet.core.runs.document("r2")["reason"].startswith(
        "needs 2 vehicles that can answer (to learn from fewer: --min-agents): 1 is up; waits until "
    )
    fleet.pass_time(60)
    assert fleet.core.runs.document("r2")["reason"] == (
        "not-enough-agents: 1 of 2 agents that can run 'toy' were up after 60 s (1 up in all; to learn from "
        "fewer: --min-agents)"
    )
    fleet.begin(run="r3", rounds={"min_agents": 1})
    fleet.finish("a", run="r3")
    assert fleet.record(version=2).cohort == ["a"]


def test_half_is_of_those_who_learned_the_model_in_use_and_not_of_those_left_out() -> None:
    fleet = Fleet().begin(*"abcdefgh", rounds=DEFAULT, without=["g", "h"])
    assert fleet.state().spec.rounds.min_agents == 3
    fleet.finish(*"abcdef")
    fleet.core.models.promote("model", 1)
    fleet.birth(*"ijklmnop")
    fleet.begin(run="r2", rounds=DEFAULT, without=["a", "b"])
    assert fleet.state("r2").spec.rounds.min_agents == 2


def test_elastic_rounds_need_half_of_those_who_are_up_and_not_of_all_who_ever_answered() -> None:
    fleet = Fleet().begin(*"abcdefgh", rounds=DEFAULT)
    fleet.finish(*"abcdefgh")
    fleet.core.models.promote("model", 1)
    fleet.birth(*"efgh", status="down")
    fleet.core.start_run(toy_spec("r2", rounds=DEFAULT).model_copy(update={"participation": "elastic"}))
    assert fleet.state("r2").spec.rounds.min_agents == 2


@pytest.mark.parametrize(
    ("given", "fleet", "quorum", "gather"),
    [
        ({}, 0, 2, 2),
        ({}, 5, 3, 3),
        ({"gather_agents": 4}, 5, 3, 4),
        ({"min_agents": 1}, 100, 1, 1),
        ({"target": 1}, 100, 1, 1),
        ({"sample": 4}, 100, 0.5, 2),
    ],
)
def test_default_quorum_asks_for_no_more_than_the_policy_allows(
    given: dict[str, int], fleet: int, quorum: float, gather: int
) -> None:
    policy = RoundPolicy(**given).with_quorum(fleet)
    assert (policy.min_agents, policy.gather_agents) == (quorum, gather)
