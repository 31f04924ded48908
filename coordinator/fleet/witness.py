"""A witness of vehicles' logs of forecasts: which heads were seen, and when, so that an old copy put back is found.

Of each vehicle the newest head is kept, that of each day, and some more, the farther back the fewer: a log that was put
back, and then went beyond the newest head, still disagrees with one of them. Where a log got shorter both heads are
kept, as that is to be seen when its records of that time have given way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import structlog

from coordinator.journal.port import Journal
from schemas.messages import LogHead

KEPT = 32
"""Heads of a vehicle besides one a day."""

DAYS = 366
"""Days of which the last head is kept: with all else some 50 kB of a vehicle that forecasts every day."""

FALLS = 16
"""Times that a log got shorter of which both heads are kept: the first ones, as a vehicle may tell lies without end."""

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

    Attributes
    ----------
    new : dict
        By vehicle, what is to be written.
    """

    def __init__(self, journal: Journal, wall: Callable[[], float], most: int) -> None:
        self._journal = journal
        self._wall = wall
        self._most = most
        self.new: dict[str, list[dict[str, Any]]] = {}
        self._is_full = False

    def saw(self, agent: str, head: LogHead) -> None:
        """Take a head that a vehicle told; `write` keeps it."""
        kept, at = self.new.get(agent) or self.heads(agent), self._wall()
        is_known = any((each["n"], each["hash"]) == (head.n, head.hash) for each in kept)
        if is_known or (kept and 0 <= at - kept[-1]["at"] < PAUSE):
            return
        if kept and falls(kept[-1], {"n": head.n}):
            what = f"record {kept[-1]['n']} was seen, and now {head.n} is the newest: an old copy, or a log begun anew"
            _log.warning("forecast-log-shorter", agent=agent, what=what)
        self.new[agent] = thinned([*kept, {"n": head.n, "hash": head.hash, "at": round(at, 3)}], at)

    def write(self) -> None:
        """Keep what was taken, in one transaction; raises StorageError when the journal cannot be written."""
        without = self._journal.keep("witnessed", self.new, self._most)
        self.new = {}
        if without and not self._is_full:
            self._is_full = True
            _log.warning("witness-full", without=without, hint="heads of no more logs are kept: raise max_agents")

    def heads(self, agent: str) -> list[dict[str, Any]]:
        """Return the heads of a vehicle's log that are kept, in the order in which they were seen; from any thread."""
        return self._journal.kept("witnessed", [agent]).get(agent, [])


def falls(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a log got shorter between two heads, or has another record in the place of one."""
    return bool(after["n"] <= before["n"])


def thinned(heads: Sequence[dict[str, Any]], now: float) -> list[dict[str, Any]]:
    """Return what is kept of heads, in the order in which they were seen, of which one at most is too many.

    The first, the newest, the last of each of the last `DAYS` with any, and the two at each of the first `FALLS` are
    held. Of more than `KEPT` others one goes whose neighbours are nearest to each other, for their age.
    """
    last_of = {int(each["at"] // 86400): place for place, each in enumerate(heads)}
    fallen = [place for place, (one, other) in enumerate(pairwise(heads)) if falls(one, other)][:FALLS]
    held = {0, len(heads) - 1, *list(last_of.values())[-DAYS:], *fallen, *(place + 1 for place in fallen)}
    others = [place for place in range(len(heads)) if place not in held]
    if len(others) <= KEPT:
        return list(heads)

    def gap(place: int) -> float:
        before, after = heads[place - 1]["at"], heads[place + 1]["at"]
        return float((after - before) / max(1.0, now - before))

    least = min(others, key=gap)
    return [*heads[:least], *heads[least + 1 :]]
