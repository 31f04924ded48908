"""A witness of vehicles' logs of forecasts: which heads were seen, and when, so that an old copy put back is found.

Of each vehicle the newest head is kept, and some of the earlier ones, the farther back the fewer: a log that was put
back, and then went beyond the newest head, still disagrees with one of them. That holds for days; then none of its time
is kept any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from coordinator.journal.port import Journal
from schemas.messages import LogHead

KEPT = 32
"""Heads of a vehicle."""

PAUSE = 60.0
"""Seconds between two of a vehicle that are taken: each is a line in the journal. An honest one tells one in ten
minutes, or at its start; one that came too soon is told again."""

_log = structlog.get_logger("coordinator")


class Witness:
    """Keeps heads in the journal.

    Parameters
    ----------
    journal : Journal
    wall : callable
        Wall clock, seconds since the epoch.
    most : int
        Vehicles of which heads are kept.
    """

    def __init__(self, journal: Journal, wall: Callable[[], float], most: int) -> None:
        self._journal = journal
        self._wall = wall
        self._most = most
        self._new: dict[str, list[dict[str, Any]]] = {}
        self._is_full = False

    def saw(self, agent: str, head: LogHead) -> None:
        """Take a head that a vehicle told; `write` keeps it."""
        kept, at = self._new.get(agent) or self.heads(agent), self._wall()
        is_known = any((each["n"], each["hash"]) == (head.n, head.hash) for each in kept)
        if is_known or (kept and 0 <= at - kept[-1]["at"] < PAUSE):
            return
        self._new[agent] = thinned([*kept, {"n": head.n, "hash": head.hash, "at": round(at, 3)}], at)

    def write(self) -> None:
        """Keep what was taken, in one transaction; raises StorageError when the journal cannot be written."""
        if not self._new:
            return
        without = self._journal.witness(self._new, self._most)
        self._new = {}
        if without and not self._is_full:
            self._is_full = True
            _log.warning("witness-full", without=without, hint="heads of no more logs are kept: raise max_agents")

    def heads(self, agent: str) -> list[dict[str, Any]]:
        """Return the heads of a vehicle's log that are kept, in the order in which they were seen; from any thread."""
        return self._journal.witnessed(agent)


def thinned(heads: Sequence[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """Return at most `KEPT` heads: one goes whose neighbours are nearest to each other, for their age."""
    if len(heads) <= KEPT:
        return list(heads)

    def gap(place: int) -> float:
        before, after = heads[place - 1]["at"], heads[place + 1]["at"]
        return float((after - before) / max(1.0, now - before))

    least = min(range(1, len(heads) - 1), key=gap)
    return [*heads[:least], *heads[least + 1 :]]
