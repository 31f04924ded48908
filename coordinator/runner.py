"""The coordinator as a process: threads, clock and signals around `core.Coordinator`.

Three kinds of thread. The transport's puts messages into the inbox and returns at once, so a slow reduction never
blocks MQTT keepalives. The API's threads read frozen states, and put calls into the inbox for everything that changes
something. The main thread takes batches from the inbox; it alone decides, writes the journal and publishes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar

import structlog

from broker.paho_transport import PahoTransport, connect_once
from broker.port import Handlers, Link, Transport
from coordinator import logs
from coordinator.config import CoordinatorConfig
from coordinator.core import Coordinator
from coordinator.defaults import default_engine
from coordinator.inbox import Inbox
from coordinator.journal.port import Journal
from coordinator.journal.sql import SqlJournal
from coordinator.publisher import birth
from schemas.errors import StorageError
from schemas.topics import Topics

_log = structlog.get_logger("coordinator")
T = TypeVar("T")


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
    """

    def __init__(
        self,
        config: CoordinatorConfig,
        transport: Transport,
        journal: Journal,
        coordinator: Coordinator,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.config = config
        self.coordinator = coordinator
        self._transport = transport
        self._journal = journal
        self.inbox = Inbox(config.queue_messages, config.queue_bytes, clock)
        self._stopping = threading.Event()

    def call(self, function: Callable[[Coordinator], T], timeout: float = 30.0) -> T:
        """Run `function` on the coordinator's thread and return what it returns; for other threads.

        Raises
        ------
        TimeoutError
            The coordinator was busy for `timeout` seconds; what was asked for may still happen.
        """
        result: T = self.inbox.call(lambda: function(self.coordinator)).result(timeout)
        return result

    def metrics(self) -> dict[str, Any]:
        """Return all counters."""
        messages, size = self.inbox.depth()
        return {
            **dict(sorted(self.coordinator.metrics.items())),
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
        self._stopping.set()

    def serve_forever(self) -> None:
        """Work until `stop`.

        Raises
        ------
        StorageError
            The journal cannot be written. Nothing was acknowledged that is not in it; start again when there is room.
        """
        self._transport.start(
            Handlers(
                message=self.inbox.put,
                connected=self.inbox.put_connected,
                disconnected=lambda why: _log.warning("disconnected", why=why),
            )
        )
        try:
            self._await_broker()
            while not self._stopping.is_set():
                self.work(self._patience())
            self.coordinator.stop()
            self._transport.flush(2.0)
        finally:
            self._transport.stop()
            self._journal.close()

    def _await_broker(self) -> None:
        """Give up by name when the broker cannot be reached at the start; later the transport tries for ever."""
        if not self.config.broker_wait:
            return
        deadline = time.monotonic() + self.config.broker_wait
        while not self._transport.is_connected and not self._stopping.is_set():
            if time.monotonic() >= deadline:
                link = _link(self.config)
                connect_once(link, ca_file=_ca_file(self.config))  # raises BrokerError that says what is wrong
                return
            time.sleep(0.02)

    def work(self, timeout: float) -> None:
        """Take what waits, for at most `timeout` seconds if nothing does, and do what is due."""
        batch = self.inbox.take(self.config.batch_messages, timeout)
        if batch.connected:
            _log.info("connected")
            self.coordinator.connected()
        for call in batch.calls:
            call()
        if batch.messages:
            self.coordinator.handle(batch.messages, batch.arrived)
        # No deadline passes before what came before it has been taken.
        oldest = self.inbox.oldest()
        self.coordinator.tick(None if oldest is None else self.coordinator.at(oldest))

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
        config.state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as fault:
        raise StorageError(f"cannot create the state directory {config.state_dir}: {fault.strerror}") from fault
    topics = Topics(config.fleet)
    incarnation = os.urandom(8).hex()
    if journal is None:
        journal = SqlJournal(config.journal_url)
    try:
        if transport is None:
            link = replace(_link(config), will=birth(topics, incarnation, software(), "down"))
            transport = PahoTransport(link, ca_file=_ca_file(config))
        coordinator = Coordinator(
            config.fleet,
            transport,
            journal,
            default_engine(),
            max_message_bytes=config.max_message_bytes,
            retained_versions=config.retained_versions,
            keep_records=config.keep_records,
            kept_runs=config.kept_runs,
            software=software(),
            incarnation=incarnation,
        )
    except BaseException:
        journal.close()
        raise
    return Service(config, transport, journal, coordinator)


def _link(config: CoordinatorConfig) -> Link:
    return Link(
        url=config.broker,
        client_id=f"gf-coordinator-{config.fleet}",
        keepalive=config.keepalive,
        session_expiry=config.session_expiry,
        max_message_bytes=config.max_message_bytes,
        protocol=config.protocol,
        connect_timeout=config.connect_timeout,
        reconnect_first=config.reconnect_first,
        reconnect_longest=config.reconnect_longest,
    )


def _ca_file(config: CoordinatorConfig) -> str | None:
    return None if config.ca_file is None else str(config.ca_file)


def run_coordinator(config: CoordinatorConfig) -> None:
    """Run the coordinator until SIGTERM or SIGINT.

    Raises
    ------
    StorageError, BrokerError, UsageError
        See `build` and `Service.serve_forever`; a port that is taken is a UsageError.
    """
    logs.configure(config.log_level, config.log_format)
    service = build(config)
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGTERM, signal.SIGINT):
            before = signal.signal(number, lambda *_: service.stop())
            stack.callback(signal.signal, number, before)
        if config.api:
            from coordinator.api import ApiServer  # noqa: PLC0415  the web framework is slow to import, and optional

            server = ApiServer(service)
            stack.callback(server.stop)
            _log.info("api", url=server.start())
        _log.info("coordinator-up", fleet=config.fleet, state_dir=str(config.state_dir))
        service.serve_forever()
    _log.info("coordinator-down")
