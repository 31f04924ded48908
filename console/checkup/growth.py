"""How a journal grows, and when its disk is full. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple

OVERHEAD = 1.15
"""Bytes of the database for each byte in its rows: measured, with indexes and half-filled pages."""


class JournalGrowth(NamedTuple):
    """What a journal grows by.

    Attributes
    ----------
    events : float
        Bytes of events that it has.
    events_daily, rest_daily : float
        Bytes a day that come: of events, which go again by age; and of all else, which stays.
    days : float
        So long events stay.
    """

    events: float
    events_daily: float
    rest_daily: float
    days: float

    @property
    def daily(self) -> float:
        """Bytes of disk that are written a day."""
        return OVERHEAD * (self.events_daily + self.rest_daily)

    @property
    def to_come(self) -> float:
        """Bytes of disk by which events grow until as many go as come."""
        return OVERHEAD * max(0.0, self.events_daily * self.days - self.events)

    def days_until(self, free: float) -> float:
        """Return the days until so many bytes are full; infinite: never.

        Examples
        --------
        >>> JournalGrowth(27e6, 27e6, 0.0, 30).days_until(10e9)
        inf
        >>> round(JournalGrowth(27e6, 27e6, 0.0, 3650).days_until(10e9))
        322
        """
        if free < self.to_come:
            return free / self.daily
        rest = OVERHEAD * self.rest_daily
        return (free - self.to_come) / rest if rest else math.inf
