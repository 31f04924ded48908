"""The engine, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.engine import (
    AgentDown,
    AgentUp,
    ClearRequest,
    Ended,
    Offer,
    Publish,
    Refused,
    Restarted,
    SendReceipt,
    wakes_at,
)
from tests.support.engine_bench import Play, central, toy_spec


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
    play = Play(toy_spec(rounds={"gather_agents": 2}), agents=("a",))
    assert play.phase == "gathering"
    play.up("z", Offer(frozenset({"other"}), ("x",), "y"))
    play.up("y", Offer(frozenset({"toy"}), ("w",), "y"))
    assert play.phase == "gathering", "neither another scheme nor other columns count"
    play.up("b")
    assert play.phase == "recruiting"
    assert play.open.asked == ("a", "b")


def test_engine_fails_by_name_when_too_few_agents_come() -> None:
    play = Play(toy_spec(rounds={"gather_agents": 2, "gather_timeout": 5}), agents=("a",))
    assert wakes_at(play.state) == 5.0
    play.pass_time(4.9)
    assert not play.state.is_ended
    play.up("blind", Offer(frozenset({"toy"}), ("p", "q"), "y"))
    play.pass_time(0.1)
    assert play.phase == "failed"
    assert play.state.reason == (
        "not-enough-agents: 1 of 2 agents that can run 'toy' were up after 5 s (2 up in all; to learn from "
        "fewer: rounds.gather_agents); not counted: has no column 'x' (blind)"
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
    spec = toy_spec(rounds={"gather_agents": 2, "gather_timeout": 5})
    plain = spec.model_copy(update={"domain": None, "features": None, "target": None, **named})
    play = Play(plain, agents=())
    for agent in ("a", "b"):
        play.up(agent, offer)
    play.pass_time(5)
    assert play.state.reason.startswith("not-enough-agents: 0 of 2 agents")
    assert play.state.reason.endswith(f"not counted: {why} (a, b)")


def test_engine_fixes_the_cohort_at_the_deadline_plus_grace() -> None:
    play = Play(toy_spec(rounds={"deadline": 10, "grace": 2}))
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
    play = Play(toy_spec(rounds={"target": 2}))
    play.answer("b", "c")
    assert play.state.cohort == ("b", "c")
    assert play.state.rounds[0].dropped_agents == {}, "not needed is not lost"


def test_engine_keeps_waiting_at_the_target_until_the_quorum_is_met() -> None:
    play = Play(toy_spec(rounds={"target": 1, "min_agents": 0.9}))
    play.answer("a", "b")
    assert play.phase == "recruiting", "two of three are no 90 %"
    play.answer("c")
    assert play.state.cohort == ("a", "b", "c")


def test_engine_samples_the_cohort_once_and_always_the_same() -> None:
    agents = tuple(f"agent-{number}" for number in range(20))
    plays = [Play(toy_spec(rounds={"sample": 0.25}, seed=seed), agents=agents) for seed in (1, 1, 2)]
    asked = [play.open.asked for play in plays if play.state.open]
    assert len(asked[0]) == 5
    assert asked[0] == asked[1] != asked[2]
    outsider = next(agent for agent in agents if agent not in asked[0])
    assert plays[0].outcomes(outsider) == ["rejected others-asked"], "the next round may ask it"


def test_engine_replays_for_the_survivors_when_a_member_is_lost() -> None:
    play = Play(toy_spec(parameters={"levels": 4}, rounds={"deadline": 10}))
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
    play = Play(toy_spec(parameters={"levels": 4, "coarse": 2**40}, rounds={"deadline": 10}))
    play.answer("a", "b", "c")
    play.answer("a", "b", "c")
    play.answer("a", "b")
    play.pass_time(10)
    assert play.state.restarts == 0
    assert play.requests[-1].number == 4, "the survivors had answered level 3 as well"
    play.finish("a", "b")
    assert play.model == central(play.spec, "ab")


def test_engine_extends_then_fails_when_the_quorum_is_missed() -> None:
    play = Play(toy_spec(rounds={"min_agents": 2, "extensions": 2, "deadline": 10}))
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
        toy_spec(rounds={"min_agents": 5, "on_missed_quorum": "fail", "deadline": 10}), agents=tuple("abcdefghi")
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
    play = Play(toy_spec(rounds={"min_agents": 0.5, "deadline": 10}), agents=("a", "b", "c", "d"))
    play.answer("a", "b", "c", "d")
    play.answer("a", "b")
    play.pass_time(10)
    assert not play.state.is_ended
    assert play.state.cohort == ("a", "b")
    play.send(Refused(play.at, "a", play.task.digest, "out of disk"))
    assert play.state.reason.startswith("quorum-not-met"), "one of four founders is below a half: nobody to wait for"


def test_engine_ends_at_once_when_every_agent_that_could_answer_refuses() -> None:
    play = Play(toy_spec(rounds={"min_agents": 1, "deadline": 10}))
    for agent in "ab":
        play.send(Refused(play.at, agent, play.task.digest, "the target is numeric here"))
    assert not play.state.is_ended, "c may answer yet"
    play.send(Refused(play.at, "c", play.task.digest, "the target is numeric here"))
    assert (play.phase, play.at) == ("failed", 0.0)
    assert play.state.reason == (
        "quorum-not-met: each of the 3 asked has refused; not counted: refused: the target is numeric here (a, b, c)"
    )


def test_engine_waits_when_one_has_answered_or_an_agent_that_could_answer_came_up() -> None:
    play = Play(toy_spec(rounds={"min_agents": 2, "deadline": 10}))
    play.answer("a")
    for agent in "bc":
        play.send(Refused(play.at, agent, play.task.digest, "no disk"))
    assert not play.state.is_ended
    play = Play(toy_spec(rounds={"min_agents": 1, "deadline": 10}), agents=("a",))
    play.up("d")
    play.send(Refused(play.at, "a", play.task.digest, "no disk"))
    assert not play.state.is_ended


def test_engine_waits_when_nobody_is_up_as_a_round_opens() -> None:
    # A broker that is stopped tells of everybody's end, and then delivers the last answer.
    play = Play(toy_spec(participation="elastic", rounds={"min_agents": 1, "deadline": 10}))
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
