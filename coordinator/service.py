"""The coordinator as a process: threads, clock and signals around `core.Coordinator`.

Three kinds of thread. The transport's puts messages into the inbox and returns at once, so a slow reduction never
blocks MQTT keepalives. The API's threads read frozen states that are replaced and never changed (`fleet`, `runs`,
`rollout.shell`, `aliases`), and put calls into the inbox for everything that changes something. The main thread takes
batches from the inbox; it alone decides, writes the journal and publishes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import structlog

from broker.credentials import FolderCredentials
from broker.paho_transport import PahoTransport, connect_once
from broker.port import Handlers, Link, Transport
from broker.signed import RefusalLog, SignedTransport, signed
from broker.tls import tls_of
from coordinator.config import CoordinatorConfig
from coordinator.core import Coordinator
from coordinator.fleet.leader_probe import Lookout
from coordinator.journal.port import Journal
from coordinator.journal.sql import SqlJournal
from coordinator.messages.publisher import birth
from coordinator.messages.queue import Inbox
from coordinator.runs.defaults import default_engine
from coordinator.runs.observer import Several
from coordinator.telemetry.metrics import Metrics
from coordinator.telemetry.refusals import Refusals
from coordinator.telemetry.tracing import observers
from schemas.errors import BrokerError, IdentityError, StorageError
from schemas.private_files import private_folder
from schemas.topics import Topics

_log = structlog.get_logger("coordinator")
T = TypeVar("T")

QUEUE_MESSAGES = 100_000
"""Messages from the broker that wait: a round of a large fleet. What they take is bounded by `queue_bytes`."""

BATCH_MESSAGES = 500
"""Most messages that share one journal transaction: its cost is spread, and what is due waits for milliseconds."""

CALL_WAIT = 30.0
"""Seconds that a request to the HTTP API waits for the main thread: a reduction of many seconds may be under way."""

STOP_WAIT = 2.0
"""Seconds that the goodbye may wait for the broker's acknowledgement when the process ends."""

BROKER_MISSED = 1.0
"""Seconds without a broker, at the start, after which a request is refused instead of kept waiting."""

RIVAL_WAIT = 2.0
"""Seconds at the start for another coordinator to answer, when the broker says that one is up: ten slow round trips."""

RIVAL_SETTLE = 0.2
"""Seconds at the start for which the broker may still say so, when it has said nothing."""

_LOOK = 0.2
"""Seconds between two looks whether an awaited call can be done at all."""

_NO_BROKER = "the coordinator has no broker yet: start the broker, then repeat this (the coordinator's log says which)"


class Service:
    """A coordinator with its threads.

    Parameters
    ----------
    config : CoordinatorConfig
    transport : Transport
        Not started yet.
    journal : Journal
    coordinator : Coordinator
    clock : callable
        The clock that was given to `coordinator`.
    metrics : Metrics or None
        The observer that was given to `coordinator`.
    make_probe : callable or None
        Makes a transport with another client id, to look whether another coordinator is up; None: no look is taken.
    refusals : Refusals or None
        Another observer that was given to `coordinator`: for the dashboard.
    look : callable or None
        Looks whether the identity has changed; called often.
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        transport: Transport,
        journal: Journal,
        coordinator: Coordinator,
        *,
        clock: Callable[[], float] = time.monotonic,
        metrics: Metrics | None = None,
        make_probe: Callable[[], Transport] | None = None,
        refusals: Refusals | None = None,
        look: Callable[[], None] | None = None,
    ) -> None:
        self._make_probe = make_probe
        self._look = look or (lambda: None)
        self.refusals = refusals or Refusals()
        self.config = config
        self.coordinator = coordinator
        self._transport = transport
        self._journal = journal
        self.inbox = Inbox(QUEUE_MESSAGES, config.queue_bytes, clock)
        self._stopping = False  # no Event: its lock would wait for itself when a second signal interrupts the first
        self._broker_missed: float | None = None
        self.observed = metrics or Metrics(clock)
        self.observed.watch(
            coordinator,
            queue=lambda: (*self.inbox.depth(), self.inbox.dropped),
            connected=lambda: transport.is_connected,
            journal_bytes=journal.size_bytes,
        )

    def call(self, function: Callable[[Coordinator], T], timeout: float | None = None) -> T:
        """Run `function` on the coordinator's thread and return what it returns; for other threads.

        Raises
        ------
        TimeoutError
            The coordinator was busy for `timeout` seconds (None: `CALL_WAIT`); what was asked for may still happen.
        BrokerError
            It has not begun, for it has found no broker yet; what was asked for does not happen.
        """
        longest = CALL_WAIT if timeout is None else timeout
        deadline = time.monotonic() + longest
        future = self.inbox.call(lambda: function(self.coordinator))
        while True:
            left = deadline - time.monotonic()
            try:
                result: T = future.result(min(_LOOK, max(left, 0.0)))
            except TimeoutError:
                if future.done() or left <= _LOOK:
                    raise
            else:
                return result
            missed = self._broker_missed
            if missed is not None and time.monotonic() - missed >= BROKER_MISSED and future.cancel():
                raise BrokerError(_NO_BROKER)

    def metrics(self) -> dict[str, Any]:
        """Return all counters; from any thread."""
        messages, size = self.inbox.depth()
        counters = dict(self.coordinator.metrics)  # copied in one step, see `coordinator.fleet.directory`
        return {
            **dict(sorted(counters.items())),
            "queue.messages": messages,
            "queue.bytes": size,
            "queue.dropped": self.inbox.dropped,
        }

    @property
    def is_connected(self) -> bool:
        """Whether the broker can be reached now."""
        return self._transport.is_connected

    def stop(self) -> None:
        """Let `serve_forever` return; from any thread or a signal handler."""
        self._stopping = True

    def serve_forever(self) -> None:
        """Work until `stop`.

        Raises
        ------
        StorageError
            The journal cannot be written. Nothing was acknowledged that is not in it; start again when there is room.
        IdentityError
            Another coordinator of this fleet is up, or has taken over.
        """
        self.coordinator.outages.lost()  # deadlines of runs that go on do not wait for the first connection
        try:
            self._look_around()
            self._transport.start(
                Handlers(
                    message=self.inbox.put,
                    connected=self._connected,
                    disconnected=self._disconnected,
                )
            )
            self._await_broker(self._transport)
            while not self._stopping:
                self.work(self._patience())
            self.coordinator.stop()
            self._transport.flush(STOP_WAIT)
        finally:
            self._transport.stop()
            self._journal.close()

    def _look_around(self) -> None:
        """Refuse to start beside another coordinator that is up and answers, unless told to take over."""
        if self._make_probe is None:
            return
        core, config = self.coordinator, self.config
        probe = self._make_probe()
        found = Lookout(core.topics, core.incarnation, core.software).look(
            probe,
            RIVAL_WAIT,
            RIVAL_SETTLE,
            cancelled=lambda: self._stopping,
            connect=lambda: self._await_broker(probe, for_ever=True),
        )
        core.outrank(found.term)
        if not found.living:
            return
        if not config.take_over:
            raise IdentityError(
                f"another coordinator of fleet {config.fleet!r} is up and answers at this broker (incarnation "
                f"{found.living[:8]}, {found.software}). Stop it first, use another --fleet, or take its place with "
                "--take-over: it then stops, and its unfinished runs wait in its own journal"
            )
        _log.warning("taking-over", incarnation=found.living[:8], software=found.software)

    def _await_broker(self, transport: Transport, *, for_ever: bool = False) -> bool:
        """Give up by name when the broker cannot be reached at the start; later the transport tries for ever.

        Returns False when told to stop. Without a `broker_wait` it waits only if that shall be `for_ever`.
        """
        if not self.config.broker_wait and not for_ever:
            return True
        self._broker_missed = time.monotonic()
        deadline = time.monotonic() + (self.config.broker_wait or float("inf"))
        while not transport.is_connected and not self._stopping:
            if time.monotonic() >= deadline:
                link = _link(self.config)
                connect_once(link)  # raises BrokerError that says what is wrong
                deadline = time.monotonic() + self.config.broker_wait  # it answers now: the connection is coming
            time.sleep(0.02)
        self._broker_missed = None
        return not self._stopping

    def work(self, timeout: float) -> None:
        """Take what waits, for at most `timeout` seconds if nothing does, and do what is due."""
        # A fleet may be silent for long after the coordinator's certificate, or whom it trusts, has changed.
        self._look()
        batch = self.inbox.take(BATCH_MESSAGES, timeout)
        if batch.connected:
            _log.info("connected")
            self.observed.link_up()
            self.coordinator.connected()
        for call in batch.calls:
            call()
        if batch.messages:
            self.coordinator.handle(batch.messages, batch.arrived)
        # No deadline passes before what came before it has been taken.
        oldest = self.inbox.oldest()
        self.coordinator.tick(None if oldest is None else self.coordinator.at(oldest))

    def _connected(self) -> None:
        self.coordinator.outages.found()
        self.inbox.put_connected()

    def _disconnected(self, why: str) -> None:
        self.coordinator.outages.lost()
        self.observed.link_lost()
        _log.warning("disconnected", why=why)

    def _patience(self) -> float:
        wake = self.coordinator.next_wake()
        longest = 0.1  # `stop` is noticed between waits: a signal handler must not take the inbox's lock
        return longest if wake is None else min(longest, max(0.0, wake - self.coordinator.now()))


def software() -> str:
    """Return name and version."""
    try:
        return f"glassfleet {version('glassfleet')}"
    except PackageNotFoundError:
        return "glassfleet (not installed)"


def build(config: CoordinatorConfig, *, transport: Transport | None = None, journal: Journal | None = None) -> Service:
    """Put a service together from its configuration; `transport` and `journal` can be given for tests.

    Raises
    ------
    StorageError
        Journal or state directory cannot be used.
    BrokerError, UsageError
        The broker's address cannot be meant.
    """
    try:
        private_folder(config.state_dir)
    except OSError as fault:
        raise StorageError(f"cannot create the state directory {config.state_dir}: {fault.strerror}") from fault
    topics = Topics(config.fleet)
    incarnation = os.urandom(8).hex()
    if journal is None:
        journal = SqlJournal(config.journal_url, busy_timeout=config.journal_wait)
    metrics = Metrics(time.monotonic)
    refusals = Refusals()
    make_probe: Callable[[], Transport] | None = None
    credentials: FolderCredentials | None = None

    def count(name: str) -> None:
        coordinator.metrics[name] += 1

    try:
        if transport is None:
            if config.identity is not None:
                credentials = FolderCredentials(config.identity)
            refused = RefusalLog(count, _tell_refused)
            look = replace(_link(config), client_id=f"gf-coordinator-{config.fleet}-{incarnation}", session_expiry=0)
            make_probe = lambda: signed(look, topics, credentials, refused, PahoTransport)  # noqa: E731 - one line
            link = replace(_link(config), will=birth(topics, incarnation, software(), "down"))
            transport = signed(link, topics, credentials, refused, PahoTransport)
        coordinator = Coordinator(
            config.fleet,
            transport,
            journal,
            default_engine(),
            max_message_bytes=config.connection.max_message_bytes,
            retained_versions=config.retained_versions,
            keep_records=config.keep_records,
            kept_runs=config.kept_runs,
            software=software(),
            incarnation=incarnation,
            signer=None if credentials is None else partial(getattr, credentials, "signer"),
            verifier=None if credentials is None else credentials.verifier,
            observer=Several(observers(config, metrics), refusals),
            fleet_limits=config.fleet_limits,
        )
    except BaseException:
        journal.close()
        raise
    looking = transport.look if isinstance(transport, SignedTransport) else None
    return Service(
        config, transport, journal, coordinator, metrics=metrics, make_probe=make_probe, refusals=refusals, look=looking
    )


def _tell_refused(topic: str, code: str, reason: str, since: int) -> None:
    _log.warning("message-refused", topic=topic, code=code, reason=reason, since_last=since)


def _link(config: CoordinatorConfig) -> Link:
    return config.connection.link(
        config.broker,
        f"gf-coordinator-{config.fleet}",
        tls=tls_of(config.identity, config.ca_file),
        insecure_plaintext=config.insecure_plaintext,
    )
