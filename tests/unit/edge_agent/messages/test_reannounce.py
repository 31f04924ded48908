"""When an agent says again that it is up, because a new coordinator may not have heard it."""

from __future__ import annotations

from edge_agent.messages.reannounce import Reannouncer
from schemas.messages import CoordinatorState


def state(incarnation: str, status: str = "up") -> CoordinatorState:
    return CoordinatorState.model_validate({"status": status, "incarnation": incarnation, "software": ""})


def test_agent_greets_each_life_of_a_coordinator_once() -> None:
    reannouncer = Reannouncer("me")
    waits = [reannouncer.delay(state(name), was_retained=False) for name in ("one", "one", "two", "two", "one")]
    assert [wait is not None for wait in waits] == [True, False, True, False, True]
    assert all(wait is None or 0.0 <= wait <= 1.0 for wait in waits)


def test_agent_does_not_greet_the_coordinator_that_was_there_before_it() -> None:
    reannouncer = Reannouncer("me")
    assert reannouncer.delay(state("one"), was_retained=True) is None
    assert reannouncer.delay(state("one"), was_retained=False) is None
    assert reannouncer.delay(state("two"), was_retained=True) is not None, "it came while the connection was lost"


def test_agent_does_not_greet_one_that_is_down() -> None:
    assert Reannouncer("me").delay(state("one", "down"), was_retained=False) is None


def test_agents_of_a_fleet_spread_their_greetings() -> None:
    waits = [Reannouncer(f"agent-{index}").delay(state("one"), was_retained=False) for index in range(200)]
    given = sorted(wait for wait in waits if wait is not None)
    assert len(given) == 200
    assert given[20] < 0.3
    assert given[-20] > 0.7
