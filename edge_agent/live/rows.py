"""From samples to rows: as they are, or by a plan's ``[time]``, as in learning."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from edge_agent.live.objects import seconds_of
from edge_agent.live.port import Sample
from glassfleet.data import presets
from glassfleet.data.alignment import Aligner, Row
from glassfleet.data.clock import Cut
from glassfleet.data.timeplan import TimePlan
from schemas.errors import UsageError, os_faults_as

_NO_PLAN: Final = (
    "values that come one by one make rows only by a plan with a table [time]: give it with --plan (for example rows = "
    '"Vehicle.Speed")'
)


def time_plan(name: str) -> TimePlan:
    """Return how samples become rows: the table ``[time]`` of a TOML file, or ``qoe``, the case study's.

    Raises
    ------
    UsageError
        The file cannot be read, has no such table, or one with a fault.
    """
    if name == presets.QOE:
        return presets.time_plan(name)
    with os_faults_as(UsageError, f"--plan {name}"):
        text = Path(name).read_bytes()
    try:
        document = tomllib.loads(text.decode())
    except ValueError as fault:
        raise UsageError(f"--plan {name}: not TOML: {fault}") from fault
    if "time" not in document:
        raise UsageError(f"--plan {name}: it has no table [time], which says how samples become rows")
    return TimePlan.from_document(document["time"])


class Rows:
    """The rows of one live source.

    Parameters
    ----------
    plan : TimePlan or None
        None: each sample is a row.
    wall : callable
        Seconds since the epoch, for samples that do not tell their time.

    Attributes
    ----------
    now : float
        The time of the sample that was taken last.
    times : list of float
        The times of the rows that were returned last, in seconds.
    stored : int
        Samples that were left out because the source had them stored and nobody knows since when.
    """

    def __init__(self, plan: TimePlan | None, *, wall: Callable[[], float] = time.time) -> None:
        self._plan = plan
        self._aligner = None if plan is None else Aligner(plan)
        self._wall = wall
        self._drive: object = None
        self.now = 0.0
        self.times: list[float] = []
        self.stored = 0

    def cuts(self) -> list[Cut]:
        """Return where drives began since the last call, because of what the clock did."""
        if self._aligner is None:
            return []
        cuts, self._aligner.cuts = self._aligner.cuts, []
        return cuts

    def push(self, sample: Sample) -> list[dict[str, Any]]:
        """Take a sample; return the rows that it makes, oldest first.

        Raises
        ------
        ValueError
            It can be no part of a row. It is not taken.
        """
        plan = self._plan
        at = sample.time
        if at is None and plan is not None and plan.column:
            if plan.column not in sample.values:
                raise ValueError(f"the sample does not tell its time, {plan.column!r}")
            at = seconds_of(sample.values[plan.column])
        if at is None and sample.is_stored:
            self.stored += 1
            self.times = []
            return []
        self.now = self._wall() if at is None else at
        if plan is None or self._aligner is None:
            if not sample.is_whole:
                raise ValueError(_NO_PLAN)
            self.times = [self.now]
            return [sample.values]
        rows = []
        if plan.drive and plan.drive in sample.values:
            drive = sample.values[plan.drive]
            if self._drive is not None and drive != self._drive:
                rows += self._aligner.end_drive()
            self._drive = drive
        try:
            rows += self._aligner.push(self.now, sample.values, is_whole=sample.is_whole)
        except TypeError as fault:
            raise ValueError(str(fault)) from fault
        return self._named(plan, rows)

    def flush(self) -> list[dict[str, Any]]:
        """Return the rows that wait for a later sample: the source has ended."""
        if self._plan is None or self._aligner is None:
            return []
        return self._named(self._plan, self._aligner.flush())

    def _named(self, plan: TimePlan, rows: list[Row]) -> list[dict[str, Any]]:
        self.times = [row.time for row in rows]
        told = [{plan.drive: row.drive, plan.column: row.time} for row in rows]
        return [
            {**{name: value for name, value in each.items() if name}, **row.cells}
            for each, row in zip(told, rows, strict=True)
        ]


def columns_of(plan: TimePlan) -> tuple[str, ...]:
    """Return the columns of the rows that a plan makes, in their order."""
    return (*(name for name in (plan.drive, plan.column) if name), *plan.inputs)
