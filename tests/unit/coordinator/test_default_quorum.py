"""The quorum of a run that names none: half of those who learned the model in use, or else of the fleet."""

from __future__ import annotations

import pytest

from coordinator.specification.run import RoundPolicy
from tests.support.coordinator_bench import Fleet
from tests.support.engine_bench import toy_spec

DEFAULT = {"min_agents": None, "gather_timeout": 60, "deadline": 10}


def test_fleet_of_which_too_few_are_up_keeps_its_model_until_the_operator_asks_for_fewer() -> None:
    fleet = Fleet().begin("a", "b", policy=DEFAULT)
    fleet.finish("a", "b")
    fleet.birth("b", status="down")
    fleet.core.start_run(toy_spec("r2", policy=DEFAULT))
    assert fleet.core.runs.document("r2")["reason"].startswith(
        "needs 2 vehicles that can answer (to learn from fewer: min_agents): 1 is up; waits until "
    )
    fleet.pass_time(60)
    assert fleet.core.runs.document("r2")["reason"] == (
        "not-enough-agents: 1 of 2 agents that can run 'toy' were up after 60 s (1 up in all; to learn from "
        "fewer: min_agents)"
    )
    fleet.begin(run="r3", policy={"min_agents": 1})
    fleet.finish("a", run="r3")
    assert fleet.record(version=2).cohort == ["a"]


def test_half_is_of_those_who_learned_the_model_in_use_and_not_of_those_left_out() -> None:
    fleet = Fleet().begin(*"abcdefgh", policy=DEFAULT, without=["g", "h"])
    assert fleet.state().spec.policy.min_agents == 3
    fleet.finish(*"abcdef")
    fleet.core.models.promote("model", 1)
    fleet.birth(*"ijklmnop")
    fleet.begin(run="r2", policy=DEFAULT, without=["a", "b"])
    assert fleet.state("r2").spec.policy.min_agents == 2


def test_elastic_rounds_need_half_of_those_who_are_up_and_not_of_all_who_ever_answered() -> None:
    fleet = Fleet().begin(*"abcdefgh", policy=DEFAULT)
    fleet.finish(*"abcdefgh")
    fleet.core.models.promote("model", 1)
    fleet.birth(*"efgh", status="down")
    fleet.core.start_run(toy_spec("r2", policy=DEFAULT).model_copy(update={"participation": "elastic"}))
    assert fleet.state("r2").spec.policy.min_agents == 2


@pytest.mark.parametrize(
    ("given", "fleet", "quorum", "gather"),
    [
        ({}, 0, 2, 2),
        ({}, 5, 3, 3),
        ({"gather_agents": 4}, 5, 3, 4),
        ({"min_agents": 1}, 100, 1, 1),
        ({"target": 1}, 100, 1, 1),
        ({"sample": 4}, 100, 0.5, 2),
    ],
)
def test_default_quorum_asks_for_no_more_than_the_policy_allows(
    given: dict[str, int], fleet: int, quorum: float, gather: int
) -> None:
    policy = RoundPolicy(**given).with_quorum(fleet)
    assert (policy.min_agents, policy.gather_agents) == (quorum, gather)
