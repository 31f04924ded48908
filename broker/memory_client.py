"""The client side of `broker.memory`: what a process holds of its connection to the simulated broker."""

from __future__ import annotations

from collections import OrderedDict

from broker.memory import MemoryHub
from broker.port import Handlers, Link, Message, check_message


class MemoryTransport:
    """A client of a `MemoryHub`; the transport of `broker.port` except that ``flush`` cannot wait in virtual time."""

    def __init__(self, hub: MemoryHub, link: Link) -> None:
        self.link = link
        self.patterns: dict[str, None] = {}
        self.outbox: OrderedDict[int, Message] = OrderedDict()
        self.epoch = 0
        self.is_running = False
        self.is_connected = False
        self._hub = hub
        self._number = 0
        self._handlers: Handlers | None = None
        self._latest: dict[tuple[str, str], float] = {}

    def start(self, handlers: Handlers) -> None:
        """Begin connecting."""
        if self._handlers is not None:
            raise RuntimeError("a transport is started once")
        self._handlers = handlers
        self.is_running = True
        self._hub.begin(self, first=True)

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Queue a message. Raises ValueError when the payload is above ``max_message_bytes``."""
        check_message(topic, payload, self.max_message_bytes)
        self._number += 1
        self.outbox[self._number] = Message(topic, payload, retained=retain)
        if self.is_connected:
            self._hub.send(self, self._number)

    def subscribe(self, pattern: str) -> None:
        """Subscribe, now and on every later connection."""
        self.patterns[pattern] = None
        if self.is_connected:
            self._hub.subscribe(self, pattern)

    def unsubscribe(self, pattern: str) -> None:
        """End a subscription."""
        self.patterns.pop(pattern, None)
        if self.is_connected:
            self._hub.unsubscribe(self, pattern)

    def flush(self, timeout: float) -> bool:
        """Whether all is acknowledged *now*: virtual time passes only in ``MemoryHub.advance``."""
        del timeout
        return not self.outbox

    def stop(self) -> None:
        """Disconnect cleanly. Idempotent."""
        if self.is_running:
            self.is_running = False
            self.is_connected = False
            self._hub.leave(self)

    @property
    def max_message_bytes(self) -> int:
        """Largest payload that `publish` accepts."""
        return self.link.max_message_bytes

    # For the hub

    def is_on(self, epoch: int) -> bool:
        """Whether the connection with this number still stands."""
        return self.is_connected and self.epoch == epoch

    def acknowledge(self, number: int) -> None:
        """Forget what the broker has."""
        self.outbox.pop(number, None)

    def in_order(self, way: str, topic: str, when: float) -> float:
        """Give the time for a transfer that must not overtake an earlier one of the same topic."""
        when = max(when, self._latest.get((way, topic), 0.0))
        self._latest[way, topic] = when
        return when

    def call_message(self, message: Message, epoch: int) -> None:
        """Hand over a message, unless the connection that carried it has ended."""
        if self.is_running and self.is_on(epoch) and self._handlers is not None:
            self._handlers.message(message)

    def call_connected(self) -> None:
        """Say that a connection stands."""
        if self.is_running and self._handlers is not None:
            self._handlers.connected()

    def call_disconnected(self) -> None:
        """Say that the connection was lost."""
        if self.is_running and self._handlers is not None:
            self._handlers.disconnected("link lost")
