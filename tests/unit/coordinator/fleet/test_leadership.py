"""Two coordinators on one fleet: the rules, apart from brokers."""

from __future__ import annotations

import pytest

from coordinator.fleet.leader_probe import LeaderProbe, ProbeResult
from coordinator.fleet.leadership import QUIET, Election
from schemas.topics import Topics

TOPICS = Topics("f")


def test_rival_of_a_later_term_is_obeyed_when_it_is_seen_again() -> None:
    me = Election("me", 10.0)
    assert not me.is_lost("other", "up", 11.0, 0.0, retained=True)
    assert not me.is_lost("other", "up", 11.0, 0.1, retained=False), "a copy"
    assert me.is_lost("other", "up", 11.0, 0.3, retained=False)


def test_rival_that_was_not_seen_for_long_is_forgotten() -> None:
    me = Election("me", 10.0)
    assert [me.is_lost("other", "up", 11.0, (QUIET + 1.0) * index, retained=False) for index in range(5)] == [False] * 5


@pytest.mark.parametrize(("status", "term"), [("up", 9.0), ("down", 11.0), ("down", 9.0)])
def test_rival_that_is_down_or_earlier_is_answered_and_never_obeyed(status: str, term: float) -> None:
    me = Election("me", 10.0)
    for index in range(20):
        at = float(index)
        assert not me.is_lost("other", status, term, at, retained=False)
        assert me.due is not None
        assert me.due <= at + 0.25
        me.published(me.due)


def test_exactly_one_of_two_coordinators_stops_when_both_keep_coming_back() -> None:
    for one, two in (((1.0, "b"), (2.0, "a")), ((1.0, "a"), (1.0, "b"))):
        first, second = Election(one[1], one[0]), Election(two[1], two[0])
        said = {"first": False, "second": False}
        for index in range(10):
            said["first"] |= first.is_lost(second.own, "up", second.term, 0.3 * index, retained=False)
            said["second"] |= second.is_lost(first.own, "up", first.term, 0.3 * index, retained=False)
        assert said == {"first": True, "second": False}


def look(transport: object, wait: float = 0.1) -> ProbeResult:
    probe = LeaderProbe(TOPICS, "me", "sw")
    return probe.look(transport, wait, 0.01, cancelled=lambda: False, connect=lambda: True)  # type: ignore[arg-type]
