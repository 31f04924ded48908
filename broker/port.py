"""The transport port: what coordinator and agents need of a message broker, and nothing else.

Rules that every transport keeps, and ``tests/conformance/test_transport.py`` holds them to:

1. Delivery is at least once. Duplicates, reordering across topics and loss while a process is away are possible; the
   layers above count once.
2. ``publish`` and ``subscribe`` never block and may be called before the first connection; they take effect when there
   is one. Subscriptions are made again on every connect.
3. Handlers are called on the transport's own thread, one at a time; they must return at once (put it in a queue).
4. After ``stop`` no handler is called any more. A clean stop does not trigger the last will.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.tls import Tls
from schemas.limits import MAX_MESSAGE_BYTES


@dataclass(frozen=True)
class Message:
    """One MQTT message.

    Attributes
    ----------
    topic : str
    payload : bytes
        Empty and retained: "ended", never malformed.
    retained : bool
        On arrival: whether the broker had it stored. On publishing: whether it shall.
    """

    topic: str
    payload: bytes
    retained: bool = False


def check_message(topic: str, payload: bytes, limit: int) -> None:
    """Raise ValueError when a message cannot be published: it is too large, or its topic is a pattern."""
    if len(payload) > limit:
        raise ValueError(f"{len(payload)} bytes for {topic}, at most {limit} can be sent: split them")
    if not topic or "+" in topic or "#" in topic or "\0" in topic:
        raise ValueError(f"{topic!r} is not a topic to publish on")


@dataclass(frozen=True)
class Handlers:
    """What a transport calls back.

    Attributes
    ----------
    message : callable
        A message arrived.
    connected : callable
        A connection stands (first or again): publish retained state and births now.
    disconnected : callable
        The connection was lost; the text says why. The transport reconnects by itself, with jitter.
    """

    message: Callable[[Message], None]
    connected: Callable[[], None]
    disconnected: Callable[[str], None]


@dataclass(frozen=True)
class Link:
    """How one process connects.

    Attributes
    ----------
    url : str
        ``mqtt://[user[:password]@]host[:port]`` or ``mqtts://...``.
    client_id : str
        Stable over restarts, so that the broker keeps the session.
    will : Message or None
        Published by the broker when this process vanishes.
    seal : callable or None
        Turns the will into the message that is given to the broker; called for each connection.
    keepalive : int
        Seconds.
    session_expiry : int
        Seconds for which the broker keeps subscriptions and queued messages of an absent client (MQTT 5).
    max_message_bytes : int
        Larger payloads are refused by ``publish`` with ValueError: split them first.
    protocol : str
        ``"auto"`` (5, then 3.1.1), ``"5"`` or ``"3.1.1"``.
    connect_timeout : float
        Seconds to wait for an answer to CONNECT before the next protocol version, or attempt, is tried.
    reconnect_first, reconnect_longest : float
        Seconds before the first and, doubled each time, the later reconnects; each wait is drawn between half of it and
        all of it, so that a fleet does not come back at once.
    max_inflight : int
        Published messages that may wait for their PUBACK at once (less when the broker's Receive Maximum says so).
    oversize_tries : int
        So many connections in a row must end over one message before it is given up as too large.
    verdict_tries : int
        Tries to read what the broker said of our certificate before it closed the connection.
    close_wait : float
        Seconds that a clean disconnect may take.
    tls : Tls or None
        Whom to trust and who we are, for ``mqtts://``; None: the system's certificates, and no certificate of ours.
    insecure_plaintext : bool
        Allow ``mqtt://`` to another machine, where everybody on the way can read and change what is said.
    """

    url: str
    client_id: str
    will: Message | None = None
    seal: Callable[[Message], Message] | None = None
    keepalive: int = 30
    session_expiry: int = 3600
    max_message_bytes: int = MAX_MESSAGE_BYTES
    protocol: str = "auto"
    connect_timeout: float = 5.0
    reconnect_first: float = 0.25
    reconnect_longest: float = 10.0
    max_inflight: int = 100
    oversize_tries: int = 3
    verdict_tries: int = 5
    close_wait: float = 1.0
    tls: Tls | None = None
    insecure_plaintext: bool = False


class Transport(Protocol):
    """One client's connection to a broker."""

    def start(self, handlers: Handlers) -> None:
        """Begin connecting; returns at once."""
        ...

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Queue a message with QoS 1. Raises ValueError when the payload is above ``max_message_bytes``."""
        ...

    def subscribe(self, pattern: str) -> None:
        """Subscribe with QoS 1, now and on every later connection."""
        ...

    def unsubscribe(self, pattern: str) -> None:
        """End a subscription."""
        ...

    def flush(self, timeout: float) -> bool:
        """Wait until the broker has acknowledged all that was published; False when `timeout` seconds did not do."""
        ...

    def stop(self) -> None:
        """Disconnect cleanly (no last will) and end the thread. Idempotent."""
        ...

    @property
    def is_connected(self) -> bool:
        """Whether a connection stands now."""
        ...

    @property
    def max_message_bytes(self) -> int:
        """Largest payload that ``publish`` accepts now: the link's limit, or less when the broker says so (MQTT 5)."""
        ...
