"""What the engine does for one vehicle does not grow with the fleet; what closed rounds told is let go."""

from __future__ import annotations

import gc
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest
from immutables import Map

from coordinator.engine import AgentDown, AgentUp, Answer, Engine, Refused
from coordinator.engine.answers import LONG, kept
from coordinator.engine.packing import SIDE_BY_SIDE, Packed, packed
from coordinator.engine.state import Stored
from coordinator.journal.port import Entry, overview
from coordinator.runs.transaction import entry_of, fold
from coordinator.runs.view import run_document, run_head
from edge_agent.models.summed import summed
from edge_agent.session.answers import answer
from glassfleet.contract.messages import Contribution
from glassfleet.data.dataset import Dataset
from glassfleet.evaluation.scores import SCORES
from schemas.messages import ContributionBody
from tests.support.coordinator_bench import Fleet, TornDisk
from tests.support.engine_bench import OFFER, Play, answer_event, toy_spec

SIZES = (50, 1000)


def calls(act: Callable[[], Any]) -> int:
    """Return how many functions `act` calls, Python's own included."""
    count = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


def in_a_round(vehicles: int, **spec: Any) -> Play:
    """Return a run in whose second round half of the vehicles have answered."""
    agents = tuple(f"v{number:05d}" for number in range(vehicles))
    play = Play(toy_spec(**spec), agents=agents)
    play.answer(*agents)
    play.answer(*agents[: vehicles // 2])
    return play


def after_a_timeout(play: Play) -> Play:
    """Let those be out who have not answered; a cohort is asked again."""
    play.pass_time(play.spec.rounds.deadline)
    return play


@pytest.mark.parametrize("participation", ["cohort", "elastic"])
@pytest.mark.parametrize(
    "event_of",
    [
        pytest.param(lambda play, agent: answer_event(play.at, agent, play.task), id="answer"),
        pytest.param(lambda play, _: answer_event(play.at, "v00000", play.task), id="resend"),
        pytest.param(lambda play, agent: answer_event(play.at, agent, play.task, data="other"), id="other rows"),
        pytest.param(lambda play, agent: Refused(play.at, agent, play.task.digest, "not today"), id="refusal"),
        pytest.param(lambda play, agent: AgentDown(play.at, agent), id="will"),
        pytest.param(lambda play, _: AgentUp(play.at, "w", OFFER), id="birth"),
        pytest.param(lambda play, _: answer_event(play.at, "v00000", after_a_timeout(play).task), id="after a timeout"),
        pytest.param(lambda play, agent: answer_event(after_a_timeout(play).at, agent, play.task), id="of who was out"),
    ],
)
def test_what_one_vehicle_says_takes_as_many_steps_in_a_large_fleet(
    participation: str, event_of: Callable[[Play, str], Any]
) -> None:
    counts = []
    for size in SIZES:
        play = in_a_round(size, participation=participation)
        event = event_of(play, play.agents[-1])
        play.engine.step(play.state, event)  # what is found out once for a round is not counted
        counts.append(calls(lambda play=play, event=event: play.engine.step(play.state, event)))  # type: ignore[misc]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("participation", ["cohort", "elastic"])
def test_what_happens_to_all_takes_steps_in_proportion_to_the_fleet(participation: str) -> None:
    timeouts, resumings = [], []
    for size in SIZES:
        play = in_a_round(size, participation=participation)
        timeouts.append(calls(lambda play=play: after_a_timeout(play)))  # type: ignore[misc]
        assert play.state.restarts == (participation == "cohort")
        entries = [entry_of("r1", event, 0.0) for event in play.events]
        resumings.append(calls(lambda play=play, entries=entries: fold(play.engine, entries)))  # type: ignore[misc]
    for few, many in (timeouts, resumings):
        assert many <= few * SIZES[1] / SIZES[0]


def test_list_of_runs_looks_at_no_vehicle() -> None:
    about: dict[str, Any] = {"started": 1.0, "ended": None, "model": None}
    counts = []
    for size in SIZES:
        state = in_a_round(size).state
        counts.append(calls(lambda state=state: run_head(state, **about)))  # type: ignore[misc]
    assert counts[0] == counts[1]


def test_list_of_runs_says_what_their_documents_say() -> None:
    fleet = Fleet().begin("a", "b", "c")
    fleet.answer("a", "b", "c")
    fleet.answer("a")
    runs = fleet.core.runs
    assert runs.overviews() == [overview(runs.document("r1"))]
    state = fleet.state()
    document = run_document(runs.engine, state, started=1.0, ended=2.0, model={"name": "m"}, lacks="time")
    head = run_head(state, started=1.0, ended=2.0, model={"name": "m"}, lacks="time")
    assert head == {name: document[name] for name in head}


@pytest.mark.parametrize("participation", ["cohort", "elastic"])
def test_answers_of_rounds_that_are_never_replayed_are_let_go(participation: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.random((40, 2))
    data = Dataset(("x",), "y", X[:, :1], X[:, 1])
    spec = toy_spec(domain=None, participation=participation).model_copy(update={"scheme": "frt"})
    play = Play(spec, agents=("a", "b", "c"), engine=Engine())
    phases = set()
    while not play.is_over():
        phases.add(play.phase)
        holding = {
            digest for digest, one in play.state.store.items() if any(each.contribution for each in one.values())
        }
        may_hold = {level.digest for level in play.state.levels}
        if play.phase != "learning" or participation == "elastic":  # a cohort that loses members learns again
            may_hold = {play.state.levels[-1].digest}
        assert holding <= may_hold, play.phase
        task = play.task
        for agent in play.agents:
            one = summed(task, data, data) if task.scheme == SCORES.name else None
            given = answer(task, data, bytes(32)) if one is None else {"rows": one.rows, "contribution": one.to_value()}
            event = answer_event(play.at, agent, task)
            body = ContributionBody(task_digest=task.digest, data_digest=event.data_digest, **given)
            play.send(Answer.of(play.at, agent, body))
            if play.is_over() or play.task is not task:
                break
            assert play.state.store[task.digest][agent].contribution is not None
    assert play.phase == "finished", play.state.reason
    assert phases >= {"domain", "learning"} | ({"scoring"} if participation == "cohort" else set())


class Watched(TornDisk):
    """A journal that knows how many of its records are held at once."""

    most = 0

    def records(self, run: str) -> Iterator[Entry]:
        given: list[weakref.ref[Entry]] = []
        for entry in super().records(run):
            copy = replace(entry)
            given.append(weakref.ref(copy))
            Watched.most = max(Watched.most, sum(each() is not None for each in given))
            yield copy


def test_run_is_resumed_without_all_of_its_records_in_memory() -> None:
    agents = [f"v{number:02d}" for number in range(40)]
    fleet = Fleet(reopen=Watched).begin(*agents, rounds={"gather_agents": 40})
    fleet.answer(*agents)
    before = fleet.state()
    fleet.crash()
    assert fleet.state().rounds == before.rounds
    assert 0 < Watched.most < 10


@pytest.mark.parametrize("most", [0, 1, 255, 256, 70_000, 2**40])
def test_long_answers_wait_in_the_room_that_their_numbers_need(most: int) -> None:
    rng = np.random.default_rng(most)
    sums = {
        "long": rng.integers(0, most, 4 * LONG, dtype=np.int64, endpoint=True),
        "short": np.array([most, -1], dtype=np.int64),
        "signed": rng.integers(-most, most, LONG, dtype=np.int64, endpoint=True),
    }
    waiting = kept(Contribution("k", 1, sums, {"a": 1}, 3))
    assert (waiting.kind, waiting.rows, waiting.values, waiting.nullified) == ("k", 1, {"a": 1}, 3)
    assert list(waiting.sums) == list(sums)
    for name, array in waiting.sums.items():
        assert array.dtype == np.int64
        np.testing.assert_array_equal(array, sums[name])
    held = next(each for each in gc.get_referents(waiting.sums) if isinstance(each, dict))
    room = sum(array.nbytes for array in held.values())
    assert room < 0.7 * sum(array.nbytes for array in sums.values()) or most > 2**32


def told_by(vehicles: int, **odd: Any) -> dict[str, Stored]:
    """Return answers with sums of one shape, but for those that are said of `odd` vehicles."""
    rng = np.random.default_rng(vehicles)
    result = {}
    for number in range(vehicles):
        agent = f"v{number:05d}"
        sums = {
            "histogram": rng.integers(0, 9, 300),
            "gram": rng.integers(-(2**45), 2**45, (4, 21)),
            "masked": np.array([-(2**63), 2**63 - 1]),
            "none": np.zeros((0, 3), np.int64),
        }
        given = Contribution("k", number, sums | odd.get(agent, {}), {"v": number} if number % 2 else {}, number % 3)
        result[agent] = Stored(f"{number:064x}", number + 1, given)
    return result


@pytest.mark.parametrize("odd", [{}, {"v00300": {"gram": np.arange(84)}}, {"v00300": {"other": np.arange(84)}}])
def test_answers_to_a_closed_round_come_back_as_they_were(odd: dict[str, Any]) -> None:
    result = told_by(2 * SIDE_BY_SIDE + 3, **odd)
    (back,) = packed({"closed": Map(result)}, "open").values()
    assert list(back) == sorted(result)
    for agent, stored in result.items():
        assert agent in back
        given, answer = stored.contribution, back[agent].contribution
        assert (back[agent].answer_digest, back[agent].rows) == (stored.answer_digest, stored.rows)
        assert (answer.kind, answer.rows, answer.values, answer.nullified) == (
            "k",
            given.rows,
            given.values,
            given.nullified,
        )
        assert answer.sums.keys() == given.sums.keys()
        for name, array in given.sums.items():
            assert answer.sums[name].dtype == np.int64
            np.testing.assert_array_equal(answer.sums[name], array)
    assert "v" not in back
    assert back.get("v00000x") is None


def test_answers_to_a_closed_round_take_less_room_than_their_numbers_did() -> None:
    result = told_by(SIDE_BY_SIDE)
    numbers = sum(array.nbytes for each in result.values() for array in each.contribution.sums.values())
    tracemalloc.start()
    try:
        held = Packed(result)
        room, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(held) == len(result)
    assert room < numbers / 2


def test_cohort_keeps_the_answers_to_closed_rounds_packed() -> None:
    play = in_a_round(5, participation="cohort")
    assert [type(each) for each in play.state.store.values()] == [Packed, Map]
