"""The state of a rollout."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from coordinator.models.rollout import events
from coordinator.models.rollout.table import TABLE, Phase


@dataclass(frozen=True)
class Stage:
    """A stage that was opened.

    Attributes
    ----------
    below : int
        Threshold of the vehicles' places.
    asked : tuple of str
        Of those that were up, who is below it.
    opened, closed : float
        Coordinator's time, seconds; `closed` is 0 while it is open.
    verdict : str
        How it was judged, in words; empty while it is open.
    """

    share: float
    below: int
    asked: tuple[str, ...]
    opened: float
    closed: float = 0.0
    verdict: str = ""


@dataclass(frozen=True)
class Rollout:
    """The state.

    Attributes
    ----------
    stages : tuple of Stage
        Opened ones; the last is the current one, unless the phase is ``opening``.
    reports : dict
        Agent -> its report.
    cannot : dict
        Agent -> why it cannot report.
    due : float
        When the phase's deadline is.
    left : float
        Seconds that were left when it was paused.
    reason : str
        Why it ended or stands still.
    outcome : str
        The name of its end, a cause in `TABLE`; empty before.
    at : float
        Time of the last event.
    """

    start: events.Started
    phase: Phase
    due: float
    at: float
    stages: tuple[Stage, ...] = ()
    reports: dict[str, events.Reported] = field(default_factory=dict)
    cannot: dict[str, str] = field(default_factory=dict)
    left: float = 0.0
    reason: str = ""
    outcome: str = ""

    @property
    def is_ended(self) -> bool:
        """Whether it has come to a named end."""
        return self.phase in TABLE.ended

    @property
    def is_open(self) -> bool:
        """Whether a stage is open, perhaps paused."""
        return bool(self.stages) and not self.stages[-1].closed

    @property
    def able(self) -> frozenset[str]:
        """Who was asked in the last stage, but for those that said they cannot."""
        return frozenset(self.stages[-1].asked) - set(self.cannot) if self.stages else frozenset()

    @property
    def awaited(self) -> frozenset[str]:
        """Who has yet to report."""
        return self.able - set(self.reports)

    @property
    def needed(self) -> int:
        """Reports that the open stage needs."""
        least = self.start.plan.min_reports
        return least if isinstance(least, int) else max(1, math.ceil(least * len(self.able) - 1e-9))
