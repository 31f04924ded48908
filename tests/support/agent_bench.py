"""Agents and a scripted coordinator on a broker in memory, in virtual time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from broker.port import Handlers, Link, Message, Transport
from edge_agent.agent import Agent
from edge_agent.config import AgentConfig
from edge_agent.runner import link_of
from edge_agent.sources import Source
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Next, Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from lab.protocols.paper import pooled_domain
from schemas.codec import document_digest
from schemas.envelope import Envelope, frames_for_model, frames_for_request
from schemas.messages import Body, ContributionBody, ModelPointer, Receipt, Refusal, Request, Sample
from schemas.record import ModelRecord
from schemas.topics import Topics
from schemas.trust.joining import Assembler
from tests.support.memory_broker import MemoryHub, MemoryTransport


def rows(seed: int = 0, count: int = 60) -> Dataset:
    """Rows of three inputs and a target."""
    rng = np.random.default_rng(seed)
    X = rng.random((count, 3))
    return Dataset(("a", "b", "c"), "y", X, X[:, 0] * 2 + np.sin(3 * X[:, 1]) * X[:, 2])


def source(seed: int = 0, count: int = 60, test: int = 20) -> Source:
    """A vehicle's train and test rows."""
    return Source(rows(seed, count), rows(seed + 1000, test))


def first_task(data: Dataset, **parameters: Any) -> Task:
    """The first task of an exact FRT over the domain of `data`."""
    return start(data, **parameters).task


def start(data: Dataset, **parameters: Any) -> Next:
    """The server half's first step."""
    scheme = catalogue.load("frt")
    exact = scheme.exact(scheme.Parameters.model_validate(parameters))
    step: Next = scheme.server.start(exact, domain_of(data), 0)
    return step


def domain_of(data: Dataset) -> Domain:
    """The domain of pooled rows."""
    return pooled_domain(data.features, data.target, data.X, data.y)


def record_of(document: dict[str, Any], **fields: Any) -> ModelRecord:
    """A record of a model as the registry writes it; `fields` beside name, version and so on of a usual one."""
    usual: dict[str, Any] = {"name": "m", "version": 1, "fleet": "fleet", "run": "r1", "cohort": ["v1"]}
    return ModelRecord(
        document=document,
        digest=document_digest(document),
        scheme=document["scheme"],
        created="2026-01-01T00:00:00+00:00",
        **(usual | fields),
    )


def write_database(path: Path, names: Sequence[str], cells: Iterable[Sequence[Any]]) -> str:
    """Write the table ``rows`` into a SQLite file; return the URL that reads it."""
    with sqlite3.connect(path) as database:
        database.execute(f"CREATE TABLE rows ({', '.join(names)})")
        database.executemany(f"INSERT INTO rows VALUES ({', '.join('?' * len(names))})", cells)
    database.close()
    return f"sqlite:///{path}?table=rows"


def write_rows(path: Path, data: Dataset) -> Path:
    """Write rows as an agent reads them, all to train on."""
    lines = [f"train,{','.join(map(repr, [*row, y]))}" for row, y in zip(data.X.tolist(), data.y.tolist(), strict=True)]
    path.write_text("\n".join([",".join(["split", *data.features, data.target]), *lines]) + "\n")
    return path


class FakeCoordinator:
    """Stands in for a coordinator.

    Parameters
    ----------
    transport : Transport
        Not started yet.
    fleet : str
    limit : int
        Largest message that it sends.
    """

    def __init__(self, transport: Transport, *, fleet: str = "fleet", limit: int = 128 * 1024) -> None:
        self.topics = Topics(fleet)
        self.transport = transport
        self.messages: list[Message] = []
        self.received: list[Envelope] = []
        self._limit = limit
        self._assembler = Assembler()
        self._arrived = threading.Condition()
        self._time = 0.0
        transport.subscribe(f"{self.topics.prefix}#")
        transport.start(Handlers(self._message, lambda: None, lambda why: None))

    def _message(self, message: Message) -> None:
        with self._arrived:
            self.messages.append(message)
            kind = self.topics.parse(message.topic).kind
            if message.payload and kind in ("contribution", "evaluation", "agent-state"):
                envelope = Envelope.from_bytes(message.payload, fleet=self.topics.fleet)
                whole = self._assembler.add(envelope) if envelope.body.kind == "part" else envelope
                if whole is not None:
                    self.received.append(whole)
            self._arrived.notify_all()

    def wait_for(self, condition: Callable[[], Any], timeout: float = 20.0) -> Any:
        """Wait until `condition` holds (real time); raises AssertionError when it never does."""
        with self._arrived:
            assert self._arrived.wait_for(condition, timeout), [envelope.body.kind for envelope in self.received]
        return condition()

    def bodies(self, kind: type[Body], agent: str = "") -> list[Any]:
        """All bodies of a kind that were received."""
        return [
            envelope.body
            for envelope in self.received
            if isinstance(envelope.body, kind) and agent in ("", envelope.agent)
        ]

    @property
    def answers(self) -> list[ContributionBody]:
        """All contributions."""
        return self.bodies(ContributionBody)

    @property
    def refusals(self) -> list[Refusal]:
        """All refusals."""
        return self.bodies(Refusal)

    def request(
        self,
        task: Task,
        *,
        run: str = "r1",
        asked: list[str] | None = None,
        sample: Sample | None = None,
        number: int = 1,
    ) -> Envelope:
        """An envelope that asks `task`; each is newer than the one before."""
        self._time += 1.0
        body = Request(task=task.to_value(), task_digest=task.digest, remaining=30.0, asked=asked, sample=sample)
        return Envelope(
            fleet=self.topics.fleet, body=body, run=run, round=number, attempt=1, scheme=task.scheme, time=self._time
        )

    def ask(self, task: Task, **options: Any) -> None:
        """Open a round."""
        for frame in frames_for_request(self.request(task, **options), self.topics, self._limit).frames:
            self.transport.publish(frame.topic, frame.payload, retain=True)

    def clear(self, run: str = "r1") -> None:
        """End a run."""
        self.transport.publish(self.topics.request(run), b"", retain=True)

    def acknowledge(self, agent: str, task_digest: str, outcome: Any = "accepted", run: str = "r1") -> None:
        """Send a receipt."""
        body = Receipt(run=run, task_digest=task_digest, outcome=outcome)
        self.transport.publish(self.topics.receipt(agent), Envelope(fleet=self.topics.fleet, body=body).to_bytes())

    def publish_model(self, document: dict[str, Any], *, name: str = "m", version: int = 1, promise: str = "") -> str:
        """Publish a model as the registry does; `promise`: another digest in the pointer. Returns the digest."""
        record = record_of(document, name=name, version=version, fleet=self.topics.fleet)
        for frame in frames_for_model(record.to_bytes(), self.topics, name, version, self._limit).frames:
            self.transport.publish(frame.topic, frame.payload, retain=True)
        pointer = ModelPointer(name=name, version=version, digest=promise or record.digest)
        envelope = Envelope(fleet=self.topics.fleet, body=pointer)
        self.transport.publish(self.topics.model_current(name), envelope.to_bytes(), retain=True)
        return record.digest


URL = "mqtt://memory"


class Bench:
    """One coordinator and some agents on one hub."""

    def __init__(self, folder: Any, *, limit: Any = 128 * 1024) -> None:
        self.hub = MemoryHub()
        self.folder = folder
        self.limit = limit
        self.agents: list[Agent] = []
        self.coordinator = FakeCoordinator(
            MemoryTransport(self.hub, Link(URL, "coordinator", max_message_bytes=limit)), limit=limit
        )

    def agent(
        self, name: Any = "v1", data: Any = None, folder: Any = None, *, verifier: Any = None, **changes: Any
    ) -> Any:
        flags = {"id": name, "broker": URL, "data": "memory", "max_message_bytes": self.limit, **changes}
        config = AgentConfig.load(state_dir=folder or self.folder, **flags)
        make = lambda will: MemoryTransport(self.hub, link_of(config, will))
        now = lambda: self.hub.now
        agent = Agent(config, data or source(), make, clock=now, wall=now, verifier=verifier)
        agent.start()
        self.agents.append(agent)
        return agent

    def run(self, seconds: Any = 1.0) -> Any:
        for _ in range(int(seconds * 10)):
            self.hub.advance(0.1)
            for agent in self.agents:
                agent.tick(self.hub.now)

    def kill(self, agent: Any) -> Any:
        self.hub.kill(link_of(agent.config).client_id)
        agent.release()
        self.agents.remove(agent)


def learned() -> Any:
    scheme = catalogue.load("frt")
    data = rows(seed=5, count=200)
    return scheme, simulation.central(scheme, scheme.Parameters(), domain_of(data), data).model
