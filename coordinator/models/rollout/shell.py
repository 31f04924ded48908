"""Rollouts of one coordinator: events into the journal, then the effects. No thread, no clock, no socket of its own."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog

from coordinator.journal.port import ROLLOUTS, Decision, StoredModel
from coordinator.models.aliases import Aliases
from coordinator.models.central import check_learned
from coordinator.models.registry import Registry, best_known, scored_last
from coordinator.models.rollout.machine import step, wakes_at
from coordinator.models.rollout.state import (
    Cannot,
    Event,
    Hurry,
    Pause,
    Promote,
    Reported,
    Resume,
    Return,
    Rollout,
    StageOpened,
    Started,
    Stop,
    Superseded,
    Tick,
    Try,
    decision,
    event_of,
)
from coordinator.models.rollout.verdict import tally
from coordinator.specification.rollout import RolloutPlan
from schemas.errors import NotFoundError, UsageError
from schemas.messages import Evaluation, Former, Trial
from schemas.record import ModelRecord
from schemas.text import printable

SETTLE = 2.0
"""Seconds after a connection before a rollout asks who is up: births come one by one."""

_log = structlog.get_logger("coordinator")

KEPT = 50
"""So many rollouts of a name are remembered: each run has one. The journal drops older ones when it is compacted."""


@dataclass(eq=False)
class Rollouts:
    """All rollouts; at most one lives for each model name.

    Parameters
    ----------
    show : callable
        Publishes what a name stands for, after it stood for other versions, which it takes.
    agents : callable
        Who is up and could learn.
    now : callable
        The coordinator's own time, seconds.
    """

    registry: Registry
    aliases: Aliases
    show: Callable[[str, Collection[int]], None]
    agents: Callable[[], Collection[str]]
    metrics: Counter[str]
    now: Callable[[], float]
    _states: dict[str, Rollout] = field(default_factory=dict, init=False)
    """Replaced, never changed: the API's threads go through it."""
    _opening_from: float = field(default=float("inf"), init=False)

    def resume(self, decisions: Iterable[Decision]) -> None:
        """Fold the journal; a rollout that this software cannot follow is left out, its candidate withdrawn."""
        broken: dict[str, str] = {}
        states: dict[str, Rollout] = {}
        for each in decisions:
            if not each.kind.startswith(ROLLOUTS):
                continue
            rollout = str(each.body.get("rollout"))
            try:
                event = event_of(each)
                before = None if isinstance(event, Started) else states[rollout]
                after, _ = step(before, event)
                assert after is not None
                states[rollout] = after
            except Exception as fault:  # noqa: BLE001  another version wrote it, whatever it means
                broken[rollout] = each.name
                states.pop(rollout, None)
                _log.error("rollout-not-resumed", rollout=rollout, model=each.name, reason=str(fault)[:300])
        self._states = states
        for name in {state.start.name for state in states.values()}:
            self._forget(name)
        lost = [name for name in broken.values() if self.live(name) is None and name in self.aliases.candidate]
        self.registry.decide([self.aliases.to_none(name, "rollout not resumed") for name in lost])
        for state in self._states.values():
            if not state.is_ended:
                self.metrics["rollouts.resumed"] += 1
                _log.info("rollout-resumed", **_about(state))

    # -- what operators and runs want -----------------------------------------------------------------------------

    def start(self, name: str, version: int, plan: RolloutPlan, suspect: str = "") -> str:
        """Start trying a version; `suspect` as in `Started`, empty: what an earlier rollout of it knew.

        Returns
        -------
        str
            The rollout's id.

        Raises
        ------
        NotFoundError
            No such model or version.
        UsageError
            It is current already, a central reference, or another rollout of this model lives.
        """
        model = self.registry.get(name, version)
        check_learned(model)
        if ModelRecord.load(model.record).is_private:
            raise UsageError(
                f"model {name!r} version {version} was learned in a private run, in which no vehicle tells its own "
                "scores: there is nothing to judge stages by. model show has the fleet's; promote it, or leave it"
            )
        champion = self.aliases.current.get(name)
        if champion is not None and champion.version == version:
            raise UsageError(f"model {name!r} version {version} is current already: nothing to try")
        live = self.live(name)
        if live is not None:
            raise UsageError(
                f"model {name!r}: version {live.start.version} is being tried already (rollout {live.start.rollout}, "
                f"{live.phase}): stop it first"
            )
        rollout = f"rollout-{secrets.token_hex(6)}"
        suspect = suspect or self._suspect(name, version)
        beside = (0, "") if champion is None else (champion.version, champion.digest)
        formers = tuple((each.version, each.digest) for each, _ in self.formers(name) if each.version != version)
        about = (name, version, model.digest, *beside, plan, suspect, formers)
        self._apply(rollout, Started(self.now(), rollout, *about))
        self.metrics["rollouts.started"] += 1
        return rollout

    def _suspect(self, name: str, version: int) -> str:
        starts = [each.start for each in self._states.values()]
        return next((one.suspect for one in starts if one.suspect and (one.name, one.version) == (name, version)), "")

    def formers(self, name: str, *, private: bool = False) -> list[tuple[StoredModel, ModelRecord]]:
        """Return `coordinator.models.registry.best_known`, by what was said when versions were scored last."""
        known = scored_last(self.registry, name) if private else self._scored_last(name)
        return best_known(self.registry, self.aliases, name, known, private=private)

    def _scored_last(self, name: str) -> dict[int, float]:
        states = [state for state in self._states.values() if state.start.name == name and state.is_ended]
        for state in reversed(states):
            if beside := tally(state).beside:
                return {version: -each.change for version, each in beside.items()} | {state.start.version: 0.0}
        return {}

    def pause(self, name: str, reason: str = "") -> Rollout:
        """Let the rollout of a model stand still; raises NotFoundError when none lives."""
        return self._apply(self._named(name), Pause(self.now(), reason))

    def resumed(self, name: str) -> Rollout:
        """Let a paused rollout go on; raises NotFoundError when none lives."""
        return self._apply(self._named(name), Resume(self.now()))

    def stop(self, name: str, reason: str = "") -> Rollout:
        """End the rollout of a model, the champion stays; raises NotFoundError when none lives."""
        return self._apply(self._named(name), Stop(self.now(), reason))

    def replace(self, name: str, version: int, plan: RolloutPlan, why: str, suspect: str = "") -> None:
        """Start trying a version; one that is being tried is judged by the reports that have come, or stopped."""
        live = self.live(name)
        if live is not None and live.start.plan.gate:
            # Otherwise a vehicle that never reports would keep each version of a frequent run from being judged.
            live = self._apply(live.start.rollout, Hurry(self.now(), tuple(sorted(live.awaited))))
        if live is not None and not live.is_ended:
            self.stop(name, why)
            _log.info("rollout-replaced", rollout=live.start.rollout, by=version)
        self.start(name, version, plan, suspect)

    def superseding(self, name: str, version: int) -> list[Decision]:
        """Return what is to be written down with the decision that another version is current from now on."""
        live = self.live(name)
        if live is None:
            return []
        event = Superseded(self.now(), version)
        return [decision(live.start.name, live.start.rollout, event, self.aliases.wall())]

    def apply(self, decisions: Iterable[Decision]) -> None:
        """Take over events that were written down with another decision."""
        for each in decisions:
            if each.kind.startswith(ROLLOUTS):
                rollout = str(each.body["rollout"])
                after, _ = step(self._states[rollout], event_of(each))
                assert after is not None
                self._states = {**self._states, rollout: after}
                self._log_end(after)

    # -- what happens ---------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Take note: a connection stands; who is up will be known in a moment."""
        self._opening_from = self.now() + SETTLE

    def report(self, agent: str, body: Evaluation) -> None:
        """Take an agent's scores; those of no candidate, or beside another champion, count for nothing here."""
        state = self.live(body.name)
        if state is None:
            return
        start = state.start
        other = body.champion if start.champion else body.constant
        if other is None and not body.cannot:
            return
        if (body.digest, body.version, body.champion_digest) != (start.digest, start.version, start.champion_digest):
            self.metrics["rollouts.reports-ignored"] += 1
            return
        if body.cannot or other is None:
            # An operator's terminal will show what a vehicle says.
            after = self._apply(start.rollout, Cannot(self.now(), agent, printable(body.cannot[:100])))
            if after is not state:
                self.metrics["rollouts.cannot"] += 1
            return
        before = state.reports
        report = Reported(self.now(), agent, body.metric, body.federated, other, body.local, body.beside)
        after = self._apply(start.rollout, report)
        if after.reports is not before:
            self.metrics["rollouts.reports"] += 1

    def tick(self, at: float) -> None:
        """Let time pass: open what can be opened, judge what is due."""
        for state in [state for state in self._states.values() if not state.is_ended]:
            if state.phase == "opening" and at >= self._opening_from and (agents := self.agents()):
                self._apply(state.start.rollout, StageOpened(at, tuple(sorted(agents))))
            elif (wake := wakes_at(state)) is not None and wake <= at:
                self._apply(state.start.rollout, Tick(at))
            elif gone := self._gone(state, at):
                self._apply(state.start.rollout, Hurry(at, gone))

    def _gone(self, state: Rollout, at: float) -> tuple[str, ...]:
        """Return who has yet to report, when all of those are down and enough others have; empty: wait."""
        if state.phase != "trying" or at < self._opening_from or len(state.reports) < state.needed:
            return ()
        awaited = state.awaited
        return () if awaited & set(self.agents()) else tuple(sorted(awaited))

    def wakes(self) -> list[float]:
        """Return when `tick` will matter, in the coordinator's own time."""
        wakes = []
        for state in self._states.values():
            if (wake := wakes_at(state)) is not None:
                wakes.append(wake)
                if (state.phase == "opening" and self.agents()) or self._gone(state, self.now()):
                    wakes.append(min(wake, self._opening_from))
        return wakes

    # -- what can be seen -----------------------------------------------------------------------------------------

    def live(self, name: str) -> Rollout | None:
        """Return the rollout of a model that has not ended; from any thread."""
        matching = (state for state in self._states.values() if state.start.name == name and not state.is_ended)
        return next(matching, None)

    def knows(self, name: str, version: int) -> bool:
        """Whether there ever was a rollout of this version."""
        return self.document(name, version) is not None

    def document(self, name: str, version: int) -> dict[str, Any] | None:
        """Return the newest rollout of a version, as in `documents`; None: there was none. From any thread."""
        states = [state for state in list(self._states.values()) if state.start.name == name]
        matching = (state for state in reversed(states) if state.start.version == version)
        return next((_document(state, self.now()) for state in matching), None)

    def compared(self) -> set[tuple[str, int]]:
        """Return what rollouts compare that have not ended, also those that have yet to open."""
        live = [state.start for state in self._states.values() if not state.is_ended]
        compared = ((each, (each.version, each.champion, *dict(each.formers))) for each in live)
        return {(start.name, version) for start, versions in compared for version in versions}

    def remembered_from(self) -> dict[str, float]:
        """Return when the oldest rollout that is remembered began, for each name of which others may be forgotten."""
        began: dict[str, list[float]] = {}
        for state in self._states.values():
            began.setdefault(state.start.name, []).append(state.start.at)
        return {name: min(times) for name, times in began.items() if len(times) >= KEPT}

    def documents(self, name: str | None = None) -> list[dict[str, Any]]:
        """Return all rollouts, of one model or all, oldest first, as JSON values; from any thread."""
        now = self.now()
        return [_document(state, now) for state in self._states.values() if name in (None, state.start.name)]

    # -- inside ---------------------------------------------------------------------------------------------------

    def _named(self, name: str) -> str:
        live = self.live(name)
        if live is None:
            self.registry.heads(name)
            raise NotFoundError(f"no rollout of model {name!r} is under way")
        return live.start.rollout

    def _apply(self, rollout: str, event: Event) -> Rollout:
        """Decide, append, take over, perform."""
        before = self._states.get(rollout)
        after, effects = step(before, event)
        assert after is not None
        if after is before:
            return after
        start, aliases = after.start, self.aliases
        stood = aliases.pinned_of(start.name)
        decisions = [decision(start.name, rollout, event, aliases.wall())]
        for effect in effects:
            match effect:
                case Try(salt, below):
                    formers = [Former(version=number, digest=digest) for number, digest in start.formers]
                    trial = Trial(salt=salt, below=below, champion=start.champion_digest, formers=formers)
                    decisions.append(aliases.to_candidate(start.name, start.version, start.digest, trial))
                case Promote(reason):
                    decisions.append(aliases.to_current(start.name, start.version, start.digest, "published", reason))
                    decisions.append(aliases.to_none(start.name, "promoted"))
                case Return(version, digest, reason):
                    decisions.append(aliases.to_current(start.name, version, digest, "returned", reason))
                case _ if start.plan.gate:
                    # Asks nobody any more: it says which version waits for an operator, and why.
                    trial = Trial(salt=rollout, below=0, champion=start.champion_digest)
                    decisions.append(aliases.to_candidate(start.name, start.version, start.digest, trial, after.reason))
                case _ if start.name in aliases.candidate:
                    decisions.append(aliases.to_none(start.name, after.reason))
        # Events and pointers in one transaction: no crash can part a verdict from what it decided.
        self.registry.decide(decisions)
        self._states = {**self._states, rollout: after}
        if before is None or before.phase != after.phase or len(before.stages) != len(after.stages):
            _log.info("rollout", **_about(after))
        self._log_end(after)
        if len(decisions) > 1:
            self.show(start.name, stood)
        return after

    def _forget(self, name: str) -> None:
        """Forget the oldest rollouts of a name; the one that lives is the newest."""
        known = [rollout for rollout, state in self._states.items() if state.start.name == name]
        gone = set(known[:-KEPT])
        self._states = {rollout: state for rollout, state in self._states.items() if rollout not in gone}

    def _log_end(self, state: Rollout) -> None:
        if state.is_ended:
            self._forget(state.start.name)
            self.metrics[f"rollouts.{state.phase}"] += 1
            if state.start.plan.gate:
                self.metrics[f"gates.{state.outcome}"] += 1
            say = _log.info if state.phase == "promoted" else _log.warning
            say("rollout-ended", **_about(state))


def _about(state: Rollout) -> dict[str, Any]:
    start, result = state.start, tally(state)
    return {
        "rollout": start.rollout,
        "model": start.name,
        "version": start.version,
        "champion": start.champion,
        "phase": state.phase,
        "stage": f"{len(state.stages)}/{len(start.plan.stages)}",
        "reports": result.reports,
        "mean": round(result.mean, 4),
        "worse": result.worse,
        "reason": state.reason,
    }


def _document(state: Rollout, now: float) -> dict[str, Any]:
    start, wake = state.start, wakes_at(state)
    return {
        **_about(state),
        "plan": start.plan.model_dump(mode="json"),
        "started": start.at,
        "ended": state.at if state.is_ended else None,
        "remaining": state.left if state.phase == "paused" else None if wake is None else max(0.0, wake - now),
        "needed": state.needed if state.is_open else None,
        "awaited": len(state.awaited) if state.is_open else None,
        "stages": [
            {
                "share": stage.share,
                "asked": list(stage.asked),
                "reported": len(set(stage.asked) & set(state.reports)),
                "cannot": len(set(stage.asked) & set(state.cannot)),
                "opened": stage.opened,
                "closed": stage.closed or None,
                "verdict": stage.verdict,
            }
            for stage in state.stages
        ],
        "agents": {
            agent: {"metric": report.metric, "candidate": report.candidate, "champion": report.champion}
            for agent, report in sorted(state.reports.items())
        },
        "cannot": dict(sorted(state.cannot.items())),
    }
