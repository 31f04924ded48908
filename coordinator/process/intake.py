"""Past one core: the coordinator's transport where processes of their own receive what the fleet answers.

A vehicle's topic names its shard, a hash of its id. Each worker (`coordinator.process.intake_worker`) has a connection
of its own and some shards. It receives, verifies, decodes and checks their answers, hands events on over a socket, and
publishes the receipts that come back. The coordinator alone decides and writes the journal, as without workers; all
else that it says and hears goes over its own connection.

A worker that ends, however it does, is started again. Until then the coordinator behaves as without a broker, for some
vehicles cannot be heard; with the worker's return it publishes again what is retained, and vehicles send what has no
receipt.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from broker.port import Handlers, Message, Transport
from coordinator.config import CoordinatorConfig
from coordinator.messages import Verified
from coordinator.process.frames import READ_BYTES, FrameReader, framed
from schemas.errors import WireError
from schemas.topics import Topics, shard_of

AGAIN_FIRST, AGAIN_LONGEST = 0.25, 10.0
"""Seconds until a worker that ended is started again: twice as long each time, unless it had lived for the longest."""

PATIENCE = 10.0
"""Seconds after which a worker that says nothing is killed: no deadline passes while it may still bring answers."""

STARTS = 60.0
"""Seconds that it may take until it says its first word, on a machine with much to do; nothing waits for it then."""

LOOK = 0.1
"""Seconds between two looks at the workers."""

STOP_WAIT = 3.0
"""Seconds that workers have for their last receipts."""

OWN = 0
"""Stands for the coordinator's own connection among the workers' numbers."""

_log = structlog.get_logger("coordinator")


@dataclass(eq=False)
class _Worker:
    number: int
    process: subprocess.Popen[bytes]
    pipe: socket.socket
    begun: float
    heard: float
    frames: FrameReader = field(default_factory=FrameReader)
    unsent: bytearray = field(default_factory=bytearray)
    status: str = "it starts"


class Intake:
    """A transport, see `broker.port.Transport` and the module.

    Parameters
    ----------
    own : Transport
        The coordinator's own connection.
    count : callable
        Takes the name of a counter, and by how much it rises.

    Attributes
    ----------
    hold : callable
        Takes a worker's number, and since when what it has may not be here yet, see `EventQueue.hold`.
    """

    def __init__(
        self, own: Transport, config: CoordinatorConfig, topics: Topics, count: Callable[[str, int], None]
    ) -> None:
        self._own, self._config, self._topics, self._count = own, config, topics, count
        self._first = framed(config.model_dump(mode="json"))
        self._workers: dict[int, _Worker] = {}
        self._again = dict.fromkeys(range(1, config.intake_workers + 1), (0.0, AGAIN_FIRST))
        self._down = {OWN, *self._again}
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._wake_reader, self._wake_writer = socket.socketpair()
        for each in (self._wake_reader, self._wake_writer):
            each.setblocking(False)
        self._selector.register(self._wake_reader, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="intake", daemon=True)
        self._is_over = False
        self.hold: Callable[[int, float | None], None] = lambda _number, _since: None

    # -- the port, called from any thread -------------------------------------------------------------------------

    def start(self, handlers: Handlers) -> None:
        """Begin connecting; returns at once."""
        self._handlers = handlers
        self._own.start(Handlers(handlers.message, self._own_up, partial(self._lost, OWN)))
        self._thread.start()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Queue a message: a receipt at the agent's worker, all else at the own connection; workers hear requests."""
        if topic.endswith("/request"):
            for number in self._again:
                self._tell(number, topic, payload)
        elif topic.endswith("/receipt"):
            agent = topic[len(self._topics.prefix) :].split("/")[1]
            if self._tell(shard_of(agent) % len(self._again) + 1, topic, payload):
                return
        self._own.publish(topic, payload, retain=retain)

    def _tell(self, number: int, topic: str, payload: bytes) -> bool:
        """Send something to a worker; whether there is one."""
        with self._lock:
            worker = self._workers.get(number)
            if worker is None:
                return False
            is_awake = bool(worker.unsent)
            worker.unsent += framed(topic, payload)
        if not is_awake:
            self._wake()
        return True

    def subscribe(self, pattern: str) -> None:
        """Subscribe at the own connection; workers subscribe to contributions."""
        if pattern != self._topics.contributions():
            self._own.subscribe(pattern)

    def unsubscribe(self, pattern: str) -> None:
        """End a subscription."""
        self._own.unsubscribe(pattern)

    def flush(self, timeout: float) -> bool:
        """Wait until the broker has acknowledged all that was published on the own connection."""
        return self._own.flush(timeout)

    def stop(self) -> None:
        """Disconnect cleanly, let the workers send their last receipts, and end."""
        self._is_over = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        self._own.stop()

    @property
    def is_connected(self) -> bool:
        """Whether the own connection stands now."""
        return self._own.is_connected

    def lack(self) -> str:
        """Say which workers are not connected; empty: all are. From any thread."""
        return ", ".join(f"intake worker {number} is not connected" for number in sorted(self._down - {OWN}))

    @property
    def max_message_bytes(self) -> int:
        """Largest payload that `publish` accepts now."""
        return self._own.max_message_bytes

    # -- who is there -----------------------------------------------------------------------------------------------

    def _own_up(self) -> None:
        # A life without workers may have left the subscription in the session that the broker keeps.
        self._own.unsubscribe(self._topics.contributions())
        self._up(OWN)

    def _up(self, number: int) -> None:
        with self._lock:
            self._down.discard(number)
            if not self._down:
                self._handlers.connected()

    def _lost(self, number: int, why: str) -> None:
        with self._lock:
            is_first = not self._down
            self._down.add(number)
            if is_first:
                self._handlers.disconnected(why)

    # -- the thread -------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway
            self._wake_writer.send(b"\0")

    def _run(self) -> None:
        while not self._is_over:
            for number, (at, wait) in list(self._again.items()):
                if number not in self._workers and at <= time.monotonic():
                    try:
                        self._begin(number)
                    except OSError as fault:  # no more processes, or files, are to be had
                        _log.warning("intake-worker-not-started", worker=number, reason=str(fault), again=wait)
                        self._put_off(number, wait)
            self._step(LOOK)
        self._end_all()

    def _begin(self, number: int) -> None:
        pipe, its = socket.socketpair()
        command = [sys.executable, "-P", "-m", "coordinator.process.intake_worker", str(its.fileno()), str(number)]
        with its:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[its.fileno()])  # noqa: S603 - our own
        pipe.setblocking(False)
        now = time.monotonic()
        worker = _Worker(number, process, pipe, now, now + STARTS, unsent=bytearray(self._first))
        self._selector.register(pipe, selectors.EVENT_READ, worker)
        with self._lock:
            self._workers[number] = worker
        _log.info("intake-worker-started", worker=number, pid=process.pid)

    def _step(self, timeout: float) -> None:
        """Send what waits, and take what has come."""
        for worker in self._workers.values():
            if worker.unsent:
                self._send(worker)
        for key, mask in self._selector.select(timeout):
            if key.data is None:
                with contextlib.suppress(OSError):
                    self._wake_reader.recv(4096)
            elif mask & selectors.EVENT_READ:
                self._read(key.data)
        silent = time.monotonic() - PATIENCE
        for worker in list(self._workers.values()):
            if worker.process.poll() is not None:
                self._ended(worker)
            elif worker.heard < silent:
                worker.process.kill()

    def _send(self, worker: _Worker) -> None:
        with self._lock, contextlib.suppress(OSError):
            while worker.unsent:
                del worker.unsent[: worker.pipe.send(worker.unsent)]
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.unsent else 0)
        if self._selector.get_key(worker.pipe).events != events:
            self._selector.modify(worker.pipe, events, worker)

    def _read(self, worker: _Worker) -> None:
        try:
            data = worker.pipe.recv(READ_BYTES)
        except OSError:
            return  # it ends
        worker.heard = time.monotonic()
        try:
            for kind, *value in worker.frames.add(data):
                self._take(worker, kind, value)
        except WireError:  # it has gone mad: nothing that it says can be told apart any more
            worker.process.kill()

    def _take(self, worker: _Worker, kind: str, value: Sequence[Any]) -> None:
        if kind != "state":
            self._handlers.message(message_of(kind, value))
        else:
            since, status, counts = value
            self.hold(worker.number, since)
            for name, number in counts.items():
                self._count(name, number)
            if status != worker.status:
                worker.status = status
                if status:
                    self._lost(worker.number, f"intake worker {worker.number}: {status}")
                else:
                    self._up(worker.number)

    def _ended(self, worker: _Worker) -> None:
        """Forget a worker that has ended, and let another take its place after a while."""
        number, code, now = worker.number, worker.process.returncode, time.monotonic()
        with self._lock:
            del self._workers[number]
        self._selector.unregister(worker.pipe)
        worker.pipe.close()
        self.hold(number, None)
        wait = AGAIN_FIRST if now - worker.begun > AGAIN_LONGEST else self._again[number][1]
        self._put_off(number, wait)
        self._count("intake.ended", 1)
        _log.warning("intake-worker-ended", worker=number, pid=worker.process.pid, code=code, again=wait)
        self._lost(number, f"intake worker {number} ended")

    def _put_off(self, number: int, wait: float) -> None:
        self._again[number] = (time.monotonic() + wait, min(2 * wait, AGAIN_LONGEST))

    def _end_all(self) -> None:
        deadline = time.monotonic() + STOP_WAIT
        for worker in self._workers.values():
            worker.pipe.settimeout(STOP_WAIT)
            with contextlib.suppress(OSError):
                worker.pipe.sendall(worker.unsent)
                worker.pipe.shutdown(socket.SHUT_RDWR)
        for worker in self._workers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.wait()
            worker.pipe.close()


def message_of(kind: str, value: Sequence[Any]) -> Message:
    """Return what a worker hands on."""
    if kind == "message":
        return Message(*value)
    topic, event, run, arrived, impossible = value
    return Verified(topic, event, run=run, arrived=arrived, impossible=impossible)
