"""What becomes of the times of a schedule, the *nights*. Pure: a schedule's standing and facts go in, a verdict out.

Rules:

1. The last time that has come and is not dealt with is the *open* night. Those before it are missed: they are written
   down with the reason, and not made up for one by one.
2. An open night waits while there is no broker, in quiet hours, and for vehicles; it is started as soon as it can be.
   A night for which the next one has come is missed.
3. While a run of the same model goes on nothing is started; see `Schedule.if_running`.
4. What a night became is a decision in the journal. That it was started is written in the transaction that starts the
   run, so there is a run exactly if the journal says so. A night that was started is never started again, wherever the
   clock is set.
5. Where the clock was set back behind what is dealt with, nights count from there again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo

from coordinator.journal.port import SCHEDULE, Decision
from coordinator.specification.schedule import Schedule

ADDED, PAUSED, RESUMED, REMOVED, NIGHT, CLOCK = (
    f"{SCHEDULE}.{word}" for word in ("added", "paused", "resumed", "removed", "night", "clock")
)

KEPT: Final = 400
"""Nights of a schedule that are remembered: a year and a month of them."""

COUNTED: Final = 1000
"""So many missed nights are counted."""

SET_BACK: Final = 1.0
"""Seconds; a clock that is before what is dealt with by more was set back."""

NOBODY: Final = "no coordinator was there"

Outcome: TypeAlias = Literal["started", "skipped", "missed", "failed"]


@dataclass(frozen=True)
class Night:
    """What became of a time.

    Attributes
    ----------
    at : float
        The time; of more than one the last. Seconds since the epoch.
    outcome : str
        ``started``; ``skipped``: a run went on; ``missed``: it could not be started in time; ``failed``: there can be
        no such run.
    run : str
        The run that was started, or that went on.
    count : int
        So many nights; of missed ones.
    """

    at: float
    outcome: Outcome
    run: str = ""
    why: str = ""
    count: int = 1


@dataclass(frozen=True)
class Standing:
    """A schedule and what has become of it.

    Attributes
    ----------
    mark : float
        Up to here nights are dealt with; seconds since the epoch.
    is_paused : bool
    why : str
        Reason of the pause.
    nights : tuple of Night
        The newest `KEPT`, the newest last.
    """

    schedule: Schedule
    mark: float
    is_paused: bool = False
    why: str = ""
    nights: tuple[Night, ...] = ()

    def was_started(self, at: float) -> bool:
        """Whether the night was started, however the clock went since."""
        return any(night.at == at and night.outcome == "started" for night in self.nights)


@dataclass(frozen=True)
class Facts:
    """What a verdict rests on.

    Attributes
    ----------
    now : float
        Wall clock, seconds since the epoch.
    has_broker : bool
        There is one, and vehicles have had time to say that they are up.
    up : int
        Vehicles that are up.
    live : mapping of str to str
        By model: a run that goes on.
    private : str
        A private run that goes on; empty: there is none.
    """

    now: float
    has_broker: bool = True
    up: int = 0
    live: Mapping[str, str] = field(default_factory=dict)
    private: str = ""


@dataclass(frozen=True)
class ScheduleVerdict:
    """What is to be done about a schedule now.

    Attributes
    ----------
    what : str
        ``nothing`` is due; the open night must ``wait``; ``start`` it, or ``skip`` it; first ``cancel`` a run; or the
        ``clock`` was set back.
    night : Night or None
        The open one.
    missed : Night or None
        Those before it.
    """

    what: Literal["nothing", "wait", "start", "skip", "cancel", "clock"]
    night: Night | None = None
    missed: Night | None = None


def fold(standing: Standing | None, decision: Decision) -> Standing | None:
    """Return how a schedule stands after a decision; None: it is there no more.

    Raises
    ------
    UsageError, KeyError
        Another version wrote it, or decisions before it are lost.
    """
    kind, body = decision.kind, decision.body
    if kind == ADDED:
        return Standing(Schedule.model_validate(body["schedule"]), decision.wall)
    if kind == REMOVED:
        return None
    if standing is None:
        raise KeyError(decision.name)
    if kind == PAUSED:
        return replace(standing, is_paused=True, why=str(body["reason"]))
    if kind == RESUMED:  # what came meanwhile was not asked for
        return replace(standing, is_paused=False, why="", mark=decision.wall)
    if kind == CLOCK:
        return replace(standing, mark=decision.wall)
    night = Night(**body)
    return replace(standing, mark=night.at, nights=(*standing.nights, night)[-KEPT:])


def judged(standing: Standing, facts: Facts, waited: Night | None = None) -> ScheduleVerdict:
    """Return what is to be done; `waited` is the night that was open before, with what it waited for."""
    if standing.is_paused:
        return ScheduleVerdict("nothing")
    if facts.now < standing.mark - SET_BACK:
        return ScheduleVerdict("clock")
    schedule = standing.schedule
    at = schedule.last(standing.mark, facts.now)
    if at is None or standing.was_started(at):
        return ScheduleVerdict("nothing")
    missed = _missed(standing, at, waited)
    night = Night(at, "missed", why=_lack(schedule, facts))
    if night.why:
        return ScheduleVerdict("wait", night, missed)
    live = facts.live.get(schedule.model, "")
    if live and schedule.if_running == "skip":
        return ScheduleVerdict("skip", Night(at, "skipped", live, f"{live} still goes on"), missed)
    if live and schedule.if_running == "cancel":
        return ScheduleVerdict("cancel", Night(at, "started", live), missed)
    other = live or (facts.private if schedule.spec.get("private") is not None else "")
    if other:
        return ScheduleVerdict("wait", replace(night, run=other, why=f"{other} still goes on"), missed)
    return ScheduleVerdict("start", Night(at, "started", schedule.run_id(at)), missed)


def due(standing: Standing, now: float) -> float | None:
    """Return when the next night comes, seconds since the epoch; None: none does."""
    return None if standing.is_paused else next(standing.schedule.after(max(now, standing.mark)), None)


def document(standing: Standing, now: float, waiting: Night | None, following: int, shown: int) -> dict[str, Any]:
    """Return a schedule as JSON values: with so many times to come, and nights that were (the newest first)."""
    schedule = standing.schedule
    times = [] if standing.is_paused else islice(schedule.after(max(now, standing.mark)), following)
    return {
        **schedule.model_dump(mode="json"),
        "model": schedule.model,
        "words": schedule.words,
        "state": "paused" if standing.is_paused else "waiting" if waiting else "active",
        "reason": standing.why or (waiting.why if waiting else ""),
        "waiting_since": None if waiting is None or standing.is_paused else _local(schedule, waiting.at),
        "next": [_local(schedule, each) for each in times],
        "nights": [
            {"at": _local(schedule, night.at), "outcome": night.outcome, "run": night.run, "reason": night.why}
            | {"count": night.count}
            for night in reversed(standing.nights[-shown:])
        ],
    }


def _missed(standing: Standing, at: float, waited: Night | None) -> Night | None:
    """Return the nights that are lost between those dealt with and the open one; None: there are none."""
    times = []
    for each in islice(standing.schedule.after(standing.mark), COUNTED):
        if each >= at:
            break
        if not standing.was_started(each):
            times.append(each)
    if not times:
        return None
    last = standing.schedule.last(standing.mark, at - 0.5) or times[-1]
    why = waited.why if waited is not None and waited.at == last else NOBODY
    return Night(last, "missed", why=why, count=len(times))


def _lack(schedule: Schedule, facts: Facts) -> str:
    """Return what a start waits for, other than a run; empty: nothing."""
    if not facts.has_broker:
        return "no broker"
    if (until := schedule.quiet_until(facts.now)) is not None:
        return f"quiet hours until {_local(schedule, until)[11:16]}"
    if facts.up < schedule.vehicles:
        return f"{facts.up} of {schedule.vehicles} vehicles up"
    return ""


def _local(schedule: Schedule, at: float) -> str:
    """Return a time in the schedule's zone, ISO 8601 with offset."""
    return datetime.fromtimestamp(at, tz=ZoneInfo(schedule.zone)).isoformat(timespec="seconds")
