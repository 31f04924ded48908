"""The transport port: what coordinator and agents need of a message broker, and nothing else.

Rules that every transport keeps, and ``tests/conformance/test_transport.py`` holds them to:

1. Delivery is at least once. Duplicates, reordering across topics and loss while a process is away are possible; the
   layers above count once.
2. ``publish`` and ``subscribe`` never block and may be called before the first connection; they take effect when there
   is one. Subscriptions are made again on every connect.
3. Handlers are called on the transport's own thread, one at a time, and put what they are given into a queue. While
   one waits for room there, nothing is read: the broker keeps what comes. None waits as long as a keepalive.
4. After ``stop`` no handler is called any more. A clean stop does not trigger the last will.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from annotated_types import Ge, Gt, Le, Lt

from broker.tls import Tls
from schemas.limits import MAX_DECODED_BYTES, MAX_MESSAGE_BYTES, MIN_MESSAGE_BYTES


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


RECONNECT_FIRST = 0.25
"""Seconds before the first reconnect: a broker that restarts is soon back, and later waits are longer anyway."""

MAX_INFLIGHT = 100
"""Published messages that may wait for their PUBACK at once: enough to fill a slow link (MQTT 5 brokers tell less)."""

OVERSIZE_TRIES = 3
"""So many connections in a row must end over one message before it is given up as too large: one may be chance."""

VERDICT_TRIES = 5
"""Tries to read what the broker said of our certificate before it closed the connection: it may close too soon."""

CLOSE_WAIT = 1.0
"""Seconds that a clean disconnect may take: nobody waits for it when the process ends."""


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """How a process speaks with its broker.

    Attributes
    ----------
    protocol : str
        ``auto`` (MQTT 5, then 3.1.1), ``5`` or ``3.1.1``. Why: a broker that answers one of them wrongly.
    keepalive : int
        Seconds between signs of life to the broker. Why: shorter finds dead links sooner, longer costs less.
    session_expiry : int
        Seconds for which the broker keeps subscriptions and messages of an absent client (MQTT 5). Why: long absences.
    connect_timeout : float
        Seconds to wait for TCP and TLS, and for the answer to CONNECT. Why: a satellite link.
    reconnect_longest : float
        Longest wait between two reconnects, seconds. Each is drawn between half and all of twice the one before, so
        that a fleet does not come back at once. Why: a very large fleet.
    max_message_bytes : int
        Larger messages travel in parts, 4 KiB to 64 MiB. Why: a broker with a lower limit than 128 KiB.
    """

    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    keepalive: Annotated[int, Ge(1), Le(65535)] = 30
    session_expiry: Annotated[int, Ge(0), Lt(2**32)] = 3600
    connect_timeout: Annotated[float, Gt(0), Le(600)] = 5.0
    reconnect_longest: Annotated[float, Gt(0), Le(24 * 3600)] = 10.0
    max_message_bytes: Annotated[int, Ge(MIN_MESSAGE_BYTES), Le(MAX_DECODED_BYTES)] = MAX_MESSAGE_BYTES

    def link(
        self,
        url: str,
        client_id: str,
        *,
        will: Message | None = None,
        tls: Tls | None = None,
        insecure_plaintext: bool = False,
    ) -> Link:
        """Return a link of this kind; the parameters are described there."""
        return Link(url, client_id, will, tls=tls, insecure_plaintext=insecure_plaintext, **vars(self))


@dataclass(frozen=True)
class Link(ConnectionSettings):
    """How one process connects: its `ConnectionSettings`, and to whom.

    Attributes
    ----------
    url : str
        ``mqtt://[user[:password]@]host[:port]`` or ``mqtts://...``; of a cluster several, with commas between.
    client_id : str
        Stable over restarts, so that the broker keeps the session.
    will : Message or None
        Published by the broker when this process vanishes.
    seal : callable or None
        Turns the will into the message that is given to the broker; called for each connection.
    tls : Tls or None
        Whom to trust and who we are, for ``mqtts://``; None: the system's certificates, and no certificate of ours.
    insecure_plaintext : bool
        Allow ``mqtt://`` to another machine, where everybody on the way can read and change what is said.
    reconnect_first : float
        Seconds before the first reconnect.
    """

    url: str
    client_id: str
    will: Message | None = None
    seal: Callable[[Message], Message] | None = None
    tls: Tls | None = None
    insecure_plaintext: bool = False
    reconnect_first: float = RECONNECT_FIRST


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
