"""The coordinator without threads, over the in-memory broker: hostile messages, parts, refusals, strangers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from coordinator.engine import Engine
from glassfleet.scheme import Task
from schemas.envelope import Envelope
from schemas.messages import (
    AgentState,
    Body,
    ContributionBody,
    Manifest,
    Refusal,
    Request,
)
from schemas.parts import frames_for_contribution, open_request
from schemas.record import ModelRecord
from schemas.trust.joining import BlobStore
from tests.support.coordinator_bench import TOPICS, Fleet, contribution
from tests.support.engine_bench import TOY_ENGINE, central, toy_spec


def test_coordinator_answers_for_runs_that_it_does_not_have() -> None:
    fleet = Fleet()
    fleet.birth("a")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
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
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    task = fleet.task()
    for code, payload in _hostile(task):
        before = len(fleet.receipts("a"))
        fleet.publish(TOPICS.contribution("a", "r1"), payload)
        receipts = fleet.receipts("a")
        assert len(receipts) == before + 1, (code, payload)
        assert receipts[-1].startswith(f"rejected {code}"), receipts[-1]
    for topic in ("gf/1/f/nonsense", TOPICS.agent_state("a"), TOPICS.evaluation("a")):
        fleet.publish(topic, b"\x00garbage")
    state = fleet.core.runs.live.get("r1")
    assert state is not None
    assert state.store == {}
    fleet.finish("a", "b")
    record = ModelRecord.from_bytes(fleet.hub.retained[TOPICS.model_version("model", 1)])
    assert record.document == central(toy_spec(), "ab").to_document()


def test_coordinator_joins_a_contribution_that_came_in_parts() -> None:
    fleet = Fleet()
    fleet.birth("a")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    body = contribution("a", fleet.task())
    body.contribution["values"] = {"noise": np.random.default_rng(1).integers(0, 2**62, 3000)}
    frames = frames_for_contribution(Envelope(fleet="f", body=body, run="r1", agent="a"), TOPICS, 4096)
    assert len(frames) > 3
    for frame in reversed(frames):
        fleet.publish(frame.topic, frame.payload)
    assert fleet.receipts("a") == ["accepted"]
    state = fleet.core.runs.live.get("r1")
    assert state is not None
    assert state.rounds[0].bytes == sum(len(frame.payload) for frame in frames)


def test_coordinator_sends_a_large_request_as_blobs_and_clears_them() -> None:
    noise = np.random.default_rng(1).bytes(9000).hex()

    class Wordy:
        """The toy with a long task."""

        def __init__(self) -> None:
            self.inner = TOY_ENGINE.lookup("toy")
            self.participation, self.Parameters, self.server = self.inner.participation, self.inner.Parameters, self

        def start(self, *args: Any) -> Any:
            first = self.inner.server.start(*args)
            return type(first)(first.state, Task("toy", "add", {**first.task.body, "noise": noise}))

        def __getattr__(self, name: str) -> Any:
            return getattr(TOY_ENGINE.lookup("toy").server, name)

    fleet = Fleet(max_bytes=4096, engine=Engine(lambda _name: Wordy(), TOY_ENGINE.discover))
    fleet.birth("a")
    fleet.core.start_run(toy_spec(parameters={"levels": 2}))
    fleet.hub.pump()
    outer = fleet.request()
    assert isinstance(outer.body, Manifest)
    store = BlobStore(TOPICS)
    store.want(outer.body)
    blobs = {topic: payload for topic, payload in fleet.hub.retained.items() if "/blob/" in topic}
    content = next(whole for topic, payload in sorted(blobs.items()) if (whole := store.add(topic, payload)))
    body = open_request(outer, content).body
    assert isinstance(body, Request)
    fleet.hub.advance(3)
    fleet.crash()
    assert {topic for topic in fleet.hub.retained if "/blob/" in topic} == set(blobs), "the same blobs after a crash"
    fleet.answer("a", task=Task.from_value(body.task))
    assert not [topic for topic in fleet.hub.retained if "/blob/" in topic]
    assert fleet.receipts("a") == ["accepted"]


def test_coordinator_ends_a_wait_when_an_agent_refuses() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    fleet.answer("a")
    refusal = Refusal(task_digest=fleet.task().digest, reason="column x is missing")
    payload = Envelope(fleet="f", body=refusal, run="r1", agent="b").to_bytes()
    fleet.publish(TOPICS.contribution("b", "r1"), payload)
    state = fleet.core.runs.live.get("r1")
    assert state is not None
    assert state.cohort == ("a",)
    assert fleet.receipts("b") == ["accepted refusal noted"]
