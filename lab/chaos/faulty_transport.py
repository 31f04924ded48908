"""A transport that misbehaves on demand, and a wall clock that jumps: for the chaos harness only.

Nothing in a deployment imports this module. ``glassfleet lab chaos`` starts its processes through ``lab.chaos.child``,
which puts `FaultyTransport` where the real transport was; what it then does wrong is read, while the process runs, from
a small JSON file (`Mischief`) that the harness writes.

What may be lost is what the layers above promise to survive: contributions, receipts, requests and parts. Births, wills
and retained publications are left alone: that a connected broker keeps these is what QoS 1 is for, and a broker that
forgets them is another fault (it is killed).
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from broker.port import Handlers, Message, Transport
from schemas.log import Log

_log = Log()

VARIABLE = "GLASSFLEET_FAULTS"
"""Environment variable with the path of the JSON file; read by ``lab.chaos.child`` alone."""

_LOOK = 0.02
"""Seconds between looks at the file."""

HOLD = 0.3
"""Seconds for which a message is held back at most while it waits for another to overtake it."""


@dataclass(frozen=True)
class Mischief:
    """What a process does wrong now. The default is: nothing.

    Attributes
    ----------
    serial : int
        Told apart from the one before; a crash that is asked for happens once for each serial.
    seed : int
        Decides which messages are hit.
    loss, duplicate, reorder : float
        Chance, for each message in either direction, that it vanishes, comes twice, or is overtaken by the next.
    crash_at : int
        SIGKILL itself before the n-th publish on a topic with `crash_topic` in it; 0: do not.
    crash_topic : str
        Part of a topic; empty: any.
    wall_offset : float
        Seconds by which the wall clock is wrong.
    """

    serial: int = 0
    seed: int = 0
    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    crash_at: int = 0
    crash_topic: str = ""
    wall_offset: float = 0.0


class MischiefFile:
    """Reads a `Mischief` that another process may replace at any time.

    Parameters
    ----------
    path : Path
        A missing file means: nothing is wrong.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked = float("-inf")
        self._stamp: tuple[int, int] | None = None
        self._now = Mischief()

    def read(self) -> Mischief:
        """Return what is wrong now."""
        at = time.monotonic()
        if at - self._looked < _LOOK:
            return self._now
        self._looked = at
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._stamp:
                self._now = Mischief(**json.loads(self._path.read_text(encoding="utf-8")))
                self._stamp = stamp
        except FileNotFoundError:
            self._now = Mischief()
        return self._now

    def change(self, **changes: float | str) -> None:
        """Replace the file by one with other values, under the next serial; a reader sees one of the two, whole."""
        self._looked = float("-inf")
        now, beside = asdict(self.read()), self._path.with_suffix(".new")
        beside.write_text(json.dumps({**now, **changes, "serial": now["serial"] + 1}), encoding="utf-8")
        beside.replace(self._path)
        self._looked = float("-inf")


class FaultyTransport:
    """A transport around another; `broker.port.Transport` but for what `Mischief` asks.

    Parameters
    ----------
    inner : Transport
    file : MischiefFile
    """

    def __init__(self, inner: Transport, file: MischiefFile) -> None:
        self._inner = inner
        self._file = file
        self._random = random.Random()  # noqa: S311 - seeded by each mischief; faults are to be repeatable
        self._serial = -1
        self._left = 0
        self._lock = threading.RLock()
        self._held: dict[str, list[Callable[[], None]]] = {"up": [], "down": []}
        self._stopped = False

    def start(self, handlers: Handlers) -> None:
        """Begin connecting."""
        self._inner.start(replace(handlers, message=lambda message: self._arrived(message, handlers.message)))

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Queue a message, unless something is to go wrong with it."""
        with self._lock:
            mischief = self._look()
            if self._left and mischief.crash_topic in topic:
                self._left -= 1
                if not self._left:
                    os.kill(os.getpid(), signal.SIGKILL)

            def send() -> None:
                self._inner.publish(topic, payload, retain=retain)

            self._pass("up", topic, send, mischief, spare=retain or topic.endswith("/state"))

    def flush(self, timeout: float) -> bool:
        """Wait until all is acknowledged."""
        with self._lock:
            self._release("up")
        return self._inner.flush(timeout)

    def stop(self) -> None:
        """Disconnect cleanly."""
        with self._lock:
            self._stopped = True
            self._held = {"up": [], "down": []}
        self._inner.stop()

    def __getattr__(self, name: str) -> Any:
        """Be the other one in all else."""
        return getattr(self._inner, name)

    # Inside

    def _look(self) -> Mischief:
        mischief = self._file.read()
        if mischief.serial != self._serial:
            self._serial = mischief.serial
            self._random.seed(f"{mischief.seed}/{mischief.serial}")
            self._left = mischief.crash_at
        return mischief

    def _arrived(self, message: Message, handler: Callable[[Message], None]) -> None:
        with self._lock:
            spare = message.retained or message.topic.endswith("/state")
            self._pass("down", message.topic, lambda: handler(message), self._look(), spare=spare)

    def _pass(self, way: str, topic: str, send: Callable[[], None], mischief: Mischief, *, spare: bool) -> None:
        if spare or self._stopped:
            send()
            return
        draw = self._random.random()
        if draw < mischief.loss:
            _log.info("message-lost", way=way, topic=topic)
            return
        draw = self._random.random()
        if draw < mischief.reorder:
            _log.info("message-held", way=way, topic=topic)
            self._held[way].append(send)
            timer = threading.Timer(HOLD, self._overdue, [way])
            timer.daemon = True
            timer.start()
            return
        send()
        if self._random.random() < mischief.duplicate:
            _log.info("message-doubled", way=way, topic=topic)
            send()
        self._release(way)

    def _overdue(self, way: str) -> None:
        with self._lock:
            self._release(way)

    def _release(self, way: str) -> None:
        held, self._held[way] = self._held[way], []
        for send in held:
            if not self._stopped:
                send()


def let_wall_clock_jump(file: MischiefFile) -> None:
    """Make ``time.time`` of this process wrong by what the file says; call before anything else is imported."""
    right = time.time

    def wrong() -> float:
        return right() + file.read().wall_offset

    time.time = wrong
