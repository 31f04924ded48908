"""One agent: turns messages into events of the session, and performs its effects. No threads, no clock of its own.

`handle`, `connected`, `disconnected` and `tick` may be called by a loop (``edge_agent.runner``) or by a simulator in
virtual time; all from one thread. Nothing here decides when to answer: that is ``edge_agent.session``.
"""

from __future__ import annotations

import functools
import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

from broker.port import Handlers, Message, Transport
from edge_agent import logs
from edge_agent.config import AgentConfig
from edge_agent.evaluation import Evaluator, Scores
from edge_agent.fetch import Fetcher
from edge_agent.freeze import Freezer, privacy_generator
from edge_agent.identity import Identity
from edge_agent.models import ModelFollower
from edge_agent.outbox import Outbox
from edge_agent.session import SessionState, step
from edge_agent.session_events import (
    Compute,
    Computed,
    ComputeFailed,
    Connected,
    Disconnected,
    Effect,
    EndRun,
    Event,
    Forget,
    Park,
    ReceiptSeen,
    Refuse,
    RequestCleared,
    RequestSeen,
    Restarted,
    Send,
    Tick,
)
from edge_agent.sources import Source
from edge_agent.storage import Lock, load_secret, make_directory
from glassfleet import catalogue
from glassfleet.data import Dataset
from glassfleet.scheme import Client, Task, TaskError
from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import BrokerError, IdentityError, UsageError, WireError
from schemas.messages import (
    AgentState,
    Body,
    ContributionBody,
    CoordinatorState,
    Evaluation,
    Manifest,
    ModelPointer,
    Receipt,
    Refusal,
    Request,
)
from schemas.parts import frames_for_contribution, open_request
from schemas.record import ModelRecord
from schemas.topics import Address, Topics

DOMAIN = "domain"
"""Scheme name of domain discovery, which every agent can run."""

B = TypeVar("B", bound=Body)

_BIRTH_PAUSE = 0.25
"""Seconds between two birth certificates at least, so that two processes with one id do not flood the broker."""


class Agent:
    """A vehicle's side of the federation.

    Parameters
    ----------
    config : AgentConfig
    source : Source
        The vehicle's rows.
    make_transport : callable
        Takes the last will and returns the transport; it is started by `start`.
    clock : callable
        Seconds that only go forward.
    wall : callable
        Seconds since the epoch, for the envelopes; nothing is decided by it.
    incarnation : str or None
        Name of this process's life; None: drawn at random.

    Raises
    ------
    StorageError
        The state directory cannot be used.
    IdentityError
        Another process on this machine is this agent.
    UsageError
        The allow-list names a scheme that is not installed, or the column names do not fit one message.
    """

    def __init__(
        self,
        config: AgentConfig,
        source: Source,
        make_transport: Callable[[Message], Transport],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        incarnation: str | None = None,
    ) -> None:
        self.config = config
        self.id = config.id
        self.counts: Counter[str] = Counter()
        self.log = logs.get_logger("glassfleet.agent", agent=config.id)
        self._clock, self._wall = clock, wall
        self._topics = Topics(config.fleet)
        self.source = source
        self._identity = Identity(incarnation or uuid.uuid4().hex, wall())
        self.schemes = config.usable_schemes(catalogue.names(), catalogue.unavailable())

        size = len(self._own_state("up")[1])
        if size > config.max_message_bytes:
            raise UsageError(
                f"{len(source.train.features)} column names make a birth certificate of {size} bytes: raise "
                f"max_message_bytes (now {config.max_message_bytes}), or give the agent fewer columns"
            )

        directory = make_directory(config.directory)
        self._lock = Lock(directory, config.id)
        secret = load_secret(directory)
        self._secret = secret
        self._freezer = Freezer(directory / "runs", secret)
        self._outbox = Outbox(directory / "outbox.sqlite", max_bytes=config.outbox_max_bytes)

        self.will = self._last_will()
        self.transport = make_transport(self.will)
        self._fetcher = Fetcher(self._topics, self.transport)
        self._models = ModelFollower(
            self._topics,
            self.transport,
            self._fetcher,
            directory=directory / "models",
            evaluator=Evaluator(source.train, source.test) if config.evaluate and source.test.rows else None,
            publish=self._publish_scores,
            log=self.log,
        )
        self._jobs: dict[tuple[str, str], Compute] = {}
        self._on_the_way: dict[tuple[str, str], tuple[float, int]] = {}
        self._birth_due: float | None = None
        self._birth_last = float("-inf")
        self._online = False
        self.session = SessionState(
            agent=config.id,
            schemes=frozenset({*self.schemes, DOMAIN}),
            timing=config.timing,
            seed=int.from_bytes(codec.digest_of(self._identity.own).encode()[:8], "big"),
            now=clock(),
        )
        kept = self._outbox.contents()
        self._step(Restarted(kept.pending, kept.parked, kept.ended))
        for pattern in self._subscriptions():
            self.transport.subscribe(pattern)

    # Called by the loop

    def connected(self) -> None:
        """Announce ourselves: a connection stands."""
        self._online = True
        self.log.info("connected")
        self._birth()
        self._step(Tick(self._clock()))
        self._step(Connected())

    def disconnected(self, why: str) -> None:
        """Take note: the connection was lost. The transport reconnects by itself."""
        self._online = False
        self.log.info("disconnected", reason=why)
        self._step(Disconnected())

    def handle(self, message: Message) -> None:
        """Take one message. Whatever is wrong with it is counted and logged, and changes nothing.

        Raises
        ------
        IdentityError
            Another process uses this agent id.
        StorageError
            Something could not be stored; the agent must stop, since it could not keep its word.
        """
        self.counts["messages"] += 1
        try:
            self._dispatch(message, self._topics.parse(message.topic))
        except WireError as fault:
            self.counts[f"ignored-{fault.code}"] += 1
            self.log.warning("message-ignored", topic=message.topic[:200], reason=str(fault))

    def tick(self, now: float) -> float | None:
        """Do what is due: answers, resends, birth certificates. Return when something is due next; None: nothing is."""
        self._step(Tick(now))
        for key, job in list(self._jobs.items()):
            if key in self._jobs:
                del self._jobs[key]
                self._answer(job)
        for key, (due, tries) in list(self._on_the_way.items()):
            if due <= now:
                del self._on_the_way[key]
                self._send(*key, tries)
        self._fetcher.tick(now)
        if self._birth_due is not None and self._birth_due <= now:
            self._birth()
        dues = [now for _ in self._jobs] + [due for due, _ in self._on_the_way.values()]
        dues += [due for due in (self.session.next_due(), self._fetcher.next_due(), self._birth_due) if due is not None]
        return min(dues, default=None)

    def idle(self) -> bool:
        """Do one piece of work that can wait (scoring a model); whether there may be more."""
        return self._models.idle()

    def start(self, handlers: Handlers | None = None) -> None:
        """Begin connecting. A loop gives handlers that put into its queue; without, the agent is called directly."""
        self.transport.start(handlers or Handlers(self.handle, self.connected, self.disconnected))

    def resubscribe(self) -> None:
        """Ask for all retained messages again, after messages had to be dropped here."""
        for pattern in self._subscriptions():
            self.transport.subscribe(pattern)

    def stop(self, *, say_goodbye: bool = True) -> None:
        """End cleanly: say that we are down, disconnect, close the files. Idempotent."""
        if say_goodbye and self._online:
            self.transport.publish(*self._own_state("down"), retain=True)
            self.transport.flush(2.0)
        self._online = False
        self.transport.stop()
        self._outbox.close()
        self._lock.release()

    # Messages

    def _subscriptions(self) -> tuple[str, ...]:
        topics = self._topics
        return (
            topics.receipt(self.id),
            topics.agent_state(self.id),
            topics.coordinator_state(),
            topics.request("+"),
            topics.model_current("+"),
        )

    def _dispatch(self, message: Message, address: Address) -> None:
        payload = message.payload
        match address.kind:
            case "request":
                self._on_request(payload, address.run)
            case "receipt" if address.agent == self.id:
                self._on_receipt(self._open(payload, Receipt))
            case "agent-state" if address.agent == self.id:
                self._on_own_state(payload)
            case "coordinator-state":
                self._on_coordinator(payload)
            case "model-current":
                self._on_pointer(payload, address.name)
            case "model-version":
                self._models.version(address.name, address.number, payload, self._clock())
            case "blob":
                self._fetcher.add(message.topic, payload, address.digest)
            case _:
                raise WireError("unexpected-topic", f"{address.kind} is not for this agent")

    def _open(self, payload: bytes, wanted: type[B]) -> B:
        return self._open_envelope(payload, wanted)[1]

    def _open_envelope(self, payload: bytes, wanted: type[B]) -> tuple[Envelope, B]:
        envelope = Envelope.from_bytes(payload, fleet=self.config.fleet)
        if not isinstance(envelope.body, wanted):
            raise WireError("malformed", f"a {envelope.body.kind} where a {wanted.kind} belongs")
        return envelope, envelope.body

    def _on_request(self, payload: bytes, run: str) -> None:
        if not payload:
            self._fetcher.cancel(f"request/{run}")
            self._step(RequestCleared(run))
            return
        envelope = Envelope.from_bytes(payload, fleet=self.config.fleet)
        if envelope.run != run:
            raise WireError("malformed", "the request names another run than its topic")
        body = envelope.body
        if isinstance(body, Manifest) and body.what == "request":
            self._fetcher.want(
                f"request/{run}",
                body,
                self._clock(),
                lambda content: self._take_request(open_request(envelope, content)),
            )
            return
        self._fetcher.cancel(f"request/{run}")
        self._take_request(envelope)

    def _take_request(self, envelope: Envelope) -> None:
        request = envelope.body
        if not isinstance(request, Request):
            raise WireError("malformed", f"a {request.kind} where a request belongs")
        task = request.task
        if set(task) != {"scheme", "kind", "body"} or not isinstance(task["body"], dict):
            raise WireError("malformed", "a task has a scheme, a kind and a body")
        if not isinstance(task["scheme"], str) or not isinstance(task["kind"], str):
            raise WireError("malformed", "a task's scheme and kind are texts")
        if codec.digest_of(task) != request.task_digest:
            raise WireError("digest-mismatch", "the task is not the one that its digest names")
        self.counts["requests"] += 1
        self._step(RequestSeen(envelope.run, request, task["scheme"], envelope.time, envelope.round, envelope.attempt))

    def _on_receipt(self, receipt: Receipt) -> None:
        self.counts[f"receipt-{receipt.outcome}"] += 1
        self._step(ReceiptSeen(receipt.run, receipt.task_digest, receipt.outcome, receipt.reason))

    def _on_coordinator(self, payload: bytes) -> None:
        if payload:
            state = self._open(payload, CoordinatorState)
            self.log.info("coordinator", status=state.status, software=state.software)

    def _on_pointer(self, payload: bytes, name: str) -> None:
        if payload:
            pointer = self._open(payload, ModelPointer)
            if pointer.name != name:
                raise WireError("malformed", "the pointer names another model than its topic")
            self._models.pointer(pointer)

    def _on_own_state(self, payload: bytes) -> None:
        if not payload:
            return
        envelope, state = self._open_envelope(payload, AgentState)
        match self._identity.sees(state.incarnation, state.status, envelope.time, self._clock()):
            case "stop":
                raise IdentityError(
                    f"another process is agent {self.id!r} in fleet {self.config.fleet!r} (incarnation "
                    f"{state.incarnation[:8]}). Stop it, or start this one with another --id"
                )
            case "repeat" if self._online:
                self.log.warning("state-overwritten", incarnation=state.incarnation[:8], status=state.status)
                self._birth()

    # The session's effects

    def _step(self, event: Event) -> None:
        self.session, effects = step(self.session, event)
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Compute(run=run, request=request):
                self._jobs[run, request.task_digest] = effect
            case Send(run=run, task_digest=digest, tries=tries) if self.config.slow:
                # A slow link: what is on it cannot be called back, though a newer request may have parked the answer.
                # One copy of it at most, and each leaves after the same time: nothing piles up.
                self._on_the_way.setdefault((run, digest), (self._clock() + self.config.slow, tries))
            case Send(run=run, task_digest=digest, tries=tries):
                self._send(run, digest, tries)
            case Refuse(run=run, task_digest=digest, reason=reason):
                self.counts["refusals"] += 1
                self.log.warning("refused", run=run, round=effect.round, reason=reason)
                refusal = Refusal(task_digest=digest, reason=reason[:500])
                self._publish(
                    self._topics.contribution(self.id, run),
                    refusal,
                    run=run,
                    round=effect.round,
                    attempt=effect.attempt,
                )
            case Park(run=run, task_digest=digest):
                self._jobs.pop((run, digest), None)
                self._outbox.park(run, digest)
            case Forget(run=run, task_digest=digest, outcome=outcome, reason=reason):
                self._jobs.pop((run, digest), None)
                self._outbox.end(run, digest, outcome)
                say = self.log.info if outcome in ("accepted", "duplicate") else self.log.warning
                say("receipt", run=run, outcome=outcome, reason=reason, task=digest[:8])
            case EndRun(run=run):
                for key in [key for key in self._jobs if key[0] == run]:
                    del self._jobs[key]
                self._outbox.end_run(run)
                self._freezer.drop(run)

    def _answer(self, job: Compute) -> None:
        run, digest = job.run, job.request.task_digest
        if self._outbox.get(run, digest) is not None:
            self._outbox.unpark(run, digest)
            self._step(Computed(run, digest))
            return
        frozen = self._freezer.freeze(run, self.source.train)
        task = Task.from_value(job.request.task)
        began = self._clock()
        try:
            rng = privacy_generator(self._secret, run, digest)
            refuse_text(task, frozen.data)
            contribution = client_of(task.scheme).contribute(task, frozen.data, rng)
            body = ContributionBody(
                task_digest=digest,
                rows=frozen.data.rows,
                data_digest=frozen.digest,
                contribution=contribution.to_value(),
            )
            envelope = self._envelope(body, run=run, scheme=task.scheme, round=job.round, attempt=job.attempt)
            payload = envelope.to_bytes()
            self._check_size(envelope, len(payload))
        except TaskError as fault:
            self._step(ComputeFailed(run, digest, str(fault)))
            return
        except Exception as fault:
            # A task comes from a peer, and a scheme may come from another package: neither may end the agent.
            self.log.exception("answer-failed", run=run, round=job.round, scheme=task.scheme)
            self._step(ComputeFailed(run, digest, f"internal fault: {type(fault).__name__}"))
            return
        self.counts["answers"] += 1
        self.log.info(
            "answered",
            run=run,
            round=job.round,
            kind=task.kind,
            task=digest[:8],
            rows=frozen.data.rows,
            size=len(payload),
            seconds=round(self._clock() - began, 4),
        )
        for lost in self._outbox.put(run, digest, payload):
            self.log.warning("outbox-full", run=lost[0], task=lost[1][:8], limit=self.config.outbox_max_bytes)
            self._step(ReceiptSeen(*lost, "rejected", "gave way: the outbox is full"))
        self._step(Computed(run, digest))

    def _check_size(self, envelope: Envelope, size: int) -> None:
        """Raise TaskError for an answer that could never be sent or kept: nobody shall wait for it."""
        most = self.config.outbox_max_bytes
        if size > most:
            raise TaskError(f"the answer has {size} bytes; outbox_max_bytes is {most} here")
        limit = self._limit
        if size > limit:
            try:
                frames_for_contribution(envelope, self._topics, limit)
            except (BrokerError, UsageError) as fault:
                raise TaskError(f"the answer is too large: {fault}") from fault

    @property
    def _limit(self) -> int:
        """Bytes of one payload: as configured, or less when the broker says so (MQTT 5)."""
        return min(self.config.max_message_bytes, self.transport.max_message_bytes)

    def _send(self, run: str, digest: str, tries: int) -> None:
        payload = self._outbox.get(run, digest)
        if payload is None:
            return
        envelope = Envelope.from_bytes(payload, fleet=self.config.fleet)
        self.counts["sends"] += 1
        if tries > 1:
            self.counts["resends"] += 1
            self.log.info("resent", run=run, task=digest[:8], tries=tries)
        try:
            for frame in frames_for_contribution(envelope, self._topics, self._limit):
                self.transport.publish(frame.topic, frame.payload)
        except (BrokerError, UsageError, ValueError) as fault:
            # It was small enough when it was computed; this broker takes less. A setting is wrong, not the program: the
            # reason says which, a traceback would hide it.
            self.log.error("answer-too-large", run=run, task=digest[:8], reason=str(fault))  # noqa: TRY400

    # What we say

    def _envelope(self, body: Body, **head: Any) -> Envelope:
        return Envelope(fleet=self.config.fleet, body=body, agent=self.id, time=self._wall(), **head)

    def _publish(self, topic: str, body: Body, **head: Any) -> None:
        self.transport.publish(topic, self._envelope(body, **head).to_bytes())

    def _own_state(self, status: Any) -> tuple[str, bytes]:
        state = AgentState(
            status=status,
            incarnation=self._identity.own,
            software=software_version(),
            schemes=list(self.schemes) if status == "up" else [],
            features=list(self.source.train.features) if status == "up" else [],
            target=self.source.train.target if status == "up" else "",
        )
        # All our states carry the time of our start: it tells which of two processes with one id came later.
        envelope = Envelope(fleet=self.config.fleet, body=state, agent=self.id, time=self._identity.started)
        return self._topics.agent_state(self.id), envelope.to_bytes()

    def _last_will(self) -> Message:
        topic, payload = self._own_state("down")
        return Message(topic, payload, retained=True)

    def _birth(self) -> None:
        now = self._clock()
        if not self._online:
            self._birth_due = None
            return
        if now - self._birth_last < _BIRTH_PAUSE:
            self._birth_due = self._birth_last + _BIRTH_PAUSE
            return
        self._birth_due, self._birth_last = None, now
        topic, payload = self._own_state("up")
        try:
            self.transport.publish(topic, payload, retain=True)
        except ValueError as fault:
            raise BrokerError(f"the broker's limit is too small for this agent's birth certificate: {fault}") from fault

    def _publish_scores(self, record: ModelRecord, scores: Scores) -> None:
        self.counts["evaluations"] += 1
        self.log.info(
            "evaluated",
            model=record.name,
            version=record.version,
            metric=scores.metric,
            federated=round(scores.federated, 6),
            local=round(scores.local, 6),
            rows=scores.rows,
        )
        body = Evaluation(
            name=record.name,
            version=record.version,
            digest=record.digest,
            metric=scores.metric,
            federated=scores.federated,
            local=scores.local,
            rows=scores.rows,
        )
        self._publish(self._topics.evaluation(self.id), body, run=record.run)


def refuse_text(task: Task, data: Dataset) -> None:
    """Raise TaskError where a scheme for numbers would take the positions of categories for numbers."""
    if not data.categories or task.scheme == DOMAIN or getattr(catalogue.load(task.scheme), "categorical", False):
        return
    domain = task.body.get("domain")
    asked = domain.get("features", []) if isinstance(domain, dict) else []
    for name in [feature.get("name") for feature in asked if isinstance(feature, dict)]:
        if name in data.categories:
            raise TaskError(f"column {name!r} holds text here; scheme {task.scheme!r} takes numbers only")


def client_of(scheme: str) -> Client:
    """Return the client half of a scheme, or of domain discovery."""
    if scheme == DOMAIN:
        # Imported when first asked: most starts of an agent are in the middle of a run.
        from glassfleet.discovery import DISCOVERY  # noqa: PLC0415

        return DISCOVERY.client
    return catalogue.load(scheme).client


@functools.cache
def software_version() -> str:
    """Return the installed version of glassfleet; empty when it runs from a source tree that is not installed.

    Looked up once: reading the package's metadata took a fifth of the fleet simulator's time.
    """
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - needed once

    try:
        return f"glassfleet {version('glassfleet')}"
    except PackageNotFoundError:
        return "glassfleet"
