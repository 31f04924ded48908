"""The bounded queue between the transport's thread, the API's threads and the coordinator's own."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any

from broker.port import Message
from coordinator.messages import Verified

TURN = 0.25
"""Seconds that what arrives waits at most while a batch is decided."""

GATHER = 0.005
"""Seconds between two looks whether more has arrived, before a batch is taken."""

GATHERS = 4
"""Most such looks."""

_MESSAGE_BYTES = 256
"""Memory of a message that waits, beside its topic and payload. Measured: 220."""


@dataclass
class Batch:
    """What was waiting. `arrived` are the times at which `messages` arrived, on the queue's clock."""

    messages: list[Message] = field(default_factory=list)
    arrived: list[float] = field(default_factory=list)
    calls: list[Callable[[], None]] = field(default_factory=list)
    connected: bool = False


class EventQueue:
    """Takes from many threads; gives to one.

    While it is full, who puts waits for room, up to `full_wait`: the transport then reads nothing, and the broker keeps
    what comes. When nothing is taken for that long, a reduction takes its time: what comes until something is, is
    dropped and counted, for the connection must be kept alive; an agent gets no receipt for its contribution and sends
    it again. States of agents (births, wills) are few and must not be lost: only the latest of
    each topic is kept, and they have the same room again for themselves, however full the queue is.

    Each message is stamped when it arrives: an answer that was in time must not become late because the coordinator was
    busy with another run. Nor does a deadline pass what a source that had it before (`hold`) may still bring.

    The two threads take turns. A batch is taken when nothing more comes for a moment, and while it is decided, who puts
    waits, up to `TURN`. Both would else run at once where signatures are verified, and hand the interpreter from core
    to core for every message: a signed answer took a fifth more of the processor, and was decided no sooner.

    Parameters
    ----------
    max_messages, max_bytes : int
        Of messages, and once more of states; bytes of memory, of topics and all.
    clock : callable
        Seconds that only go forward; the coordinator's clock.
    full_wait : float
        Seconds that a message may wait for room.
    """

    def __init__(
        self, max_messages: int, max_bytes: int, clock: Callable[[], float] = time.monotonic, *, full_wait: float = 1.0
    ) -> None:
        self._full_wait = full_wait
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._clock = clock
        self._states: dict[str, tuple[float, Message]] = {}
        # Of several sources each is in order, all together need not be: a heap by when they arrived, and then came.
        self._messages: list[tuple[float, int, Message]] = []
        self._came = count()
        self._bytes = 0
        self._states_bytes = 0
        self._calls: deque[Callable[[], None]] = deque()
        self._connected = False
        self._is_stalled = False
        self._is_deciding = False
        self._enough = 0
        self._coming: list[float] = []
        self._held: dict[int, float] = {}
        lock = threading.Lock()
        self._ready, self._taken = threading.Condition(lock), threading.Condition(lock)
        self.dropped = 0

    def put(self, message: Message) -> None:
        """Take a message; waits for room where there is none."""
        with self._ready:
            arrived = message.arrived if isinstance(message, Verified) else self._clock()
            self._coming.append(arrived)
            try:
                self._taken.wait_for(lambda: not self._is_deciding, TURN)
                self._is_deciding = False  # if it takes longer, the others of this turn do not wait as well
                self._put(message, arrived)
            finally:
                self._coming.remove(arrived)

    def _put(self, message: Message, arrived: float) -> None:
        size = _size(message)
        if message.topic.endswith("/state") and not message.topic.endswith("/coordinator/state"):
            former = self._states.get(message.topic)
            total = self._states_bytes + size - (0 if former is None else _size(former[1]))
            if total > self._max_bytes or (former is None and len(self._states) >= self._max_messages):
                self.dropped += 1
                return
            self._states[message.topic] = (arrived, message)
            self._states_bytes = total
        elif self._await_room(size):
            heappush(self._messages, (arrived, next(self._came), message))
            self._bytes += size
        else:
            self.dropped += 1
            return
        if len(self._messages) + len(self._states) >= self._enough:
            self._ready.notify()

    def hold(self, source: int, since: float | None) -> None:
        """Note that `source` may still bring what arrived there since then; None: it brings nothing more."""
        with self._ready:
            if since is None:
                self._held.pop(source, None)
            else:
                self._held[source] = since

    def _await_room(self, size: int) -> bool:
        if not self._is_stalled:
            self._is_stalled = not self._taken.wait_for(lambda: self._has_room(size), self._full_wait)
        return self._has_room(size)

    def _has_room(self, size: int) -> bool:
        # One message always has, however long.
        return not self._messages or (
            len(self._messages) < self._max_messages and self._bytes + size <= self._max_bytes
        )

    def put_connected(self) -> None:
        """Note that a connection stands."""
        with self._ready:
            self._connected = True
            self._ready.notify()

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        """Have `function` run on the coordinator's thread."""
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as fault:  # noqa: BLE001  it is raised again where the result is asked for
                future.set_exception(fault)

        with self._ready:
            self._calls.append(run)
            self._ready.notify()
        return future

    def get_batch(self, most: int, timeout: float, awaited: int = 0) -> Batch:
        """Wait up to `timeout` seconds for something, and take at most `most` messages (and all states) of it.

        When `awaited` messages wait, or `most`, no more are waited for; 0: it is not known how many come.
        """
        with self._ready:
            self._is_deciding = False
            self._taken.notify_all()
            if not (self._states or self._messages or self._calls or self._connected):
                self._ready.wait(timeout)
            self._gather(min(most, awaited or most))
            batch = Batch(calls=list(self._calls), connected=self._connected)
            # Nothing carries the time past an answer that came before it: states go first, and others are under way.
            latest = min([*self._held.values(), *self._coming], default=float("inf"))
            oldest = min(latest, self._messages[0][0] if self._messages else latest)
            for arrived, message in self._states.values():
                batch.messages.append(message)
                batch.arrived.append(min(arrived, oldest))
            self._states.clear()
            self._states_bytes = 0
            self._calls.clear()
            self._connected = False
            while self._messages and len(batch.messages) < most:
                arrived, _, message = heappop(self._messages)
                self._bytes -= _size(message)
                batch.messages.append(message)
                batch.arrived.append(min(arrived, latest))
            self._is_stalled = False
            self._is_deciding = bool(batch.messages)
            self._taken.notify_all()
            return batch

    def _gather(self, enough: int) -> None:
        """Let more come, as long as more keeps coming and nobody waits for a call."""
        waiting, self._enough = 0, enough
        for _ in range(GATHERS):
            before, waiting = waiting, len(self._messages) + len(self._states)
            if self._calls or waiting == before or waiting >= enough:
                break
            self._ready.wait(min(GATHER, enough * 1e-4))  # a small fleet has answered sooner
        self._enough = 0

    def oldest(self) -> float | None:
        """Return when the oldest message that still waits, or may be under way, arrived; None when none does."""
        with self._ready:
            waiting = [self._messages[0][0]] if self._messages else []
            return min([*waiting, *self._coming, *self._held.values()], default=None)

    def depth(self) -> tuple[int, int]:
        """Return how many messages and bytes wait."""
        with self._ready:
            return len(self._messages), self._bytes


def _size(message: Message) -> int:
    return sys.getsizeof(message.topic) + len(message.payload) + _MESSAGE_BYTES
