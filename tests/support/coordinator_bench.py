"""A coordinator without threads and scripted agents, around the in-memory broker."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Handlers, Link, Message
from coordinator.engine import Engine, RunState
from coordinator.journal import Entry, MemoryJournal
from coordinator.limits import FleetLimits
from coordinator.main import assemble
from glassfleet.scheme import Task
from schemas.envelope import Envelope
from schemas.errors import StorageError
from schemas.messages import (
    AgentState,
    ContributionBody,
    Receipt,
    Request,
)
from schemas.record import ModelRecord
from schemas.topics import Topics
from tests.support.engine_bench import TOY_ENGINE, toy_answer, toy_spec

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
    """A coordinator and scripted agents around one in-memory broker.

    `reopen` makes the journal of the next life of the closed one; `settings` are further ones of `assemble`.
    """

    engine: Engine = TOY_ENGINE
    max_bytes: int = 128 * 1024
    fleet_limits: FleetLimits = field(default_factory=FleetLimits)
    hub: MemoryHub = field(default_factory=MemoryHub)
    journal: Any = field(default_factory=TornDisk)
    reopen: Callable[[Any], Any] = TornDisk
    settings: Mapping[str, Any] = field(default_factory=dict)
    seen: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watcher = MemoryTransport(self.hub, Link("mqtt://m", "watcher"))
        self.watcher.subscribe("gf/#")
        self.watcher.start(Handlers(self.seen.append, lambda: None, lambda _why: None))
        self.open()

    def open(self) -> None:
        self.transport = MemoryTransport(self.hub, Link("mqtt://m", "coordinator", max_message_bytes=self.max_bytes))
        self.core = assemble(
            "f",
            self.transport,
            self.journal,
            self.engine,
            max_message_bytes=self.max_bytes,
            fleet_limits=self.fleet_limits,
            clock=lambda: self.hub.now,
            wall=lambda: 1.7e9 + self.hub.now,
            **self.settings,
        )
        handlers = Handlers(lambda message: self.core.handle([message]), self.core.connected, lambda _why: None)
        self.transport.start(handlers)
        self.hub.pump()

    def crash(self) -> None:
        """Kill the coordinator and start it again on its journal."""
        self.hub.kill("coordinator")
        self.journal.close()
        self.journal = self.reopen(self.journal)
        self.open()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and the coordinator notice."""
        self.hub.advance(seconds)
        self.core.tick()
        self.hub.pump()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.watcher.publish(topic, payload, retain=retain)
        self.hub.pump()

    def birth(self, *agents: str, incarnation: str = "1", status: Any = "up") -> None:
        for agent in agents:
            body = AgentState(status=status, incarnation=incarnation, schemes=["toy"], features=["x"], target="y")
            payload = Envelope(fleet="f", body=body, agent=agent).to_bytes()
            self.publish(TOPICS.agent_state(agent), payload, retain=True)

    def begin(self, *agents: str, run: str = "r1", **spec: Any) -> Self:
        """Let agents come up, and start a run of the toy; `spec` as for `toy_spec`."""
        self.birth(*agents)
        self.core.start_run(toy_spec(run, **spec))
        self.hub.pump()
        return self

    def state(self, run: str = "r1") -> RunState:
        """Return a live run as it stands."""
        return self.core.runs.live[run]

    def record(self, name: str = "model", version: int = 1) -> ModelRecord:
        """Return a version as it stands on the broker."""
        return ModelRecord.from_bytes(self.hub.retained[TOPICS.model_version(name, version)])

    def request(self, run: str = "r1") -> Envelope:
        return Envelope.from_bytes(self.hub.retained[TOPICS.request(run)], fleet="f")

    def task(self, run: str = "r1") -> Task:
        body = self.request(run).body
        assert isinstance(body, Request)
        return Task.from_value(body.task)

    def answer(self, *agents: str, run: str = "r1", task: Task | None = None, **how: Any) -> None:
        task = task or self.task(run)
        for agent in agents:
            message = answer_of(agent, task, run, **how)
            self.publish(message.topic, message.payload)

    def receipts(self, agent: str) -> list[str]:
        topic = TOPICS.receipt(agent)
        bodies = [
            Envelope.from_bytes(message.payload, fleet="f").body for message in self.seen if message.topic == topic
        ]
        return [f"{body.outcome} {body.reason}".strip() for body in bodies if isinstance(body, Receipt)]

    def finish(self, *agents: str, run: str = "r1") -> None:
        while self.core.runs.live.get(run) is not None:
            self.answer(*agents, run=run, task=self.task(run))


def answer_of(agent: str, task: Task, run: str = "r1", **how: Any) -> Message:
    """Return an agent's answer as it comes from the broker."""
    body = contribution(agent, task, **how)
    return Message(TOPICS.contribution(agent, run), Envelope(fleet="f", body=body, run=run, agent=agent).to_bytes())


def contribution(agent: str, task: Task, **how: Any) -> ContributionBody:
    answer = toy_answer(agent, task, **how)
    return ContributionBody(
        task_digest=task.digest,
        rows=answer.rows,
        data_digest=hashlib.sha256(agent.encode()).hexdigest(),
        contribution=answer.to_value(),
    )
