"""What a request costs each vehicle depends on the task, not on how many vehicles there are; and who can read it."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.engine import OpenRound
from coordinator.engine.request import MOST_NAMED, envelope_of
from schemas.codec import encode
from schemas.messages import Request
from tests.support.engine_bench import Play, toy_spec
from tests.support.private_bench import PrivateStage

FORMER_FIELDS = {"task", "task_digest", "remaining", "asked", "private"}
"""What vehicles of former software know: they refuse a request with any other field."""


def size_of(request: OpenRound) -> int:
    return len(envelope_of(request, "fleet", 1.0).to_bytes())


def body_of(request: OpenRound) -> Request:
    body = envelope_of(request, "fleet", 1.0).body
    assert isinstance(body, Request)
    return body


def played(vehicles: int, spec: dict[str, Any]) -> Play:
    """Play a run in which a tenth of the vehicles is lost after the first round, and more come up then."""
    agents = tuple(f"v{number:05d}" for number in range(vehicles))
    play = Play(toy_spec(parameters={"levels": 4, "coarse": 2**40}, **spec), agents=agents)
    play.answer(*agents[1:])
    play.pass_time(play.spec.policy.deadline)
    for number in range(vehicles // 10):
        play.up(f"w{number:05d}")
    play.finish(*agents[vehicles // 10 :])
    assert play.phase == "finished"
    return play


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"without": ["v00000"]},
        {"participation": "elastic"},
        {"participation": "elastic", "policy": {"sample": 0.5}},
        {"policy": {"sample": 0.5}},
    ],
)
def test_request_is_as_long_in_a_large_fleet(spec: dict[str, Any]) -> None:
    small, large = (played(vehicles, dict(spec)) for vehicles in (130, 390))
    assert {size_of(request) for request in large.requests} == {size_of(request) for request in small.requests}
    assert max(map(size_of, large.requests)) < 800
    rounds = large.state.rounds
    assert sum(each.request_bytes for each in rounds) == sum(map(size_of, large.requests)), "and it is recorded"


@pytest.mark.parametrize(
    ("vehicles", "spec"),
    [
        (130, {}),
        (130, {"participation": "elastic"}),
        (130, {"participation": "elastic", "policy": {"sample": 20}}),
        (40, {"without": ["v00001"]}),
    ],
)
def test_vehicles_of_former_software_can_read_every_request_unless_many_but_not_all_are_asked(
    vehicles: int, spec: dict[str, Any]
) -> None:
    play = played(vehicles, spec)
    assert all(set(body_of(request).model_dump()) <= FORMER_FIELDS for request in play.requests)


@pytest.mark.parametrize("vehicles", [20, 200])
def test_request_never_asks_who_is_left_out(vehicles: int) -> None:
    play = played(vehicles, {"without": ["v00001"], "policy": {"sample": 0.8}})
    assert len(play.requests) > 3
    for request in map(body_of, play.requests):
        assert "v00001" not in (request.asked or ())
        assert request.asked is not None or request.without == ["v00001"]


@pytest.mark.parametrize("seed", range(4))
def test_sample_that_is_told_as_a_rule_is_the_one_that_is_drawn(seed: int) -> None:
    agents = tuple(f"v{number:05d}" for number in range(500))
    for sampled in (MOST_NAMED, MOST_NAMED + 1, 250):
        request = Play(toy_spec(seed=seed, policy={"sample": sampled}), agents=agents).requests[0]
        body, drawn = body_of(request), request.asked
        assert drawn is not None
        assert len(drawn) == sampled
        if sampled <= MOST_NAMED:
            assert (body.asked, body.sample) == (list(drawn), None)
        else:
            assert body.asked is None
            assert body.sample is not None
            assert tuple(filter(body.sample.asks, agents)) == drawn


def test_private_request_tells_a_group_once_who_is_in_it() -> None:
    agents = [f"v{number:02d}" for number in range(30)]
    stage = PrivateStage(agents)
    stage.finish(*agents)
    stage.check_end()
    first, *others = ([*(body_of(request).private or ())] for request in stage.requests[1:])
    assert [(group.members, len(group.founders)) for group in first] == [(agents, 30)]
    assert len(others) > 5
    assert not any(group.members or group.founders for groups in others for group in groups)
    assert max(size_of(each) - len(encode(each.task.to_value())) for each in stage.requests[2:]) < 600


def test_private_request_names_the_members_of_a_group_again_when_some_are_lost() -> None:
    agents = [f"v{number:02d}" for number in range(14)]
    stage = PrivateStage(agents)
    stage.finish(*agents, leaves=dict.fromkeys(agents[:3], 4))
    stage.check_end()
    named = [bool(group.members) for request in stage.requests for group in body_of(request).private or ()]
    told = [bool(group.founders) for request in stage.requests for group in body_of(request).private or ()]
    assert sum(named) == 2, "as founders, and as those who are left"
    assert sum(told) == 1


def test_private_request_tells_everything_each_time_in_a_group_with_a_vehicle_of_former_software() -> None:
    agents = [f"v{number:02d}" for number in range(10)]
    stage = PrivateStage(agents, forgetful=agents[:1])
    stage.finish(*agents)
    stage.check_end()
    for request in stage.requests[1:]:
        [group] = body_of(request).private or []
        assert len(group.members) == len(group.founders) == 10
        assert set(body_of(request).model_dump()) <= FORMER_FIELDS
