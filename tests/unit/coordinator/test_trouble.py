"""The coordinator when something cannot be done: requests or models that cannot be sent, schemes that are gone, crashes
between journal and broker."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Link, Message
from coordinator.config import CoordinatorConfig
from coordinator.engine import Engine
from coordinator.journal import Entry, MemoryJournal
from coordinator.main import assemble
from coordinator.process.service import Service
from glassfleet.scheme import Done, Next, Task
from schemas import limits
from schemas.envelope import Envelope
from schemas.errors import NotFoundError, UsageError
from schemas.messages import AgentState, Manifest
from schemas.parts import open_request
from schemas.trust.joining import BlobStore
from tests.support.coordinator_bench import TOPICS, Fleet, answer_of
from tests.support.engine_bench import TOY_ENGINE, ToyModel, central, toy_spec

NOISE = np.random.default_rng(1).bytes(20_000).hex()


class KilledError(BaseException):
    """SIGKILL."""


class Wordy:
    """The toy, whose tasks carry `noise` from level `first` on, and whose model goes through `change`."""

    def __init__(self, noise: str = NOISE, first: int = 1, change: Callable[[Any], Any] = lambda model: model) -> None:
        inner = TOY_ENGINE.lookup("toy")
        self.participation, self.Parameters, self.server = inner.participation, inner.Parameters, self
        self._inner: Any = inner.server
        self._noise, self._first, self._change = noise, first, change

    def start(self, *args: Any) -> Any:
        return self._wordy(self._inner.start(*args))

    def reduce(self, *args: Any) -> Any:
        return self._wordy(self._inner.reduce(*args))

    def _wordy(self, step: Next | Done) -> Next | Done:
        if isinstance(step, Done):
            return replace(step, model=self._change(step.model))
        if step.task.body["level"] < self._first:
            return step
        return Next(step.state, Task("toy", "add", {**step.task.body, "noise": self._noise}))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def engine_with(scheme: Any) -> Engine:
    return Engine(lambda _name: scheme, TOY_ENGINE.search)


def blobs(fleet: Fleet) -> set[str]:
    return {topic for topic in fleet.hub.retained if "/blob/" in topic}


def large_task(fleet: Fleet, run: str = "r1") -> Task:
    """Read the open task from its blobs, as an agent does."""
    outer = fleet.request(run)
    assert isinstance(outer.body, Manifest)
    store = BlobStore(TOPICS)
    store.want(outer.body)
    contents = (store.add(topic, fleet.hub.retained[topic]) for topic in sorted(blobs(fleet)))
    body: Any = open_request(outer, next(content for content in contents if content is not None)).body
    return Task.from_value(body.task)


# -- requests that cannot be sent -------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1, 2])
def test_coordinator_ends_a_run_by_name_when_its_request_is_too_large_for_the_broker(
    monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    monkeypatch.setattr(limits, "MAX_PARTS", 2)
    fleet = Fleet(max_bytes=4096, engine=engine_with(Wordy(first=level))).begin("a", "b")
    if level == 2:
        fleet.answer("a", "b", task=fleet.task())
        assert fleet.receipts("b") == ["accepted"], "the answer that led there was good"
    document = fleet.core.runs.document("r1")
    assert (document["outcome"], document["reason"].split(":")[0]) == ("failed", "request-too-large")
    assert "raise max_message_bytes" in document["reason"]
    assert blobs(fleet) == set()
    assert TOPICS.request("r1") not in fleet.hub.retained
    fleet.crash()
    assert fleet.core.runs.document("r1") == document


# -- models that cannot be published -------------------------------------------------------------------------------


@dataclass(frozen=True)
class SpoiltModel(ToyModel):
    """A toy model with something in its document that cannot travel."""

    text: Any = None

    def to_document(self) -> dict[str, Any]:
        if isinstance(self.text, Exception):
            raise self.text
        return {**super().to_document(), "model": {"text": self.text}}


@pytest.mark.parametrize(
    "text", [math.nan, RuntimeError("no words"), {1, 2}, NOISE], ids=["nan", "raises", "no-json", "too-large"]
)
def test_coordinator_ends_a_run_by_name_when_its_model_cannot_be_published(
    monkeypatch: pytest.MonkeyPatch, text: Any
) -> None:
    monkeypatch.setattr(limits, "MAX_PARTS", 2)
    scheme = Wordy(first=99, change=lambda model: SpoiltModel(model.history, text=text))
    fleet = Fleet(max_bytes=4096, engine=engine_with(scheme)).begin("a", "b")
    fleet.finish("a", "b")
    document = fleet.core.runs.document("r1")
    assert (document["outcome"], document["phase"]) == ("failed", "failed")
    assert document["reason"].startswith("model-unpublishable: ")
    assert document["model"] is None
    assert fleet.receipts("b") == ["accepted"] * 3, "the vehicles did nothing wrong"
    assert [topic for topic in fleet.hub.retained if "/model/" in topic or "/run/" in topic] == []
    assert fleet.core.registry.names() == []
    fleet.crash()
    assert fleet.core.runs.document("r1") == document
    assert fleet.core.registry.names() == []


def test_coordinator_publishes_only_the_new_version_and_clears_the_one_that_falls_out() -> None:
    fleet = Fleet()
    fleet.birth("a")
    for number in range(13):
        del fleet.seen[:]
        fleet.begin(run=f"r{number}")
        fleet.finish("a", run=f"r{number}")
        fleet.core.models.promote("model", number + 1)
        fleet.hub.pump()
        topics = [message.topic for message in fleet.seen if "/model/" in message.topic]
        gone = [TOPICS.model_version("model", number - 9)] if number >= 10 else []
        # The pointer to the present version, said again with the new one, and the promotion.
        pointers = [TOPICS.model_current("model")] * (2 if number else 1)
        assert topics == [*gone, TOPICS.model_version("model", number + 1), *pointers]
    kept = {topic for topic in fleet.hub.retained if "/v/" in topic}
    assert kept == {TOPICS.model_version("model", version) for version in range(4, 14)}


# -- crashes between journal and broker ----------------------------------------------------------------------------


@contextmanager
def killed_at_publish(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, number: int) -> Iterator[None]:
    """Let the coordinator die at its `number`-th publish in here; what it published before reaches the broker."""
    publish, left = MemoryTransport.publish, [number]

    def fuse(self: MemoryTransport, *args: Any, **options: Any) -> None:
        left[0] -= self is not fleet.watcher
        if left[0] == 0:
            self.is_running = False  # nothing reaches it any more
            raise KilledError
        publish(self, *args, **options)

    with monkeypatch.context() as patch, suppress(KilledError):
        patch.setattr(MemoryTransport, "publish", fuse)
        yield
    fleet.hub.pump()


@pytest.mark.parametrize("number", range(1, 17))
@pytest.mark.parametrize("again", [1, 5])
def test_coordinator_leaves_nothing_behind_when_it_is_killed_between_journal_and_broker(
    monkeypatch: pytest.MonkeyPatch, number: int, again: int
) -> None:
    fleet = Fleet(max_bytes=4096, engine=engine_with(Wordy())).begin("a", parameters={"levels": 3})
    while fleet.core.runs.live.get("r1") is not None:
        task = large_task(fleet)
        with killed_at_publish(fleet, monkeypatch, number):
            fleet.answer("a", task=task)
        with killed_at_publish(fleet, monkeypatch, again):
            fleet.crash()  # and its next life dies, too, as long as the first did not say all
        fleet.crash()
    record = fleet.record()
    levels = len(record.document["model"]["history"])
    assert levels == 3
    assert blobs(fleet) == set(), "blobs of former rounds"
    assert TOPICS.request("r1") not in fleet.hub.retained
    assert [model.version for model in fleet.core.registry.versions("model")] == [1]


# -- a coordinator that is busy, a request that is cleared -----------------------------------------------------------


def test_answers_that_came_in_time_count_when_the_coordinator_was_busy_until_after_the_deadline() -> None:
    fleet = Fleet().begin("a", "b", policy={"deadline": 10})
    messages = [answer_of(agent, fleet.task()) for agent in "ab"]
    began = fleet.hub.now
    fleet.hub.advance(60)  # another run's reduction
    fleet.core.handle(messages[:1], [began + 8])
    fleet.core.tick(fleet.core.timeline.at(began + 9))
    fleet.core.handle(messages[1:], [began + 9])
    fleet.core.tick()
    state = fleet.state()
    assert state.cohort == ("a", "b")


def test_service_takes_what_waits_before_it_lets_a_deadline_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(MemoryJournal):
        """Stalls at every answer, as a full machine does, until well after the deadline."""

        def append(self, entries: Sequence[Entry]) -> None:
            super().append(entries)
            if entries[0].kind == "answer":
                clock[0] += 60

    clock, hub = [0.0], MemoryHub()
    transport, journal = MemoryTransport(hub, Link("mqtt://m", "c")), Slow()
    core = assemble("f", transport, journal, TOY_ENGINE, clock=lambda: clock[0], wall=lambda: 1.7e9 + clock[0])
    monkeypatch.setattr("coordinator.process.service.BATCH_MESSAGES", 1)
    config = CoordinatorConfig.load(state_dir=tmp_path)
    service = Service(config, core)
    agents = tuple("abcd")
    for agent in agents:
        body = AgentState(status="up", incarnation="1", schemes=["toy"], features=["x"], target="y")
        service.queue.put(Message(TOPICS.agent_state(agent), Envelope(fleet="f", body=body, agent=agent).to_bytes()))
    service.work(0.0)
    core.start_run(toy_spec(policy={"deadline": 10}))
    state = core.runs.live.get("r1")
    assert state is not None
    for agent in agents:
        service.queue.put(answer_of(agent, state.levels[-1].task))
    for _ in agents:
        service.work(0.0)
    state = core.runs.live.get("r1")
    assert state is not None
    assert state.cohort == agents


def test_coordinator_asks_again_when_somebody_clears_the_request_of_a_live_run() -> None:
    fleet = Fleet().begin("a")
    asked = fleet.task()
    fleet.publish(TOPICS.request("r1"), b"", retain=True)
    assert fleet.task() == asked
    fleet.finish("a")
    fleet.hub.pump()
    assert TOPICS.request("r1") not in fleet.hub.retained, "our own clearing stands"


# -- schemes that are gone -----------------------------------------------------------------------------------------


def gone(name: str) -> Any:
    raise NotFoundError(f"no scheme {name!r} is installed")


@pytest.fixture
def suspended() -> Fleet:
    """A coordinator restarted without the scheme of a run that has an answer already."""
    fleet = Fleet().begin("a", "b")
    fleet.answer("a")
    fleet.engine = Engine(gone, TOY_ENGINE.search)
    fleet.crash()
    return fleet


def test_coordinator_starts_and_suspends_a_run_when_its_scheme_is_not_installed_any_more(suspended: Fleet) -> None:
    fleet = suspended
    document = fleet.core.runs.document("r1")
    assert (document["state"], document["scheme"], document["outcome"]) == ("suspended", "toy", None)
    assert "no scheme 'toy' is installed" in document["reason"]
    assert fleet.core.runs.ids() == ["r1"]
    assert TOPICS.request("r1") in fleet.hub.retained, "agents keep their answers and frozen rows for it"
    with pytest.raises(UsageError, match="exists already"):
        fleet.core.start_run(toy_spec())
    task, before = fleet.task(), len(fleet.receipts("b"))
    fleet.answer("b", task=task)
    assert len(fleet.receipts("b")) == before, "a receipt would end the agent's sends"


def test_run_goes_on_when_its_scheme_is_installed_again(suspended: Fleet) -> None:
    fleet = suspended
    fleet.engine = TOY_ENGINE
    fleet.crash()
    fleet.finish("b", "a")
    record = fleet.record()
    assert record.document == central(toy_spec(), "ab").to_document()


def test_coordinator_goes_on_when_a_model_of_former_days_is_too_large_for_this_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scheme = Wordy(first=99, change=lambda model: SpoiltModel(model.history, text=NOISE))
    fleet = Fleet(engine=engine_with(scheme)).begin("a")
    fleet.finish("a")
    assert fleet.core.runs.document("r1")["outcome"] == "finished"
    monkeypatch.setattr(limits, "MAX_PARTS", 2)
    fleet.max_bytes = 4096
    fleet.crash()
    assert fleet.core.metrics["models.unpublishable"] == 1
    assert fleet.core.metrics["connected"] == 1
    assert fleet.core.registry.names() == ["model"], "it is still there for the HTTP API"
