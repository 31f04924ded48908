"""The engine under any order, loss, duplication and repetition of events, and under restarts at any moment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from coordinator.engine import (
    AgentDown,
    AgentUp,
    Event,
    Malformed,
    NoBroker,
    Refused,
    RoundClosed,
    RunState,
    Tick,
    checkpoint,
    standing,
    wakes_at,
)
from coordinator.engine.checkpoint import is_due
from coordinator.engine.events import to_value
from coordinator.engine.table import TABLE
from coordinator.runs.transaction import begun_anew, shortened
from glassfleet.contract.messages import Task
from schemas import codec
from tests.support.engine_bench import (
    DOMAIN,
    OFFER,
    TOY_ENGINE,
    Play,
    answer_event,
    central,
    fingerprint,
    fold,
    toy_answer,
    toy_spec,
)

AGENTS = tuple("abcde")
AGENT = st.integers(0, len(AGENTS) - 1)
ALL = [
    "answer", "answer-all", "answer-old", "contradict", "impossible", "change-rows", "refuse", "malformed", "down",
    "up",
]  # fmt: skip
ACTION = st.one_of(
    *(st.tuples(st.just(what), AGENT) for what in ALL),
    *(st.tuples(st.just(what), st.integers(1, 12)) for what in ("wait", "no-broker")),
    st.tuples(st.just("restart"), st.just(0)),
)
SPECS = st.fixed_dictionaries(
    {
        "participation": st.sampled_from(["cohort", "elastic"]),
        "domain": st.sampled_from([None, "given"]),
        "levels": st.integers(1, 5),
        "coarse": st.sampled_from([1, 2**22, 2**24, 2**40]),
        "min_agents": st.sampled_from([1, 2, 0.5, 1.0]),
        "target": st.sampled_from([None, 3]),
        "sample": st.sampled_from([None, 3]),
        "grace": st.sampled_from([0, 3]),
        "on_missed_quorum": st.sampled_from(["extend", "fail"]),
        "max_restarts": st.integers(0, 5),
    }
)


class Stage:
    """A play whose journal is kept as the shell keeps it, and that can be restarted from it.

    `begins_anew` whenever a round of an elastic run has closed; otherwise its journal keeps everything.
    """

    def __init__(self, choice: dict[str, Any], *, begins_anew: bool = False) -> None:
        self.begins_anew = begins_anew
        self.checkpoints = 0
        spec = toy_spec(
            participation=choice["participation"],
            parameters={"levels": choice["levels"], "coarse": choice["coarse"]},
            rounds={
                "deadline": 10,
                **{name: choice[name] for name in ("min_agents", "target", "sample", "grace", "on_missed_quorum")},
                "max_restarts": choice["max_restarts"],
            },
            domain=None if choice["domain"] is None else DOMAIN,
        )
        self.play = Play(spec, agents=AGENTS[:4])
        self.journal: list[bytes] = [_bytes(self.play.events[0])]
        self.tasks: list[Task] = []
        self.note()

    def note(self) -> None:
        if self.play.state.levels and (not self.tasks or self.tasks[-1] != self.play.task):
            self.tasks.append(self.play.task)

    def send(self, event: Event) -> None:
        before = self.play.state
        effects = self.play.send(event)
        if self.play.state is not before:
            self.journal.append(_bytes(shortened(event, effects)))
        closed = sum(effect.summary.bytes for effect in effects if isinstance(effect, RoundClosed))
        if closed and self.begins_anew:
            self.begin_anew(closed)
        assert _reachable(before.phase, self.play.state.phase)
        check_open(self.play.state)
        self.note()

    def begin_anew(self, closed: int) -> None:
        before = self.play.state
        with patch.object(checkpoint, "BOUND", 1):
            if not is_due(before, closed):
                return
        anew = begun_anew(TOY_ENGINE, before, 0.0)
        assert anew is not None
        self.checkpoints += 1
        self.play.state, self.journal = anew[0], [anew[1].body]
        assert self.play.state == before

    def act(self, what: str, number: int) -> None:
        if what == "wait":
            self.play.at += number
            self.send(Tick(self.play.at))
        elif what == "no-broker":
            self.be_without_broker(number)
        elif what == "restart":
            self.restart()
        elif what == "answer-all":
            for each in AGENTS[: number + 1]:
                self.answer(each, self.tasks[-1])
        else:
            self.act_as(AGENTS[number], what, number)

    def be_without_broker(self, seconds: int) -> None:
        before, effects = self.play.state, len(self.play.effects)
        self.play.at += seconds
        self.send(NoBroker(self.play.at, self.play.at - seconds))
        assert len(self.play.effects) == effects
        assert replace(self.play.state, without_broker=before.without_broker) == before, "it is noted, and no more"

    def act_as(self, agent: str, what: str, number: int) -> None:
        at, task = self.play.at, self.tasks[-1]
        match what:
            case "answer":
                self.answer(agent, task)
            case "answer-old":
                self.answer(agent, self.tasks[number % len(self.tasks)])
            case "contradict":
                self.answer(agent, task, value=5, once=True)
            case "impossible":
                self.answer(agent, task, value=-1)
            case "change-rows":
                self.answer(agent, task, rows=9, once=True)
            case _:
                events: dict[str, Event] = {
                    "refuse": Refused(at, agent, task.digest, "no disk"),
                    "malformed": Malformed(at, agent, "0" * 64, "malformed: x"),
                    "down": AgentDown(at, agent),
                    "up": AgentUp(at, agent, OFFER),
                }
                self.send(events[what])

    def answer(self, agent: str, task: Task, *, once: bool = False, **how: Any) -> None:
        if once and agent not in self.play.state.store.get(task.digest, {}):
            return  # a first answer defines what is true; only a second one can contradict it
        self.send(answer_event(self.play.at, agent, task, **how))

    def restart(self) -> None:
        folded = fold(TOY_ENGINE, self.journal)
        assert fingerprint(TOY_ENGINE, folded) == fingerprint(TOY_ENGINE, self.play.state)
        assert standing(folded) == standing(self.play.state)
        self.play.state = folded


def check_open(state: RunState) -> None:
    """Check what the open round keeps so that nothing is looked up in a whole fleet: order and sum."""
    if state.open is None:
        return
    assert state.open.asked == tuple(sorted(set(state.open.asked)))
    assert state.open.rows == sum(stored.rows for stored in state.store.get(state.open.digest, {}).values())


def _bytes(event: Event) -> bytes:
    return codec.encode(to_value(event))


def _reachable(source: str, target: str) -> bool:
    """Whether the table leads from one phase to another, in any number of moves (one step may make several)."""
    reached = {source}
    while True:
        more = {row.target for row in TABLE.rows if row.source in reached} - reached
        if not more:
            return target in reached
        reached |= more


COURSE = {
    "participation": "elastic", "domain": None, "levels": 4, "coarse": 1, "min_agents": 1, "target": None,
    "sample": None, "grace": 0, "on_missed_quorum": "extend", "max_restarts": 5,
}  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(choice=SPECS, actions=st.lists(ACTION, max_size=60), helpful=st.sets(AGENT))
@example(
    choice={**COURSE, "participation": "cohort", "domain": "given"},
    actions=[("answer-all", 3), ("answer-all", 3), ("answer-all", 2), ("wait", 12), ("restart", 0)],
    helpful={0, 1, 2},
)
def test_run_ends_by_name_and_counts_once_whatever_happens(
    choice: dict[str, Any], actions: list[tuple[str, int]], helpful: set[int]
) -> None:
    stage = Stage(choice)
    for what, number in actions:
        stage.act(what, number)
    # From here only some agents go on; time does the rest, within a bounded number of deadlines.
    for _ in range(400):
        if stage.play.state.is_ended:
            break
        for number in sorted(helpful):
            stage.answer(AGENTS[number], stage.tasks[-1])
        wake = wakes_at(stage.play.state)
        if wake is not None:
            stage.play.at = max(stage.play.at, wake)
            stage.send(Tick(stage.play.at))
    state = stage.play.state
    assert state.is_ended, f"hung in {state.phase}"
    assert wakes_at(state) is None
    if state.phase != "finished":
        assert state.reason
    stage.restart()
    if state.phase == "finished":
        check_model(stage)


@settings(max_examples=60, deadline=None)
@given(choice=SPECS, actions=st.lists(ACTION, max_size=60))
@example(choice=COURSE, actions=[("answer-all", 3), ("answer-all", 2), ("answer-old", 3), ("wait", 12), ("restart", 0)])
def test_run_whose_journal_begins_anew_decides_what_one_that_keeps_all_decides(
    choice: dict[str, Any], actions: list[tuple[str, int]]
) -> None:
    choice = {**choice, "participation": "elastic"}
    kept, anew = Stage(choice), Stage(choice, begins_anew=True)
    for what, number in actions:
        for stage in (kept, anew):
            stage.act(what, number)
        assert anew.play.effects == kept.play.effects
        assert fingerprint(TOY_ENGINE, anew.play.state) == fingerprint(TOY_ENGINE, kept.play.state)
    for stage in (kept, anew):
        stage.restart()
    rounds = anew.play.state.rounds
    assert anew.checkpoints == len(rounds) - (anew.play.state.is_ended and len(rounds) > 0)


def check_model(stage: Stage) -> None:
    play, state = stage.play, stage.play.state
    if play.spec.participation == "cohort":
        assert play.model == central(play.spec, state.cohort)
        return
    # Elastic: every level is the sum over exactly those whom the rounds' summaries name.
    rounds = [summary for summary in state.rounds if summary.phase == "statistics"]
    by_digest = {task.digest: task for task in stage.tasks}
    sums = [
        sum(int(toy_answer(agent, by_digest[summary.task_digest]).sums["s"][0]) for agent in summary.accepted_agents)
        for summary in rounds
    ]
    assert list(play.model.history) == sums
