"""Samples as they come, and the rows that they make: as they are, or by a plan's ``[time]``, as in learning."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from edge_agent.live.adapters import adapter_of
from edge_agent.live.plan import LivePlan
from edge_agent.live.port import LiveSample, SampleRequest
from edge_agent.live.stream import unreadable
from glassfleet.data.alignment import Aligner, Row
from glassfleet.data.clock import Cut
from glassfleet.data.timeplan import TimePlan

_NO_PLAN: Final = (
    "values that come one by one make rows only by a plan with a table [time]: give it with --plan (for example rows = "
    '"Vehicle.Speed")'
)


class LiveRows:
    """The rows of one live source.

    Parameters
    ----------
    plan : LivePlan or None
        None: each sample is a row, as it comes.
    units : mapping of str to str
        What the source tells of its signals' units, see `edge_agent.live.port.SampleRequest`.
    drive : int
        Number of the first drive.

    Attributes
    ----------
    now : float
        The time of the sample that was taken last.
    drive : int
        The drive of the last row.
    times : list of float
        The times of the rows that were returned last, in seconds.
    """

    def __init__(
        self,
        plan: LivePlan | None,
        *,
        units: Mapping[str, str] | None = None,
        drive: int = 1,
    ) -> None:
        self._plan = plan or LivePlan()
        self._units = {} if units is None else units
        self._time = self._plan.time
        self._aligner = None if self._time is None else Aligner(self._time)
        self._told_drive: object = None
        self._first_drive = self.drive = drive
        self.now = 0.0
        self.times: list[float] = []

    def cuts(self) -> list[Cut]:
        """Return where drives began since the last call, because of what the clock did."""
        if self._aligner is None:
            return []
        cuts, self._aligner.cuts = self._aligner.cuts, []
        return cuts

    def push(self, sample: LiveSample) -> list[dict[str, Any]]:
        """Take a sample; return the rows that it makes, oldest first.

        Raises
        ------
        ValueError
            It can be no part of a row. It is not taken.
        """
        sample = self._plan.taken(sample, self._units)
        if sample.time is None and sample.is_stored:
            raise ValueError("its source had it stored, and it does not tell its time")
        self.now = time.time() if sample.time is None else sample.time
        plan = self._time
        if plan is None or self._aligner is None:
            if not sample.is_whole:
                raise ValueError(_NO_PLAN)
            self.times = [self.now]
            return [sample.values]
        rows = []
        if plan.drive and plan.drive in sample.values:
            drive = sample.values[plan.drive]
            if self._told_drive is not None and drive != self._told_drive:
                rows += self._aligner.end_drive()
            self._told_drive = drive
        before = self._aligner.left_out
        rows += self._aligner.push(self.now, sample.values, is_whole=sample.is_whole)
        if self._aligner.left_out > before:
            raise ValueError(f"its time, {self.now:.15g}, was taken already")
        return self._named(plan, rows)

    @property
    def units(self) -> dict[str, str]:
        """The units of the columns of the rows, as far as plan and source tell them."""
        return self._plan.units_of(self._units)

    def flush(self) -> list[dict[str, Any]]:
        """Return the rows that wait for a later sample: the source has ended."""
        if self._time is None or self._aligner is None:
            return []
        return self._named(self._time, self._aligner.flush())

    def _named(self, plan: TimePlan, rows: list[Row]) -> list[dict[str, Any]]:
        self.times = [row.time for row in rows]
        self.drive = self._first_drive + rows[-1].drive if rows else self.drive
        names = [{plan.drive: self._first_drive + row.drive, plan.column: row.time} for row in rows]
        return [
            {**{name: value for name, value in each.items() if name}, **row.cells}
            for each, row in zip(names, rows, strict=True)
        ]


# --- samples as they come: an adapter in a thread of its own, which feeds a queue -------------------------------------


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
