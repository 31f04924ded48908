"""The schedules of a coordinator: kept as decisions in its journal, looked at as time passes, run by `nights`.

The coordinator's thread writes, the API's threads read what is replaced and never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from coordinator.journal.port import SCHEDULE, Decision
from coordinator.runs import nights
from coordinator.runs.directory import Runs
from coordinator.runs.nights import Facts, Night, ScheduleVerdict, Standing
from coordinator.runs.outages import Outages
from coordinator.specification.run import RunSpec
from coordinator.specification.schedule import Schedule
from schemas.errors import NotFoundError, UsageError

_log = structlog.get_logger("coordinator")

LOOK = 5.0
"""Seconds between two looks at a night that waits."""

CLOCK_LOOK = 60.0
"""Seconds between two looks at the wall clock, which may be set at any moment."""

SETTLE = 5.0
"""Seconds after a connection in which vehicles that are up say so: until then nobody counts them."""

FOLLOWING, SHOWN = 5, 60
"""Times to come, and nights that were, which are told of a schedule."""


class Starter(Protocol):
    """What begins and ends runs."""

    def start_run(self, spec: RunSpec, decisions: Sequence[Decision] = ()) -> str:
        """Begin a run, and write decisions down, in one transaction."""

    def cancel(self, run: str, reason: str = ...) -> None:
        """End a run."""


@dataclass(eq=False)
class Schedules:
    """All schedules.

    Parameters
    ----------
    runs : Runs
    outages : Outages
        When there was no broker.
    up : callable
        Returns how many vehicles are up.
    now, wall : callable
        The coordinator's own time, and the wall clock, seconds.
    """

    runs: Runs
    outages: Outages
    up: Callable[[], int]
    now: Callable[[], float]
    wall: Callable[[], float]
    _known: Mapping[str, Standing] = field(default_factory=dict, init=False)
    _waits: Mapping[str, Night] = field(default_factory=dict, init=False)
    _look_at: float = field(default=float("-inf"), init=False)
    _connected: float = field(default=float("inf"), init=False)

    def resume(self, decisions: Iterable[Decision]) -> None:
        """Fold the journal; a schedule that this software cannot follow is left out, and said."""
        self._apply(each for each in decisions if each.kind.startswith(f"{SCHEDULE}."))

    def connected(self) -> None:
        """Take note: a connection stands; who is up will be known in a moment."""
        self._connected = self.now()

    # -- what operators ask ---------------------------------------------------------------------------------------

    def add(self, schedule: Schedule) -> None:
        """Keep a schedule; raises UsageError: there is one of that name."""
        if schedule.name in self._known:
            raise UsageError(f"there is a schedule {schedule.name!r} already: remove it first, or choose another name")
        self._decide(schedule.name, nights.ADDED, {"schedule": schedule.model_dump(mode="json")})

    def pause(self, name: str, reason: str = "") -> None:
        """Start nothing until it is resumed."""
        self._of(name)
        self._decide(name, nights.PAUSED, {"reason": reason[:500]})

    def resumed(self, name: str) -> None:
        """Go on with the next time; what came while it was paused is not made up for."""
        if not self._of(name).is_paused:
            raise UsageError(f"schedule {name!r} is not paused")
        self._decide(name, nights.RESUMED, {})

    def remove(self, name: str) -> None:
        """Forget a schedule; a run that it started goes on."""
        self._of(name)
        self._decide(name, nights.REMOVED, {})

    def documents(self) -> list[dict[str, Any]]:
        """Return all schedules as JSON values, by name; from any thread."""
        return [self._document(known, FOLLOWING) for _, known in sorted(self._known.items())]

    def document(self, name: str, following: int = FOLLOWING) -> dict[str, Any]:
        """Return one schedule as JSON values; from any thread. Raises NotFoundError."""
        return self._document(self._of(name), following)

    # -- what time brings -----------------------------------------------------------------------------------------

    def wakes(self) -> list[float]:
        """Return when the next `tick` will matter, in the coordinator's own time."""
        return [self._look_at] if any(not each.is_paused for each in self._known.values()) else []

    def tick(self, at: float, starter: Starter) -> None:
        """Deal with the nights that have come; raises StorageError, and has changed nothing then."""
        if at < self._look_at:
            return
        for name in sorted(self._known):
            # Anew for each: what was started for one goes on when the next is looked at.
            verdict = nights.judged(self._known[name], self._facts(at), self._waits.get(name))
            self._do(name, verdict, starter)
            others = {other: night for other, night in self._waits.items() if other != name}
            night = verdict.night if verdict.what == "wait" else None
            self._waits = others if night is None else {**others, name: night}
        now = self.wall()
        dues = [due for each in self._known.values() if (due := nights.due(each, now)) is not None]
        longest = LOOK if self._waits else CLOCK_LOOK
        self._look_at = at + min([longest, *(max(0.0, due - now) for due in dues)])

    def _do(self, name: str, verdict: ScheduleVerdict, starter: Starter) -> None:
        night = verdict.night
        if verdict.what == "clock":
            self._decide(name, nights.CLOCK, {})
            _log.warning("clock-set-back", schedule=name)
        elif night is not None:
            before = [self._night(name, verdict.missed)] if verdict.missed else []
            if verdict.what in ("start", "cancel"):
                if verdict.what == "cancel":
                    starter.cancel(night.run, f"schedule {name} starts the next one")
                self._start(name, night.at, before, starter)
            elif verdict.what == "skip":
                self._write([*before, self._night(name, night)])
                _log.warning("night-skipped", schedule=name, reason=night.why)
            elif before:
                self._write(before)

    def _start(self, name: str, at: float, before: list[Decision], starter: Starter) -> None:
        schedule = self._known[name].schedule
        started = [*before, self._night(name, Night(at, "started", schedule.run_id(at)))]
        try:
            starter.start_run(schedule.run(at), started)
        except (UsageError, NotFoundError) as fault:
            self._write([*before, self._night(name, Night(at, "failed", why=str(fault)[:500]))])
            _log.error("night-failed", schedule=name, reason=str(fault))
        else:
            self._apply(started)

    def _facts(self, at: float) -> Facts:
        live = [(run, state.spec) for run, state in self.runs.live.items() if not state.is_ended]
        return Facts(
            self.wall(),
            has_broker=self.outages.since is None and at - self._connected >= SETTLE,
            up=self.up(),
            live={spec.model: run for run, spec in live},
            private=next((run for run, spec in live if spec.private is not None), ""),
        )

    # -- inside ---------------------------------------------------------------------------------------------------

    def _document(self, known: Standing, following: int) -> dict[str, Any]:
        return nights.document(known, self.wall(), self._waits.get(known.schedule.name), following, SHOWN)

    def _of(self, name: str) -> Standing:
        known = self._known.get(name)
        if known is None:
            names = ", ".join(sorted(self._known)) or "there are none"
            raise NotFoundError(f"no schedule {name!r}; known: {names}")
        return known

    def _night(self, name: str, night: Night) -> Decision:
        if night.outcome == "missed":
            _log.warning("night-missed", schedule=name, reason=night.why, count=night.count)
        return Decision(f"{SCHEDULE} {name}", nights.NIGHT, self.now(), self.wall(), vars(night).copy())

    def _decide(self, name: str, kind: str, body: dict[str, Any]) -> None:
        self._write([Decision(f"{SCHEDULE} {name}", kind, self.now(), self.wall(), body)])
        self._look_at = float("-inf")
        _log.info(kind.replace(".", "-"), schedule=name)

    def _write(self, decisions: Sequence[Decision]) -> None:
        self.runs.journal.append((), decisions)
        self._apply(decisions)

    def _apply(self, decisions: Iterable[Decision]) -> None:
        known = {**self._known}
        for each in decisions:
            name = each.name.partition(" ")[2]
            try:
                after = nights.fold(known.get(name), each)
            except Exception as fault:  # noqa: BLE001  another version wrote it, or what it rests on is damaged
                _log.error("schedule-not-followed", schedule=name, kind=each.kind, reason=repr(fault)[:300])
                continue
            if after is None:
                known.pop(name, None)
            else:
                known[name] = after
        self._known = known
        self._waits = {name: each for name, each in self._waits.items() if name in known}
