"""The coordinator as a process: threads, clock and signals around `core.Coordinator`.

Three kinds of thread. The transport's puts messages into the queue and waits for room there at most for a moment, so a
slow reduction never blocks MQTT keepalives. The API's threads read frozen states that are replaced and never changed
(`fleet`, `runs`, `rollout.shell`, `aliases`), and put calls into the queue for everything that changes something. The
main thread takes batches from the queue; it alone decides, writes the journal and publishes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from broker.paho_transport import connect_once
from broker.port import Handlers, Transport
from coordinator.config import CoordinatorConfig
from coordinator.core import Coordinator
from coordinator.fleet.leadership import LeaderProbe
from coordinator.journal.port import Leader
from coordinator.process.link import link_of
from coordinator.process.queue import EventQueue
from coordinator.process.standby import about
from coordinator.telemetry.metrics import Metrics, Refusals
from schemas.errors import BrokerError, IdentityError

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

LEADER_WAIT = 2.0
"""Seconds at the start for another coordinator to answer, when the broker says that one is up: ten slow round trips."""

LEADER_SETTLE = 0.2
"""Seconds at the start for which the broker may still say so, when it has said nothing."""

_LOOK = 0.2
"""Seconds between two looks whether an awaited call can be done at all."""

_NO_BROKER = "the coordinator has no broker yet: start the broker, then repeat this (the coordinator's log says which)"


class Service:
    """A coordinator with its threads.

    Parameters
    ----------
    coordinator : Coordinator
        Its transport is not started yet.
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
        coordinator: Coordinator,
        *,
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
        self._transport = coordinator.transport
        clock, keepalive = coordinator.timeline.clock, config.connection.keepalive
        # The broker gives a client up that says nothing for one and a half.
        self.queue = EventQueue(QUEUE_MESSAGES, config.queue_bytes, clock, full_wait=keepalive / 2)
        self._stopping = False  # no Event: its lock would wait for itself when a second signal interrupts the first
        self._broker_missed: float | None = None
        self.observed = metrics or Metrics(coordinator.timeline.clock)
        self.observed.watch(
            (coordinator.topics.fleet, coordinator.presence.software),
            coordinator.metrics,
            coordinator.runs,
            agents=coordinator.fleet.counts,
            queue=lambda: (*self.queue.depth(), self.queue.dropped),
            connected=lambda: self.is_connected,
            journal_bytes=coordinator.journal.size_bytes,
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
        future = self.queue.call(lambda: function(self.coordinator))
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
        messages, size = self.queue.depth()
        counters = dict(self.coordinator.metrics)  # copied in one step, see `coordinator.fleet.directory`
        return {
            **dict(sorted(counters.items())),
            "queue.messages": messages,
            "queue.bytes": size,
            "queue.dropped": self.queue.dropped,
        }

    @property
    def is_connected(self) -> bool:
        """Whether the broker can be reached now."""
        return self._transport.is_connected

    def stop(self) -> None:
        """Let `serve_forever` return; from any thread or a signal handler."""
        self._stopping = True
        # By another thread: what a signal interrupts may hold the queue's lock.
        with contextlib.suppress(RuntimeError):  # no more threads: the loop looks by itself within a second
            threading.Thread(target=self.queue.call, args=(lambda: None,), daemon=True).start()

    def serve_forever(self) -> None:
        """Work until `stop`.

        Raises
        ------
        StorageError
            The journal cannot be written. Nothing was acknowledged that is not in it; start again when there is room.
        IdentityError
            Another coordinator of this fleet is up, or has taken over.
        """
        self._look()  # the certificate may have changed while this one stood by
        self.coordinator.outages.lost()  # deadlines of runs that go on do not wait for the first connection
        try:
            self._check_leader()
            core = self.coordinator
            core.journal.lead(Leader(core.presence.incarnation, about(self.config, core.presence.software)))
            self._transport.start(
                Handlers(message=self.queue.put, connected=self._connected, disconnected=self._disconnected)
            )
            self._await_broker(self._transport)
            while not self._stopping:
                self.work(self._timeout())
            self.coordinator.stop()
            self._transport.flush(STOP_WAIT)
        finally:
            self._transport.stop()
            self.coordinator.journal.close()

    def _check_leader(self) -> None:
        """Refuse to start beside another coordinator that is up and answers, unless told to take over."""
        if self._make_probe is None:
            return
        core, config = self.coordinator, self.config
        probe = self._make_probe()
        result = LeaderProbe(core.topics, core.presence.incarnation, core.presence.software).look(
            probe,
            LEADER_WAIT,
            LEADER_SETTLE,
            cancelled=lambda: self._stopping,
            connect=lambda: self._await_broker(probe, for_ever=True),
        )
        core.presence.raise_term(result.term)
        if not result.living:
            return
        if not config.take_over:
            raise IdentityError(
                f"another coordinator of fleet {config.fleet!r} is up and answers at this broker (incarnation "
                f"{result.living[:8]}, {result.software}). Stop it first, use another --fleet, or take its place with "
                "--take-over: it then stops, and its unfinished runs wait in its own journal"
            )
        _log.warning("taking-over", incarnation=result.living[:8], software=result.software)

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
                link = link_of(self.config)
                connect_once(link)  # raises BrokerError that says what is wrong
                deadline = time.monotonic() + self.config.broker_wait  # it answers now: the connection is coming
            time.sleep(0.02)
        self._broker_missed = None
        return not self._stopping

    def work(self, timeout: float) -> None:
        """Take what waits, for at most `timeout` seconds if nothing does, and do what is due."""
        # A fleet may be silent for long after the coordinator's certificate, or whom it trusts, has changed.
        self._look()
        batch = self.queue.get_batch(BATCH_MESSAGES, timeout, self.coordinator.runs.awaited())
        if batch.connected:
            _log.info("connected")
            self.observed.link_up()
            self.coordinator.connected()
        for call in batch.calls:
            call()
        if batch.messages:
            self.coordinator.handle(batch.messages, batch.arrived)
        # No deadline passes before what came before it has been taken.
        oldest = self.queue.oldest()
        self.coordinator.tick(None if oldest is None else self.coordinator.timeline.at(oldest))

    def _connected(self) -> None:
        self.coordinator.outages.regained()
        self.queue.put_connected()

    def _disconnected(self, why: str) -> None:
        self.coordinator.outages.lost()
        self.observed.link_lost()
        _log.warning("disconnected", why=why)

    def _timeout(self) -> float:
        wake = self.coordinator.next_wake()
        longest = 1.0  # whether the identity has changed is looked at in between
        # What a source may still bring can hold back what is due: not to be asked again at once.
        return longest if wake is None else min(longest, max(0.005, wake - self.coordinator.timeline.now()))
