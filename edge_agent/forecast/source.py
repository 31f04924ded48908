"""Where live samples come from: standard input, a local MQTT topic, a replayed table; each feeds a queue.

A sample is a JSON object of numbers (and texts, for columns of categories). What is none is given as the fault that it
is: the forecaster counts it and goes on.
"""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from edge_agent.sources import SPLIT, read_table
from schemas.errors import DataError, UsageError

REPLAYED = (".csv", ".csv.gz", ".parquet")

Sample = dict[str, Any]


@dataclass(frozen=True)
class SampleLimits:
    """How much of a source is taken.

    Attributes
    ----------
    waiting : int
        Samples that wait to be taken; a live topic drops the newest beyond it, a file waits.
    max_bytes : int
        Longer lines and messages are no samples.
    """

    waiting: int = 1000
    max_bytes: int = 1 << 16


class Samples:
    """Samples as they come; an iterable that ends with the source or with `stop`.

    Parameters
    ----------
    source : str
        As in `ForecastConfig.source`.
    speed : float
        Of a replay.
    limits : SampleLimits

    Attributes
    ----------
    dropped : int
        Samples of a live topic that came faster than they were taken.
    is_replay : bool
        Whether the samples are a table's rows.

    Raises
    ------
    DataError, UsageError
        The source cannot be used.
    """

    def __init__(
        self,
        source: str,
        *,
        speed: float = 1.0,
        limits: SampleLimits = SampleLimits(),
    ) -> None:
        self._longest = limits.max_bytes
        self._queue: queue.Queue[Sample | str | None] = queue.Queue(limits.waiting)
        self._stopping = threading.Event()
        self._transport: PahoTransport | None = None
        self.dropped = 0
        self.is_replay = False
        if source.startswith(("mqtt://", "mqtts://")):
            self._listen(source)
        else:
            self._start(self._feeder(source, speed))

    def stop(self) -> None:
        """End the iteration soon. May be called from a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        """Stop, and leave the broker if there is one."""
        self.stop()
        if self._transport is not None:
            self._transport.stop()

    def __iter__(self) -> Iterator[Sample | str]:
        """Yield samples, and a text for each that is none."""
        while not self._stopping.is_set():
            try:
                item = self._queue.get(timeout=0.2)
            except queue.Empty:
                continue
            if item is None:
                return
            yield item

    # Feeding

    def _start(self, feed: Callable[[], None]) -> None:
        def run() -> None:
            try:
                feed()
            finally:
                self._put(None)

        threading.Thread(target=run, name="samples", daemon=True).start()

    def _put(self, item: Sample | str | None) -> None:
        while not self._stopping.is_set():
            try:
                self._queue.put(item, timeout=0.2)
            except queue.Full:
                continue
            return

    def _feeder(self, source: str, speed: float) -> Callable[[], None]:
        if source == "-":
            return lambda: self._lines(sys.stdin.fileno())
        path = Path(source)
        if source.endswith(REPLAYED):
            self.is_replay = True
            return self._replay(path, speed)
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError as fault:
            raise DataError(f"--source {source}: {fault.strerror}") from fault
        return lambda: self._lines(handle)

    def _lines(self, handle: int) -> None:
        # Not sys.stdin.buffer: its lock, held by a thread that waits for input, aborts the process at its end.
        begun = b""
        while block := os.read(handle, self._longest):
            *lines, begun = (begun + block).split(b"\n")
            if len(begun) > self._longest:
                lines, begun = [*lines, begun], b""
            for line in lines:
                if line.strip():
                    self._put(parse(line, self._longest))
        if begun.strip():
            self._put(parse(begun, self._longest))

    def _replay(self, path: Path, speed: float) -> Callable[[], None]:
        table = read_table(path)
        names = [name for name in table.names if name != SPLIT]
        columns = [table.column(name).tolist() for name in names]

        def feed() -> None:
            begun = time.monotonic()
            for number, cells in enumerate(zip(*columns, strict=True)):
                if speed and self._stopping.wait(max(0.0, begun + number / speed - time.monotonic())):
                    return
                self._put(dict(zip(names, cells, strict=True)))

        return feed

    def _listen(self, url: str) -> None:
        scheme, _, rest = url.partition("://")
        host, slash, topic = rest.partition("/")
        if not slash or not topic:
            raise UsageError(f"--source {url}: name the topic too, as in mqtt://127.0.0.1:1883/vehicle/samples")

        def take(message: Message) -> None:
            try:
                self._queue.put_nowait(parse(message.payload, self._longest))
            except queue.Full:
                self.dropped += 1

        client = f"gf-samples-{threading.get_native_id()}"
        self._transport = PahoTransport(Link(f"{scheme}://{host}", client, session_expiry=0))
        self._transport.subscribe(topic)
        self._transport.start(Handlers(take, lambda: None, lambda _why: None))


def parse(data: bytes, longest: int = SampleLimits.max_bytes) -> Sample | str:
    """Return a sample, or in words why it is none."""
    if len(data) > longest:
        return f"a sample of more than {longest} bytes"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as fault:
        return f"not JSON: {fault}"[:200]
    if not isinstance(value, dict):
        return "a sample is a JSON object of field and value"
    for name, cell in value.items():
        number = isinstance(cell, int | float) and not isinstance(cell, bool) and math.isfinite(cell)
        if not number and not isinstance(cell, str):
            return f"{name[:40]!r} is neither a finite number nor a text"
    return value
