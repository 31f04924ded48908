"""The coordinator without threads: its configuration, queue, policy; runs over crashes, quorums, hostile messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broker.memory import Saved
from broker.port import Message
from coordinator.config import CoordinatorConfig
from coordinator.process.queue import EventQueue
from coordinator.specification.run import RoundPolicy, RunSpec
from glassfleet.scheme import Task
from schemas.envelope import Envelope
from schemas.errors import NotFoundError, UsageError
from schemas.messages import AgentState, Body, ContributionBody, ModelPointer, Request
from tests.support.coordinator_bench import TOPICS, Fleet, contribution
from tests.support.engine_bench import central, toy_spec


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


def test_coordinator_takes_the_remaining_time_from_the_journal_after_a_crash() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec(policy={"deadline": 10}))
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


def _hostile(task: Task) -> Iterable[tuple[str, bytes]]:
    good = Envelope(fleet="f", body=contribution("a", task), run="r1", agent="a")
    yield "malformed", b"\xc1 not msgpack"
    yield "malformed", b""
    yield "wrong-agent", Envelope(fleet="f", body=good.body, run="r1", agent="b").to_bytes()
    yield "wrong-run", Envelope(fleet="f", body=good.body, run="r2", agent="a").to_bytes()
    yield "foreign-fleet", Envelope(fleet="g", body=good.body, run="r1", agent="a").to_bytes()
    body: Body = AgentState(status="up", incarnation="x")
    yield "malformed", Envelope(fleet="f", body=body, run="r1", agent="a").to_bytes()
    body = ContributionBody(task_digest=task.digest, rows=4, data_digest="0" * 64, contribution={})
    yield "impossible", Envelope(fleet="f", body=body, run="r1", agent="a").to_bytes()
    sums = {"s": np.zeros(2, np.int64)}
    value = {"kind": "add", "rows": 4, "sums": sums, "values": {}, "nullified": 0}
    for spoilt in (value, {**value, "rows": 5}, {**value, "kind": "x"}, {**value, "sums": {}}):
        body = ContributionBody(task_digest=task.digest, rows=4, data_digest="0" * 64, contribution=spoilt)
        yield "impossible", Envelope(fleet="f", body=body, run="r1", agent="a").to_bytes()


def test_coordinator_answers_hostile_messages_and_counts_none() -> None:
    fleet = Fleet().begin("a", "b")
    task = fleet.task()
    for code, payload in _hostile(task):
        before = len(fleet.receipts("a"))
        fleet.publish(TOPICS.contribution("a", "r1"), payload)
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


DEFAULT = {"min_agents": None, "gather_timeout": 60, "deadline": 10}


def test_fleet_of_which_too_few_are_up_keeps_its_model_until_the_operator_asks_for_fewer() -> None:
    fleet = Fleet().begin("a", "b", policy=DEFAULT)
    fleet.finish("a", "b")
    fleet.birth("b", status="down")
    fleet.core.start_run(toy_spec("r2", policy=DEFAULT))
    assert fleet.core.runs.document("r2")["reason"].startswith(
        "needs 2 vehicles that can answer (to learn from fewer: min_agents): 1 is up; waits until "
    )
    fleet.pass_time(60)
    assert fleet.core.runs.document("r2")["reason"] == (
        "not-enough-agents: 1 of 2 agents that can run 'toy' were up after 60 s (1 up in all; to learn from "
        "fewer: min_agents)"
    )
    fleet.begin(run="r3", policy={"min_agents": 1})
    fleet.finish("a", run="r3")
    assert fleet.record(version=2).cohort == ["a"]


def test_half_is_of_those_who_learned_the_model_in_use_and_not_of_those_left_out() -> None:
    fleet = Fleet().begin(*"abcdefgh", policy=DEFAULT, without=["g", "h"])
    assert fleet.state().spec.policy.min_agents == 3
    fleet.finish(*"abcdef")
    fleet.core.models.promote("model", 1)
    fleet.birth(*"ijklmnop")
    fleet.begin(run="r2", policy=DEFAULT, without=["a", "b"])
    assert fleet.state("r2").spec.policy.min_agents == 2


def test_elastic_rounds_need_half_of_those_who_are_up_and_not_of_all_who_ever_answered() -> None:
    fleet = Fleet().begin(*"abcdefgh", policy=DEFAULT)
    fleet.finish(*"abcdefgh")
    fleet.core.models.promote("model", 1)
    fleet.birth(*"efgh", status="down")
    fleet.core.start_run(toy_spec("r2", policy=DEFAULT).model_copy(update={"participation": "elastic"}))
    assert fleet.state("r2").spec.policy.min_agents == 2


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


def test_config_prefers_flags_to_environment_to_file_to_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "glassfleet.toml"
    file.write_text('fleet = "file"\nkeepalive = 11\napi_port = 1\nsession_expiry = 7\n[coordinator]\nkeepalive = 12\n')
    monkeypatch.setenv("GLASSFLEET_FLEET", "environment")
    monkeypatch.setenv("GLASSFLEET_API_PORT", "2")
    monkeypatch.setenv("GLASSFLEET_COORDINATOR_SESSION_EXPIRY", "8")
    config = CoordinatorConfig.load(file, api_port=3, broker=None)
    assert (config.http.api_port, config.fleet, config.connection.session_expiry, config.connection.keepalive) == (
        3,
        "environment",
        8,
        12,
    )
    assert config.broker == "mqtt://127.0.0.1:1883"
    assert CoordinatorConfig.load().connection.keepalive == 30, "the file is forgotten again"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"broker": "localhost"}, "mqtt://host:port"),
        ({"fleet": "a b"}, "valid id"),
        ({"api_host": "0.0.0.0"}, "api_expose"),
        ({"api_port": 70000}, "api_port"),
        ({"max_message_bytes": 10}, "max_message_bytes"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_config_names_the_setting_that_cannot_be_meant(flags: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        CoordinatorConfig.load(**flags)
    with pytest.raises(UsageError, match="model: not a valid id: use 1 to 64 letters"):
        RunSpec.from_document({"scheme": "fmt", "model": "a b"})


@pytest.mark.parametrize(
    ("text", "words"),
    [("fleet = [", "not valid TOML"), ("flet = 'x'", "no setting 'flet'"), ("coordinator = 1", "must be a table")],
)
def test_config_names_what_is_wrong_with_a_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "f.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=words):
        CoordinatorConfig.load(file)


def test_event_queue_drops_contributions_above_its_bounds_but_never_states() -> None:
    queue = EventQueue(max_messages=3, max_bytes=5000, full_wait=0.01)
    for number in range(5):
        queue.put(Message(f"c/{number}", b"x"))
        queue.put(Message("agent/a/state", b"%d" % number))
    assert queue.dropped == 2
    batch = queue.get_batch(2, 0.0)
    assert [message.payload for message in batch.messages] == [b"4", b"x"], "of states only the latest is kept"
    queue.put(Message("c/big", b"y" * 4900))
    assert queue.dropped == 3
    assert queue.depth()[0] == 2


def test_event_queue_counts_topics_as_well_and_gives_states_no_endless_room() -> None:
    queue = EventQueue(max_messages=100, max_bytes=50_000)
    for number in range(20):
        queue.put(Message(f"c/{number:09000d}", b""))
        queue.put(Message(f"agent/{number:09000d}/state", b""))
    assert len(queue.get_batch(100, 0.0).messages) == 10, "five of each: their topics alone take 9 kB"
    assert queue.dropped == 30
    assert queue.depth() == (0, 0)


def test_event_queue_that_is_full_lets_who_puts_wait_for_room_and_loses_nothing() -> None:
    queue = EventQueue(max_messages=3, max_bytes=5000)
    taken: list[Message] = []

    def write() -> None:
        for number in range(200):
            queue.put(Message(f"c/{number}", b"x"))

    writer = threading.Thread(target=write)
    writer.start()
    while len(taken) < 200:
        waiting, _ = queue.depth()
        assert waiting <= 3
        taken += queue.get_batch(2, 5.0).messages
    writer.join()
    assert [message.topic for message in taken] == [f"c/{number}" for number in range(200)]
    assert queue.dropped == 0


def test_event_queue_lets_nobody_wait_again_until_something_is_taken() -> None:
    queue = EventQueue(max_messages=1, max_bytes=5000, full_wait=0.2)
    begun = time.monotonic()
    for number in range(100):
        queue.put(Message(f"c/{number}", b"x"))
    assert queue.dropped == 99
    assert time.monotonic() - begun < 10, "one of them waited"


def test_event_queue_runs_calls_on_the_thread_that_takes_and_hands_back_what_they_raise() -> None:
    queue = EventQueue(10, 1000)
    futures = [queue.call(threading.get_ident), queue.call(lambda: 1 // 0)]
    for call in queue.get_batch(10, 0.0).calls:
        call()
    assert futures[0].result(0) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        futures[1].result(0)


def test_event_queue_stamps_messages_when_they_arrive_and_knows_the_oldest() -> None:
    now = [0.0]
    queue = EventQueue(max_messages=9, max_bytes=10_000, clock=lambda: now[0])
    assert queue.oldest() is None
    for now[0], topic in ((1.0, "c/1"), (2.0, "c/2"), (3.0, "agent/a/state")):
        queue.put(Message(topic, b"x"))
    batch = queue.get_batch(2, 0.0)
    assert [message.topic for message in batch.messages] == ["agent/a/state", "c/1"]
    assert batch.arrived == [1.0, 1.0], "a state goes first, at the time of what it overtook"
    assert queue.oldest() == 2.0
    queue.get_batch(9, 0.0)
    assert queue.oldest() is None
