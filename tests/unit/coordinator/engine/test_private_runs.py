"""Private runs in the engine: who takes part, who leaves with whom, and the named ends."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from coordinator.engine import Refused, pairing
from coordinator.engine.asking import waiting
from coordinator.engine.effects import OpenRound
from coordinator.engine.learning import Privately
from glassfleet.private.groups import cut_groups
from tests.support.privacy.private_bench import OFFER, PrivateStage, total_of
from tests.support.sample_models import unit_domain

AGENTS = [f"v{number:02d}" for number in range(15)]
QUICK: dict[str, Any] = {"parameters": {"max_depth": 1, "n_sets": 2}}


def paired(vehicles: int = 15, *, answered: int = 1, **spec: Any) -> PrivateStage:
    stage = PrivateStage(AGENTS[:vehicles], **{**QUICK, "rounds": {"deadline": 10, "max_restarts": 9}, **spec})
    for _ in range(answered):
        stage.answer(*AGENTS[:vehicles])
    return stage


@pytest.mark.parametrize(("private", "support"), [({}, 3), ({"support": 0}, 0), ({"support": 9}, 9)])
def test_support_is_of_the_run_and_what_it_withholds_is_in_the_summary(private: dict[str, int], support: int) -> None:
    stage = paired(private=private)
    assert stage.state.parameters.support == support
    stage.finish(*AGENTS)
    assert stage.state.private["support"] == support
    assert ("withheld" in stage.state.summary) == bool(support)
    stage.check_end()


def test_inputs_in_which_all_rows_are_alike_are_named() -> None:
    wide = unit_domain("ab", high=2.0).to_document()
    wide["features"][1]["high"] = 1e6
    stage = paired(scheme="tree", parameters={"max_rules": 4}, domain=wide)
    stage.finish(*AGENTS)
    assert stage.state.private["without_slopes"] == ["b"]
    stage.check_end()


def test_round_is_extended_once_while_fewer_than_company_are_missing_and_nobody_is_lost_who_comes_back() -> None:
    stage = paired(answered=3)
    stage.answer(*AGENTS[2:])
    stage.wait()
    assert stage.state.open is not None
    assert stage.state.open.extensions == 1
    stage.answer(*AGENTS)
    stage.finish(*AGENTS)
    assert stage.state.cohort == tuple(AGENTS)
    stage.check_end()


def test_end_says_how_many_are_missing_when_too_few_stay() -> None:
    stage = paired(answered=3)
    stage.finish(*AGENTS[7:])
    assert stage.reason.startswith("too-few-for-privacy: 1 vehicles more would have had to stay; 15 were lost")
    stage.check_end()


@pytest.mark.parametrize(("vehicles", "gather", "name"), [(7, 1, "too-few-for-privacy"), (7, 8, "not-enough-agents")])
def test_run_waits_for_the_floor_and_says_what_is_missing_when_it_does_not_come(
    vehicles: int, gather: int, name: str
) -> None:
    stage = PrivateStage(AGENTS[:vehicles], **QUICK, rounds={"gather_agents": gather, "gather_timeout": 20})
    lack = waiting(stage.state)
    assert lack is not None
    assert "8 vehicles" in lack.lack
    stage.wait()
    assert stage.reason.startswith(f"{name}: 7 of 8 agents")


@pytest.mark.parametrize(("up", "text"), [(12, "12 of 13 agents"), (13, "12 vehicles take part, 1 more are needed")])
def test_run_that_asks_for_more_company_than_there_are_vehicles_ends_by_name_with_the_way_out(
    up: int, text: str
) -> None:
    policy = {"deadline": 10, "gather_timeout": 20}
    stage = PrivateStage(AGENTS[:up], **QUICK, private={"company": 13}, rounds=policy)
    stage.finish(*AGENTS[:12])
    assert stage.reason.startswith(f"too-few-for-privacy: {text}")
    assert "the run has floor 8 and company 13" in stage.reason


def test_pairing_says_for_which_vehicles_of_an_earlier_run_it_waits() -> None:
    stage = PrivateStage(AGENTS[:14], **QUICK, earlier=[total_of(AGENTS)], rounds={"deadline": 10})
    stage.answer(*AGENTS[:13])
    assert waiting(stage.state) is None
    stage.answer(AGENTS[13])
    lack = waiting(stage.state)
    assert lack is not None
    assert lack.words("12:00") == (
        "a vehicle of an earlier run over the same rows is missing; waits until 12:00 for v14; without it others are "
        "left out, too"
    )
    stage.finish(*AGENTS[:14])
    assert len(stage.state.cohort) == 12
    stage.check_end()


def test_vehicle_of_a_run_that_the_coordinator_has_forgotten_is_left_out_by_name() -> None:
    stage = paired(answered=0, earlier=[total_of(AGENTS)])
    stage.answer("v03", values={"totals": [bytes(32)]})
    stage.finish(*AGENTS)
    assert stage.state.lost["v03"] == pairing.UNKNOWN
    assert len(stage.state.cohort) == 12, "two others go with it"
    assert stage.phase == "finished"
    stage.check_end()


@pytest.mark.parametrize("count", [2, 3, *(pytest.param(count, marks=pytest.mark.slow) for count in (0, 1, 15))])
def test_group_answers_from_new_rows_where_enough_have_some_and_nobody_is_left_out_for_it(count: int) -> None:
    stage = paired(answered=0, earlier=[total_of(AGENTS)])
    for agent in AGENTS[:count]:
        vehicle = stage.vehicles[agent]
        vehicle.own = replace(vehicle.own, new_rows="new rows", new_digest="new digest")
    stage.answer(*AGENTS)
    [edition] = stage.state.editions
    assert edition.roster.renews == (count >= 3)
    assert [each.rows for each in stage.state.summed[0].members].count("new rows") == (count if count >= 3 else 0)
    stage.restart()
    stage.finish(*AGENTS)
    assert len(stage.state.cohort) == 15
    assert not any(vehicle.refused for vehicle in stage.vehicles.values())
    stage.check_end()


def test_group_of_an_earlier_run_that_is_too_small_now_waits_for_the_others_of_it() -> None:
    others = [f"w{number:02d}" for number in range(9)]
    stage = PrivateStage(
        [*AGENTS[:7], *others], **QUICK, earlier=[total_of(others), total_of(AGENTS[:11])], rounds={"deadline": 10}
    )
    stage.finish(*AGENTS[:7], *others)
    assert stage.state.cohort == tuple(others)
    assert stage.state.lost == dict.fromkeys(AGENTS[:7], "waits for its group: 7 of it are too few")
    stage.check_end()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"totals": ["x"]}, "totals must be digests"),
        ({"totals": None}, "totals must be digests"),
        ({"era": "x" * 17}, "era must be"),
        ({"left": 0}, "left must be"),
        ({"key": bytes(32)}, "no X25519 key"),
        ({"key": b"\xff" * 32}, "no X25519 key"),
        ({"key": b"k" * 31}, "no X25519 key"),
        ({"key": "k" * 32}, "no X25519 key"),
        ({"floor": 0}, "floor must be"),
        ({"floor": 2**31}, "floor must be"),
        ({"floor": True}, "floor must be"),
        ({"message": "text"}, "message itself is missing"),
        ({"key": None}, "no X25519 key"),
    ],
)
def test_announcement_that_would_make_others_refuse_is_refused_alone(values: dict[str, Any], text: str) -> None:
    stage = paired(answered=0)
    [outcome] = stage.answer("v00", values=values)
    assert outcome.startswith("rejected impossible")
    assert text in outcome
    stage.finish(*AGENTS[1:])
    assert stage.phase == "finished"
    assert "v00" not in stage.state.cohort


def refuse(stage: PrivateStage, whom: str, *agents: str) -> None:
    """Let vehicles say that they meet no group with `whom` in it."""
    request = stage.request
    assert request is not None
    for agent in agents:
        stage.send(Refused(stage.at, agent, request.task_digest, f"bad-member: {whom}"))


@pytest.mark.parametrize("accept", [0, 3])
def test_group_is_founded_again_without_a_vehicle_that_most_of_it_refuse(accept: int) -> None:
    stage = paired()
    stage.answer(*AGENTS[:accept])
    refuse(stage, "v12", *AGENTS[accept:])
    assert stage.phase == "domain"
    stage.restart()
    [edition] = stage.state.editions
    left = [agent for agent in AGENTS[accept:] if agent != "v12"]
    assert edition.number == 0
    assert edition.members == tuple(each.agent for each in edition.roster.founders) == tuple(left)
    summed = [[each.agent for each in total.members] for total in stage.state.summed]
    assert summed == [AGENTS, left], "who refuses knows of the former one, too"
    assert stage.state.lost["v12"] == "bad-member: most of its group refuse its announcement"
    assert set(stage.state.lost) == {"v12", *AGENTS[:accept]}
    stage.finish(*left)
    assert stage.phase == "finished"
    assert stage.state.cohort == tuple(left)
    assert not any(stage.vehicles[agent].refused for agent in left)
    stage.check_end()


@pytest.mark.parametrize("liars", [1, 7])
def test_vehicles_that_blame_another_and_are_no_majority_are_lost_themselves(liars: int) -> None:
    stage = paired(rounds={"deadline": 10, "min_agents": 8})
    refuse(stage, "v12", *AGENTS[:liars])
    stage.answer(*AGENTS[liars:])
    if liars == 1:
        stage.finish(*AGENTS[liars:])
        assert stage.phase == "finished"
        assert "v12" in stage.state.cohort or stage.state.lost["v12"].startswith("company")
    else:
        assert stage.reason.startswith("too-few-for-privacy")
    assert stage.state.lost.get("v00", "refused: bad-member: v12") == "refused: bad-member: v12"
    stage.check_end()


def test_group_that_has_told_a_sum_is_not_founded_again() -> None:
    stage = paired(answered=2)
    refuse(stage, "v12", *AGENTS[:8])
    stage.finish(*AGENTS[8:])
    assert stage.state.phase == "failed"
    assert "refused: bad-member: v12" in stage.reason
    stage.check_end()


def test_who_has_not_said_is_waited_for_before_a_group_is_founded_again() -> None:
    stage = paired()
    refuse(stage, "v12", *AGENTS[:12])
    assert len(stage.state.rounds) == 1
    stage.wait()
    assert len(stage.state.rounds) == 2
    assert {agent: stage.state.lost[agent] for agent in AGENTS[13:]} == dict.fromkeys(AGENTS[13:], "deadline")
    summed = [[each.agent for each in total.members] for total in stage.state.summed]
    assert summed == [AGENTS, AGENTS[:12]], "they may have answered, and keep to it"
    stage.finish(*AGENTS[:12])
    assert stage.state.cohort == tuple(AGENTS[:12])
    stage.check_end()


def test_other_groups_keep_their_answers_when_one_is_founded_again() -> None:
    agents = [f"v{number:02d}" for number in range(64)]
    stage = PrivateStage(agents, **QUICK)
    stage.answer(*agents)
    hurt, other = stage.state.editions
    stage.answer(*other.members)
    whom = hurt.members[3]
    refuse(stage, whom, *hurt.members)
    assert set(stage.state.accepted) == set(other.members)
    assert stage.state.editions[1] == other
    stage.finish(*agents)
    assert stage.phase == "finished"
    assert set(agents) - set(stage.state.cohort) == {whom}
    stage.check_end()


@pytest.mark.parametrize("rounds", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_false_vector_of_a_vehicle_that_answers_the_check_rightly_ends_the_run_by_name(rounds: int) -> None:
    stage = paired(answered=rounds)
    stage.answer("v00", noise=np.uint64(2**63 + 12345))
    stage.answer(*AGENTS[1:])
    assert stage.phase == "checking"
    stage.answer(*AGENTS)
    assert stage.reason.startswith("impossible-sum: the 15 answers of group 0 do not add up")
    assert "all of them answer a check of pairs rightly" in stage.reason
    assert stage.state.false_answers == ()
    stage.check_end()


@pytest.mark.parametrize("lies", [True, False])
def test_group_with_more_rows_than_the_sums_are_good_for_is_checked_for_a_liar_before_the_run_ends(lies: bool) -> None:
    with patch("tests.support.privacy.private_bench.OFFER", replace(OFFER, schemes=frozenset({"tree"}))):
        stage = PrivateStage(AGENTS, scheme="tree", parameters={"max_rules": 2}, private={"support": 0})
    while stage.phase != "learning":
        stage.answer(*AGENTS)
    collecting = stage.engine.collecting(stage.state)
    assert isinstance(collecting, Privately)
    assert collecting.max_rows is not None
    rows = np.zeros(collecting.layout(stage.state.levels[-1].task).size, np.uint64)
    rows[0] = collecting.max_rows
    stage.answer("v07", noise=rows)
    stage.answer(*AGENTS)
    stage.vehicles["v07"].lies = lies
    stage.finish(*AGENTS)
    assert stage.state.false_answers == (("v07",) if lies else ())
    assert stage.reason.split(":")[0] == ("" if lies else "too-many-rows")
    assert lies or stage.reason.endswith("all of them answer a check of pairs rightly"), "no vehicle is blamed"
    stage.check_end()


def test_vehicle_that_does_not_answer_the_check_leaves_with_company() -> None:
    stage = paired(answered=2)
    stage.vehicles["v07"].lies = True
    stage.answer(*AGENTS)
    stage.finish(*(agent for agent in AGENTS if agent != "v07"))
    assert stage.phase == "finished"
    assert stage.state.false_answers == ()
    assert stage.state.lost["v07"] == "deadline"
    stage.check_end()


@pytest.mark.parametrize("min_agents", [1, 20])
def test_group_with_false_answers_is_dissolved_when_the_others_are_a_quorum(min_agents: int) -> None:
    agents = [f"v{number:02d}" for number in range(24)]
    with patch.object(pairing, "cut_groups", partial(cut_groups, size=12)):
        stage = PrivateStage(agents, **QUICK, rounds={"deadline": 10, "min_agents": min_agents})
        stage.answer(*agents)
        first, second = (each.members for each in stage.state.editions)
        stage.answer(first[0], noise=np.uint64(2**63 + 12345))
        stage.answer(*agents)
        assert stage.phase == "checking"
        assert set(stage.state.waited_for) == set(first)
        stage.finish(*agents)
        if min_agents == 1:
            assert stage.phase == "finished"
            assert stage.state.cohort == second
            assert stage.state.lost[first[1]] == "impossible-sum: the answers of group 0 do not add up"
        else:
            assert stage.reason.startswith("impossible-sum: the 12 answers of group 0 do not add up")
        stage.check_end()


def test_run_ends_by_name_when_its_course_changed_too_often() -> None:
    stage = paired(answered=3, rounds={"deadline": 10, "max_restarts": 0})
    stage.finish(*AGENTS[3:])
    assert stage.reason.startswith("too-many-restarts: 1 losses")


@pytest.mark.parametrize("rounds", [1, 3, 5])
def test_group_that_lost_nobody_is_not_waited_for_again_where_it_answered(rounds: int) -> None:
    agents = [f"v{number:02d}" for number in range(24)]
    with patch.object(pairing, "cut_groups", partial(cut_groups, size=12)):
        stage = PrivateStage(agents, **QUICK, rounds={"deadline": 10})
        for _ in range(rounds):
            stage.answer(*agents)
        hurt, unhurt = (each.members for each in stage.state.editions)
        stage.answer(*hurt[3:], *unhurt)
        stage.wait()
        restarted = stage.request
        assert isinstance(restarted, OpenRound)
        assert [each.edition.number for each in restarted.groups] == [1, 0]
        # Of the first question the other group's answers are there still: the hurt group alone is waited for.
        assert stage.state.accepted == unhurt
        stage.answer(*hurt[3:])
        assert stage.state.open is not None
        assert stage.state.open.digest != restarted.task_digest
        stage.finish(*hurt[3:], *unhurt)
        assert stage.phase == "finished"
        assert len(stage.state.cohort) == 21
        stage.check_end()


def test_vehicle_that_asks_for_more_than_there_are_is_left_out_and_named() -> None:
    stage = paired(answered=0)
    stage.answer("v00", values={"floor": 10**6})
    stage.finish(*AGENTS[1:])
    assert stage.phase == "finished"
    assert stage.state.lost == {"v00": "asks for 1000000 vehicles"}
    stage = paired(8, answered=0)
    stage.answer("v00", values={"floor": 10**6})
    stage.answer(*AGENTS[1:8])
    assert stage.reason.startswith("too-few-for-privacy: 7 vehicles take part, 1 more are needed")
    assert "asks for 1000000 vehicles (v00)" in stage.reason
