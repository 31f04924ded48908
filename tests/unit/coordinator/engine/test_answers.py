"""The engine, rule by rule: which answers count, whom it asks, and by which names runs end."""

from __future__ import annotations

import pytest

from coordinator.engine import ClearRequest, Ended, Engine, Offer, Refused, Unable, standing
from coordinator.engine.asking import unable, why_not
from coordinator.engine.checkpoint import checkpoint_of, state_of
from coordinator.engine.learning import discovery_of
from coordinator.specification.run import Bounds
from schemas.errors import RunFailedError, UsageError
from tests.support.engine_bench import TOY_ENGINE, Play, ToyServer, central, toy_spec


def test_engine_counts_each_answer_once() -> None:
    play = Play(toy_spec())
    assert play.outcomes("a") == ["accepted"]
    assert play.outcomes("a") == ["duplicate"]
    assert play.outcomes("a", value=7) == ["rejected conflict"]
    task = play.task
    play.answer("b", "c")
    assert play.outcomes("a", task=task) == ["duplicate"], "also after the round"
    play.finish("a", "b", "c")
    assert play.model == central(play.spec, "abc")
    assert (play.state.rounds[0].duplicate, play.state.rounds[0].rejected) == (2, 1)
    assert play.outcomes("a", task=task) == ["late the run has finished"]


def test_engine_rejects_what_cannot_be_true_and_does_not_wait() -> None:
    play = Play(toy_spec())
    assert play.outcomes("a", value=-1) == ["rejected impossible"]
    play.answer("b", "c")
    assert play.state.cohort == ("b", "c")
    assert play.state.rounds[0].dropped_agents["a"].startswith("impossible: s must be one number")


def test_engine_rejects_changed_data_when_rows_were_frozen() -> None:
    play = Play(toy_spec())
    play.answer("a", "b", "c")
    assert play.outcomes("a", rows=5) == ["rejected data-changed"]
    assert play.outcomes("b", data="other") == ["rejected data-changed"]
    play.answer("c")
    assert play.state.cohort == ("c",)
    assert play.state.lost == {"a": "data-changed", "b": "data-changed"}


def test_engine_rejects_a_task_of_another_run() -> None:
    play, other = Play(toy_spec()), Play(toy_spec(parameters={"coarse": 3, "levels": 9}))
    other.answer("a", "b", "c")
    assert play.outcomes("a", task=other.task) == ["rejected unknown-task"]


def test_engine_finds_the_domain_first_when_none_is_given() -> None:
    play = Play(toy_spec(domain=None, rounds={"deadline": 10}))
    assert play.phase == "domain"
    play.answer("a", "b", "c")
    play.answer("a", "b")
    play.pass_time(10)
    assert play.state.domain_contributors == ("a", "b", "c")
    assert play.phase == "recruiting"
    assert play.requests[-1].phase == "statistics"
    assert play.open.asked == ("a", "b"), "c is silent: the round does not wait for it"
    assert play.outcomes("c") == ["accepted"], "but it counts when it answers"
    play.finish("a", "b", "c")
    assert play.state.cohort == ("a", "b", "c")
    assert play.model == central(play.spec, "abc")


def test_engine_chooses_the_columns_that_most_agents_offer() -> None:
    play = Play(toy_spec(domain=None, rounds={"gather_agents": 2}), agents=())
    play.up("a", Offer(frozenset({"toy"}), ("p", "q"), "t"))
    play.up("b", Offer(frozenset({"toy"}), ("x", "y"), "t"))
    assert play.phase == "gathering"
    play.up("c", Offer(frozenset({"toy"}), ("y", "x", "z"), "t"))
    play.up("d", Offer(frozenset({"toy"}), ("x", "y"), "t"))
    assert play.state.features == ("x", "y")
    assert play.state.target == "t"
    assert play.open.asked == ("b", "c", "d")


def test_engine_counts_whoever_answers_when_elastic() -> None:
    play = Play(toy_spec(participation="elastic", rounds={"deadline": 10}))
    play.answer("a", "b", "c")
    play.answer("a")
    play.pass_time(10)
    play.up("d")
    play.answer("b", "d", "a")
    assert play.phase == "finished"
    assert [summary.accepted_agents for summary in play.state.rounds] == [("a", "b", "c"), ("a",), ("a", "b", "d")]
    assert play.state.cohort == ("a", "b", "c", "d")
    assert play.state.restarts == 0


@pytest.mark.parametrize("order", ["abc", "cab", "bca"])
def test_engine_drops_the_agent_with_most_rows_when_the_total_is_impossible(order: str) -> None:
    play = Play(toy_spec(parameters={"max_rows": 11}))
    for agent in order:
        play.answer(agent, rows=9 if agent == "c" else 4)
    assert play.state.rounds[0].dropped_agents == {"c": "impossible: c claims 9 rows; the sums are good for 11 in all"}
    play.finish("a", "b")
    assert play.phase == "finished"
    assert play.state.cohort == ("a", "b")


def test_engine_refuses_rows_beyond_the_limit_by_name_and_does_not_wait() -> None:
    play = Play(toy_spec(max_rows_each=4))
    assert play.task.max_rows_each == 4
    assert [receipt.outcome for receipt in play.answer("a", "b")] == ["accepted", "accepted"]
    (receipt,) = play.answer("c", rows=400)
    assert (receipt.outcome, receipt.reason) == (
        "rejected",
        "impossible: c claims 400 rows; the run counts 4 (max_rows_each)",
    )
    assert play.state.cohort == ("a", "b")
    assert play.task.max_rows_each == 4, "each task of the run says so"


def test_engine_never_asks_who_is_left_out_and_refuses_what_it_says() -> None:
    play = Play(toy_spec(without=["c"]))
    assert play.requests[0].request.without == ["c"]
    assert play.outcomes("c") == ["rejected left-out"]
    play.send(Refused(play.at, "c", play.task.digest, "no"))
    play.up("d")
    play.finish("a", "b", "d")
    assert play.state.cohort == ("a", "b", "d")
    assert all("c" not in summary.dropped_agents for summary in play.state.rounds)


def test_engine_says_who_is_left_out_when_too_few_agents_come() -> None:
    play = Play(toy_spec(without=["c"], rounds={"gather_agents": 3, "gather_timeout": 5}))
    play.pass_time(5)
    assert play.state.reason.endswith("not counted: is left out of this run (c)")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (RunFailedError("nobody counted", "no-rows"), "no-rows: nobody counted"),
        (RunFailedError("9 of 8", "too-many-rows"), "too-many-rows: 9 of 8"),
        (RunFailedError("no-rows: but a text"), "no-model: no-rows: but a text"),
        (RunFailedError("not for a scheme", "cancelled"), "no-model: cancelled: not for a scheme"),
        (UsageError("one class is none"), "scheme-error: one class is none"),
        (KeyError("s"), "scheme-error: reduce raised KeyError: 's'"),
    ],
)
def test_engine_ends_by_the_name_that_the_scheme_gives(
    monkeypatch: pytest.MonkeyPatch, fault: Exception, reason: str
) -> None:
    def reduce(*_arguments: object) -> None:
        raise fault

    monkeypatch.setattr(ToyServer, "reduce", reduce)
    play = Play(toy_spec())
    play.answer("a", "b", "c")
    assert (play.phase, play.state.reason) == ("failed", reason)


def test_engine_fails_by_name_when_the_scheme_cannot_say_how_many_rows_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ToyServer, "max_rows", lambda _self, _parameters: "many")
    play = Play(toy_spec())
    play.answer("a", "b", "c")
    assert play.state.reason.startswith("scheme-error: max_rows raised ValueError")


@pytest.mark.parametrize("cause", ["request-too-large", "model-unpublishable"])
def test_engine_ends_when_the_shell_is_unable_and_only_by_what_can_be(cause: str) -> None:
    play = Play(toy_spec())
    play.send(Unable(1.0, cause, "4097 parts"))
    assert play.phase == ("failed" if cause == "request-too-large" else "recruiting")
    finished = Play(toy_spec())
    finished.finish("a", "b", "c")
    finished.send(Unable(2.0, cause, "4097 parts"))
    assert finished.phase == ("failed" if cause == "model-unpublishable" else "finished")
    for state in (play.state, finished.state):
        if state.phase == "failed":
            assert state.reason == f"{cause}: 4097 parts"
            assert [type(effect) for effect in standing(state)] == [ClearRequest, Ended]


@pytest.mark.parametrize("parameters", [{"fails": "start"}, {"fails": "reduce"}, {"repeats": True}])
def test_engine_fails_by_name_when_the_scheme_misbehaves(parameters: dict[str, object]) -> None:
    play = Play(toy_spec(parameters=parameters))
    if not play.state.is_ended:
        play.finish("a", "b", "c")
    assert play.phase == "failed"
    assert play.state.reason.startswith("scheme-error")


def test_engine_never_lets_time_go_back() -> None:
    play = Play(toy_spec(rounds={"deadline": 10}))
    play.answer("a")
    play.pass_time(9)
    play.at = -100.0
    play.answer("b")
    play.at = 10.0
    play.pass_time(0)
    assert play.state.cohort == ("a", "b")


def test_domain_search_knows_units_and_terms_when_the_bounds_carry_them() -> None:
    bounds: dict[str, tuple[float, float] | Bounds] = {
        "x": Bounds(low=0, high=2, unit="m", terms=("near", "far")),
        "y": (0.0, 1.0),
        "z": Bounds(unit="s"),
    }
    parameters = discovery_of(("x", "z"), "y", bounds, TOY_ENGINE.lookup("toy"))
    assert parameters.bounds == {"x": (0.0, 2.0), "y": (0.0, 1.0)}
    assert parameters.units == {"x": "m", "z": "s"}
    assert parameters.terms == {"x": ("near", "far")}
    play = Play(toy_spec(domain=None, bounds={"w": [0, 1]}), engine=Engine(TOY_ENGINE.lookup))
    assert play.state.reason == "scheme-error: bounds names 'w', which is neither a feature nor the target"


def waited_for(play: Play) -> list[str]:
    return list(play.open.asked)


def test_engine_does_not_wait_again_for_an_agent_that_is_slower_than_every_deadline() -> None:
    play = Play(toy_spec(participation="elastic", rounds={"deadline": 10}))

    first = play.state.levels[-1].task
    play.answer("a", "b")
    play.pass_time(10)
    assert play.state.rounds[-1].dropped_agents == {"c": "deadline"}
    assert waited_for(play) == ["a", "b"]
    assert play.outcomes("c", task=first) == ["late the round is closed"]
    assert waited_for(play) == ["a", "b", "c"], "its answer took no more than a deadline: it may be in time now"
    second = play.state.levels[-1].task
    play.answer("a", "b")
    play.pass_time(10)
    assert waited_for(play) == ["a", "b"]
    play.pass_time(5)
    assert play.outcomes("c", task=second) == ["late the round is closed"]
    assert waited_for(play) == ["a", "b"], "it took longer than a deadline, and the round does not wait for it"
    play.answer("c")
    assert "c" in play.state.accepted, "but it counts when it answers in time"


@pytest.mark.parametrize("kind", ["words", "numbers in mph"])
def test_run_begins_without_an_agent_whose_column_holds_something_else(kind: str) -> None:
    spec = toy_spec(rounds={"min_agents": 2, "gather_agents": 4, "gather_timeout": 60}, domain=None)
    play = Play(spec, agents=())
    for agent, of_x in (("a", "numbers in km/h"), ("b", "numbers"), ("c", "numbers in km/h"), ("d", kind)):
        play.up(agent, Offer(frozenset({"toy"}), ("x",), "y", (of_x, "numbers")))
    assert play.phase == "domain"
    assert play.open.asked == ("a", "b", "c")
    assert why_not(unable(play.state)) == f"; not counted: has {kind} in 'x', where most have numbers in km/h (d)"
    parameters = TOY_ENGINE.server_parameters(play.state)
    assert parameters.units == {"x": "km/h"}
    assert state_of(checkpoint_of(play.state), play.state.parameters) == play.state
    play.up("e", Offer(frozenset({"toy"}), ("x",), "y", (kind, "numbers")))
    assert play.outcomes("d", "e") == ["rejected left-out", "rejected left-out"]
    assert play.outcomes("a") == ["accepted"]


def test_agents_that_tell_no_kinds_hold_numbers() -> None:
    play = Play(toy_spec(rounds={"min_agents": 2, "gather_agents": 3}), agents=("a", "b"))
    play.up("c", Offer(frozenset({"toy"}), ("x",), "y", ("words", "numbers")))
    assert (play.open.asked, play.state.kinds) == (("a", "b"), {})
