"""One agent: its parts put together, and events handed to the part that acts on them. No threads, no clock of its own.

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
from edge_agent.config import AgentConfig
from edge_agent.effects import Effects
from edge_agent.forecast.log import newest_head
from edge_agent.messages import (
    Blob,
    CandidateWithdrawn,
    CoordinatorSeen,
    Decoder,
    Inbound,
    ModelVersion,
    OwnState,
    Publisher,
    RequestInParts,
    request_seen,
    with_roster,
)
from edge_agent.models.evaluation import Evaluator, ScoreTeller
from edge_agent.models.fetch import Fetcher
from edge_agent.models.follower import ModelFollower
from edge_agent.models.summed import answered
from edge_agent.presence import OwnId, Presence, Reannouncer
from edge_agent.session.accounts import OTHER, SPENT, TOLD, WATCHED, Allowance, Disclosures, WatchStore
from edge_agent.session.answers import DOMAIN, Answerer
from edge_agent.session.events import (
    Connected,
    Disconnected,
    Event,
    RequestCleared,
    RequestSeen,
    Restarted,
    Tick,
)
from edge_agent.session.outbox import Outbox
from edge_agent.session.private import PRIVATE, PrivateAnswers
from edge_agent.session.session import SessionState, step
from edge_agent.session.snapshots import Snapshots
from edge_agent.sources import Source
from edge_agent.storage import FolderLock, load_secret, make_directory
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.errors import PrivacyError
from glassfleet.private.chain import PAIRS_SCHEME, SCORES_SCHEME
from schemas import codec
from schemas.envelope import open_request
from schemas.errors import WireError
from schemas.log import Log
from schemas.messages import Manifest, ModelPointer, Receipt, Trial
from schemas.topics import Topics

if TYPE_CHECKING:  # fleets that do not sign shall not pay for the cryptography
    from schemas.trust.signing import Verifier

STOP_WAIT = 2.0
"""Seconds that the goodbye may wait for the broker's acknowledgement when the process ends."""


SHORT, SHORT_IN_A_ROW = 5.0, 6
"""So many connections in a row that lasted less than so many seconds: two processes throw each other off the broker."""


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
        self.log = Log(agent=config.id)
        self._clock = clock
        self._topics = Topics(config.fleet)
        self.source = source
        self._identity = OwnId(incarnation or uuid.uuid4().hex, wall())
        self.schemes = config.usable_schemes(catalogue.names(), catalogue.unavailable())

        self._decoder = Decoder(self._topics, config.id)
        self._presence = Presence(
            self._topics, config.id, self._identity, schemes=self.schemes, source=source, clock=clock, log=self.log,
            head=lambda: newest_head(config.directory / "forecasts"),
        )  # fmt: skip
        self._reannouncer = Reannouncer(self._identity.own)
        self._must_repeat_scores = False
        self._presence.check_size(config.connection.max_message_bytes)

        make_directory(config.state_dir)
        directory = make_directory(config.directory)
        self._lock = FolderLock(directory, config.id)
        secret = load_secret(directory)
        snapshots = Snapshots(directory / "runs", secret)
        self._private = PrivateAnswers(
            self._topics,
            config.id,
            directory,
            secret,
            limits=config.private_limits,
            choice=config.private,
            verifier=verifier,
            snapshots=snapshots,
            tests=lambda: _test_rows(config, source.current().test),
        )
        answerer = Answerer(
            snapshots,
            secret,
            self._private,
            tests=lambda: _test_rows(config, source.current().test),
            score=answered,
            watched=WatchStore(directory / WATCHED),
            most_bytes=config.outbox_max_bytes,
            budget=config.budget,
        )
        self.outbox = Outbox(directory / "outbox.sqlite", max_bytes=config.outbox_max_bytes)

        self._disclosures = Disclosures(directory / TOLD, wall)
        self._allowance = Allowance(directory / SPENT, config.month, wall)

        self.will = self._presence.last_will()
        self.transport = make_transport(self.will)
        publisher = Publisher(
            self._topics, config.id, self.transport, wall=wall, max_bytes=config.connection.max_message_bytes
        )
        self._effects = Effects(
            source,
            answerer,
            self.outbox,
            publisher,
            private=self._private,
            allowance=self._allowance,
            disclosures=self._disclosures,
            clock=clock,
            tell=self._step,
            counts=self.counts,
            log=self.log,
            slow=config.slow,
        )
        self._scores = ScoreTeller(publisher, self.counts, self.log)
        self._fetcher = Fetcher(self._topics, self.transport)
        self._models = ModelFollower(
            self._topics,
            self.transport,
            self._fetcher,
            directory=directory / "models",
            evaluator=Evaluator(
                source.train,
                source.test,
                units=source.origin.units,
                budget=config.budget,
                directory=directory / "scoring",
            )
            if not _why_not(config, source.test)
            else None,
            scores=self._scores,
            why_not=lambda: _why_not(config, source.test) or self._allowance.why_not(),
            was_private=self._disclosures.was_private,
            log=self.log,
            agent=config.id,
            counts=self.counts,
            verifier=verifier,
        )
        self._online = False
        self._scoring_since: float | None = None
        self._since, self._short_links = clock(), 0
        self.session = SessionState(
            agent=config.id,
            schemes=frozenset({*self.schemes, DOMAIN, PRIVATE, PAIRS_SCHEME, SCORES_SCHEME}),
            timing=config.timing,
            seed=int.from_bytes(codec.digest_of(self._identity.own).encode()[:8], "big"),
            now=clock(),
        )
        kept = self.outbox.contents()
        self._step(Restarted(kept.pending, kept.parked, kept.ended))
        self.resubscribe()

    # Called by the loop

    def connected(self) -> None:
        """Announce ourselves: a connection stands, or has another identity now."""
        was_online, self._online = self._online, True
        self._since = self._clock()
        self._private.connected()
        self.log.info("connected")
        self._birth()
        self._step(Tick(self._clock()))
        self._step(Connected())
        if was_online:  # the broker may have denied the former identity what it sent to others
            self.resubscribe()

    def disconnected(self, why: str) -> None:
        """Take note: the connection was lost. The transport reconnects by itself."""
        self._online = False
        self.log.info("disconnected", reason=why)
        self._short_links = self._short_links + 1 if self._clock() - self._since < SHORT else 0
        if self._short_links == SHORT_IN_A_ROW:
            self.log.warning(
                "connections-end-at-once",
                hint="does another process use this certificate? A broker gives one connection to each",
            )
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
            event = self._decoder.decode(message)
            self._allowance.spend(getattr(event, "run", OTHER), size=len(message.payload))
            if event is not None:
                self._react(event)
        except WireError as fault:
            self.counts[f"ignored-{fault.code}"] += 1
            self.log.warning("message-ignored", topic=message.topic[:200], reason=str(fault))

    def tick(self, now: float) -> float | None:
        """Do what is due: answers, resends, birth certificates. Return when something is due next; None: nothing is."""
        self._step(Tick(now))
        self._effects.work(now)
        self._fetcher.tick(now)
        self._presence.look(now)
        if self._presence.due is not None and self._presence.due <= now:
            self._birth()
        parts = (self.session.next_due(), self._fetcher.next_due(), self._presence.due, self._models.next_due(now))
        return min([*self._effects.dues(now), *(due for due in parts if due is not None)], default=None)

    def idle(self) -> bool:
        """Do one piece of work that can wait (scoring a model); whether there may be more."""
        began = self._scoring_since = self._scoring_since or self._clock()
        try:
            return self._models.idle()
        finally:
            now = self._clock()
            if self._models.next_due(now) is None:  # no other process scores
                self._allowance.spend(OTHER, seconds=now - began)
                self._scoring_since = None

    def start(self, handlers: Handlers | None = None) -> None:
        """Begin connecting. A loop gives handlers that put into its queue; without, the agent is called directly."""
        self.transport.start(handlers or Handlers(self.handle, self.connected, self.disconnected))

    def resubscribe(self) -> None:
        """Ask for all retained messages again, after messages were lost that no new connection brings."""
        for pattern in self._subscriptions():
            self.transport.subscribe(pattern)

    def stop(self, *, say_goodbye: bool = True) -> None:
        """End cleanly: say that we are down, disconnect, close the files. Idempotent."""
        self._effects.stop()
        self._models.stop()
        if say_goodbye and self._online:
            self.transport.publish(*self._presence.down(stopped=True), retain=True)
            self.transport.flush(STOP_WAIT)
        self._online = False
        self.transport.stop()
        self.release()

    def release(self) -> None:
        """Close the files and let the next process in, as the system does for one that is killed. Idempotent."""
        self.outbox.close()
        self._disclosures.close()
        self._allowance.close()
        self._lock.release()

    # Events

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

    def _react(self, event: Inbound) -> None:
        match event:
            case RequestInParts() | RequestSeen() | RequestCleared():
                self._request(event)
            case Receipt(outcome=outcome):
                self.counts[f"receipt-{outcome}"] += 1
                self._step(event)
            case OwnState(state, started):
                if self._presence.is_overwritten(state, started, online=self._online):
                    self._birth()
            case CoordinatorSeen(state, was_retained):
                self.log.info("coordinator", status=state.status, software=state.software)
                if (wait := self._reannouncer.delay(state, was_retained=was_retained)) is not None:
                    self._presence.due = self._clock() + wait
                    self._must_repeat_scores = True
            case Blob(topic, payload, digest):
                self._fetcher.add(topic, payload, digest)
            case _:
                self._model(event)

    def _request(self, event: RequestInParts | RequestSeen | RequestCleared) -> None:
        name = f"request/{event.run}"
        if not isinstance(event, RequestCleared):
            self._private.heard(event.run)
        if isinstance(event, RequestInParts):
            envelope = event.envelope
            self._fetcher.want(
                name,
                event.manifest,
                self._clock(),
                lambda content: self._react(request_seen(open_request(envelope, content))),
            )
            return
        if name in self._fetcher.wanted:
            self._fetcher.cancel(name)
        if isinstance(event, RequestSeen):
            self.counts["requests"] += 1
            if (roster := self._roster(event)) is not None:
                self._fetcher.want(name, roster, self._clock(), lambda content: self._step(with_roster(event, content)))
                return
        self._step(event)

    def _roster(self, event: RequestSeen) -> Manifest | None:
        """Return where the vehicle's group is told who is in it, if it must be known to answer."""
        run, request = event.run, event.request
        is_asked = request.asked is None or self.id in request.asked
        if not is_asked or self.session.phase(run, request.task_digest) not in ("unseen", "parked"):
            return None
        try:
            return self._private.roster(event)
        except PrivacyError:
            return None  # what is damaged is told when the request is refused

    def _model(self, event: ModelPointer | CandidateWithdrawn | ModelVersion) -> None:
        match event:
            case ModelPointer(trial=Trial() as trial):
                self._models.candidate(event, trial)
            case ModelPointer():
                self._models.pointer(event)
            case CandidateWithdrawn(name):
                self._models.withdraw(name)
            case ModelVersion(name, number, payload):
                self._models.version(name, number, payload, self._clock())

    def _birth(self) -> None:
        self._presence.announce(self.transport, online=self._online)
        if self._must_repeat_scores and self._online:
            self._must_repeat_scores = False
            self._scores.repeat()

    def _step(self, event: Event) -> None:
        self.session, effects = step(self.session, event)
        for effect in effects:
            self._effects.perform(effect)


def _test_rows(config: AgentConfig, test: Dataset) -> Dataset:
    """Return the rows that a private run's scores are summed over; none where scoring is off."""
    return test if config.evaluate else test.at(slice(0))


def _why_not(config: AgentConfig, test: Dataset) -> str:
    """Return why a vehicle that scores no models does not; empty: it does."""
    if config.private == "only":
        return "this vehicle tells no scores of its own"
    return "scoring is off" if not config.evaluate else "" if test.rows else "no test rows"
