"""The state machine of one rollout: ``step(state, event) -> (state, effects)``. Pure; time arrives as an event.

Theory of operation. A rollout compares one candidate with one champion. In each stage the vehicles below a threshold
(`schemas.rounds`) try the candidate on their own test rows and report both errors. A stage is judged when all of those
that were up at its opening have reported, or at its deadline; a report counts for all later stages as well, once, the
first one. A vehicle that says it cannot (it has no test rows, say) is counted out; when nobody is left in a stage, the
stage is opened again among the others, and when nobody is left at all, the rollout ends. What a report says is made
relative, ``(candidate - champion) / champion`` for an error, and cut to [-1, 1] before it is averaged: no vehicle,
however hostile, weighs more than one. The candidate is compared with former versions that were in use, too, and the
comparison that is worst for it counts: losses that are small beside the present version alone cannot add up. The last
stage passed, the candidate becomes current; anything else withdraws it, and the champion was never touched.

The gate (`coordinator.specification.rollout.GATE`), which every new version passes, is such a rollout: one stage, the
whole fleet, judged by how far the candidate is worse with all its noise (`glassfleet.evaluation.paired`). A minority
that lies decides nothing. Where a former version turns out to be the best, that one becomes current again. Where no
version is current yet, the champion is the constant: each vehicle's forecast of the mean (or majority class) of its own
training rows, and the median over the vehicles decides. A first version must also stand beside what each vehicle
learns alone, or whoever lied in its run rules what the fleet forecasts with. A version that does not pass stays the
name's candidate, with the reason, until an operator or a newer version decides.

The shell writes each event that changes the state into the journal before it performs the effects. Folding the events
gives the same state again; effects are idempotent, and `standing` gives those that hold now. An event that does not
fit (a second report, a pause of an ended rollout) changes nothing and has no effects.
"""

from __future__ import annotations

from dataclasses import replace

from coordinator.models.rollout.state import (
    Cannot,
    Effect,
    Event,
    Hurry,
    Pause,
    Promote,
    Reported,
    Resume,
    Return,
    Rollout,
    Stage,
    StageOpened,
    Started,
    Stop,
    Superseded,
    Tick,
    Try,
    Withdraw,
)
from coordinator.models.rollout.table import TABLE
from coordinator.models.rollout.verdict import counted, judged, nobody_can, tally, too_many_worse
from schemas.rounds import place, threshold


def step(state: Rollout | None, event: Event) -> tuple[Rollout | None, tuple[Effect, ...]]:  # noqa: C901, PLR0912  a table
    """Take an event. The very same state comes back when it changes nothing."""
    if state is None:
        if not isinstance(event, Started):
            return None, ()
        return Rollout(event, TABLE.target("", "started", None), event.at + event.plan.deadline, event.at), ()
    if state.is_ended:
        return state, ()
    match event:
        case StageOpened() if state.phase == "opening" and event.agents:
            if state.cannot and set(event.agents) <= set(state.cannot):
                return _end(state, "nobody-can", event.at, nobody_can(state, event.agents))
            return _announced(_judged(_open(state, event), event.at))
        case Reported() if state.is_open and event.agent not in state.reports and _is_asked(state, event.agent):
            reports = {**state.reports, event.agent: event}
            cannot = {agent: why for agent, why in state.cannot.items() if agent != event.agent}
            phase = TABLE.target(state.phase, "reported", state)
            after = replace(state, phase=phase, reports=reports, cannot=cannot, at=event.at)
            return _judged(after, event.at) if phase == "trying" else (after, ())
        case Cannot(agent=agent) if (
            state.is_open and agent not in state.reports and agent not in state.cannot and _is_asked(state, agent)
        ):
            phase = TABLE.target(state.phase, "cannot", state)
            after = replace(state, phase=phase, cannot={**state.cannot, agent: event.why}, at=event.at)
            return _judged(after, event.at) if phase == "trying" else (after, ())
        case Tick() if state.phase in ("opening", "trying") and event.at >= state.due:
            if state.phase == "opening":
                return _end(state, "no-vehicles", event.at, "no vehicle was up to try it")
            return _judged(state, event.at)
        case Hurry(agents=agents) if state.phase == "trying" and state.awaited <= set(agents):
            return _judged(state, event.at, waits=False)
        case Pause() if state.phase in ("opening", "trying"):
            left = max(0.0, state.due - event.at)
            phase = TABLE.target(state.phase, "paused", state)
            return replace(state, phase=phase, left=left, reason=event.reason, at=event.at), ()
        case Resume() if state.phase == "paused":
            phase = TABLE.target(state.phase, "resumed", state)
            after = replace(state, phase=phase, due=event.at + state.left, reason="", at=event.at)
            if phase == "opening":
                return after, ()
            return _announced(_judged(after, event.at))
        case Stop():
            return _end(state, "stopped", event.at, event.reason or "by an operator")
        case Superseded():
            return _end(state, "superseded", event.at, f"version {event.version} became current")
    return state, ()


def standing(state: Rollout) -> tuple[Effect, ...]:
    """Return the effects that hold now, to be performed again at every start."""
    if not state.is_open or state.is_ended:
        return ()
    return (Try(state.start.rollout, state.stages[-1].below),)


def wakes_at(state: Rollout) -> float | None:
    """Return when a `Tick` will matter; None: never."""
    return state.due if state.phase in ("opening", "trying") else None


def _is_asked(state: Rollout, agent: str) -> bool:
    return place(state.start.rollout, agent) < state.stages[-1].below


def _open(state: Rollout, event: StageOpened) -> Rollout:
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


def _judged(state: Rollout, now: float, *, waits: bool = True) -> tuple[Rollout, tuple[Effect, ...]]:
    """Judge the open stage, if it can be judged now; `waits`: those who have yet to report are waited for."""
    plan, stage, is_late = state.start.plan, state.stages[-1], now >= state.due
    if waits and not is_late and plan.max_worse_share >= 1 and state.awaited:
        return state, ()  # nothing is judged early: a large fleet's reports are added up once
    result = tally(state)
    voters = max(result.reports, len({*state.able, *state.reports}), 1)
    if text := too_many_worse(state, result, voters):
        return _end(state, "too-bad", now, text)  # whatever those say who have not reported yet
    if waits and not is_late and state.awaited:
        return state, ()
    if not is_late and stage.asked and not state.able and not state.reports:
        # Those who were asked cannot say anything: the same share of the others is asked, within the same time.
        return replace(state, phase=TABLE.target(state.phase, "widened", state), stages=state.stages[:-1], at=now), ()
    if result.reports < state.needed:
        if not is_late:
            return state, ()
        text = f"{counted(result.reports, 'report')} until the deadline, {state.needed} needed"
        return _end(state, "too-few-reports", now, text)
    if text := too_many_worse(state, result, result.reports):
        return _end(state, "too-bad", now, text)
    cause, verdict, former = judged(state, result)
    if cause:
        after, effects = _end(state, cause, now, verdict)
        returns = (Return(former, dict(state.start.formers)[former], verdict),) if former else ()
        return after, (*effects, *returns)
    stages = (*state.stages[:-1], replace(stage, closed=now, verdict=verdict))
    if len(stages) == len(plan.stages):
        phase = TABLE.target(state.phase, "promoted", state)
        after = replace(state, phase=phase, stages=stages, reason=verdict, outcome="promoted", at=now)
        return after, (Promote(verdict),)
    phase = TABLE.target(state.phase, "stage-passed", state)
    return replace(state, phase=phase, stages=stages, due=now + plan.deadline, at=now), ()


def _announced(judged: tuple[Rollout, tuple[Effect, ...]]) -> tuple[Rollout, tuple[Effect, ...]]:
    """Add that a stage which goes on is to be told to its vehicles."""
    state, effects = judged
    return state, effects or standing(state)


def _end(state: Rollout, cause: str, now: float, reason: str) -> tuple[Rollout, tuple[Effect, ...]]:
    phase, stages = TABLE.target(state.phase, cause, state), state.stages
    # The phase says "stopped" already.
    text = reason if cause == phase else f"{cause}: {reason}"
    if state.is_open:
        stages = (*stages[:-1], replace(stages[-1], closed=now, verdict=f"{cause}: {reason}"))
    return replace(state, phase=phase, stages=stages, reason=text, outcome=cause, at=now), (Withdraw(),)
