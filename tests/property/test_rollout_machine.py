"""The rollout's state machine under any order of events: named ends, never promoted on too little, replay."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from coordinator.models.rollout.machine import step
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
    Withdraw,
)
from coordinator.specification.rollout import GATE, RolloutPlan

AGENTS = tuple(f"v{number}" for number in range(8))
PLAN = RolloutPlan(stages=(0.25, 1.0), min_reports=0.5, deadline=10.0)
PRESENT, FORMER = "a" * 64, "c" * 64
START = Started(0.0, "rollout-1", "m", 3, "b" * 64, 2, PRESENT, PLAN, formers=((1, FORMER),))


def report(agent: str, candidate: float, former: float = 1.0, variance: float = 0.0) -> Reported:
    """Return errors beside a champion's of 1."""
    beside = {
        PRESENT: [candidate - 1.0, variance, 0.0, 0.0],
        FORMER: [candidate / former - 1.0, variance, former - 1.0, variance],
    }
    return Reported(0.0, agent, "rmse", candidate, 1.0, local=1.0, beside=beside)


EVENTS = st.one_of(
    st.just(StageOpened(0.0, AGENTS)),
    st.builds(report, st.sampled_from(AGENTS), st.floats(0.0, 3.0)),
    st.builds(lambda agent: Cannot(0.0, agent, "no test rows"), st.sampled_from(AGENTS)),
    st.just(Tick(0.0)),
    st.builds(lambda agents: Hurry(0.0, tuple(sorted(agents))), st.sets(st.sampled_from(AGENTS))),
    st.just(Pause(0.0)),
    st.just(Resume(0.0)),
    st.sampled_from([Stop(0.0), Superseded(0.0, 3)]),
)


def run(events: list[Event]) -> tuple[Rollout, list[object]]:
    state, effects = step(None, START)
    result: list[object] = list(effects)
    for number, event in enumerate(events):
        state, effects = step(state, replace(event, at=float(number)))
        result += effects
    assert state is not None
    return state, result


@given(st.lists(EVENTS, max_size=40))
def test_rollout_promotes_only_on_enough_reports_and_ends_once_under_any_events(events: list[Event]) -> None:
    state, result = run(events)
    ends = [each for each in result if isinstance(each, Promote | Withdraw)]
    assert len(ends) == state.is_ended
    if state.phase == "promoted":
        assert len(state.stages) == len(PLAN.stages)
        assert len(state.reports) >= state.needed
    assert run(events) == (state, result)


@given(st.lists(EVENTS, max_size=30))
def test_rollout_reaches_a_named_end_when_time_passes(events: list[Event]) -> None:
    state, _ = run(events)
    for number in range(10):
        at = 1000.0 * (number + 1)
        for event in (Resume(at), StageOpened(at + 1, AGENTS), Tick(at + 500)):
            after, _ = step(state, event)
            assert after is not None
            state = after
    assert state.is_ended
    assert state.reason


@given(st.sets(st.sampled_from(AGENTS)), st.permutations(AGENTS))
def test_rollout_is_decided_by_those_that_can_without_waiting_whoever_cannot(able: set[str], order: list[str]) -> None:
    events: list[Event] = []
    # A vehicle that is not asked yet is not heard; each stage is opened again at most once for each that cannot.
    for _ in range(len(AGENTS) + 2):
        events.append(StageOpened(0.0, AGENTS))
        events += [report(agent, 0.9) if agent in able else Cannot(0.0, agent, "no test rows") for agent in order]
    state, _ = step(None, replace(START, plan=PLAN.model_copy(update={"deadline": 1e6})))
    for number, event in enumerate(events):
        state, _ = step(state, replace(event, at=float(number)))
    assert state is not None
    assert state.phase == ("promoted" if able else "rolled-back")
    assert set(state.reports) == able
    assert able or state.reason == "nobody-can: none of 8 vehicles can score it (no test rows)"


@given(
    st.floats(0.5, 1.5),
    st.floats(0.5, 1.5),
    st.lists(st.floats(0.0, 1e9), min_size=6, max_size=6),
    st.permutations(AGENTS),
)
def test_gate_decides_as_the_honest_majority_whatever_a_minority_says(
    error: float, former: float, lies: list[float], order: list[str]
) -> None:
    honest = {agent: report(agent, error, former) for agent in AGENTS}
    reports = honest | {
        agent: report(agent, *lies[2 * place :][:2]) if lies[2 * place + 1] else honest[agent]
        for place, agent in enumerate(AGENTS[:3])
    }

    def judged(reports: dict[str, Reported]) -> Rollout:
        state, _ = step(None, replace(START, plan=GATE))
        events: list[Event] = [StageOpened(1.0, AGENTS), *(reports[agent] for agent in order)]
        for event in events:
            state, _ = step(state, event)
        assert state is not None
        return state

    assert judged(reports).outcome == judged(honest).outcome


def test_chain_of_small_losses_ends_at_the_best_that_was_in_use() -> None:
    def outcome(candidate: float, former: float) -> str:
        state, _ = step(None, replace(START, plan=GATE))
        events: list[Event] = [StageOpened(1.0, AGENTS), *(report(agent, candidate, former, 1e-6) for agent in AGENTS)]
        for event in events:
            state, effects = step(state, event)
        assert state is not None
        returns = [each for each in effects if isinstance(each, Return)]
        assert [(each.version, each.digest) for each in returns] == (
            [(1, FORMER)] if state.outcome == "former-better" else []
        )
        return state.outcome

    assert outcome(1.005, 1.0) == "promoted", "as good, within the margin"
    assert outcome(1.005, 0.993) == "too-bad", "within the margin of the present version, not of the best"
    assert outcome(1.005, 0.98) == "former-better", "the present version is worse than a former one on the rows of now"
    assert outcome(0.97, 0.98) == "promoted", "better than both"
    assert outcome(0.985, 0.98) == "promoted", "as good as the best"
