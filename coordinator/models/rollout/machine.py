"""The state machine of one rollout: ``step(state, event) -> (state, effects)``. Pure; time arrives as an event.

Theory of operation. A rollout compares one candidate with one champion. In each stage the vehicles below a threshold
(``schemas.trial``) try the candidate on their own test rows and report both errors. A stage is judged when all of those
that were up at its opening have reported, or at its deadline; a report counts for all later stages as well, once, the
first one. A vehicle that says it cannot (it has no test rows, say) is counted out; when nobody is left in a stage, the
stage is opened again among the others, and when nobody is left at all, the rollout ends. What a report says is made
relative, ``(candidate - champion) / champion`` for an error, and cut to [-1, 1] before it is averaged: no vehicle,
however hostile, weighs more than one. The last stage passed, the candidate becomes current; anything else withdraws it,
and the champion was never touched.

The gate (`coordinator.specification.rollout.GATE`), which every new version passes, is such a rollout: one stage, the
whole fleet, judged by the median over the vehicles, so that a minority that lies decides nothing. Where no version is
current yet, the champion is the constant: each vehicle's forecast of the mean (or majority class) of its own training
rows. A first version must also stand beside what each vehicle learns alone, or whoever lied in its run rules what the
fleet forecasts with. A version that does not pass stays the name's candidate, with the reason, until an operator or a
newer version decides.

The shell writes each event that changes the state into the journal before it performs the effects. Folding the events
gives the same state again; effects are idempotent, and `standing` gives those that hold now. An event that does not
fit (a second report, a pause of an ended rollout) changes nothing and has no effects.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field, replace

from coordinator.models.rollout import events
from coordinator.models.rollout.table import TABLE, Phase
from coordinator.specification.rollout import BEATS, WORSE_THAN_ALONE
from glassfleet.scores import change_in_words, relative
from schemas.trial import place, threshold


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


@dataclass(frozen=True)
class Tally:
    """What the reports of the vehicles below a threshold say.

    Attributes
    ----------
    mean : float
        How much larger the candidate's error is, relative to the champion's, each in [-1, 1]: the mean over the
        vehicles, of a gate the median.
    worse : int
        Vehicles that are worse off by more than the plan allows one.
    beside_local : float or None
        The same median beside the models that the vehicles learn alone; None: nobody told of those.
    """

    reports: int
    mean: float
    worse: int
    beside_local: float | None = None


def step(state: Rollout | None, event: events.Event) -> tuple[Rollout | None, tuple[events.Effect, ...]]:  # noqa: C901, PLR0912  a table
    """Take an event. The very same state comes back when it changes nothing."""
    if state is None:
        if not isinstance(event, events.Started):
            return None, ()
        return Rollout(event, TABLE.target("", "started", None), event.at + event.plan.deadline, event.at), ()
    if state.is_ended:
        return state, ()
    match event:
        case events.Opened() if state.phase == "opening" and event.agents:
            if state.cannot and set(event.agents) <= set(state.cannot):
                return _end(state, "nobody-can", event.at, _nobody(state, event.agents))
            return _announced(_judged(_open(state, event), event.at))
        case events.Reported() if state.is_open and event.agent not in state.reports and _is_asked(state, event.agent):
            reports = {**state.reports, event.agent: event}
            cannot = {agent: why for agent, why in state.cannot.items() if agent != event.agent}
            phase = TABLE.target(state.phase, "reported", state)
            after = replace(state, phase=phase, reports=reports, cannot=cannot, at=event.at)
            return _judged(after, event.at) if phase == "trying" else (after, ())
        case events.Cannot(agent=agent) if (
            state.is_open and agent not in state.reports and agent not in state.cannot and _is_asked(state, agent)
        ):
            phase = TABLE.target(state.phase, "cannot", state)
            after = replace(state, phase=phase, cannot={**state.cannot, agent: event.why}, at=event.at)
            return _judged(after, event.at) if phase == "trying" else (after, ())
        case events.Tick() if state.phase in ("opening", "trying") and event.at >= state.due:
            if state.phase == "opening":
                return _end(state, "no-vehicles", event.at, "no vehicle was up to try it")
            return _judged(state, event.at)
        case events.Hurry(agents=agents) if state.phase == "trying" and state.awaited <= set(agents):
            return _judged(state, event.at, waits=False)
        case events.Pause() if state.phase in ("opening", "trying"):
            left = max(0.0, state.due - event.at)
            phase = TABLE.target(state.phase, "paused", state)
            return replace(state, phase=phase, left=left, reason=event.reason, at=event.at), ()
        case events.Resume() if state.phase == "paused":
            phase = TABLE.target(state.phase, "resumed", state)
            after = replace(state, phase=phase, due=event.at + state.left, reason="", at=event.at)
            if phase == "opening":
                return after, ()
            return _announced(_judged(after, event.at))
        case events.Stop():
            return _end(state, "stopped", event.at, event.reason or "by an operator")
        case events.Superseded():
            return _end(state, "superseded", event.at, f"version {event.version} became current")
    return state, ()


def standing(state: Rollout) -> tuple[events.Effect, ...]:
    """Return the effects that hold now, to be performed again at every start."""
    if not state.is_open or state.is_ended:
        return ()
    return (events.Try(state.start.rollout, state.stages[-1].below),)


def wakes_at(state: Rollout) -> float | None:
    """Return when a `Tick` will matter; None: never."""
    return state.due if state.phase in ("opening", "trying") else None


def tally(state: Rollout) -> Tally:
    """Add up the reports."""
    plan, reports = state.start.plan, state.reports.values()
    worse = [relative(each.metric, each.candidate, each.champion) for each in reports]
    # A mean weighs what each vehicle says, a median does not.
    middle = statistics.median(worse or [0.0]) if plan.gate else statistics.fmean(_cut(worse) or [0.0])
    alone = [relative(each.metric, each.candidate, each.local) for each in reports if each.local is not None]
    return Tally(
        len(worse),
        middle,
        sum(each > plan.vehicle_worse for each in worse),
        statistics.median(alone) if alone else None,
    )


def _cut(worse: list[float]) -> list[float]:
    return [max(-1.0, min(1.0, each)) for each in worse]


def _is_asked(state: Rollout, agent: str) -> bool:
    return place(state.start.rollout, agent) < state.stages[-1].below


def _open(state: Rollout, event: events.Opened) -> Rollout:
    share = state.start.plan.stages[len(state.stages)]
    salt = state.start.rollout
    # A stage never asks fewer than the one before, though the fleet may have shrunk meanwhile.
    least = state.stages[-1].below if state.stages else 0
    below = max(least, threshold(salt, sorted({*event.agents} - set(state.cannot)), share))
    asked = tuple(sorted(agent for agent in event.agents if place(salt, agent) < below))
    return replace(
        state,
        phase=TABLE.target(state.phase, "opened", state),
        stages=(*state.stages, Stage(share, below, asked, event.at)),
        due=event.at + state.start.plan.deadline,
        at=event.at,
    )


def _judged(state: Rollout, now: float, *, waits: bool = True) -> tuple[Rollout, tuple[events.Effect, ...]]:
    """Judge the open stage, if it can be judged now; `waits`: those who have yet to report are waited for."""
    plan, stage, is_late = state.start.plan, state.stages[-1], now >= state.due
    if waits and not is_late and plan.max_worse_share >= 1 and state.awaited:
        return state, ()  # nothing is judged early: a large fleet's reports are added up once
    result = tally(state)
    voters = max(result.reports, len({*state.able, *state.reports}), 1)
    if result.worse > plan.max_worse_share * voters:
        # Whatever those say who have not reported yet.
        return _end(
            state, "too-bad", now, f"worse for {result.worse} of {_count(voters, 'vehicle')} by more "
            f"than {plan.vehicle_worse:.0%}; at most {plan.max_worse_share:.0%} of them may be",
        )  # fmt: skip
    if waits and not is_late and state.awaited:
        return state, ()
    if not is_late and stage.asked and not state.able and not state.reports:
        # Those who were asked cannot say anything: the same share of the others is asked, within the same time.
        return replace(state, phase=TABLE.target(state.phase, "widened", state), stages=state.stages[:-1], at=now), ()
    if result.reports < state.needed:
        if not is_late:
            return state, ()
        text = f"{_count(result.reports, 'report')} until the deadline, {state.needed} needed"
        return _end(state, "too-few-reports", now, text)
    if result.worse > plan.max_worse_share * result.reports:
        text = f"worse for {result.worse} of {_count(result.reports, 'vehicle')} by more than {plan.vehicle_worse:.0%}"
        return _end(state, "too-bad", now, text)
    if text := _too_bad(state, result):
        return _end(state, "too-bad", now, text + _suspect(state))
    verdict = _verdict(state, result)
    stages = (*state.stages[:-1], replace(stage, closed=now, verdict=verdict))
    if len(stages) == len(plan.stages):
        phase = TABLE.target(state.phase, "promoted", state)
        after = replace(state, phase=phase, stages=stages, reason=verdict, outcome="promoted", at=now)
        return after, (events.Promote(verdict),)
    phase = TABLE.target(state.phase, "stage-passed", state)
    return replace(state, phase=phase, stages=stages, due=now + plan.deadline, at=now), ()


def _too_bad(state: Rollout, result: Tally) -> str:
    """Say what the candidate is too bad beside, if it is: the champion, and of a first version what vehicles learn."""
    plan, is_first = state.start.plan, not state.start.champion
    most = min(plan.max_worse, -BEATS) if is_first else plan.max_worse
    if result.mean > most:
        return f"{_summary(state, result)}; the limit is {_change(state, most)}"
    most = plan.max_worse if state.start.suspect else WORSE_THAN_ALONE
    if is_first and result.beside_local is not None and result.beside_local > most:
        beside = f"worse than {_alone(state, result.beside_local)}"
        return f"{_summary(state, result)}; {beside}; the limit is {_change(state, most)}"
    return ""


def _nobody(state: Rollout, agents: tuple[str, ...]) -> str:
    reasons = sorted({state.cannot[agent] for agent in agents})
    text = "; ".join(reasons[:3]) + ("; ..." if len(reasons) > 3 else "")
    return f"none of {_count(len(agents), 'vehicle')} can score it ({text})"


def _summary(state: Rollout, result: Tally) -> str:
    start, vehicles = state.start, _count(result.reports, "vehicle")
    if start.champion and not start.plan.gate:
        return f"{change_in_words('rmse', result.mean)} on average over {vehicles}"
    constant = "the most frequent class" if _is_f1(state) else "the mean"
    other = f"version {start.champion}" if start.champion else f"always forecasting {constant}"
    return (
        f"{_change(state, result.mean)} against {other}, {'median of' if start.plan.gate else 'mean over'} {vehicles}"
    )


def _verdict(state: Rollout, result: Tally) -> str:
    """Say why a stage is passed."""
    text = _summary(state, result)
    if not state.start.plan.gate:
        return f"{text}, worse off: {result.worse}{_suspect(state)}"
    if result.beside_local is not None and result.beside_local >= 0:
        text += f"; warning: no better than {_alone(state, result.beside_local)}"
    return text + _suspect(state)


def _alone(state: Rollout, worse: float) -> str:
    return f"what each vehicle learns alone ({_change(state, worse)})"


def _suspect(state: Rollout) -> str:
    return state.start.suspect and f"; {state.start.suspect}"


def _is_f1(state: Rollout) -> bool:
    return statistics.mode(report.metric for report in state.reports.values()) == "f1"


def _change(state: Rollout, worse: float) -> str:
    return change_in_words("f1" if _is_f1(state) else "rmse", worse)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _announced(judged: tuple[Rollout, tuple[events.Effect, ...]]) -> tuple[Rollout, tuple[events.Effect, ...]]:
    """Add that a stage which goes on is to be told to its vehicles."""
    state, effects = judged
    return state, effects or standing(state)


def _end(state: Rollout, cause: str, now: float, reason: str) -> tuple[Rollout, tuple[events.Effect, ...]]:
    phase, stages = TABLE.target(state.phase, cause, state), state.stages
    # The phase says "stopped" already.
    text = reason if cause == phase else f"{cause}: {reason}"
    if state.is_open:
        stages = (*stages[:-1], replace(stages[-1], closed=now, verdict=f"{cause}: {reason}"))
    return replace(state, phase=phase, stages=stages, reason=text, outcome=cause, at=now), (events.Withdraw(),)
