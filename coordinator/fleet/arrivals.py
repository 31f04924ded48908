"""Births and wills as they become events of the runs: taken, refused or held back. No clock, no socket of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import structlog

from coordinator.engine import AgentDown, AgentUp
from coordinator.fleet.directory import Fleet, offer_of, size_of
from coordinator.fleet.rebroadcast import Newcomers
from coordinator.limits import FleetLimits
from coordinator.messages.decoder import Birth, Death

_log = structlog.get_logger("coordinator")

_HELD_BYTES = 4608
"""Most memory of a birth certificate or last will that is held back, without the names of columns and schemes."""


class _Held(NamedTuple):
    """What came too often: when it is due, what it is, the bytes of memory that it takes."""

    due: float
    found: Birth | Death
    size: int


class Reception:
    """Who comes and goes, no faster than the coordinator can write it down.

    Parameters
    ----------
    wall : callable
        Wall clock, for displays.
    clock : callable
        Seconds that only go forward.
    limits : FleetLimits
    newcomer_pause : float
        See `coordinator.fleet.rebroadcast`.
    metrics : Counter
        Counts what is held back and refused.

    Attributes
    ----------
    fleet : Fleet
    newcomers : Newcomers
    """

    def __init__(
        self,
        wall: Callable[[], float],
        clock: Callable[[], float],
        limits: FleetLimits,
        newcomer_pause: float,
        metrics: Counter[str],
    ) -> None:
        self.fleet = Fleet(wall, clock, limits)
        self.newcomers = Newcomers(newcomer_pause)
        self._clock = clock
        self._metrics = metrics
        self._most_bytes = limits.fleet_bytes
        self._held: dict[str, _Held] = {}

    def take(self, found: Birth | Death, at: float) -> AgentUp | AgentDown | None:
        """Return what a birth certificate or last will means to the runs; None: nothing, or nothing yet.

        Parameters
        ----------
        found : Birth or Death
        at : float
            The event's time, on the coordinator's time line.
        """
        agent = found.agent
        former = self._held.pop(agent, None)
        self.fleet.held -= 0 if former is None else former.size
        known = (found.body, None) if isinstance(found, Birth) else (None, found.incarnation)
        wait = self.fleet.wait(agent, *known)
        if wait > 0:
            self._hold(found, self._clock() + wait)
            return None
        if isinstance(found, Death):
            is_news = self.fleet.down(agent, found.incarnation, found.software, found.born)
            return AgentDown(at, agent) if is_news else None
        refused = self.fleet.refused
        offer = self.fleet.up(agent, found.body, found.born)
        if self.fleet.refused > refused:
            self._tell_refused(agent)
        if offer is None:
            return None
        self.newcomers.add(agent, self._clock())
        return AgentUp(at, agent, offer)

    def _hold(self, found: Birth | Death, due: float) -> None:
        """Keep what came too often until its time comes. A will in any case: who is down must not be taken for up."""
        size = _HELD_BYTES + (size_of(offer_of(found.body)) if isinstance(found, Birth) else 0)
        if isinstance(found, Birth) and self.fleet.size + size > self._most_bytes:
            self._tell_refused(found.agent)
            return
        self._metrics["births.held"] += 1
        self._held[found.agent] = _Held(due, found, size)
        self.fleet.held += size

    def _tell_refused(self, agent: str) -> None:
        self._metrics["births.refused"] += 1
        if self._metrics["births.refused"] == 1:
            _log.error("fleet-full", agent=agent, hint="raise max_agents or fleet_bytes, or find out who floods")

    def released(self, at: float) -> list[AgentUp | AgentDown]:
        """Return what was held back and may be taken now."""
        now = self._clock()
        due = [held.found for held in list(self._held.values()) if held.due <= now]
        return [event for found in due if (event := self.take(found, at)) is not None]

    def dues(self) -> list[float]:
        """Return when there will be something to do, on the clock that was given."""
        dues = [held.due for held in self._held.values()]
        return dues if self.newcomers.due is None else [*dues, self.newcomers.due]
