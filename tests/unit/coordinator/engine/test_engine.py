"""The engine, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.engine import (
    AgentDown,
    AgentUp,
    ClearRequest,
    Ended,
    Engine,
    Offer,
    Publish,
    Refused,
    Restarted,
    SendReceipt,
    Unable,
    standing,
    wakes_at,
)
from coordinator.engine.asking import unable, why_not
from coordinator.engine.checkpoint import checkpoint_of, state_of
from coordinator.engine.learning import discovery_of
from coordinator.specification.run import Bounds
from schemas.errors import RunFailedError
from tests.support.engine_bench import TOY_ENGINE, Play, ToyServer, central, toy_spec


def test_engine_finishes_at_once_when_everyone_answers() -> None:
    play = Play(toy_spec())
    play.finish("c", "a", "b")
    assert play.phase == "finished"
    assert play.state.cohort == ("a", "b", "c")
    assert play.model == central(play.spec, "abc")
    assert play.at == 0.0, "nobody waits when all have answered"
    assert [type(effect) for effect in play.effects[-3:]] == [ClearRequest, Publish, Ended]
    assert play.state.nullified == 3 * 3


def test_engine_asks_all_in_open_rounds_and_the_cohort_afterwards() -> None:
    play = Play(toy_spec())
    play.answer("a", "b", "c")
    first, second = play.requests
    assert (first.request.sample, first.request.asked, second.request.asked) == (None, None, None), "it knows who it is"
    assert play.outcomes("d") == ["rejected not-asked"]
    assert (second.number, second.attempt, second.ordinal) == (2, 1, 2)


def test_engine_waits_for_agents_before_the_first_round() -> None:
    play = Play(toy_spec(policy={"gather_agents": 2}), agents=("a",))
    assert play.phase == "gathering"
    play.up("z", Offer(frozenset({"other"}), ("x",), "y"))
    play.up("y", Offer(frozenset({"toy"}), ("w",), "y"))
    assert play.phase == "gathering", "neither another scheme nor other columns count"
    play.up("b")
    assert play.phase == "recruiting"
    assert play.state.open is not None
    assert play.state.open.asked == ("a", "b")


def test_engine_fails_by_name_when_too_few_agents_come() -> None:
    play = Play(toy_spec(policy={"gather_agents": 2, "gather_timeout": 5}), agents=("a",))
    assert wakes_at(play.state) == 5.0
    play.pass_time(4.9)
    assert not play.state.is_ended
    play.up("blind", Offer(frozenset({"toy"}), ("p", "q"), "y"))
    play.pass_time(0.1)
    assert play.phase == "failed"
    assert play.state.reason == (
        "not-enough-agents: 1 of 2 agents that can run 'toy' were up after 5 s (2 up in all; to learn from "
        "fewer: policy.gather_agents); not counted: has no column 'x' (blind)"
    )


@pytest.mark.parametrize(
    ("named", "offer", "why"),
    [
        ({}, Offer(frozenset({"toy"}), ("x",), ""), "offers no target, and the run names none"),
        ({"features": ("x",)}, Offer(frozenset({"toy"}), ("x",), ""), "offers no target, and the run names none"),
        ({}, Offer(frozenset({"toy"}), (), "y"), "offers no columns to learn from"),
        ({}, Offer(frozenset({"toy"}), ("y",), "y"), "offers no columns to learn from"),
        ({"target": "y"}, Offer(frozenset({"toy"}), (), ""), "offers no columns to learn from"),
    ],
)
def test_engine_says_why_when_no_columns_can_be_settled(named: dict[str, Any], offer: Offer, why: str) -> None:
    spec = toy_spec(policy={"gather_agents": 2, "gather_timeout": 5})
    plain = spec.model_copy(update={"domain": None, "features": None, "target": None, **named})
    play = Play(plain, agents=())
    for agent in ("a", "b"):
        play.up(agent, offer)
    play.pass_time(5)
    assert play.state.reason.startswith("not-enough-agents: 0 of 2 agents")
    assert play.state.reason.endswith(f"not counted: {why} (a, b)")


def test_engine_fixes_the_cohort_at_the_deadline_plus_grace() -> None:
    play = Play(toy_spec(policy={"deadline": 10, "grace": 2}))
    play.answer("a", "b")
    play.pass_time(10)
    assert play.phase == "recruiting", "the grace still runs"
    play.pass_time(2)
    assert play.state.cohort == ("a", "b")
    assert play.state.rounds[0].dropped_agents == {"c": "deadline"}
    assert play.outcomes("c", task=play.state.levels[0].task) == ["late not-asked"], "it need not try the next round"
    assert play.outcomes("c") == ["rejected not-asked"]
    play.finish("a", "b")
    assert play.model == central(play.spec, "ab")
    assert play.state.rounds[0].late == 1
    assert play.state.rounds[0].late_agents == ("c",)
    assert play.state.rounds[0].to_document()["late_agents"] == ["c"]


def test_engine_closes_early_when_the_target_is_reached() -> None:
    play = Play(toy_spec(policy={"target": 2}))
    play.answer("b", "c")
    assert play.state.cohort == ("b", "c")
    assert play.state.rounds[0].dropped_agents == {}, "not needed is not lost"


def test_engine_keeps_waiting_at_the_target_until_the_quorum_is_met() -> None:
    play = Play(toy_spec(policy={"target": 1, "min_agents": 0.9}))
    play.answer("a", "b")
    assert play.phase == "recruiting", "two of three are no 90 %"
    play.answer("c")
    assert play.state.cohort == ("a", "b", "c")


def test_engine_samples_the_cohort_once_and_always_the_same() -> None:
    agents = tuple(f"agent-{number}" for number in range(20))
    plays = [Play(toy_spec(policy={"sample": 0.25}, seed=seed), agents=agents) for seed in (1, 1, 2)]
    asked = [play.state.open.asked for play in plays if play.state.open]
    assert len(asked[0]) == 5
    assert asked[0] == asked[1] != asked[2]
    outsider = next(agent for agent in agents if agent not in asked[0])
    assert plays[0].outcomes(outsider) == ["rejected others-asked"], "the next round may ask it"


def test_engine_replays_for_the_survivors_when_a_member_is_lost() -> None:
    play = Play(toy_spec(parameters={"levels": 4}, policy={"deadline": 10}))
    play.answer("a", "b", "c")
    play.answer("a", "b", "c")
    assert play.state.levels[-1].number == 3
    play.answer("a", "b")
    play.pass_time(10)
    assert play.state.lost == {"c": "deadline"}
    assert play.of(Restarted)[0].number == 2, "the first level is answered already, the second differs"
    assert play.state.restarts == 1
    assert play.requests[-1].number == 2
    assert play.requests[-1].attempt == 2
    assert play.outcomes("c") == ["rejected not-asked"]
    play.finish("a", "b")
    assert play.model == central(play.spec, "ab")


def test_engine_goes_on_without_a_restart_when_the_levels_agree() -> None:
    play = Play(toy_spec(parameters={"levels": 4, "coarse": 2**40}, policy={"deadline": 10}))
    play.answer("a", "b", "c")
    play.answer("a", "b", "c")
    play.answer("a", "b")
    play.pass_time(10)
    assert play.state.restarts == 0
    assert play.requests[-1].number == 4, "the survivors had answered level 3 as well"
    play.finish("a", "b")
    assert play.model == central(play.spec, "ab")


def test_engine_extends_then_fails_when_the_quorum_is_missed() -> None:
    play = Play(toy_spec(policy={"min_agents": 2, "extensions": 2, "deadline": 10}))
    play.answer("a")
    play.pass_time(10)
    play.pass_time(10)
    assert [(request.number, request.attempt) for request in play.requests] == [(1, 1), (1, 2), (1, 3)]
    assert not play.state.is_ended
    play.pass_time(10)
    assert play.state.reason == (
        "quorum-not-met: 1 of 3 asked had answered at the deadline, 2 must; not counted: no answer by the deadline "
        "(b, c)"
    )
    assert play.state.rounds[-1].accepted_agents == ("a",)


def test_engine_says_why_the_others_were_not_counted_when_the_quorum_is_missed() -> None:
    play = Play(
        toy_spec(policy={"min_agents": 5, "on_missed_quorum": "fail", "deadline": 10}), agents=tuple("abcdefghi")
    )
    for agent, offer in (
        ("blind", Offer(frozenset({"toy"}), ("z",), "y")),
        ("other", Offer(frozenset({"toy"}), ("x",), "w")),
        ("older", Offer(frozenset({"frt"}), ("x",), "y")),
    ):
        play.send(AgentUp(play.at, agent, offer))
    for agent in "bcde":
        play.send(Refused(play.at, agent, play.task.digest, "no \x1b[31mcategory 'tram' in column 'x'"))
    play.send(Refused(play.at, "f", play.task.digest, "x" * 400))
    play.answer("a")
    play.pass_time(10)
    text = play.state.reason
    assert text == (
        "quorum-not-met: 1 of 9 asked had answered at the deadline, 5 must; not counted: "
        "refused: no  [31mcategory 'tram' in column 'x' (b, c, d and 1 more); no answer by the deadline (g, h, i); "
        "cannot run 'toy' (older) and 3 more reasons"
    )


def test_engine_counts_a_fractional_quorum_of_the_founders_in_a_cohort() -> None:
    play = Play(toy_spec(policy={"min_agents": 0.5, "deadline": 10}), agents=("a", "b", "c", "d"))
    play.answer("a", "b", "c", "d")
    play.answer("a", "b")
    play.pass_time(10)
    assert not play.state.is_ended
    assert play.state.cohort == ("a", "b")
    play.send(Refused(play.at, "a", play.task.digest, "out of disk"))
    assert play.state.reason.startswith("quorum-not-met"), "one of four founders is below a half: nobody to wait for"


def test_engine_ends_at_once_when_every_agent_that_could_answer_refuses() -> None:
    play = Play(toy_spec(policy={"min_agents": 1, "deadline": 10}))
    for agent in "ab":
        play.send(Refused(play.at, agent, play.task.digest, "the target is numeric here"))
    assert not play.state.is_ended, "c may answer yet"
    play.send(Refused(play.at, "c", play.task.digest, "the target is numeric here"))
    assert (play.phase, play.at) == ("failed", 0.0)
    assert play.state.reason == (
        "quorum-not-met: each of the 3 asked has refused; not counted: refused: the target is numeric here (a, b, c)"
    )


def test_engine_waits_when_one_has_answered_or_an_agent_that_could_answer_came_up() -> None:
    play = Play(toy_spec(policy={"min_agents": 2, "deadline": 10}))
    play.answer("a")
    for agent in "bc":
        play.send(Refused(play.at, agent, play.task.digest, "no disk"))
    assert not play.state.is_ended
    play = Play(toy_spec(policy={"min_agents": 1, "deadline": 10}), agents=("a",))
    play.up("d")
    play.send(Refused(play.at, "a", play.task.digest, "no disk"))
    assert not play.state.is_ended


def test_engine_waits_when_nobody_is_up_as_a_round_opens() -> None:
    # A broker that is stopped tells of everybody's end, and then delivers the last answer.
    play = Play(toy_spec(participation="elastic", policy={"min_agents": 1, "deadline": 10}))
    play.answer("a", "b")
    for agent in "abc":
        play.send(AgentDown(play.at, agent))
    play.answer("c")
    assert (play.state.is_ended, play.requests[-1].number) == (False, 2)
    for agent in "abc":
        play.up(agent)
    play.finish("a", "b", "c")
    assert play.phase == "finished"


def test_engine_does_not_wait_for_an_agent_that_refuses() -> None:
    play = Play(toy_spec())
    play.answer("a", "b")
    (receipt, *_) = play.send(Refused(play.at, "c", play.task.digest, "column x is missing"))
    assert isinstance(receipt, SendReceipt)
    assert (receipt.receipt.outcome, receipt.receipt.reason) == ("accepted", "refusal noted")
    assert play.state.cohort == ("a", "b")
    assert play.state.rounds[0].dropped_agents == {"c": "refused: column x is missing"}


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
    play = Play(toy_spec(domain=None, policy={"deadline": 10}))
    assert play.phase == "domain"
    play.answer("a", "b", "c")
    play.answer("a", "b")
    play.pass_time(10)
    assert play.state.domain_contributors == ("a", "b", "c")
    assert play.phase == "recruiting"
    assert play.requests[-1].phase == "statistics"
    assert play.state.open is not None
    assert play.state.open.asked == ("a", "b"), "c is silent: the round does not wait for it"
    assert play.outcomes("c") == ["accepted"], "but it counts when it answers"
    play.finish("a", "b", "c")
    assert play.state.cohort == ("a", "b", "c")
    assert play.model == central(play.spec, "abc")


def test_engine_chooses_the_columns_that_most_agents_offer() -> None:
    play = Play(toy_spec(domain=None, policy={"gather_agents": 2}), agents=())
    play.up("a", Offer(frozenset({"toy"}), ("p", "q"), "t"))
    play.up("b", Offer(frozenset({"toy"}), ("x", "y"), "t"))
    assert play.phase == "gathering"
    play.up("c", Offer(frozenset({"toy"}), ("y", "x", "z"), "t"))
    play.up("d", Offer(frozenset({"toy"}), ("x", "y"), "t"))
    assert play.state.features == ("x", "y")
    assert play.state.target == "t"
    assert play.state.open is not None
    assert play.state.open.asked == ("b", "c", "d")


def test_engine_counts_whoever_answers_when_elastic() -> None:
    play = Play(toy_spec(participation="elastic", policy={"deadline": 10}))
    play.answer("a", "b", "c")
    play.answer("a")
    play.pass_time(10)
    play.up("d")
    play.answer("b", "d", "a")
    assert play.phase == "finished"
    assert [summary.accepted_agents for summary in play.state.rounds] == [("a", "b", "c"), ("a",), ("a", "b", "d")]
    assert play.state.cohort == ("a", "b", "c", "d")
    assert play.state.restarts == 0


def test_engine_fails_by_name_when_nobody_has_rows() -> None:
    play = Play(toy_spec())
    play.answer("a", "b", "c", rows=0)
    assert play.state.reason.startswith("no-rows")


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
    play = Play(toy_spec(without=["c"], policy={"gather_agents": 3, "gather_timeout": 5}))
    play.pass_time(5)
    assert play.state.reason.endswith("not counted: is left out of this run (c)")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (RunFailedError("nobody counted", "no-rows"), "no-rows: nobody counted"),
        (RunFailedError("9 of 8", "too-many-rows"), "too-many-rows: 9 of 8"),
        (RunFailedError("no-rows: but a text"), "no-model: no-rows: but a text"),
        (RunFailedError("not for a scheme", "cancelled"), "no-model: cancelled: not for a scheme"),
    ],
)
def test_engine_ends_by_the_name_that_the_scheme_gives(
    monkeypatch: pytest.MonkeyPatch, fault: RunFailedError, reason: str
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
    play = Play(toy_spec(policy={"deadline": 10}))
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
    assert play.state.open is not None
    return list(play.state.open.asked)


def test_engine_does_not_wait_again_for_an_agent_that_is_slower_than_every_deadline() -> None:
    play = Play(toy_spec(participation="elastic", policy={"deadline": 10}))

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
    spec = toy_spec(policy={"min_agents": 2, "gather_agents": 4, "gather_timeout": 60}, domain=None)
    play = Play(spec, agents=())
    for agent, of_x in (("a", "numbers in km/h"), ("b", "numbers"), ("c", "numbers in km/h"), ("d", kind)):
        play.up(agent, Offer(frozenset({"toy"}), ("x",), "y", (of_x, "numbers")))
    assert play.phase == "domain"
    assert play.state.open is not None
    assert play.state.open.asked == ("a", "b", "c")
    assert why_not(unable(play.state)) == f"; not counted: has {kind} in 'x', where most have numbers in km/h (d)"
    parameters = TOY_ENGINE.server_parameters(play.state)
    assert parameters.units == {"x": "km/h"}
    assert state_of(checkpoint_of(play.state), play.state.parameters) == play.state
    play.up("e", Offer(frozenset({"toy"}), ("x",), "y", (kind, "numbers")))
    assert play.outcomes("d", "e") == ["rejected left-out", "rejected left-out"]
    assert play.outcomes("a") == ["accepted"]


def test_agents_that_tell_no_kinds_hold_numbers() -> None:
    play = Play(toy_spec(policy={"min_agents": 2, "gather_agents": 3}), agents=("a", "b"))
    play.up("c", Offer(frozenset({"toy"}), ("x",), "y", ("words", "numbers")))
    assert play.state.open is not None
    assert (play.state.open.asked, play.state.kinds) == (("a", "b"), {})
