"""The engine in private runs, under any order, loss, duplication and repetition of events, and restarts at any moment.

The vehicles really mask, under their own rules; an honest coordinator must never meet one that refuses.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.engine import AgentDown, AgentUp, Malformed, OpenRound, Refused, pairing
from glassfleet.private.groups import cut_groups
from glassfleet.private.totals import Total, singled_out
from glassfleet.schemes.frt.server import answer_support
from tests.support.privacy.private_bench import OFFER, PrivateStage, total_of
from tests.support.sample_models import unit_domain

AGENTS = [f"v{number:02d}" for number in range(14)]
MANY = [f"v{number:02d}" for number in range(26)]
DOMAIN = unit_domain("ab", high=2.0)
AGENT = st.integers(0, 25)
ALL = [
    "answer", "answer-most", "answer-all", "answer-old", "resend", "contradict", "change-rows", "refuse", "malformed",
]  # fmt: skip
ACTION = st.one_of(
    *(st.tuples(st.just(what), AGENT) for what in (*ALL, "answer-most", "answer-all", "down", "up")),
    st.tuples(st.just("wait"), st.integers(1, 12)),
    st.tuples(st.just("restart"), st.just(0)),
)
SPECS = st.fixed_dictionaries(
    {
        "domain": st.sampled_from([None, DOMAIN.to_document()]),
        "private": st.fixed_dictionaries(
            {"patience": st.integers(0, 2), "company": st.sampled_from([3, 4]), "support": st.sampled_from([0, 3, 8])}
        ),
        "rounds": st.fixed_dictionaries(
            {
                "deadline": st.just(10),
                "min_agents": st.sampled_from([1, 1, 1, 9, 0.8]),
                "grace": st.sampled_from([0, 3]),
                "on_missed_quorum": st.sampled_from(["extend", "extend", "fail"]),
                "max_restarts": st.sampled_from([9, 9, 1, 0]),
                "gather_agents": st.sampled_from([1, 8]),
            }
        ),
        "parameters": st.just({"max_depth": 1, "n_sets": 2}),
    }
)


def act(stage: PrivateStage, agents: list[str], what: str, number: int) -> None:
    agent = agents[number % len(agents)]
    match what:
        case "wait":
            stage.wait(number)
        case "restart":
            stage.restart()
        case "answer":
            stage.answer(agent)
        case "answer-all":
            stage.answer(*agents)
        case "answer-most":
            stage.answer(*(each for each in agents if each != agent))
        case "answer-old":
            answer_old(stage, agent, stage.requests[number % len(stage.requests)] if stage.requests else None)
        case "resend":
            for event in stage.sent[number : number + 1]:
                stage.send(event)
        case _:
            act_as(stage, agent, what, stage.request)


def answer_old(stage: PrivateStage, agent: str, request: OpenRound | None) -> None:
    """Answer what was asked before; the vehicle's own rules decide, and may refuse an edition that is gone."""
    if request is not None and (request.groups or request is stage.requests[-1]):
        before = len(stage.vehicles[agent].refused)
        stage.answer(agent, request=request)
        del stage.vehicles[agent].refused[before:]


def contradict(stage: PrivateStage, agent: str, request: OpenRound) -> None:
    if agent not in stage.state.store.get(request.task_digest, {}):
        return  # only a second answer can contradict
    other: dict[str, Any] = {"values": {"floor": 9}} if request.phase == "pairing" else {"noise": np.uint64(1)}
    assert set(stage.answer(agent, **other, answer_digest="0" * 64)) <= {"rejected conflict"}


def act_as(stage: PrivateStage, agent: str, what: str, request: OpenRound | None) -> None:
    match what:
        case "contradict" if request is not None:
            contradict(stage, agent, request)
        case "change-rows" if request is not None and request.phase != "pairing":
            assert not any(each.startswith("accepted") for each in stage.answer(agent, data_digest="f" * 64))
        case "refuse" if request is not None:
            stage.send(Refused(stage.at, agent, request.task_digest, "single-out"))
        case "malformed":
            stage.send(Malformed(stage.at, agent, "0" * 64, "malformed: x"))
        case "down":
            stage.send(AgentDown(stage.at, agent))
        case "up":
            stage.send(AgentUp(stage.at, agent, OFFER))


def check(
    choice: dict[str, Any],
    agents: list[str],
    first: int,
    actions: list[tuple[str, int]],
    leaves: dict[int, int],
    *,
    earlier: Sequence[Total] = (),
    liars: Collection[int] = (),
) -> None:
    stage = PrivateStage(agents, earlier=earlier, **choice)
    for number in liars:
        stage.vehicles[agents[number % len(agents)]].lies = True
    for _ in range(first):
        stage.answer(*agents)
    for what, number in actions:
        act(stage, agents, what, number)
    # From here some vehicles go on, and some are lost one after the other; time does the rest.
    stage.finish(*agents, leaves={agents[number % len(agents)]: rounds for number, rounds in leaves.items()})
    stage.check_end()
    assert set(stage.state.false_answers) <= {agents[number % len(agents)] for number in liars}, "nobody else is named"
    for vehicle in stage.vehicles.values():
        assert not vehicle.refused, f"{vehicle.agent} refused what an honest coordinator asked: {vehicle.refused}"


FIRST = st.integers(0, 6)


def _drawn(seed: int) -> dict[int, int]:
    """Draw who leaves after which round: by a generator, as few of Hypothesis' dictionaries have several entries."""
    rng = random.Random(seed)
    return {rng.randrange(26): rng.randint(1, 9) for _ in range(rng.choice([0, 1, 2, 3, 3, 4, 6]))}


LEAVES = st.integers(0, 2**32 - 1).map(_drawn)


@st.composite
def earlier_runs(draw: st.DrawFn) -> list[Total]:
    """Draw sums of one to three runs, the newest first; a group that shrank has several. Most tell of nobody."""
    totals: list[Total] = []
    for _ in range(draw(st.integers(1, 3))):
        absent = draw(st.sets(st.sampled_from(MANY[:16]), max_size=6))
        left = founders = set(MANY[:16]) - absent
        while len(left) >= 8:
            more = total_of(founders, left)
            if not singled_out([*totals, more], 3) or draw(st.integers(0, 9)) == 0:
                totals.insert(0, more)
            if draw(st.booleans()):
                break
            left = left - draw(st.sets(st.sampled_from(sorted(left)), min_size=3, max_size=5))
    return totals


@settings(max_examples=12, deadline=None)
@given(SPECS, st.integers(10, 14), earlier_runs(), st.lists(ACTION, max_size=10), LEAVES)
def test_private_run_after_others_over_the_same_rows_meets_no_vehicle_that_refuses(
    choice: dict[str, Any], vehicles: int, earlier: list[Total], actions: list[tuple[str, int]], leaves: dict[int, int]
) -> None:
    check(choice, AGENTS[:vehicles], 0, actions, leaves, earlier=earlier)


@settings(max_examples=8, deadline=None)
@given(SPECS, st.integers(12, 14), st.lists(ACTION, max_size=8), LEAVES, st.sets(AGENT, min_size=1, max_size=2))
def test_private_run_with_vehicles_that_answer_noise_names_nobody_else_and_ends_as_all_others(
    choice: dict[str, Any], vehicles: int, actions: list[tuple[str, int]], leaves: dict[int, int], liars: set[int]
) -> None:
    check(choice, AGENTS[:vehicles], 0, actions, leaves, liars=liars)


@settings(max_examples=8, deadline=None)
@given(SPECS, st.integers(8, 14).map(lambda number: 22 - number), FIRST, st.lists(ACTION, max_size=20), LEAVES)
def test_private_run_ends_by_name_or_with_the_central_model_whatever_happens(
    choice: dict[str, Any], vehicles: int, first: int, actions: list[tuple[str, int]], leaves: dict[int, int]
) -> None:
    check(choice, AGENTS[:vehicles], first, actions, leaves)


@settings(max_examples=4, deadline=None)
@given(SPECS, st.integers(20, 26), FIRST, st.lists(ACTION, max_size=10), LEAVES)
def test_private_run_of_several_groups_ends_by_name_or_with_the_central_model(
    choice: dict[str, Any], vehicles: int, first: int, actions: list[tuple[str, int]], leaves: dict[int, int]
) -> None:
    with patch.object(pairing, "cut_groups", partial(cut_groups, size=10)):
        check(choice, MANY[:vehicles], first, actions, leaves)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@settings(max_examples=400, deadline=None)
@given(SPECS, st.integers(11, 26), FIRST, st.lists(ACTION, max_size=60), LEAVES)
def test_private_run_ends_by_name_or_with_the_central_model_in_many_schedules(
    choice: dict[str, Any], vehicles: int, first: int, actions: list[tuple[str, int]], leaves: dict[int, int]
) -> None:
    with patch.object(pairing, "cut_groups", partial(cut_groups, size=32 if vehicles < 20 else 10)):
        check(choice, MANY[:vehicles], first, actions, leaves)


def test_what_leaves_a_group_counts_towards_support_as_what_stays_does() -> None:
    stage = PrivateStage(AGENTS, parameters={"max_depth": 2, "n_sets": 3}, private={"support": 8, "patience": 0})
    heard: list[Any] = []

    def listen(question: Any, kept: Any, contributions: Any) -> Any:
        heard.append((stage.state.editions[0].number, *contributions))
        return answer_support(question, kept, contributions)

    with patch("glassfleet.schemes.frt.server.answer_support", listen):
        stage.finish(*AGENTS, leaves={AGENTS[2]: 6})
    assert stage.phase == "finished", stage.reason
    first, second = ([given for number, given in heard if number == edition] for edition in (0, 1))
    assert first
    assert second
    assert not any(given.former for given in first)
    # The answers of the edition before, once each, whatever of its course is asked again.
    kinds = [task.kind for task, _ in second[0].former]
    assert set(kinds) == {"columns", "support"}
    assert all(before.rows > second[0].rows for _, before in second[0].former)
    stage.check_end()
