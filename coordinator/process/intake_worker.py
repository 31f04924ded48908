"""An intake worker: a process that receives, verifies and decodes what some shards of the fleet answer.

It does with each message what the coordinator would, by the same functions, and hands on the event; what is no event is
handed on as it came. It decides and remembers nothing, but for answers of which parts are missing: killed at any
moment, it loses what it had not handed on, and vehicles send that again until they have a receipt. Receipts come from
the coordinator, after the journal; it seals and publishes them.

`coordinator.process.intake` starts it, and it ends when its coordinator does, however that ends.
"""

from __future__ import annotations

import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from broker.port import Handlers, Message
from broker.signed import SignedTransport
from broker.tls import worker_identity
from coordinator.config import CoordinatorConfig
from coordinator.engine import Answer, Engine, Event
from coordinator.engine.events import to_bytes
from coordinator.messages import Decoder
from coordinator.process.frames import framed, received
from coordinator.process.link import connects, credentials_of, link_of
from coordinator.process.queue import EventQueue
from coordinator.telemetry import logs
from glassfleet.contract.messages import Task
from schemas.envelope import Envelope
from schemas.errors import NotFoundError
from schemas.messages import Request
from schemas.topics import SHARDS, Topics

BATCH = 256
"""Messages that are handed on at once."""

PAUSE = 0.1
"""Seconds between two words to the coordinator, when nothing comes."""

FLUSH = 2.0
"""Seconds that the last receipts may take."""

TASKS = 64
"""So many of the last tasks are remembered."""

QUEUED = 100_000
"""Messages that wait at most."""


class IntakeWorker:
    """The worker of a number.

    Parameters
    ----------
    pipe : socket.socket
        To the coordinator.
    number : int
        From 1 to `intake_workers`, modulo which its shards are one less.
    """

    def __init__(self, pipe: socket.socket, number: int, config: CoordinatorConfig, engine: Engine) -> None:
        workers, topics = config.intake_workers, Topics(config.fleet)
        self._pipe = pipe
        self._counts = Counter[str]()
        self._status = "it has not connected yet"
        self._is_over = False
        self._engine, self._fleet = engine, config.fleet
        self._tasks: dict[str, Task] = {}
        self._queue = EventQueue(
            QUEUED, config.queue_bytes // workers, time.monotonic, full_wait=config.connection.keepalive / 2
        )
        self._decoder = Decoder(topics)
        credentials = credentials_of(config.identity)
        if config.identity is not None:
            config = config.model_copy(update={"identity": worker_identity(config.identity, number)})
        # No session is kept for it, as there may be fewer workers next time: what it misses is sent again.
        link = replace(link_of(config, f"-intake-{number}"), session_expiry=0)
        self._transport = connects(config, credentials, lambda name: self._counts.update([name]))(link)
        for shard in range(number - 1, SHARDS, workers):
            self._transport.subscribe(topics.contributions(shard))

    def serve(self, said: Iterable[Sequence[Any]]) -> None:
        """Take what the coordinator says, requests and receipts, and work until it says nothing more: it has ended."""
        listener = threading.Thread(target=self._listen, args=[said], daemon=True)
        listener.start()
        self._transport.start(Handlers(self._queue.put, self._connected, self._disconnected))
        with suppress(OSError):  # the coordinator has ended: what it has not read is sent again
            while not self._is_over:
                self._work()
        listener.join(FLUSH)
        self._transport.flush(FLUSH)
        self._transport.stop()

    def _work(self) -> None:
        if isinstance(self._transport, SignedTransport):
            self._transport.look()
        batch = self._queue.get_batch(BATCH, PAUSE)
        frames = [self.frame(*each) for each in zip(batch.messages, batch.arrived, strict=True)]
        now, since = time.monotonic(), self._queue.oldest()
        counts, self._counts = self._counts, Counter()
        frames.append(framed("state", now if since is None else since, self._status, dict(counts)))
        self._pipe.sendall(b"".join(frames))

    def frame(self, message: Message, arrived: float) -> bytes:
        """Return what the coordinator is told of a message; empty: nothing yet."""
        match self._decoder.decode(message, arrived):
            case (str(run), event):
                return framed("event", message.topic, to_bytes(event), run, arrived, self._impossible(event))
            case None:
                self._counts.update({"messages": 1, "bytes": len(message.payload)})
                return b""
        return framed("message", message.topic, message.payload, message.retained)

    def _impossible(self, event: Event) -> str | None:
        """Return why an answer cannot be true, see `Answer`."""
        if not isinstance(event, Answer) or (task := self._tasks.get(event.task_digest)) is None:
            return None
        with suppress(NotFoundError):  # a question that is no scheme's
            return self._engine.impossible(task, event)
        return None

    def _listen(self, said: Iterable[Sequence[Any]]) -> None:
        with suppress(OSError):
            for topic, payload in said:
                self.hear(topic, payload)
        self._is_over = True

    def hear(self, topic: str, payload: bytes) -> None:
        """Publish a receipt, and remember what a request asks; into answers to one in parts the coordinator looks."""
        if topic.endswith("/receipt"):
            self._transport.publish(topic, payload)
        elif payload:
            request = Envelope.from_bytes(payload, fleet=self._fleet).body
            if isinstance(request, Request) and request.private is None:
                asked = (request.task_digest, Task.from_value(request.task))
                self._tasks = dict([*self._tasks.items(), asked][-TASKS:])

    def _connected(self) -> None:
        self._status = ""

    def _disconnected(self, why: str) -> None:
        self._status = why


def main() -> None:
    """Work for the coordinator at the other end of a socket, whose number is the first argument."""
    for number in (signal.SIGINT, signal.SIGTERM):  # for the coordinator: this process ends with it
        signal.signal(number, signal.SIG_IGN)
    pipe = socket.socket(fileno=int(sys.argv[1]))
    values = received(pipe)
    [settings] = next(values)
    config = CoordinatorConfig.model_validate(settings)
    logs.configure(config.log_level, config.log_format, fleet=config.fleet)
    IntakeWorker(pipe, int(sys.argv[2]), config, Engine()).serve(values)


if __name__ == "__main__":
    main()
