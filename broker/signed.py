"""A transport that signs what leaves and verifies what arrives; the layers above do not know of it.

It stands between any transport and its user: `publish` seals each envelope for its topic, and a message that arrives
is handed on only when whoever may write its topic has sealed it (``schemas.trust.signing``). Four kinds of payload have
no seal:

- An empty one ends something. Whoever controls the broker can as well withhold what was there.
- A blob is named by its digest, which a sealed manifest carries.
- A model record is JSON with the coordinator's signature inside; who uses it verifies it.
- A revocation list is signed by the CA. It is taken over here, kept when it is newer than the one that is known, and
  published here where the coordinator runs.

What is refused goes to a callback, is counted there, and is not answered: an answer to a forged message would let the
forger end an honest agent's send. Two kinds are handed on to the coordinator all the same, which only clears them:
requests, of runs that have ended, and what a vehicle has retained where nothing is.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from broker.lists import ListTopic
from broker.port import Handlers, Link, Message, Transport
from schemas.errors import BrokerError, WireError
from schemas.topics import PASSING, Address, Topics
from schemas.trust.owner import Owner

if TYPE_CHECKING:  # a fleet that does not sign need not load the cryptography
    from broker.credentials import Credentials
    from schemas.trust.signing import Signer

BAD_BURST = 1000.0
"""Bad messages of one agent that are verified at once, a twentieth of a second's work; see `TokenBucket`."""

BAD_PER_SECOND = 200.0
"""So many a second after that: a hundredth of a processor."""

BAD_AGENTS = 4096
"""Agents whose bad messages are counted at once; the one whose last is oldest is forgotten."""

LOG_EVERY = 10.0
"""Seconds between two log lines about refused messages of one kind, at least; all are counted."""

_RENEWED = 16

Refused = Callable[[Message, WireError], None]


def seal_will(signer: Signer, will: Message) -> Message:
    """Return a last will that receivers will accept: the broker publishes it in our name."""
    return Message(will.topic, signer.seal(will.topic, will.payload), will.retained)


def writers(address: Address) -> tuple[Owner, ...]:
    """Return who may write a topic."""
    return (Owner("agent", address.writer),) if address.writer else (Owner("coordinator", "*"),)


def signed(
    link: Link, topics: Topics, credentials: Credentials | None, refused: Refused, make: Callable[[Link], Transport]
) -> Transport:
    """Make a transport, signed if there are credentials.

    `make` gets the link, whose last will is sealed anew for each connection: a renewed certificate counts for it too.
    """
    if credentials is None:
        return make(link)
    sealed = link if link.will is None else replace(link, seal=lambda will: seal_will(credentials.signer, will))
    return SignedTransport(make(sealed), topics, credentials, refused)


class SignedTransport:
    """See the module.

    Parameters
    ----------
    inner : Transport
        Its link seals the last will, see `signed`.
    refused : callable
        Hears, on the transport's thread, of each message that was not handed on, and why.
    """

    def __init__(self, inner: Transport, topics: Topics, credentials: Credentials, refused: Refused) -> None:
        self._inner = inner
        self._topics = topics
        self._credentials = credentials
        self._refused = refused
        self._patience = TokenBucket()
        self._lists = ListTopic(inner, topics)
        self._handlers: Handlers | None = None
        self._has_news = False
        self._telling = threading.Lock()

    def start(self, handlers: Handlers) -> None:
        """Begin connecting; returns at once."""
        self._handlers = handlers
        self._inner.subscribe(self._topics.revoked())
        self._inner.start(Handlers(self._arrived, self._connected, handlers.disconnected))

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Seal and queue a message; raises ValueError when the payload is above ``max_message_bytes``."""
        self._refresh()
        self._inner.publish(topic, self._credentials.signer.seal(topic, payload), retain=retain)

    def subscribe(self, pattern: str) -> None:
        """Subscribe with QoS 1, now and on every later connection."""
        self._inner.subscribe(pattern)

    def unsubscribe(self, pattern: str) -> None:
        """End a subscription."""
        self._inner.unsubscribe(pattern)

    def flush(self, timeout: float) -> bool:
        """Wait until the broker has acknowledged all that was published."""
        return self._inner.flush(timeout)

    def stop(self) -> None:
        """Disconnect cleanly and end the thread."""
        self._inner.stop()

    @property
    def is_connected(self) -> bool:
        """Whether a connection stands now."""
        return self._inner.is_connected

    @property
    def max_message_bytes(self) -> int:
        """Largest payload that ``publish`` accepts now; the seal's bytes are taken off already.

        What is cut to this size may be sealed with a renewed certificate, whose numbers may need some bytes more.
        """
        return self._inner.max_message_bytes - self._credentials.signer.overhead - _RENEWED

    def look(self) -> None:
        """Take over what changed in the identity, and say again what is retained in our name, though nothing arrives.

        ``connected`` is then called on this thread: for users whose handlers stand that.
        """
        self._refresh()
        self._tell_news()

    def _refresh(self) -> None:
        if self._credentials.refresh():
            self._has_news = True

    def _tell_news(self) -> None:
        # What is retained in our name carries the former certificate, and would be refused when that expires.
        with self._telling:
            if not (self._has_news and self._handlers is not None and self._inner.is_connected):
                return
            self._has_news = False
        self._connected()

    def _connected(self) -> None:
        assert self._handlers is not None
        self._has_news = False
        self._publish_crl()
        self._handlers.connected()

    @property
    def _owner(self) -> Owner:
        return self._credentials.signer.owner

    def _publish_crl(self) -> None:
        credentials = self._credentials
        if credentials.crl and self._owner.role == "coordinator":
            try:
                self._lists.publish(credentials.crl)
            except BrokerError as fault:
                refused = WireError("oversize", f"vehicles do not hear of the last revocations: {fault}")
                self._refused(Message(self._topics.revoked(), b""), refused)

    def _is_behind(self, crl: bytes) -> bool:
        from schemas.trust.certificates import is_behind  # noqa: PLC0415 - a fleet that does not sign loads none of it

        return self._owner.role == "coordinator" and is_behind(crl, self._credentials.crl)

    def _arrived(self, message: Message) -> None:
        assert self._handlers is not None
        self._refresh()
        self._tell_news()  # here, not with what is published: handlers are called one at a time
        try:
            handed_on = self._check(message)
        except WireError as fault:
            self._refused(message, fault)
            return
        if handed_on:
            self._handlers.message(message)

    def _check(self, message: Message) -> bool:
        """Whether a message is to be handed on; raises WireError when it is refused."""
        if not message.payload:
            return True
        address = self._topics.parse(message.topic)
        if address.kind == "revoked" or (address.kind == "blob" and self._lists.is_ours(address.digest)):
            crl = self._lists.hear(message, clears=self._owner.role == "coordinator")
            # What we said on connecting may have overwritten a newer one, and what another coordinator says, ours.
            if crl is not None and (self._credentials.update_crl(crl) or self._is_behind(crl)):
                self._publish_crl()
            return False
        if message.retained and address.kind in PASSING and self._owner.role == "coordinator":
            return True
        if address.kind == "blob" or (address.kind == "model-version" and message.payload[:1] == b"{"):
            return True
        if address.writer and not self._patience.has(address.writer):
            raise WireError("too-many", f"{address.writer} sent too many bad messages: not looked at for a while")
        try:
            self._credentials.verifier.open(message.topic, message.payload, writers(address))
        except WireError as fault:
            if address.writer:
                self._patience.spend(address.writer)
            elif address.kind == "request" and self._owner.role == "coordinator":
                # Nobody acts on it there. The coordinator clears it when its run has ended: a life that was killed
                # before it had cleared may have sealed it with a certificate that was revoked, or has expired, since.
                self._refused(message, fault)
                return True
            raise
        return True


class TokenBucket:
    """How many bad messages are looked at, for each agent whose topics they are on: a token bucket.

    A signature takes 0.05 ms to verify, on the thread that also keeps the connection alive. An agent that floods its
    topics with bad seals gets `burst` of them verified, then `rate` a second, and its good ones are lost among them. No
    other agent is concerned: the broker lets none write there. The coordinator's topics have no such bound, as only
    who runs the broker can forge there, who can withhold messages anyway.

    Parameters
    ----------
    burst : float
        Bad messages that are verified at once.
    rate : float
        Per second, afterwards.
    clock : callable
        Seconds that only go forward.
    """

    def __init__(
        self, burst: float = BAD_BURST, rate: float = BAD_PER_SECOND, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = burst
        self._rate = rate
        self._clock = clock
        self._spent: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def has(self, agent: str) -> bool:
        """Whether another one would be looked at now."""
        return agent not in self._spent or self._now(agent) < self._burst

    def spend(self, agent: str) -> None:
        """Take note of a bad message."""
        self._spent[agent] = (self._now(agent) + 1.0, self._clock())
        self._spent.move_to_end(agent)
        if len(self._spent) > BAD_AGENTS:
            self._spent.popitem(last=False)

    def _now(self, agent: str) -> float:
        spent, when = self._spent.get(agent, (0.0, 0.0))
        return max(0.0, spent - (self._clock() - when) * self._rate)


class RefusalLog:
    """Counts what was refused, and tells of it now and then: a flood of forged messages must not become one of lines.

    Parameters
    ----------
    count : callable
        Takes ``refused.{code}`` for each message.
    tell : callable
        Takes the topic, the code, the reason, and how many of this code were refused since the last line.
    """

    def __init__(self, count: Callable[[str], None], tell: Callable[[str, str, str, int], None]) -> None:
        self._count = count
        self._tell = tell
        self._logged: dict[str, float] = {}
        self._since: dict[str, int] = {}

    def __call__(self, message: Message, fault: WireError) -> None:
        """Take note of one."""
        self._count(f"refused.{fault.code}")
        self._since[fault.code] = self._since.get(fault.code, 0) + 1
        now = time.monotonic()
        if now - self._logged.get(fault.code, float("-inf")) >= LOG_EVERY:
            self._logged[fault.code] = now
            # A forged topic's control characters are not for the terminal that shows the log.
            topic = message.topic[:200]
            shown = topic if topic.isprintable() else ascii(topic)
            self._tell(shown, fault.code, fault.detail, self._since.pop(fault.code))
