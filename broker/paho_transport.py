"""The transport over a real broker: one thread, reconnecting for ever, on top of `Connection`.

Of a cluster several URLs can be given. Clients begin at different ones, by their id, and go on to the next where no
connection comes about.

What outlives a connection is kept here: the subscriptions, and every published message until its PUBACK. After a
reconnect all of them are sent again, in order; the broker may thus see one twice (rule 1 of the port). The queue is
unbounded: a layer above that must not run ahead of the broker asks ``flush`` or keeps its own outbox.

A transport owns one thread that waits with epoll, so several hundred in one process are possible; each costs a thread
and three sockets.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
import zlib
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ParamSpec

from broker.connection import HEADER_ROOM, ConnectError, Connection
from broker.oversize import OversizeDetector
from broker.port import OVERSIZE_TRIES, Handlers, Link, Message, check_message
from broker.tls import client_context
from broker.url import BrokerAddress, safe_address, urls_of
from schemas.errors import BrokerError, UsageError
from schemas.log import Log

_log = Log()
_jitter = secrets.SystemRandom()
P = ParamSpec("P")

SUBSCRIBE_AGAIN = 10.0
"""Seconds until a subscription that was refused is asked for again: a cluster that fails over refuses for a moment."""


@dataclass
class _Pending:
    topic: str
    payload: bytes
    retain: bool
    number: int | None = None
    """Packet number on the current connection; None: not sent on it."""


class PahoTransport:
    """One client's connection to a broker, see `broker.port.Transport`.

    Raises
    ------
    UsageError
        The URL or the protocol of `link` cannot be meant as written, it would send in the clear to another machine, or
        a file of its TLS settings cannot be used.
    BrokerError
        More files are open than this process may have.
    """

    def __init__(self, link: Link) -> None:
        if link.protocol not in ("auto", "5", "3.1.1"):
            raise UsageError(f"protocol is {link.protocol!r}; choose 'auto', '5' or '3.1.1'")
        if not 0 < len(link.client_id.encode()) <= 65535:
            raise UsageError("a client id is needed, so that the broker can keep the session")
        self._link = link
        self._addresses = _addresses(link)
        self._at = zlib.crc32(link.client_id.encode()) % len(self._addresses)
        if self._address.tls:
            client_context(link.tls)
        self._handlers: Handlers | None = None
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._outbox: OrderedDict[int, _Pending] = OrderedDict()
        self._unsent: OrderedDict[int, _Pending] = OrderedDict()
        self._sequence = 0
        self._numbers: dict[int, int] = {}
        self._wanted: dict[str, None] = {}
        self._changes: list[tuple[bool, str]] = []
        self._asked: dict[int, str] = {}
        self._refusals: deque[tuple[float, str]] = deque()
        self._limit = link.max_message_bytes
        self._oversize = OversizeDetector(OVERSIZE_TRIES)
        self.dropped = 0
        self._is_connected = False
        self._connection: Connection | None = None
        self._protocol = ""
        self._complained: set[str] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            self._wake_reader, self._wake_writer = socket.socketpair()
        except OSError as fault:
            raise BrokerError(f"cannot begin to connect to the broker: {fault.strerror}") from fault
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)

    @property
    def _address(self) -> BrokerAddress:
        return self._addresses[self._at]

    # The port, called from any thread

    def start(self, handlers: Handlers) -> None:
        """Begin connecting; returns at once."""
        if self._thread is not None or self._stopping.is_set():
            raise RuntimeError("a transport is started once")
        self._handlers = handlers
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{self._link.client_id}", daemon=True)
        self._thread.start()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Queue a message with QoS 1. Raises ValueError when the payload is above `max_message_bytes`."""
        check_message(topic, payload, self.max_message_bytes)
        with self._lock:
            self._sequence += 1
            pending = _Pending(topic, payload, retain)
            self._outbox[self._sequence] = pending
            is_awake = bool(self._unsent)  # then the thread has not looked since, or waits for the broker
            self._unsent[self._sequence] = pending
        if not is_awake:
            self._wake()

    def subscribe(self, pattern: str) -> None:
        """Subscribe with QoS 1, now and on every later connection; again after a while where the broker refuses."""
        with self._lock:
            self._wanted[pattern] = None
            self._changes.append((True, pattern))
        self._wake()

    def unsubscribe(self, pattern: str) -> None:
        """End a subscription."""
        with self._lock:
            self._wanted.pop(pattern, None)
            self._changes.append((False, pattern))
        self._wake()

    def flush(self, timeout: float) -> bool:
        """Wait until the broker has acknowledged all that was published; False when `timeout` seconds did not do."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("flush within a handler would wait for itself")
        with self._drained:
            return self._drained.wait_for(lambda: not self._outbox, timeout)

    def stop(self) -> None:
        """Disconnect cleanly (no last will) and end the thread. Idempotent."""
        self._stopping.set()
        self._wake()
        thread = self._thread
        if thread is None:
            self._wake_reader.close()
            self._wake_writer.close()
        elif thread is not threading.current_thread():
            thread.join(self._link.connect_timeout * 2 + 5)

    @property
    def is_connected(self) -> bool:
        """Whether a connection stands now."""
        return self._is_connected

    @property
    def max_message_bytes(self) -> int:
        """Largest payload that `publish` accepts: the link's limit, or less when the broker says so (MQTT 5)."""
        return self._limit

    @property
    def protocol(self) -> str:
        """``"5"`` or ``"3.1.1"``: what the broker last agreed to; empty before the first connection."""
        return self._protocol

    # The thread

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: stopped
            self._wake_writer.send(b"\0")

    def _run(self) -> None:
        delay = self._link.reconnect_first
        try:
            while not self._stopping.is_set():
                try:
                    connection = self._connect()
                except ConnectError as fault:
                    if fault.fault == "cancelled":
                        break
                    _log.warning("broker-unreachable", broker=self._address.public, reason=str(fault))
                    self._at = (self._at + 1) % len(self._addresses)
                else:
                    if not self._oversize.is_alert:  # or each resend of what ends the connection would come at once
                        delay = self._link.reconnect_first
                    self._serve(connection)
                self._stopping.wait(_jitter.uniform(delay / 2, delay))
                delay = min(delay * 2, self._link.reconnect_longest)
        finally:
            self._is_connected = False
            self._wake_reader.close()
            self._wake_writer.close()

    def _connect(self) -> Connection:
        order = versions_to_try(self._link.protocol, self._protocol)
        for position, version in enumerate(order):
            connection = Connection(
                self._address,
                self._link,
                version,
                on_message=self._arrived,
                on_acknowledged=self._acknowledged,
                on_refused=self._refused,
            )
            try:
                connection.open(self._stopping.is_set)
            except ConnectError as fault:
                # Only these two may be cured by another version of the protocol.
                if fault.fault not in ("silent", "version") or position == len(order) - 1:
                    raise
            else:
                self._protocol = version
                return connection
        raise AssertionError("unreachable: order is never empty")

    def _serve(self, connection: Connection) -> None:
        self._connection = connection
        self._began(connection)
        while connection.lost is None and not self._stopping.is_set():
            self._work_off(connection)
            connection.step(1.0, self._wake_reader)
        self._is_connected = False
        if connection.lost is not None and not self._stopping.is_set():
            self._suspect()
        self._numbers.clear()
        if connection.lost is None:
            connection.close()
        elif not self._stopping.is_set():
            _log.info("broker-lost", broker=self._address.public, reason=connection.lost)
            if self._handlers is not None:
                self._call(self._handlers.disconnected, connection.lost)
        connection.drop()

    def _began(self, connection: Connection) -> None:
        limit = self._link.max_message_bytes
        if connection.max_packet_bytes is not None:
            limit = min(limit, max(0, connection.max_packet_bytes - HEADER_ROOM))
        elif self._oversize.limit is not None:
            limit = min(limit, self._oversize.limit)
        self._complained.clear()
        self._asked.clear()
        self._refusals.clear()
        with self._lock:
            self._limit = limit
            self._changes = [(True, pattern) for pattern in self._wanted]
            for pending in self._outbox.values():
                pending.number = None
            self._unsent = OrderedDict(self._outbox)
        # Subscriptions leave before anything else, so that nothing which the broker sends in answer is missed.
        self._work_off_changes(connection)
        self._is_connected = True
        if self._handlers is not None:
            self._call(self._handlers.connected)

    def _work_off(self, connection: Connection) -> None:
        self._work_off_changes(connection)
        most = 1 if self._oversize.is_alert else connection.max_inflight
        while len(self._numbers) < most and connection.lost is None:
            with self._lock:
                if not self._unsent:
                    return
                sequence, pending = self._unsent.popitem(last=False)
            if len(pending.payload) > self._limit:
                # Queued before this broker told its limit: sending it would end the connection, again and again.
                _log.error("message-too-large", topic=pending.topic, size=len(pending.payload), limit=self._limit)
                self.dropped += 1
                self._settle(sequence)
                continue
            pending.number = connection.publish(pending.topic, pending.payload, retain=pending.retain)
            self._numbers[pending.number] = sequence

    def _work_off_changes(self, connection: Connection) -> None:
        with self._lock:
            changes, self._changes = self._changes, []
            while self._refusals and self._refusals[0][0] <= time.monotonic():
                _, pattern = self._refusals.popleft()
                if pattern in self._wanted:
                    changes.append((True, pattern))
        for wanted, pattern in changes:
            if wanted:
                self._asked[connection.subscribe(pattern)] = pattern
            else:
                connection.unsubscribe(pattern)

    def _refused(self, number: int, why: str) -> None:
        pattern = self._asked.pop(number, None)
        if pattern is None:
            return
        self._refusals.append((time.monotonic() + SUBSCRIBE_AGAIN, pattern))
        if pattern not in self._complained:
            self._complained.add(pattern)
            _log.warning("subscription-refused", pattern=pattern, reason=why)

    def _acknowledged(self, number: int, complaint: str) -> None:
        sequence = self._numbers.pop(number, None)
        if sequence is None:
            return
        topic = self._outbox[sequence].topic
        self._oversize.acknowledged(sequence, len(self._outbox[sequence].payload))
        if complaint and topic not in self._complained:
            # Once for a topic and connection: an access rule that refuses one message refuses the next thousand.
            self._complained.add(topic)
            _log.warning("publish-refused", topic=topic, reason=complaint)
        self._settle(sequence)

    def _suspect(self) -> None:
        """Look for a message that ends every connection, when one was lost; give it up when there is no doubt."""
        under_way = [(sequence, len(self._outbox[sequence].payload)) for sequence in self._numbers.values()]
        sequence = self._oversize.lost(under_way)
        if sequence is not None:
            pending = self._outbox[sequence]
            _log.error(
                "message-too-large",
                topic=pending.topic,
                size=len(pending.payload),
                limit=self._oversize.limit,
                hint="the broker ends the connection over it, and MQTT 3.1.1 has no way to say why: set "
                "max_message_bytes below the broker's limit",
            )
            self.dropped += 1
            self._settle(sequence)

    def _settle(self, sequence: int) -> None:
        with self._drained:
            self._outbox.pop(sequence, None)
            if not self._outbox:
                self._drained.notify_all()

    def _arrived(self, message: Message) -> None:
        if self._stopping.is_set() or self._handlers is None:
            return
        self._call(self._handlers.message, message)

    def _call(self, handler: Callable[P, None], *args: P.args, **options: P.kwargs) -> None:
        try:
            handler(*args, **options)
        except Exception:  # noqa: BLE001 - whatever a handler does, the connection must not die of it
            _log.exception("handler-failed", client=self._link.client_id)


def versions_to_try(wanted: str, last: str) -> tuple[str, ...]:
    """Protocol versions in the order in which to try them; the one that worked last comes first."""
    if wanted != "auto":
        return (wanted,)
    return ("3.1.1", "5") if last == "3.1.1" else ("5", "3.1.1")


def connect_once(link: Link, timeout: float | None = None) -> str:
    """Find out whether the broker, or one of several, can be used; the session of `link`'s client id is not touched.

    Parameters
    ----------
    timeout : float or None
        Seconds for each step (TCP, answer of each protocol version); None: the link's connect timeout.

    Returns
    -------
    str
        The protocol version that the broker speaks: ``"5"`` or ``"3.1.1"``.

    Raises
    ------
    BrokerError
        It cannot: nothing listens there, no MQTT broker does, or it refuses us. The text says what to look at.
    UsageError
        As `PahoTransport`.
    """
    faults = []
    for address in _addresses(link):
        try:
            return _connect_once(address, link, timeout)
        except BrokerError as fault:
            faults.append(fault)
    raise BrokerError("; ".join(map(str, faults))) from faults[-1]


def _addresses(link: Link) -> tuple[BrokerAddress, ...]:
    safe = partial(safe_address, tls=link.tls, insecure_plaintext=link.insecure_plaintext)
    return tuple(safe(url) for url in urls_of(link.url))


def _connect_once(address: BrokerAddress, link: Link, timeout: float | None) -> str:
    probe = replace(link, will=None, connect_timeout=link.connect_timeout if timeout is None else timeout)
    if link.tls is None or not link.tls.has_certificate:
        # Under the real id the broker would throw the real process out and keep a session for the probe. With a
        # certificate the broker may take its name for the client id, whatever we say: then a clean start would throw
        # the session away, and what waits in it. So that one is resumed, and left before it delivers anything.
        probe = replace(probe, client_id=f"gf-probe-{secrets.token_hex(6)}", session_expiry=0)
    order = versions_to_try(link.protocol, "")
    faults: list[ConnectError] = []
    for version in order:
        connection = Connection(
            address,
            probe,
            version,
            on_message=lambda _message: None,
            on_acknowledged=lambda _number, _complaint: None,
            on_refused=lambda _number, _why: None,
        )
        try:
            connection.open()
        except ConnectError as fault:
            faults.append(fault)
            if fault.fault not in ("silent", "version"):
                break
        else:
            if probe.session_expiry:
                connection.drop()
            else:
                connection.close()
            return version
    raise BrokerError(_in_words(faults, address, order)) from faults[-1]


def _in_words(faults: list[ConnectError], address: BrokerAddress, order: tuple[str, ...]) -> str:
    last = faults[-1]
    match last.fault:
        case "unreachable":
            return f"{last}: is the broker running, and are host and port right? (`glassfleet broker` starts one)"
        case "credentials":
            return f"{last}: check user and password in the broker URL"
        case "tls":
            return str(last)
        case "version":
            return f"{address.place} speaks none of MQTT {' and '.join(order)}"
        case "silent" if address.tls:
            return f"{last}, after TLS: is it an MQTT broker, and does it take our certificate? Its log says why"
        case "silent":
            return (
                f"{address.place} accepts connections but does not answer as an MQTT broker: is this the right port? "
                "If it is a TLS port, write mqtts:// (with --identity DIR or --ca-file FILE)"
            )
        case _:
            return str(last)


def wait_until_ready(link: Link, timeout: float, *, is_alive: Callable[[], bool] = lambda: True) -> str:
    """Probe with `connect_once` until the broker answers.

    Raises
    ------
    BrokerError
        The probe's last one: `timeout` seconds have passed, or `is_alive` says that the broker's process has ended.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            return connect_once(link, min(1.0, timeout))
        except BrokerError:
            if time.monotonic() >= deadline or not is_alive():
                raise
            time.sleep(0.05)
