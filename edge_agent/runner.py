"""The shell around agents: threads, the clock, signals. `run_agent` is what ``glassfleet agent`` calls.

The transport's thread only puts into a queue; one loop takes from it, lets the agents do what is due, and scores
models when there is nothing else. The loop serves one agent (`run_agent`), or many where tests and benchmarks have
them in one process.
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import signal
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from broker.paho_transport import PahoTransport, connect_once
from broker.port import Handlers, Link, Message, Transport
from broker.signed import RefusalLog, signed
from broker.tls import tls_of
from edge_agent.agent import Agent
from edge_agent.config import AgentConfig
from edge_agent.presence import OwnId, state_of
from edge_agent.sources import Source, read_source
from edge_agent.sources.cells import HOW_TO_TEST, NO_TEST_ROWS
from edge_agent.storage import FolderLock, make_directory
from schemas.errors import DataError, GlassfleetError, IdentityError, UsageError
from schemas.log import Log, LogWriter
from schemas.topics import Topics

if TYPE_CHECKING:  # a fleet that does not sign need not load the cryptography
    from broker.credentials import FolderCredentials

QUEUE_SIZE = 10_000
"""Messages that may wait: requests and receipts of many runs, and yet no more than some MB."""

TELL_WAIT = 5.0
"""Seconds for each step of telling the fleet that the data cannot be used."""

_MMAP_THRESHOLD, _SMALL = -3, 1 << 16
"""Of glibc's ``mallopt``: what is larger than so many bytes goes back to the system when it is freed."""

BATCH = 256
"""Messages that are handled before the clock is looked at again: some milliseconds."""


class Loop:
    """Serves agents from one thread until it is stopped.

    Parameters
    ----------
    agents : sequence of Agent
        Of different ids.
    queue_size : int
        Messages that may wait; more are dropped and counted, and what is retained is asked for again afterwards.
    """

    def __init__(self, agents: Sequence[Agent], *, queue_size: int = QUEUE_SIZE) -> None:
        self._agents = list(agents)
        self._queue_size = queue_size
        self._queue: queue.SimpleQueue[tuple[Agent | None, str, Any]] = queue.SimpleQueue()
        self._overflowed: set[str] = set()
        self._stopping = False  # no Event: its lock would wait for itself when a second signal interrupts the first
        self._due: dict[str, float] = {}

    def serve(self) -> None:
        """Start the agents and serve them until `stop`; they are stopped in the end, whatever happens.

        Raises
        ------
        IdentityError, StorageError
            An agent cannot go on.
        BrokerError
            The broker was not there within ``broker_wait`` seconds.
        """
        goodbye = True
        try:
            for agent in self._agents:
                agent.start(self._handlers(agent))
            self._wait_for_broker()
            while not self._stopping:
                self._turn()
        except IdentityError:
            # What is retained about this id is the other process's; a goodbye would overwrite it.
            goodbye = False
            raise
        finally:
            for agent in self._agents:
                agent.stop(say_goodbye=goodbye)

    def stop(self) -> None:
        """End `serve` soon. May be called from a signal handler or another thread."""
        self._stopping = True
        self._queue.put((None, "", None))

    def _handlers(self, agent: Agent) -> Handlers:
        def message(arrived: Message) -> None:
            if self._queue.qsize() >= self._queue_size:
                agent.counts["dropped-here"] += 1
                self._overflowed.add(agent.id)
                return
            self._queue.put((agent, "message", arrived))

        return Handlers(
            message,
            lambda: self._queue.put((agent, "connected", None)),
            lambda why: self._queue.put((agent, "disconnected", why)),
        )

    def _wait_for_broker(self) -> None:
        """Explain, once, why there is no first connection; an agent that was connected before waits for ever."""
        first = self._agents[0] if self._agents else None
        if first is None or not first.config.broker_wait:
            return
        deadline = time.monotonic() + first.config.broker_wait
        while not self._stopping and not first.transport.is_connected:
            self._turn(longest=max(0.05, deadline - time.monotonic()))
            if time.monotonic() >= deadline and not first.transport.is_connected:
                connect_once(link_of(first.config, first.will))
                deadline = time.monotonic() + first.config.broker_wait  # it answers now: the connection is coming

    def _turn(self, longest: float = 60.0) -> None:
        """Handle what waits, do what is due; then either score a model for a moment, or sleep until something comes."""
        handled = self._handle_next(block=False, wait=0.0)
        while handled < BATCH and self._handle_next(block=False, wait=0.0):
            handled += 1
        now = time.monotonic()
        for agent in self._agents:
            if agent.id in self._overflowed and self._queue.qsize() == 0:
                self._overflowed.discard(agent.id)
                agent.log.warning("messages-dropped", dropped=agent.counts["dropped-here"], queue_size=self._queue_size)
                agent.resubscribe()
            due = agent.tick(now)
            self._due[agent.id] = now + longest if due is None else due
        if handled or self._stopping:
            return
        wait = min([longest, *(due - time.monotonic() for due in self._due.values())])
        if wait > 0 and not any(agent.idle() for agent in self._agents):
            self._handle_next(block=True, wait=wait)

    def _handle_next(self, *, block: bool, wait: float) -> int:
        try:
            agent, what, value = self._queue.get(block, wait) if block else self._queue.get_nowait()
        except queue.Empty:
            return 0
        if agent is None:
            return 0
        if what == "message":
            agent.handle(value)
        elif what == "connected":
            agent.connected()
        else:
            agent.disconnected(value)
        return 1


def link_of(config: AgentConfig, will: Message | None = None) -> Link:
    """Return how an agent connects: its client id is stable, so that the broker keeps its session."""
    return config.connection.link(
        config.broker,
        f"gf-{config.fleet}-agent-{config.id}",
        will=will,
        tls=tls_of(config.identity, config.ca_file),
        insecure_plaintext=config.insecure_plaintext,
    )


def make_agent(config: AgentConfig, source: Source | None = None) -> Agent:
    """Read the data (unless given) and build an agent on a real broker's transport."""
    credentials = _credentials(config)
    if config.private == "only" and config.identity is None:
        raise UsageError(
            "private = only needs a fleet that signs: without signatures whoever controls the broker can put keys of "
            "its own in place of the vehicles', and read this one's numbers. Give the agent an --identity, or let "
            "private be allowed"
        )
    if source is None:
        source = read_source(
            config.data,
            target=config.target,
            labels=config.labels,
            categories=config.categories,
            missing=config.missing,
            hold_back=True,
        )

    def count(name: str) -> None:
        agent.counts[name] += 1

    def tell(topic: str, code: str, reason: str, since: int) -> None:
        agent.log.warning("message-refused", topic=topic, code=code, reason=reason, since_last=since)

    def make_transport(will: Message) -> Transport:
        return _transport(config, will, credentials, RefusalLog(count, tell))

    verifier = None if credentials is None else credentials.verifier
    agent = Agent(config, source, make_transport, verifier=verifier)
    for note in source.notes:
        agent.log.info("data", note=note)
    for warning in source.warnings:
        agent.log.warning("data", note=warning)
    if config.evaluate and not source.test.rows:
        agent.log.warning("data", note=f"{NO_TEST_ROWS}. {HOW_TO_TEST}")
    return agent


def _transport(
    config: AgentConfig, will: Message | None, credentials: FolderCredentials | None, refused: RefusalLog
) -> Transport:
    return signed(link_of(config, will), Topics(config.fleet), credentials, refused, PahoTransport)


def _tell_fault(config: AgentConfig, fault: DataError) -> None:
    """Let the fleet know that this vehicle is down and why; not where another process is this agent."""
    topics, is_connected = Topics(config.fleet), threading.Event()
    own = OwnId(uuid.uuid4().hex, time.time())
    topic, state = state_of(topics, config.id, own, "down", fault=fault.tells[:200])
    with contextlib.suppress(GlassfleetError):  # what is wrong with the data is told in any case, by our caller
        connect_once(link_of(config), TELL_WAIT)
        make_directory(config.state_dir)
        lock = FolderLock(make_directory(config.directory), config.id)
        try:
            silent = RefusalLog(lambda _: None, lambda *_: None)
            transport = _transport(config, None, _credentials(config), silent)
            transport.start(Handlers(lambda _: None, is_connected.set, lambda _: None))
            if is_connected.wait(TELL_WAIT):
                transport.publish(topic, state, retain=True)
                transport.flush(TELL_WAIT)
            transport.stop()
        finally:
            lock.release()


def _credentials(config: AgentConfig) -> FolderCredentials | None:
    """Return what an agent signs and verifies with; None where it has no identity."""
    if config.identity is None:
        return None
    from broker.credentials import FolderCredentials  # noqa: PLC0415 - loaded by fleets that sign
    from broker.identity import check_owner  # noqa: PLC0415

    check_owner(config.identity, "agent", config.id)
    return FolderCredentials(config.identity)


def run_agent(config: AgentConfig) -> None:
    """Run one agent until SIGTERM or SIGINT.

    Raises
    ------
    DataError
        The data cannot be used (exit code 3).
    BrokerError
        The broker is not there (4).
    StorageError
        The state directory cannot be written (5).
    IdentityError
        Another process uses this agent id (7).
    UsageError
        A setting cannot be meant as written (2).
    """
    Log.write = LogWriter(config.log_level, config.log_format, fleet=config.fleet, agent=config.id)
    # Else glibc learns from the first large arrays to keep such for later ones: 5 MB of 36,000 rows (measured).
    with contextlib.suppress(AttributeError):  # other C libraries have no such setting
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _SMALL)
    try:
        agent = make_agent(config)
    except DataError as fault:
        _tell_fault(config, fault)
        raise
    agent.log.info(
        "agent",
        fleet=config.fleet,
        train=agent.source.train.rows,
        test=agent.source.test.rows,
        features=len(agent.source.train.features),
        target=agent.source.train.target,
        schemes=list(agent.schemes),
    )
    loop = Loop([agent])
    with stopped_by_signals(loop):
        loop.serve()


@contextlib.contextmanager
def stopped_by_signals(loop: Loop) -> Iterator[None]:
    """Let SIGTERM and SIGINT end `loop` cleanly meanwhile; does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = {number: signal.signal(number, lambda *_: loop.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
