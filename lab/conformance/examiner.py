"""The coordinator's side of a conformance check: asks one agent, and hears what it says."""

from __future__ import annotations

import hashlib
import queue
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from glassfleet.contract.messages import Task
from schemas.codec import encode
from schemas.envelope import Envelope, Retained, clearing, frames_for_blobs, frames_for_request
from schemas.errors import UsageError, WireError
from schemas.messages import (
    AgentState,
    Body,
    ContributionBody,
    CoordinatorState,
    Outcome,
    Part,
    Receipt,
    Refusal,
    Request,
)
from schemas.topics import Topics
from schemas.trust.joining import Assembler

SILENCE = 3.0
"""Seconds without a word that count as silence: an answer is sent again after two."""

PATIENCE = 20.0
"""Seconds to wait for what must come."""


class LeftOutError(Exception):
    """A check cannot be made here; the text says why."""


@dataclass(frozen=True)
class Heard:
    """One message of the agent, its parts joined."""

    body: Body
    run: str
    payload: bytes
    retained: bool
    parts: int = 0


class Examiner:
    """Publishes as a coordinator does; raises UsageError where another one is up in the fleet.

    Parameters
    ----------
    link : Link
    topics : Topics
    agent : str
        Whom it asks.
    """

    def __init__(self, link: Link, topics: Topics, agent: str) -> None:
        self.topics, self.agent, self.faults = topics, agent, list[str]()
        self.incarnation = secrets.token_hex(8)
        self._messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._assembler, self._parts = Assembler(), 0
        self._heard: list[Heard] = []
        self._times = time.time()
        self._blobs: dict[str, tuple[str, ...]] = {}
        self._transport = PahoTransport(link)
        for topic in (topics.agent_state(agent), topics.contribution(agent), topics.coordinator_state()):
            self._transport.subscribe(topic)
        self._transport.start(Handlers(self._messages.put, lambda: None, lambda _: None))

    def close(self) -> None:
        """Clear what is retained, and leave."""
        for run in list(self._blobs):
            self.end(run)
        self._transport.publish(self.topics.coordinator_state(), b"", retain=True)
        self._transport.flush(2.0)
        self._transport.stop()

    # -- what it says -----------------------------------------------------------------------------------------------

    def up(self, *, anew: bool = False) -> None:
        """Say that a coordinator is there, `anew`: another one than before."""
        if anew:
            self.incarnation = secrets.token_hex(8)
        body = CoordinatorState(status="up", incarnation=self.incarnation, software="conformance")
        self.publish(self.topics.coordinator_state(), Envelope(self.topics.fleet, body).to_bytes(), retain=True)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish anything."""
        self._transport.publish(topic, payload, retain=retain)

    def request(self, run: str, request: Request, scheme: str, *, limit: int = 128 * 1024, packed: bytes = b"") -> None:
        """Publish a request, in parts of at most `limit` bytes; `packed` is a blob that it names."""
        self._times += 0.01
        envelope = Envelope(self.topics.fleet, request, run=run, scheme=scheme, round=1, time=self._times)
        retained = frames_for_request(envelope, self.topics, limit)
        for frame in clearing(list(self._blobs.get(run, ()))):
            self.publish(*frame, retain=True)
        retained += frames_for_blobs(packed, self.topics, limit) if packed else Retained(())
        self._blobs[run] = retained.blobs
        for frame in retained.frames:
            self.publish(*frame, retain=True)

    def end(self, run: str) -> None:
        """End a run."""
        for frame in clearing([*self._blobs.pop(run, ()), self.topics.request(run)]):
            self.publish(*frame, retain=True)

    # -- what it hears ----------------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Forget what came so far."""
        self._hear(0.0)
        self._heard.clear()

    def wait_for(
        self, kinds: tuple[type[Body], ...], run: str = "", digest: str = "", *, within: float = PATIENCE
    ) -> Heard | None:
        """Return the next message of these kinds, of a run and task if they are given; None: none came."""
        end = time.monotonic() + within
        while True:
            for heard in self._heard:
                same = not digest or getattr(heard.body, "task_digest", "") == digest
                if isinstance(heard.body, kinds) and (not run or heard.run == run) and same:
                    self._heard.remove(heard)
                    return heard
            left = end - time.monotonic()
            if left <= 0:
                return None
            self._hear(min(left, 0.2))

    def birth(self, *, within: float = PATIENCE) -> Heard | None:
        """Return the agent's next birth; None: none came."""
        end = time.monotonic() + within
        while (left := end - time.monotonic()) > 0:
            heard = self.wait_for((AgentState,), within=left)
            if heard is not None and isinstance(heard.body, AgentState) and heard.body.status == "up":
                return heard
        return None

    def _hear(self, seconds: float) -> None:
        try:
            message = self._messages.get(timeout=seconds) if seconds else self._messages.get_nowait()
            while True:
                self._take(message)
                message = self._messages.get_nowait()
        except queue.Empty:
            return

    def _take(self, message: Message) -> None:
        if not message.payload:
            return
        if message.topic == self.topics.coordinator_state():
            self._check_alone(message.payload)
            return
        try:
            envelope = Envelope.from_bytes(message.payload, fleet=self.topics.fleet)
            if envelope.agent != self.agent:
                self.faults.append(f"a message of {envelope.agent!r} on the topic of {self.agent!r}")
            if message.retained and not isinstance(envelope.body, AgentState):
                self.faults.append(f"a {envelope.body.kind} was published with the retained flag")
            parts = 0
            if isinstance(envelope.body, Part):
                self._parts += 1
                whole = self._assembler.add(envelope)
                if whole is None:
                    return
                parts, self._parts, envelope = self._parts, 0, whole
        except WireError as fault:
            self.faults.append(f"a message that cannot be read: {fault}")
            return
        self._heard.append(Heard(envelope.body, envelope.run, message.payload, message.retained, parts))

    def _check_alone(self, payload: bytes) -> None:
        try:
            body = Envelope.from_bytes(payload, fleet=self.topics.fleet).body
        except WireError:
            return
        if isinstance(body, CoordinatorState) and body.status == "up" and body.software != "conformance":
            raise UsageError(f"a coordinator is up in fleet {self.topics.fleet!r}: give the check another --fleet")


@dataclass(frozen=True)
class Run:
    """One run, in which the agent is asked."""

    examiner: Examiner
    id: str

    def ask(self, task: Task, whom: Mapping[str, Any] | None = None, digest: str = "", **how: Any) -> str:
        """Open a round for the vehicles that the fields `whom` of its request name; return the digest of the task.

        A `digest` is given instead of the task's where another one is asked for; `how` is as :meth:`Examiner.request`.
        """
        task = in_run(task, self.id)
        digest = digest or task.digest
        request = Request(task=task.to_value(), task_digest=digest, remaining=60.0, **(whom or {}))
        self.examiner.request(self.id, request, task.scheme, **how)
        return digest

    def pose(self, task: Task, whom: Mapping[str, Any] | None = None, **how: Any) -> tuple[str, Heard | None]:
        """Ask, and wait for the answer."""
        digest = self.ask(task, whom, **how)
        return digest, self.answer(digest)

    def answer(self, digest: str, within: float = PATIENCE) -> Heard | None:
        """Return the agent's answer or refusal; None: none came."""
        return self.examiner.wait_for((ContributionBody, Refusal), self.id, digest, within=within)

    def receipt(self, digest: str, outcome: Outcome = "accepted", reason: str = "") -> None:
        """Tell the agent what became of its answer."""
        topics, body = self.examiner.topics, Receipt(run=self.id, task_digest=digest, outcome=outcome, reason=reason)
        self.examiner.publish(topics.receipt(self.examiner.agent), Envelope(topics.fleet, body, run=self.id).to_bytes())

    def is_silent(self, digest: str = "", *, after: float = 0.0) -> bool:
        """Whether nothing more comes about the run; `after` seconds in which something may have been on its way."""
        if after:
            self.examiner.wait_for((ContributionBody,), self.id, within=after)
        return self.answer(digest, SILENCE) is None


def in_run(task: Task, run: str) -> Task:
    """Return the task with a nonce of its own, as each run has one."""
    return replace(task, nonce=hashlib.sha256(run.encode()).hexdigest()[:32])


def same_bytes(one: Heard, other: Heard) -> bool:
    """Whether two messages hold the same answer."""
    return encode(one.body.model_dump()) == encode(other.body.model_dump())
