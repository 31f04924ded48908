"""The coordinator without threads, over the in-memory broker: hostile messages, parts, refusals, strangers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from glassfleet.scheme import Task
from schemas.envelope import Envelope
from schemas.messages import (
    AgentState,
    Body,
    ContributionBody,
    Refusal,
)
from schemas.parts import frames_for_contribution
from tests.support.coordinator_bench import TOPICS, Fleet, contribution
from tests.support.engine_bench import central, toy_spec


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


def test_coordinator_joins_a_contribution_that_came_in_parts() -> None:
    fleet = Fleet().begin("a")
    body = contribution("a", fleet.task())
    body.contribution["values"] = {"noise": np.random.default_rng(1).integers(0, 2**62, 3000)}
    frames = frames_for_contribution(Envelope(fleet="f", body=body, run="r1", agent="a"), TOPICS, 4096)
    assert len(frames) > 3
    for frame in reversed(frames):
        fleet.publish(frame.topic, frame.payload)
    assert fleet.receipts("a") == ["accepted"]
    state = fleet.state()
    assert state.rounds[0].bytes == sum(len(frame.payload) for frame in frames)


def test_coordinator_ends_a_wait_when_an_agent_refuses() -> None:
    fleet = Fleet().begin("a", "b")
    fleet.answer("a")
    refusal = Refusal(task_digest=fleet.task().digest, reason="column x is missing")
    payload = Envelope(fleet="f", body=refusal, run="r1", agent="b").to_bytes()
    fleet.publish(TOPICS.contribution("b", "r1"), payload)
    state = fleet.state()
    assert state.cohort == ("a",)
    assert fleet.receipts("b") == ["accepted refusal noted"]
