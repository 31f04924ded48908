"""A transport that signs what leaves and verifies what arrives; the layers above do not know of it.

It stands between any transport and its user: `publish` seals each envelope for its topic, and a message that arrives
is handed on only when whoever may write its topic has sealed it (``schemas.signing``). Three kinds of payload have no
seal:

- An empty one ends something. Whoever controls the broker can as well withhold what was there.
- A blob is named by its digest, which a sealed manifest carries.
- A model record is JSON with the coordinator's signature inside; who uses it verifies it.

What is refused goes to a callback, is counted there, and is not answered: an answer to a forged message would let the
forger end an honest agent's send.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.port import Handlers, Message, Transport
from schemas.errors import WireError
from schemas.signing import Owner, Signer, Verifier
from schemas.topics import Address, Topics

Refused = Callable[[Message, WireError], None]


def seal_will(signer: Signer, will: Message) -> Message:
    """Return a last will that receivers will accept: the broker publishes it in our name."""
    return Message(will.topic, signer.seal(will.topic, will.payload), will.retained)


def writers(address: Address) -> tuple[Owner, ...]:
    """Return who may write a topic."""
    return (Owner("agent", address.writer),) if address.writer else (Owner("coordinator", "*"),)


class SignedTransport:
    """See the module.

    Parameters
    ----------
    inner : Transport
        Its link's last will must have been sealed, see `seal_will`.
    topics : Topics
    signer : Signer
    verifier : Verifier
    refused : callable
        Hears, on the transport's thread, of each message that was not handed on, and why.
    """

    def __init__(self, inner: Transport, topics: Topics, signer: Signer, verifier: Verifier, refused: Refused) -> None:
        self._inner = inner
        self._topics = topics
        self.signer = signer
        self.verifier = verifier
        self._refused = refused

    def start(self, handlers: Handlers) -> None:
        """Begin connecting; returns at once."""

        def message(arrived: Message) -> None:
            try:
                self._check(arrived)
            except WireError as fault:
                self._refused(arrived, fault)
                return
            handlers.message(arrived)

        self._inner.start(Handlers(message, handlers.connected, handlers.disconnected))

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Seal and queue a message; raises ValueError when the payload is above ``max_message_bytes``."""
        self._inner.publish(topic, self.signer.seal(topic, payload), retain=retain)

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
        """Largest payload that ``publish`` accepts now; the seal's bytes are taken off already."""
        return self._inner.max_message_bytes - self.signer.overhead

    def _check(self, message: Message) -> None:
        if not message.payload:
            return
        address = self._topics.parse(message.topic)
        if address.kind == "blob" or (address.kind == "model-version" and message.payload[:1] == b"{"):
            return
        self.verifier.open(message.topic, message.payload, writers(address))
