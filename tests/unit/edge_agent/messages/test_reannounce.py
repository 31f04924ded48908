"""When an agent says again that it is up, because a new coordinator may not have heard it."""

from __future__ import annotations

from edge_agent.messages.reannounce import Hail
from schemas.messages import CoordinatorState


def state(incarnation: str, status: str = "up") -> CoordinatorState:
    return CoordinatorState.model_validate({"status": status, "incarnation": incarnation, "software": ""})


def test_agent_greets_each_life_of_a_coordinator_once() -> None:
    hail = Hail("me", 2.0)
    waits = [hail.sees(state(name), known=False) for name in ("one", "one", "two", "two", "one")]
    assert [wait is not None for wait in waits] == [True, False, True, False, True]
    assert all(wait is None or 0.0 <= wait <= 2.0 for wait in waits)


def test_agent_does_not_greet_the_coordinator_that_was_there_before_it() -> None:
    hail = Hail("me", 2.0)
    assert hail.sees(state("one"), known=True) is None
    assert hail.sees(state("one"), known=False) is None
    assert hail.sees(state("two"), known=True) is not None, "it came while the connection was lost"


def test_agent_does_not_greet_one_that_is_down() -> None:
    assert Hail("me", 2.0).sees(state("one", "down"), known=False) is None


def test_agents_of_a_fleet_spread_their_greetings() -> None:
    waits = [Hail(f"agent-{index}", 1.0).sees(state("one"), known=False) for index in range(200)]
    given = sorted(wait for wait in waits if wait is not None)
    assert len(given) == 200
    assert given[20] < 0.3
    assert given[-20] > 0.7
