"""The coordinator without threads, over the in-memory broker: what it does with messages, crashes and full disks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from broker.memory import MemoryHub
from broker.port import Handlers, Link, Message
from coordinator.core import Coordinator
from coordinator.engine import Engine
from coordinator.fleet import FleetLimits
from coordinator.journal import Entry, MemoryJournal
from coordinator.publisher import birth
from glassfleet.scheme import Task
from schemas.envelope import Envelope
from schemas.errors import IdentityError, NotFoundError, StorageError, UsageError
from schemas.joining import BlobStore
from schemas.messages import (
    AgentState,
    Body,
    ContributionBody,
    CoordinatorState,
    Manifest,
    ModelPointer,
    Receipt,
    Refusal,
    Request,
)
from schemas.parts import frames_for_contribution, open_request
from schemas.record import ModelRecord
from schemas.topics import Topics
from tests.engine_bench import TOY_ENGINE, central, toy_answer, toy_spec

TOPICS = Topics("f")


class TornDisk(MemoryJournal):
    """A journal whose disk can be full."""

    is_full = False

    def append(self, entries: Sequence[Entry]) -> None:
        if self.is_full:
            raise StorageError("no room")
        super().append(entries)


@dataclass
class Fleet:
    """A coordinator and scripted agents around one in-memory broker."""

    engine: Engine = TOY_ENGINE
    max_bytes: int = 128 * 1024
    fleet_limits: FleetLimits = field(default_factory=FleetLimits)
    hub: MemoryHub = field(default_factory=MemoryHub)
    journal: TornDisk = field(default_factory=TornDisk)
    seen: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watcher = self.hub.transport(Link("mqtt://m", "watcher"))
        self.watcher.subscribe("gf/#")
        self.watcher.start(Handlers(self.seen.append, lambda: None, lambda _why: None))
        self.open()

    def open(self) -> None:
        self.transport = self.hub.transport(Link("mqtt://m", "coordinator", max_message_bytes=self.max_bytes))
        self.core = Coordinator(
            "f",
            self.transport,
            self.journal,
            self.engine,
            clock=lambda: self.hub.now,
            wall=lambda: 1.7e9 + self.hub.now,
            max_message_bytes=self.max_bytes,
            fleet_limits=self.fleet_limits,
        )
        handlers = Handlers(lambda message: self.core.handle([message]), self.core.connected, lambda _why: None)
        self.transport.start(handlers)
        self.hub.pump()

    def crash(self) -> None:
        """Kill the coordinator and start it again on its journal."""
        self.hub.kill("coordinator")
        self.journal.close()
        self.journal = TornDisk(self.journal)
        self.open()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.watcher.publish(topic, payload, retain=retain)
        self.hub.pump()

    def birth(self, *agents: str, incarnation: str = "1", status: Any = "up") -> None:
        for agent in agents:
            body = AgentState(status=status, incarnation=incarnation, schemes=["toy"], features=["x"], target="y")
            payload = Envelope(fleet="f", body=body, agent=agent).to_bytes()
            self.publish(TOPICS.agent_state(agent), payload, retain=True)

    def request(self, run: str = "r1") -> Envelope:
        return Envelope.from_bytes(self.hub.retained[TOPICS.request(run)], fleet="f")

    def task(self, run: str = "r1") -> Task:
        body = self.request(run).body
        assert isinstance(body, Request)
        return Task.from_value(body.task)

    def answer(self, *agents: str, run: str = "r1", task: Task | None = None, **how: Any) -> None:
        task = task or self.task(run)
        for agent in agents:
            payload = Envelope(fleet="f", body=contribution(agent, task, **how), run=run, agent=agent).to_bytes()
            self.publish(TOPICS.contribution(agent, run), payload)

    def receipts(self, agent: str) -> list[str]:
        topic = TOPICS.receipt(agent)
        bodies = [
            Envelope.from_bytes(message.payload, fleet="f").body for message in self.seen if message.topic == topic
        ]
        return [f"{body.outcome} {body.reason}".strip() for body in bodies if isinstance(body, Receipt)]

    def finish(self, *agents: str, run: str = "r1") -> None:
        while self.core.state(run) is not None:
            self.answer(*agents, run=run, task=self.task(run))


def contribution(agent: str, task: Task, **how: Any) -> ContributionBody:
    answer = toy_answer(agent, task, **how)
    return ContributionBody(
        task_digest=task.digest,
        rows=answer.rows,
        data_digest=hashlib.sha256(agent.encode()).hexdigest(),
        contribution=answer.to_value(),
    )


def test_coordinator_publishes_a_model_that_equals_the_central_one() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec(model="m"))
    fleet.hub.pump()
    fleet.finish("b", "a")
    record = ModelRecord.from_bytes(fleet.hub.retained[TOPICS.model_version("m", 1)])
    assert record.document == central(toy_spec(), "ab").to_document()
    assert (record.cohort, record.training.rows, record.training.nullified_cells) == (["a", "b"], 8, 6)
    pointer = Envelope.from_bytes(fleet.hub.retained[TOPICS.model_current("m")], fleet="f").body
    assert isinstance(pointer, ModelPointer)
    assert pointer.sequence > 0
    assert pointer == ModelPointer(name="m", version=1, digest=record.digest, sequence=pointer.sequence)
    assert TOPICS.request("r1") not in fleet.hub.retained, "the request of an ended run is cleared"
    order = [message.topic for message in fleet.seen if "/model/" in message.topic]
    assert order == [TOPICS.model_version("m", 1), TOPICS.model_current("m")]
    document = fleet.core.run("r1")
    assert (document["outcome"], document["model"]["digest"]) == ("finished", record.digest)


def test_coordinator_goes_on_after_a_crash_at_any_answer() -> None:
    fleet = Fleet()
    fleet.birth("a", "b", "c")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    while fleet.core.state("r1") is not None:
        task = fleet.task()
        for agent in "abc":
            fleet.answer(agent, task=task)
            fleet.crash()
            fleet.answer(agent, task=task)
            assert fleet.receipts(agent)[-1].split()[0] in {"duplicate", "late"}, "counted once, before the crash"
    record = ModelRecord.from_bytes(fleet.hub.retained[TOPICS.model_version("model", 1)])
    assert record.document == central(toy_spec(), "abc").to_document()
    fleet.crash()
    assert [model.version for model in fleet.core.registry.versions("model")] == [1]


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
    state = fleet.core.state("r1")
    assert state is not None
    assert state.phase == "recruiting", "no time passes while nobody counts it"
    fleet.hub.advance(4)
    fleet.core.tick()
    state = fleet.core.state("r1")
    assert state is not None
    assert state.cohort == ("a",)


def test_coordinator_publishes_everything_again_when_the_broker_forgot() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec("r0"))
    fleet.hub.pump()
    fleet.finish("a", "b", run="r0")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    before = dict(fleet.hub.retained)
    fleet.hub.stop_broker()
    fleet.hub.start_broker(remembers=False)
    fleet.hub.advance(10)
    own = {topic for topic in before if "/agent/" not in topic}
    assert own <= set(fleet.hub.retained)
    assert TOPICS.request("r1") in own
    assert TOPICS.model_current("model") in own


def test_coordinator_clears_a_request_that_outlived_its_run() -> None:
    fleet = Fleet()
    fleet.publish(TOPICS.request("ghost"), b"anything", retain=True)
    assert TOPICS.request("ghost") not in fleet.hub.retained


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
    state = fleet.core.state("r1")
    assert state is not None
    assert state.store == {}
    fleet.finish("a", "b")
    record = ModelRecord.from_bytes(fleet.hub.retained[TOPICS.model_version("model", 1)])
    assert record.document == central(toy_spec(), "ab").to_document()


def test_coordinator_changes_nothing_when_the_disk_is_full() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    state, entries = fleet.core.state("r1"), list(fleet.journal.content.entries)
    message = Message(
        TOPICS.contribution("a", "r1"),
        Envelope(fleet="f", body=contribution("a", fleet.task()), run="r1", agent="a").to_bytes(),
    )
    fleet.journal.is_full = True
    with pytest.raises(StorageError):
        fleet.core.handle([message])
    assert fleet.core.state("r1") is state
    assert fleet.journal.content.entries == entries
    fleet.hub.pump()
    assert fleet.receipts("a") == [], "what is not stored is not acknowledged"
    fleet.journal.is_full = False
    fleet.finish("a", "b")
    assert fleet.core.run("r1")["outcome"] == "finished"


def test_run_is_shown_as_ended_only_with_its_model_when_somebody_looks_in_between() -> None:
    fleet = Fleet()
    looks: list[tuple[str, Any]] = []

    def look() -> None:
        document = fleet.core.run("r1")
        (listed,) = [fleet.core.run(run) for run in fleet.core.run_ids()]
        assert listed == document
        looks.append((document["state"], document["model"]))

    class Watched(TornDisk):
        def add_model(self, *arguments: Any) -> Any:
            look()
            model = super().add_model(*arguments)
            look()
            return model

        def close_run(self, *arguments: Any, **options: Any) -> None:
            look()
            super().close_run(*arguments, **options)

    fleet.hub.kill("coordinator")
    fleet.journal = Watched()
    fleet.open()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    fleet.finish("a", "b")
    look()
    assert [state for state, _ in looks] == ["running", "running", "running", "ended"]
    assert looks[-1][1] is not None


def test_coordinator_writes_one_transaction_for_a_batch() -> None:
    fleet = Fleet()
    agents = [f"agent-{number}" for number in range(20)]
    fleet.birth(*agents)
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    before = fleet.core.metrics["journal.transactions"]
    task = fleet.task()
    fleet.core.handle(
        [
            Message(
                TOPICS.contribution(agent, "r1"),
                Envelope(fleet="f", body=contribution(agent, task), run="r1", agent=agent).to_bytes(),
            )
            for agent in agents
        ]
    )
    assert fleet.core.metrics["journal.transactions"] == before + 1
    state = fleet.core.state("r1")
    assert state is not None
    assert len(state.cohort) == 20


def test_coordinator_journals_a_flood_of_answers_that_change_nothing_as_one_record() -> None:
    fleet = Fleet()
    fleet.birth("a", "b", "c")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    fleet.answer("a")
    size = len(fleet.journal.content.entries)
    for _ in range(500):
        fleet.answer("a")
        fleet.publish(TOPICS.contribution("c", "r1"), b"nonsense")
        fleet.publish(TOPICS.contribution("stranger", "r1"), b"")
    assert len(fleet.journal.content.entries) == size, "what changes nothing is not written"
    assert Counter(fleet.receipts("a"))["duplicate"] == 500, "each has its receipt"
    assert len(fleet.receipts("c")) == len(fleet.receipts("stranger")) == 500
    assert (fleet.core.metrics["receipts.duplicate"], fleet.core.metrics["receipts.rejected"]) == (500, 1000)
    assert fleet.core.metrics["answers.only-counted"] == 1500
    fleet.answer("b")
    added = fleet.journal.content.entries[size:]
    assert [entry.kind for entry in added] == ["counted", "answer"]
    assert len(added[0].body) < 300
    before = fleet.core.state("r1")
    fleet.crash()
    after = fleet.core.state("r1")
    assert after is not None
    assert after.open is not None
    assert after == before
    assert (after.open.duplicate, after.open.rejected) == (500, 1000)


def test_coordinator_loses_nothing_but_counts_when_it_is_killed_amid_a_flood() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec(model="m"))
    fleet.hub.pump()
    fleet.answer("a")
    for _ in range(10):
        fleet.answer("a")
    fleet.crash()
    state = fleet.core.state("r1")
    assert state is not None
    assert state.open is not None
    assert (state.open.duplicate, state.accepted) == (0, ("a",))
    fleet.finish("b", "a")
    record = ModelRecord.from_bytes(fleet.hub.retained[TOPICS.model_version("m", 1)])
    assert record.document == central(toy_spec(), "ab").to_document()


def test_coordinator_writes_its_counts_down_when_it_stops() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    for _ in range(4):
        fleet.answer("a")
    fleet.core.stop()
    assert [entry.kind for entry in fleet.journal.content.entries][-1] == "counted"
    fleet.crash()
    state = fleet.core.state("r1")
    assert state is not None
    assert state.open is not None
    assert state.open.duplicate == 3


def test_coordinator_counts_made_up_tasks_as_one_kind() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    task = fleet.task()
    for index in range(50):
        body = contribution("a", task).model_copy(update={"task_digest": f"{index:064x}"})
        payload = Envelope(fleet="f", body=body, run="r1", agent="a").to_bytes()
        fleet.publish(TOPICS.contribution("a", "r1"), payload)
    fleet.answer("a")
    entries = [entry for entry in fleet.journal.content.entries if entry.kind == "counted"]
    assert len(entries) == 1
    assert len(entries[0].body) < 300


def test_coordinator_forgets_the_agents_that_left_first_when_ids_are_endless() -> None:
    fleet = Fleet(fleet_limits=FleetLimits(agents=20))
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
    fleet = Fleet(fleet_limits=FleetLimits(columns_bytes=1000))
    for index in range(50):
        body = AgentState(status="up", incarnation="1", schemes=["toy"], features=[f"{'x' * 90}{index}"], target="y")
        payload = Envelope(fleet="f", body=body, agent=f"v{index}").to_bytes()
        fleet.publish(TOPICS.agent_state(f"v{index}"), payload, retain=True)
    assert 5 <= len(fleet.core.fleet.document()) <= 11
    assert fleet.core.metrics["births.refused"] >= 39


def test_coordinator_holds_back_births_that_come_too_often_and_takes_the_last_in_the_end() -> None:
    fleet = Fleet(fleet_limits=FleetLimits(burst=10, per_minute=6.0))
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec(policy={"gather_agents": 3, "gather_timeout": 3600.0}))
    fleet.hub.pump()
    size = len(fleet.journal.content.entries)
    for index in range(200):
        fleet.birth("a", incarnation=str(index // 2), status="down" if index % 2 else "up")
    assert len(fleet.journal.content.entries) - size <= 10
    assert fleet.core.metrics["births.held"] >= 80
    fleet.birth("a", incarnation="last")
    for _ in range(30):
        fleet.hub.advance(1.0)
        fleet.core.tick()
    last = {each["agent"]: each for each in fleet.core.fleet.document()}["a"]
    assert (last["status"], last["incarnation"]) == ("up", "last")
    assert fleet.core.next_wake() is not None


def test_coordinator_repeats_its_birth_when_something_else_stands_in_its_place() -> None:
    fleet = Fleet()
    will = birth(TOPICS, fleet.core.incarnation, "", "down")
    fleet.publish(will.topic, will.payload, retain=True)
    fleet.hub.advance(1.0)
    fleet.core.tick()
    fleet.hub.pump()
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


def test_coordinator_stops_when_a_later_one_keeps_coming_back() -> None:
    fleet = Fleet()
    later = birth(TOPICS, "later", "", "up", term=9e9)
    fleet.core.handle([later])
    fleet.hub.advance(0.5)
    with pytest.raises(IdentityError, match="taken over"):
        fleet.core.handle([later])


@pytest.mark.parametrize("term", [1.0, 1.6e9])
def test_coordinator_never_stops_for_a_life_before_its_own(term: float) -> None:
    fleet = Fleet()
    for _ in range(20):
        fleet.core.handle([birth(TOPICS, "earlier", "", "up", term=term)])
        fleet.hub.advance(0.5)
        fleet.core.tick()


def test_coordinator_repeats_open_requests_and_pointers_for_a_newcomer_whom_the_broker_told_nothing() -> None:
    fleet = Fleet()
    fleet.birth("a", "b")
    fleet.core.start_run(toy_spec(run="r0", model="m"))
    fleet.hub.pump()
    fleet.finish("a", "b", run="r0")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    fleet.hub.advance(5.0)
    fleet.core.tick()
    fleet.hub.pump()
    del fleet.seen[:]
    fleet.birth(*(f"new{index}" for index in range(20)))
    fleet.hub.advance(1.5)
    fleet.core.tick()
    fleet.hub.pump()
    counted = Counter(message.topic for message in fleet.seen)
    assert counted[TOPICS.request("r1")] == 1, "one repetition for all of them"
    assert counted[TOPICS.model_current("m")] == 1
    # A broker that gives what is retained to wildcards, as this one does when the coordinator comes back, needs none.
    fleet.crash()
    del fleet.seen[:]
    fleet.birth("newer")
    fleet.hub.advance(5.0)
    fleet.core.tick()
    fleet.hub.pump()
    assert TOPICS.model_current("m") not in {message.topic for message in fleet.seen}


def test_coordinator_joins_a_contribution_that_came_in_parts() -> None:
    fleet = Fleet()
    fleet.birth("a")
    fleet.core.start_run(toy_spec())
    fleet.hub.pump()
    body = contribution("a", fleet.task())
    body.contribution["values"] = {"noise": np.random.default_rng(1).integers(0, 2**62, 3000)}
    frames = frames_for_contribution(Envelope(fleet="f", body=body, run="r1", agent="a"), TOPICS, 4096, compress=False)
    assert len(frames) > 3
    for frame in reversed(frames):
        fleet.publish(frame.topic, frame.payload)
    assert fleet.receipts("a") == ["accepted"]
    state = fleet.core.state("r1")
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
    state = fleet.core.state("r1")
    assert state is not None
    assert state.cohort == ("a",)
    assert fleet.receipts("b") == ["accepted refusal noted"]


def test_coordinator_ignores_the_will_of_an_earlier_life() -> None:
    fleet = Fleet()
    fleet.birth("a", incarnation="1")
    fleet.birth("a", incarnation="2")
    fleet.birth("a", incarnation="1", status="down")
    assert list(fleet.core.fleet.offers()) == ["a"]
    fleet.birth("a", incarnation="2", status="down")
    assert fleet.core.fleet.offers() == {}


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
    assert fleet.core.run("r1")["outcome"] == "cancelled"
    fleet.core.cancel("r1")
    with pytest.raises(NotFoundError):
        fleet.core.cancel("other")
    with pytest.raises(NotFoundError):
        fleet.core.run("other")
