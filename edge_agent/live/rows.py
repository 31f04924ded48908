"""From samples to rows: as they are, or by a plan's ``[time]``, as in learning."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from edge_agent.live.plan import LivePlan
from edge_agent.live.port import LiveSample
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
    wall : callable
        Seconds since the epoch, for samples that do not tell their time.

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
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._plan = plan or LivePlan()
        self._units = {} if units is None else units
        self._time = self._plan.time
        self._aligner = None if self._time is None else Aligner(self._time)
        self._wall = wall
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
        self.now = self._wall() if sample.time is None else sample.time
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
