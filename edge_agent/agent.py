"""One agent: its parts put together, and messages turned into events of the session. No threads, no clock of its own.

`handle`, `connected`, `disconnected` and `tick` may be called by a loop (``edge_agent.runner``) or by a simulator in
virtual time; all from one thread. Nothing here decides when to answer: that is ``edge_agent.session.session``; nor does
it: that is ``edge_agent.effects``.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.port import Handlers, Message, Transport
from edge_agent import logs
from edge_agent.config import AgentConfig
from edge_agent.effects import Performer
from edge_agent.messages import decoder
from edge_agent.messages.duplicate_id import Identity
from edge_agent.messages.presence import Presence
from edge_agent.messages.publisher import Outbound
from edge_agent.messages.reannounce import Hail
from edge_agent.models.evaluation import Evaluator
from edge_agent.models.fetch import Fetcher
from edge_agent.models.follower import ModelFollower
from edge_agent.models.scoring import ScoreTeller
from edge_agent.session.answers import DOMAIN, Answerer
from edge_agent.session.events import Connected, Disconnected, Event, ReceiptSeen, RequestCleared, Restarted, Tick
from edge_agent.session.outbox import Outbox
from edge_agent.session.session import SessionState, step
from edge_agent.session.snapshots import Freezer
from edge_agent.sources import Source
from edge_agent.storage import Lock, load_secret, make_directory
from glassfleet import catalogue
from schemas import codec
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import AgentState, CoordinatorState, Manifest, ModelPointer, Receipt
from schemas.parts import open_request
from schemas.topics import Address, Topics

if TYPE_CHECKING:  # fleets that do not sign shall not pay for the cryptography
    from schemas.trust.signing import Verifier

STOP_WAIT = 2.0
"""Seconds that the goodbye may wait for the broker's acknowledgement when the process ends."""


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
    verifier : Verifier or None
        Verifies the signatures of model records; None: unsigned ones are taken.

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
        verifier: Verifier | None = None,
    ) -> None:
        self.config = config
        self.id = config.id
        self.counts: Counter[str] = Counter()
        self.log = logs.get_logger("glassfleet.agent", agent=config.id)
        self._clock = clock
        self._topics = Topics(config.fleet)
        self.source = source
        self._identity = Identity(incarnation or uuid.uuid4().hex, wall())
        self.schemes = config.usable_schemes(catalogue.names(), catalogue.unavailable())

        about = (self._topics, config.id, self._identity, self.schemes, source.train, clock, self.log)
        self._presence = Presence(*about)
        self._hail = Hail(self._identity.own)
        self._tell_scores = False
        self._presence.check_size(config.connection.max_message_bytes)

        make_directory(config.state_dir)
        directory = make_directory(config.directory)
        self._lock = Lock(directory, config.id)
        secret = load_secret(directory)
        freezer = Freezer(directory / "runs", secret)
        answerer = Answerer(self._topics, freezer, secret, most_bytes=config.outbox_max_bytes, budget=config.budget)
        self._outbox = Outbox(directory / "outbox.sqlite", max_bytes=config.outbox_max_bytes)

        self.will = self._presence.last_will()
        self.transport = make_transport(self.will)
        outbound = Outbound(
            self._topics, config.id, self.transport, wall=wall, max_bytes=config.connection.max_message_bytes
        )
        self._performer = Performer(
            source,
            answerer,
            self._outbox,
            outbound,
            clock=clock,
            tell=self._step,
            counts=self.counts,
            log=self.log,
            slow=config.slow,
        )
        self._scores = ScoreTeller(outbound, self.counts, self.log)
        self._fetcher = Fetcher(self._topics, self.transport)
        self._models = ModelFollower(
            self._topics,
            self.transport,
            self._fetcher,
            directory=directory / "models",
            evaluator=Evaluator(
                source.train,
                source.test,
                budget=config.budget,
                directory=directory / "scoring",
            )
            if config.evaluate and source.test.rows
            else None,
            publish=self._scores.scored,
            cannot=self._scores.cannot,
            why_not="no test rows" if config.evaluate else "scoring is off",
            log=self.log,
            agent=config.id,
            counts=self.counts,
            verifier=verifier,
        )
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
        self._performer.work(now)
        self._fetcher.tick(now)
        if self._presence.due is not None and self._presence.due <= now:
            self._birth()
        dues = self._performer.dues(now)
        dues += [
            due
            for due in (
                self.session.next_due(),
                self._fetcher.next_due(),
                self._presence.due,
                self._models.next_due(now),
            )
            if due is not None
        ]
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
        self._performer.stop()
        self._models.stop()
        if say_goodbye and self._online:
            self.transport.publish(*self._presence.state("down"), retain=True)
            self.transport.flush(STOP_WAIT)
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
            topics.model_candidate("+"),
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
                self._on_coordinator(payload, known=message.retained)
            case "model-current":
                self._on_pointer(payload, address.name)
            case "model-candidate":
                self._on_candidate(payload, address.name)
            case "model-version":
                self._models.version(address.name, address.number, payload, self._clock())
            case "blob":
                self._fetcher.add(message.topic, payload, address.digest)
            case _:
                raise WireError("unexpected-topic", f"{address.kind} is not for this agent")

    def _open(self, payload: bytes, wanted: type[decoder.B]) -> decoder.B:
        return decoder.open_envelope(payload, self.config.fleet, wanted)[1]

    def _on_request(self, payload: bytes, run: str) -> None:
        if not payload:
            self._fetcher.cancel(f"request/{run}")
            self._step(RequestCleared(run))
            return
        envelope = decoder.open_run(payload, self.config.fleet, run)
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
        seen = decoder.request_seen(envelope)
        self.counts["requests"] += 1
        self._step(seen)

    def _on_receipt(self, receipt: Receipt) -> None:
        self.counts[f"receipt-{receipt.outcome}"] += 1
        self._step(ReceiptSeen(receipt.run, receipt.task_digest, receipt.outcome, receipt.reason))

    def _on_coordinator(self, payload: bytes, *, known: bool) -> None:
        if payload:
            state = self._open(payload, CoordinatorState)
            self.log.info("coordinator", status=state.status, software=state.software)
            if (wait := self._hail.sees(state, known=known)) is not None:
                self._presence.due = self._clock() + wait
                self._tell_scores = True

    def _on_pointer(self, payload: bytes, name: str) -> None:
        if payload:
            pointer = self._open(payload, ModelPointer)
            if pointer.name != name:
                raise WireError("malformed", "the pointer names another model than its topic")
            self._models.pointer(pointer)

    def _on_candidate(self, payload: bytes, name: str) -> None:
        if not payload:
            self._models.withdraw(name)
            return
        pointer = self._open(payload, ModelPointer)
        if pointer.name != name or pointer.trial is None:
            raise WireError("malformed", "the pointer of a candidate names its model and who tries it")
        self._models.candidate(pointer, pointer.trial)

    def _on_own_state(self, payload: bytes) -> None:
        if not payload:
            return
        envelope, state = decoder.open_envelope(payload, self.config.fleet, AgentState)
        if self._presence.sees(state, envelope.time, online=self._online):
            self._birth()

    def _birth(self) -> None:
        self._presence.announce(self.transport, online=self._online)
        if self._tell_scores and self._online:
            self._tell_scores = False
            self._scores.repeat()

    def _step(self, event: Event) -> None:
        self.session, effects = step(self.session, event)
        for effect in effects:
            self._performer.perform(effect)
