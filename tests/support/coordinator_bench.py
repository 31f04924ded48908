"""A coordinator on a broker in memory, alone and with identities."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import structlog

from broker.credentials import FolderCredentials
from broker.identity import save_identity
from broker.port import ConnectionSettings, Handlers, Link, Message
from coordinator.config import CoordinatorConfig, FleetLimits
from coordinator.engine import Engine, RunState
from coordinator.journal import Entry
from coordinator.journal.port import Decision, StoredModel
from coordinator.main import assemble
from coordinator.process.service import Service
from glassfleet.contract.messages import Task
from schemas import codec
from schemas.codec import document_digest
from schemas.envelope import Envelope
from schemas.errors import StorageError
from schemas.messages import AgentState, Body, ContributionBody, Receipt, Request
from schemas.record import ModelRecord
from schemas.topics import Topics
from schemas.trust.signing import Signer, Verifier
from tests.support.authorities import FleetCa
from tests.support.engine_bench import TOY_ENGINE, toy_answer, toy_spec
from tests.support.memory_broker import MemoryHub, MemoryTransport
from tests.support.scratch_journal import ScratchJournal

TOPICS = Topics("f")


class TornDisk(ScratchJournal):
    """A journal whose disk can be full."""

    is_full = False

    def append(self, entries: Sequence[Entry], decisions: Sequence[Decision] = ()) -> None:
        if self.is_full:
            raise StorageError("no room")
        super().append(entries, decisions)


@dataclass
class Fleet:
    """A coordinator and scripted agents around one in-memory broker.

    `reopen` makes the journal of the next life of the closed one; `settings` are further ones of `CoordinatorConfig`,
    and `more` goes to `assemble`.
    """

    engine: Engine = TOY_ENGINE
    max_bytes: int = 128 * 1024
    fleet_limits: FleetLimits = field(default_factory=FleetLimits)
    hub: MemoryHub = field(default_factory=MemoryHub)
    journal: Any = field(default_factory=TornDisk)
    reopen: Callable[[Any], Any] = TornDisk
    settings: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    seen: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.watcher = MemoryTransport(self.hub, Link("mqtt://m", "watcher"))
        self.watcher.subscribe("gf/#")
        self.watcher.start(Handlers(self.seen.append, lambda: None, lambda _why: None))
        self.open()

    def open(self) -> None:
        self.transport = MemoryTransport(self.hub, Link("mqtt://m", "coordinator", max_message_bytes=self.max_bytes))
        self.core = assemble(
            CoordinatorConfig(
                fleet="f",
                connection=ConnectionSettings(max_message_bytes=self.max_bytes),
                fleet_limits=self.fleet_limits,
                **self.settings,
            ),
            self.transport,
            self.journal,
            self.engine,
            **{"clock": lambda: self.hub.now, "wall": lambda: 1.7e9 + self.hub.now, **self.more},
        )
        handlers = Handlers(self.arrive, self.core.connected, lambda _why: None)
        self.transport.start(handlers)
        self.hub.pump()

    def arrive(self, message: Message) -> None:
        """Take what the broker brings."""
        self.core.handle([message])

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

    def birth(self, *agents: str, incarnation: str = "1", status: Any = "up", **more: Any) -> None:
        offer: dict[str, Any] = {"schemes": ["toy"], "features": ["x"], "target": "y"}
        for agent in agents:
            body = AgentState(status=status, incarnation=incarnation, **offer, **more)
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
    return Message(TOPICS.contribution(agent), Envelope(fleet="f", body=body, run=run, agent=agent).to_bytes())


def contribution(agent: str, task: Task, **how: Any) -> ContributionBody:
    answer = toy_answer(agent, task, **how)
    return ContributionBody(
        task_digest=task.digest,
        rows=answer.rows,
        data_digest=hashlib.sha256(agent.encode()).hexdigest(),
        contribution=answer.to_value(),
    )


def hostile(task: Task) -> Iterable[tuple[str, bytes]]:
    good = Envelope(fleet="f", body=contribution("a", task), run="r1", agent="a")
    yield "unknown-kind", codec.encode({**codec.decode(good.to_bytes()), "kind": "novel"})
    yield "wrong-agent", Envelope(fleet="f", body=good.body, run="r1", agent="b").to_bytes()
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


def record_of(version: int = 1, **other: Any) -> ModelRecord:
    document = {"scheme": "toy", "leaves": [hashlib.sha256(bytes([version, each])).hexdigest() for each in range(100)]}
    # Made long before the authorities were.
    about = {"created": "2026-01-01T00:00:00+00:00", "cohort": ["v1"], "fleet": "f", "scheme": "toy", "name": "m"}
    return ModelRecord.model_validate(
        {"version": version, "digest": document_digest(document), "document": document, "run": f"r{version}"}
        | about
        | other
    )


class Cloud:
    """A coordinator with an identity folder, on a broker in memory."""

    def __init__(self, folder: Path, *, signs: bool = True) -> None:
        self.folder = folder
        self.signs = signs
        self.journal = TornDisk()
        self.hub = MemoryHub()
        self.lines: list[Any] = []
        self.credentials = FolderCredentials(folder, pause=0.0)

    def register(self, *records: ModelRecord | bytes) -> None:
        for version, each in enumerate(records, start=1):
            data = each if isinstance(each, bytes) else each.to_bytes()
            digest = record_of(version).digest if isinstance(each, bytes) else each.digest
            self.journal.add_model("m", f"r{version}", partial(lambda both, _version: both, (digest, data)))
            body = {"version": version, "digest": digest, "cause": "published", "reason": "", "sequence": version}
            self.journal.append((), [Decision("m", "current", 0.0, 0.0, body)])

    def start(self) -> None:
        """Begin a life, on a broker that keeps what is retained."""
        for former in ("coordinator", "watcher"):
            self.hub.kill(former)
        self.credentials = FolderCredentials(self.folder, pause=0.0)
        signer = (lambda: self.credentials.signer) if self.signs else None
        more = {"signer": signer, "verifier": self.credentials.verifier, "wall": time.time}
        with structlog.testing.capture_logs() as lines:
            self.core = Fleet(hub=self.hub, journal=self.journal, more=more).core
        self.lines += lines

    def change(self, issued: Path | None = None, *trusted: FleetCa) -> None:
        """Put another certificate, with its key, or other authorities into the folder of the running process."""
        named = {"ca": b"".join(each.authority.ca_pem for each in trusted)} if trusted else {}
        crl = {"crl": b"".join(each.authority.crl_pem for each in trusted)} if trusted else {}
        made = {} if issued is None else {"key": (issued / "key.pem").read_bytes()}
        made |= {} if issued is None else {"certificate": (issued / "cert.pem").read_bytes()}
        save_identity(self.folder, **named, **crl, **made)
        self.credentials.refresh()
        self.tick()

    def tick(self) -> None:
        with structlog.testing.capture_logs() as lines:
            self.core.tick()
            self.hub.pump()
        self.lines += lines

    def service(self, state: Path) -> Service:
        """What the HTTP API stands on; whoever calls is the coordinator's thread."""
        made = Service(CoordinatorConfig.load(state_dir=state), self.core)
        made.call = lambda function, timeout=None: function(self.core)  # type: ignore[method-assign]
        return made

    def logged(self) -> list[tuple[str, int]]:
        named = [line for line in self.lines if line["event"] == "model-not-verified"]
        return [(line["reason"].partition(":")[0], line["version"]) for line in named]

    def stored(self, version: int = 1) -> StoredModel:
        return self.core.registry.get("m", version)

    def published(self) -> dict[str, bytes]:
        """What is retained of versions and blobs."""
        return {topic: content for topic, content in self.hub.retained.items() if "/v/" in topic or "/blob/" in topic}


def is_believed(model: StoredModel, *cas: FleetCa) -> bool:
    verifier = Verifier(b"".join(each.authority.ca_pem for each in cas), time.time)
    verifier.update_crl(b"".join(each.authority.crl_pem for each in cas))
    try:
        return ModelRecord.from_bytes(model.record).verified_by(verifier).role == "coordinator"
    except ValueError:
        return False


def signer_of(folder: Path) -> Signer:
    return FolderCredentials(folder).signer


def authorities(tmp_path: Path, *names: str) -> list[FleetCa]:
    return [FleetCa(tmp_path / name, name) for name in names]
