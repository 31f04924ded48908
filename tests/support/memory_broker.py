"""A broker in memory and in virtual time: deterministic, seeded, without threads. What the fleet simulator runs on.

Nothing happens by itself: `MemoryHub.advance` moves the clock and performs what is due, in one order for one seed. The
faults are those that a real network and a real broker have:

- The *link* is lost, not single messages (TCP loses none): what was in flight is gone from the wire, the two ends keep
  what was not acknowledged, and send it again on the next connection.
- An acknowledgement is lost with the link after the message arrived: the message comes twice.
- Messages are delayed by different times, so those of different topics or senders overtake each other. Between one
  sender and one receiver the messages of one topic keep their order, but a copy may come late.
- A process is killed, cut off by a partition, or meets another with its own client id. The broker restarts, with all
  that it knew, with what it had saved some time before, or with nothing.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from broker.port import Handlers, Link, Message, check_message
from schemas.topics import matches

_NOTICE = 1.5
"""A broker declares a silent client dead after this many keepalives."""


@dataclass(frozen=True)
class Faults:
    """How bad the network is. All chances are per transfer of one message over one link.

    Attributes
    ----------
    delay : (float, float)
        Seconds, drawn uniformly, for each transfer.
    duplicate : float
        Chance that a delivered message comes once more.
    loss : float
        Chance that the link is lost with this transfer: half of the times before the message arrived, otherwise after
        it and before its acknowledgement.
    reconnect : (float, float)
        Seconds, drawn uniformly, until a lost link is up again.
    """

    delay: tuple[float, float] = (0.0, 0.0)
    duplicate: float = 0.0
    loss: float = 0.0
    reconnect: tuple[float, float] = (0.5, 5.0)


@dataclass
class _Session:
    """What the broker keeps about a client id."""

    patterns: dict[str, None] = field(default_factory=dict)
    queue: OrderedDict[int, Message] = field(default_factory=OrderedDict)
    owner: MemoryTransport | None = None
    gone_since: float | None = None
    expiry: float = 0.0


@dataclass(frozen=True)
class Saved:
    """What a broker had on its disk at one moment. The default: nothing."""

    retained: dict[str, Message] = field(default_factory=dict)
    sessions: dict[str, _Session] = field(default_factory=dict)


class MemoryHub:
    """The broker, the network and the clock.

    Parameters
    ----------
    seed : int
        Decides every fault and delay.
    faults : Faults
        May be replaced at any time by assigning to ``faults``.
    """

    def __init__(self, *, seed: int = 0, faults: Faults | None = None) -> None:
        self.now = 0.0
        self.faults = faults or Faults()
        self._random = random.Random(seed)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self._sessions: dict[str, _Session] = {}
        self._clients: dict[str, list[MemoryTransport]] = {}
        self._retained: dict[str, Message] = {}
        self._cut: set[str] = set()
        self._is_up = True

    # What a simulation does

    def advance(self, seconds: float) -> None:
        """Let `seconds` of virtual time pass."""
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            when, _, action = heapq.heappop(self._events)
            self.now = max(self.now, when)
            action()
        self.now = end

    def pump(self) -> None:
        """Perform all that is due now."""
        self.advance(0.0)

    def call_at(self, when: float, action: Callable[[], None]) -> None:
        """Perform `action` at a virtual time: the simulation's own timers and faults."""
        self._order += 1
        heapq.heappush(self._events, (max(when, self.now), self._order, action))

    def kill(self, client_id: str) -> None:
        """SIGKILL: the process is gone at once, its socket closed by the system, the will published, the session kept.

        Behind a partition the broker notices only when that heals or after 1.5 keepalives.
        """
        for client in self._clients.pop(client_id, []):
            client.is_running = False
            if client.is_connected and client_id not in self._cut:
                self._lose(client, will=True)

    def drop_link(self, client_id: str) -> None:
        """Close the client's connection; it will come back by itself. The will is published."""
        owner = self._owner(client_id)
        if owner is not None:
            self._lose(owner, will=True)

    def _owner(self, client_id: str) -> MemoryTransport | None:
        session = self._sessions.get(client_id)
        return None if session is None else session.owner

    def partition(self, client_ids: Iterable[str]) -> None:
        """Cut clients off: nothing passes and neither end is told; the broker notices after 1.5 keepalives."""
        for client_id in client_ids:
            self._cut.add(client_id)
            owner = self._owner(client_id)
            if owner is None:
                continue
            notice = max(owner.link.keepalive, 1) * _NOTICE

            def give_up(owner: MemoryTransport = owner, epoch: int = owner.epoch) -> None:
                if owner.is_on(epoch) and owner.link.client_id in self._cut:
                    self._lose(owner, will=True)

            self.call_at(self.now + notice, give_up)

    def heal(self, client_ids: Iterable[str] | None = None) -> None:
        """End the partition of these clients, or of all."""
        healed = set(self._cut if client_ids is None else client_ids)
        self._cut -= healed
        for client_id in sorted(healed):
            owner = self._owner(client_id)
            if owner is not None and owner.is_running:
                # TCP sends again what was not acknowledged; the connection had not broken.
                self._resume(owner)
            elif owner is not None:
                self._lose(owner, will=True)

    def stop_broker(self) -> None:
        """Let the broker crash: all links are lost and no will is published by it."""
        self._is_up = False
        for owner in [session.owner for session in self._sessions.values() if session.owner is not None]:
            self._lose(owner, will=False)

    def save(self) -> Saved:
        """Return what a broker with persistence writes to its disk now."""
        sessions = {
            name: _Session(dict(session.patterns), OrderedDict(session.queue), None, self.now, session.expiry)
            for name, session in self._sessions.items()
            if session.expiry
        }
        return Saved(dict(self._retained), sessions)

    def start_broker(self, saved: Saved | None = None) -> None:
        """Start the broker again, with all that it knew (None) or with what it had saved."""
        self._is_up = True
        if saved is not None:
            self._retained, self._sessions = dict(saved.retained), dict(saved.sessions)

    @property
    def retained(self) -> dict[str, bytes]:
        """Topic to payload of all retained messages."""
        return {topic: message.payload for topic, message in self._retained.items()}

    def connected(self) -> list[str]:
        """MemoryTransport ids with a connection now, sorted."""
        return sorted(client_id for client_id, session in self._sessions.items() if session.owner is not None)

    # What transports ask for

    def begin(self, client: MemoryTransport, *, first: bool) -> None:
        """Try to connect after a while."""
        if first:
            self._clients.setdefault(client.link.client_id, []).append(client)
        wait = self._delay() if first else self._random.uniform(*self.faults.reconnect)
        self.call_at(self.now + wait, lambda: self._connect(client))

    def _connect(self, client: MemoryTransport) -> None:
        if not client.is_running or client.is_connected:
            return
        client_id = client.link.client_id
        if not self._is_up or client_id in self._cut:
            self.begin(client, first=False)
            return
        session, owner = self._sessions.get(client_id), self._owner(client_id)
        if owner is not None:
            self._lose(owner, will=True)
        if session is None or client.link.session_expiry == 0 or self._expired(session):
            session = self._sessions[client_id] = _Session()
        session.owner, session.gone_since, session.expiry = client, None, client.link.session_expiry
        client.epoch += 1
        client.is_connected = True
        for pattern in client.patterns:
            self.subscribe(client, pattern)
        # What waited offline comes first, in its order; the handler then may add to it.
        self._resume(client)
        client.call_connected()

    def _resume(self, client: MemoryTransport) -> None:
        session = self._sessions[client.link.client_id]
        for number in list(client.outbox):
            self.send(client, number)
        for number in list(session.queue):
            self._deliver_later(client, session, number)

    def _expired(self, session: _Session) -> bool:
        return session.gone_since is not None and self.now - session.gone_since > session.expiry

    def subscribe(self, client: MemoryTransport, pattern: str) -> None:
        """Subscribe a connected client, and give it what is retained."""
        session = self._sessions[client.link.client_id]
        session.patterns[pattern] = None
        for topic, message in list(self._retained.items()):
            if matches(pattern, topic):
                self._enqueue(session, message)

    def unsubscribe(self, client: MemoryTransport, pattern: str) -> None:
        """End a subscription of a connected client."""
        self._sessions[client.link.client_id].patterns.pop(pattern, None)

    def leave(self, client: MemoryTransport) -> None:
        """Disconnect cleanly: no will; the session stays until it expires."""
        clients = self._clients.get(client.link.client_id, [])
        if client in clients:
            clients.remove(client)
        session = self._sessions.get(client.link.client_id)
        if session is not None and session.owner is client:
            session.owner, session.gone_since = None, self.now
            if session.expiry == 0:
                del self._sessions[client.link.client_id]

    def send(self, client: MemoryTransport, number: int) -> None:
        """Carry a published message to the broker."""
        message, epoch = client.outbox[number], client.epoch

        def arrive() -> None:
            if not client.is_on(epoch) or number not in client.outbox:
                return
            if client.link.client_id in self._cut:
                return  # stays in the outbox; sent again when the partition heals
            lost = self._random.random() < self.faults.loss
            if lost and self._random.random() < 0.5:
                self._lose(client, will=True)
                return
            self._route(message)
            if lost:
                self._lose(client, will=True)
            else:
                client.acknowledge(number)

        self.call_at(client.in_order("up", message.topic, self.now + self._delay()), arrive)

    # The broker

    def _route(self, message: Message) -> None:
        if message.retained:
            if message.payload:
                self._retained[message.topic] = message
            else:
                self._retained.pop(message.topic, None)
        live = Message(message.topic, message.payload, retained=False)
        for client_id, session in list(self._sessions.items()):
            if session.owner is None and self._expired(session):
                del self._sessions[client_id]
            elif any(matches(pattern, message.topic) for pattern in session.patterns):
                self._enqueue(session, live)

    def _enqueue(self, session: _Session, message: Message) -> None:
        self._order += 1
        number = self._order
        session.queue[number] = message
        if session.owner is not None:
            self._deliver_later(session.owner, session, number)

    def _deliver_later(self, client: MemoryTransport, session: _Session, number: int) -> None:
        epoch = client.epoch

        def deliver() -> None:
            message = session.queue.get(number)
            if message is None or not client.is_on(epoch):
                return
            if client.link.client_id in self._cut:
                return
            lost = self._random.random() < self.faults.loss
            if lost and self._random.random() < 0.5:
                self._lose(client, will=True)
                return
            if not lost:
                del session.queue[number]
            if self._random.random() < self.faults.duplicate:
                self.call_at(self.now + self._delay(), lambda: client.call_message(message, epoch))
            client.call_message(message, epoch)
            if lost and client.is_on(epoch):
                self._lose(client, will=True)

        topic = session.queue[number].topic
        self.call_at(client.in_order("down", topic, self.now + self._delay()), deliver)

    def _lose(self, client: MemoryTransport, *, will: bool) -> None:
        """End a connection without a goodbye."""
        session = self._sessions.get(client.link.client_id)
        if session is None or session.owner is not client:
            return
        session.owner, session.gone_since = None, self.now
        if session.expiry == 0:
            self._sessions.pop(client.link.client_id, None)
        client.is_connected = False
        if will and client.link.will is not None:
            self._route(client.link.will)
        client.call_disconnected()
        if client.is_running:
            self.begin(client, first=False)

    def _delay(self) -> float:
        low, high = self.faults.delay
        return self._random.uniform(low, high) if high > low else low


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
