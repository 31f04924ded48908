"""Samples as they come: an adapter in a thread of its own, which feeds a queue."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

from edge_agent.live.adapters import adapter_of
from edge_agent.live.port import LiveSample, SampleRequest
from edge_agent.live.stream import unreadable

WAITING = 1000
"""Samples that wait to be taken; a live server's newest are lost beyond it, a file waits."""


class Samples:
    """Samples, and a text for each that is none; an iterable that ends with the source or with `stop`.

    Parameters
    ----------
    asked : SampleRequest

    Attributes
    ----------
    is_replay : bool
        Whether the samples were recorded before.

    Raises
    ------
    DataError, UsageError, BrokerError
        The source cannot be used.
    """

    def __init__(self, asked: SampleRequest) -> None:
        self._asked = asked
        self._queue: queue.Queue[LiveSample | str | None] = queue.Queue(WAITING)
        self._is_stopping = False  # no Event: its lock would wait for itself when a second signal interrupts the first
        self._fault: Exception | None = None
        adapter = adapter_of(asked.source)
        self.is_replay = adapter.files == "table"
        samples = adapter.read(asked)
        threading.Thread(target=self._feed, args=(samples,), name="samples", daemon=True).start()

    @property
    def lost(self) -> int:
        """Samples that came faster than they were taken."""
        return self._asked.lost

    @property
    def is_stopped(self) -> bool:
        """Whether it was told to `stop`: it did not end with its source."""
        return self._is_stopping

    def stop(self) -> None:
        """End the iteration soon. May be called from a signal handler."""
        self._is_stopping = True

    def close(self) -> None:
        """Stop, and leave the source."""
        self.stop()
        self._asked.stopping.set()

    def __iter__(self) -> Iterator[LiveSample | str]:
        """Yield samples.

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
            yield item

    def _feed(self, samples: Iterator[LiveSample | str]) -> None:
        try:
            for sample in samples:
                self._put(sample)
        except OSError as fault:
            self._fault = unreadable(self._asked.source, fault)
        except Exception as fault:  # noqa: BLE001 - raised where the samples are taken
            self._fault = fault
        self._put(None)

    def _put(self, item: LiveSample | str | None) -> None:
        while not self._asked.stopping.is_set():
            try:
                self._queue.put(item, timeout=0.2)
            except queue.Full:
                continue
            return
