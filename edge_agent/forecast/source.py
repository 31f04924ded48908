"""Where live samples come from: standard input, a local MQTT topic, a replayed table; each feeds a queue.

A sample is a JSON object of numbers, true and false (1 and 0), texts for columns of categories, and null for an empty
cell. What is none is given as the fault that it is: the forecaster counts it and goes on.
"""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.tls import tls_of
from edge_agent.sources import SPLIT, read_table
from edge_agent.sources.cells import is_finite
from edge_agent.sources.lines import Lines, unreadable
from edge_agent.sources.readers import kind_of
from schemas.errors import DataError, UsageError
from schemas.text import without_password

_log = structlog.get_logger("glassfleet.samples")

Sample = dict[str, Any]


WAITING = 1000
"""Samples that wait to be taken; a live topic drops the newest beyond it, a file waits."""

MAX_BYTES = 1 << 16
"""Longer lines and messages are no samples."""

_ARRAY = re.compile(rb"\s*\[\s*(\{|$)")
"""How a JSON array of objects begins, whose lines are no samples."""

_TOO_LONG = f"a sample of more than {MAX_BYTES} bytes"


@dataclass(frozen=True)
class Access:
    """How a broker that samples come from is reached.

    Attributes
    ----------
    identity : Path or None
        Folder with ``key.pem``, ``cert.pem`` and ``ca.pem`` for ``mqtts``.
    ca_file : Path or None
        Certificates to trust, in place of the folder's.
    insecure_plaintext : bool
        Allow ``mqtt`` to another machine.
    """

    identity: Path | None = None
    ca_file: Path | None = None
    insecure_plaintext: bool = False


def is_topic(source: str) -> bool:
    """Whether a source is a broker's topic; raises UsageError for a URL of something else."""
    is_topic = source.startswith(("mqtt://", "mqtts://"))
    if "://" in source and not is_topic:
        what = "give mqtt[s]://host/topic, a file or pipe of JSON lines, or -"
        raise UsageError(f"--source {without_password(source)}: {what}")
    return is_topic


def is_table(source: str) -> bool:
    """Whether a source is a file of a table, which is replayed: of a kind that stays as it is, and is no stream."""
    _, reader = kind_of(source)
    return reader is not None and reader.mark is None and not reader.is_stream


def link_of(source: str, access: Access = Access()) -> tuple[Link, str]:
    """Return how the broker of a source is reached, and the topic.

    Raises
    ------
    UsageError
        No topic is named, or the identity folder lacks a file.
    """
    scheme, _, rest = source.partition("://")
    host, slash, topic = rest.partition("/")
    if not slash or not topic:
        shown = rest.rpartition("@")[2]
        raise UsageError(
            f"--source {scheme}://{shown}: name the topic too, as in mqtt://127.0.0.1:1883/vehicle/samples"
        )
    link = Link(
        f"{scheme}://{host}",
        f"gf-samples-{threading.get_native_id()}",
        session_expiry=0,
        tls=tls_of(access.identity, access.ca_file),
        insecure_plaintext=access.insecure_plaintext,
    )
    return link, topic


class Samples:
    """Samples as they come; an iterable that ends with the source or with `stop`.

    Parameters
    ----------
    source : str
        As in `ForecastConfig.source`.
    speed : float
        Of a replay.
    access : Access
        Of a topic's broker.
    follow : bool
        At the end of a file wait for more, at the end of a named pipe for the next writer.
    behind : str
        Go on behind this `place` of a followed file, if it is still the same file (see `Followed`).
    is_strict : bool
        Whether a field of something else, such as a list, makes a sample none.

    Attributes
    ----------
    dropped : int
        Samples of a live topic that came faster than they were taken.
    place : str
        Of a followed file: where the sample that was given last ends.
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
        access: Access = Access(),
        follow: bool = False,
        behind: str = "",
        is_strict: bool = True,
    ) -> None:
        self._is_strict = is_strict
        self._queue: queue.Queue[tuple[Sample | str, str] | None] = queue.Queue(WAITING)
        self._is_stopping = False  # no Event: its lock would wait for itself when a second signal interrupts the first
        self._closing = threading.Event()
        self._transport: PahoTransport | None = None
        self._source = source
        self._fault: Exception | None = None
        self.dropped = 0
        self.place = behind
        self.is_replay = False
        if is_topic(source):
            self._listen(source, access)
        elif is_table(source):
            self.is_replay = True
            self._start(self._replay(Path(source), speed))
        else:
            lines = Lines(source, MAX_BYTES, self._closing, follow=follow, behind=behind)
            self._start(lambda: self._lines(lines))

    @property
    def is_stopped(self) -> bool:
        """Whether it was told to `stop`: it did not end with its source."""
        return self._is_stopping

    def stop(self) -> None:
        """End the iteration soon. May be called from a signal handler."""
        self._is_stopping = True

    def close(self) -> None:
        """Stop, and leave the file, or the broker."""
        self.stop()
        self._closing.set()
        if self._transport is not None:
            self._transport.stop()

    def __iter__(self) -> Iterator[Sample | str]:
        """Yield samples, and a text for each that is none.

        Raises
        ------
        DataError
            The source can no longer be read. What came before was given.
        """
        while not self._is_stopping:
            try:
                item = self._queue.get(timeout=0.2)
            except queue.Empty:
                continue
            if item is None:
                if self._fault is not None:
                    raise self._fault
                return
            sample, self.place = item
            yield sample

    # Feeding

    def _start(self, feed: Callable[[], None]) -> None:
        def run() -> None:
            try:
                feed()
            except OSError as fault:
                self._fault = unreadable(self._source, fault)
            except Exception as fault:  # noqa: BLE001 - raised where the samples are taken
                self._fault = fault
            finally:
                self._put(None)

        threading.Thread(target=run, name="samples", daemon=True).start()

    def _put(self, item: tuple[Sample | str, str] | None) -> None:
        while not self._closing.is_set():
            try:
                self._queue.put(item, timeout=0.2)
            except queue.Full:
                continue
            return

    def _lines(self, lines: Lines) -> None:
        for number, (line, place) in enumerate(lines):
            if number == 0 and line is not None and _ARRAY.match(line):
                mend = "Write each of its objects on a line of its own, for example with: jq -c '.[]'"
                raise DataError("it is a JSON array", mend, f"--source {self._source}")
            sample = _TOO_LONG if line is None else parse(line, is_strict=self._is_strict)
            self._put((sample, place))

    def _replay(self, path: Path, speed: float) -> Callable[[], None]:
        table = read_table(path, missing=None)  # the model says which cells may be empty
        names = [name for name in table.names if name != SPLIT]
        columns = [table.column(name).tolist() for name in names]

        def feed() -> None:
            begun = time.monotonic()
            for number, cells in enumerate(zip(*columns, strict=True)):
                if speed and self._closing.wait(max(0.0, begun + number / speed - time.monotonic())):
                    return
                self._put((dict(zip(names, cells, strict=True)), ""))

        return feed

    def _listen(self, source: str, access: Access) -> None:
        link, topic = link_of(source, access)

        def enqueue(message: Message) -> None:
            try:
                self._queue.put_nowait((parse(message.payload, is_strict=self._is_strict), ""))
            except queue.Full:
                self.dropped += 1

        self._transport = PahoTransport(link)
        self._transport.subscribe(topic)
        self._transport.start(
            Handlers(
                enqueue,
                lambda: _log.info("source-connected", topic=topic),
                lambda why: _log.warning("source-lost", topic=topic, reason=why, hint="it is tried again"),
            )
        )


def parse(data: bytes, *, is_strict: bool = True) -> Sample | str:
    """Return a sample, or in words why it is none; unless `is_strict`, its fields may be anything."""
    if len(data) > MAX_BYTES:
        return _TOO_LONG
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as fault:
        return f"not JSON: {fault}"[:200]
    if not isinstance(value, dict):
        return "a sample is a JSON object of field and value"
    for name, cell in value.items() if is_strict else ():
        if not is_finite(cell) and not isinstance(cell, str | None):
            return f"{name[:40]!r} is neither a finite number nor a text"
    return value
