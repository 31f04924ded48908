"""Two processes with one id: who stops."""

import pytest

from edge_agent.messages.duplicate_id import QUIET, SPAN, Identity


def test_identity_ignores_its_own_birth_and_repeats_it_when_its_own_will_is_read():
    me = Identity("me", 5.0)
    assert me.judge("me", "up", 5.0, 0.0) == ""
    assert me.judge("me", "down", 5.0, 1.0) == "repeat"


def test_identity_takes_what_was_there_before_its_birth_for_its_own_past():
    me = Identity("me", 5.0)
    assert [me.judge("past", status, 1.0, 10.0 * index) for index, status in enumerate(["up", "down"] * 5)] == [""] * 10


@pytest.mark.parametrize("status", ["up", "down"])
def test_identity_does_not_stop_for_late_copies_of_its_past(status):
    me = Identity("me", 5.0)
    me.judge("me", "up", 5.0, 0.1)
    assert [me.judge("past", status, 1.0, 0.2 + 0.1 * index) for index in range(10)] == ["repeat"] * 10


@pytest.mark.parametrize(("one", "two"), [((1.0, "b"), (2.0, "a")), ((1.0, "a"), (1.0, "b"))])
def test_identity_of_the_later_stops_and_that_of_the_first_stays_when_both_keep_coming_back(one, two):
    first, second = Identity(one[1], one[0]), Identity(two[1], two[0])
    first.judge(first.own, "up", first.started, 0.0)
    second.judge(second.own, "up", second.started, 5.0)
    verdicts: dict[str, list[str]] = {"first": [], "second": []}
    for index in range(10):
        at = 5.1 + index * SPAN / 4
        verdicts["first"].append(first.judge(second.own, "up", second.started, at))
        verdicts["second"].append(second.judge(first.own, "down", first.started, at))
    assert "stop" in verdicts["second"]
    assert "stop" not in verdicts["first"]


def test_identity_stops_in_the_end_when_the_later_one_never_does():
    me = Identity("me", 1.0)
    me.judge("me", "up", 1.0, 0.0)
    verdicts = [me.judge("other", "up", 2.0, 1.0 + index * 2 * SPAN) for index in range(18)]
    assert verdicts == ["repeat"] * 17 + ["stop"]


def test_identity_does_not_stop_when_a_killed_broker_brings_its_past_back_again_and_again():
    me = Identity("me", 5.0)
    me.judge("me", "up", 5.0, 0.1)
    # Retained will, a queued copy and the old birth at each restart; two restarts within four seconds, one much later.
    for restart in (2.0, 5.6, 5.6 + 2 * QUIET, 9.0 + 2 * QUIET):
        for late in (0.0, 0.001, 0.04, 0.3):
            assert me.judge("past", "down", 1.0, restart + late) == "repeat"
        me.judge("me", "up", 5.0, restart + 0.5)


def test_identity_memory_is_bounded_when_strangers_are_endless():
    me = Identity("me", 1.0)
    me.judge("me", "up", 1.0, 0.0)
    for index in range(1000):
        assert me.judge(f"stranger-{index}", "up", 0.0, float(index)) == "repeat"
    assert len(me._sightings) <= 64
