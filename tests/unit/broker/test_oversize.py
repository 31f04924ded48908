"""Which message ends every connection: the rule, apart from sockets."""

from __future__ import annotations

from broker.oversize import Suspicion
from schemas.limits import MIN_MESSAGE_BYTES

BIG = 1_000_000


def test_suspicion_gives_a_message_up_when_it_alone_ended_connection_after_connection() -> None:
    suspicion = Suspicion(3)
    assert suspicion.lost([(1, 10), (2, BIG), (3, 10)]) is None
    assert suspicion.is_alert, "from here on messages leave one at a time"
    suspicion.acknowledged(1, 10)
    assert [suspicion.lost([(2, BIG)]) for _ in range(3)] == [None, None, 2]
    assert (suspicion.limit, suspicion.is_alert) == (BIG // 2, False)


def test_suspicion_never_falls_on_what_is_not_larger_than_what_came_through() -> None:
    suspicion = Suspicion(2)
    suspicion.acknowledged(1, BIG)
    assert [suspicion.lost([(2, BIG)]) for _ in range(10)] == [None] * 10
    assert not suspicion.is_alert
    assert [Suspicion(2).lost([(1, MIN_MESSAGE_BYTES)]) for _ in range(10)] == [None] * 10


def test_suspicion_is_gone_when_the_suspect_is_acknowledged_after_all() -> None:
    suspicion = Suspicion(2)
    suspicion.lost([(5, BIG)])
    suspicion.acknowledged(5, BIG)
    assert not suspicion.is_alert
    assert suspicion.lost([(6, BIG + 1)]) is None, "counts from one again"


def test_suspicion_learns_no_limit_below_what_came_through() -> None:
    suspicion = Suspicion(2)
    suspicion.acknowledged(1, 700_000)
    suspicion.lost([(2, BIG)])
    assert suspicion.lost([(2, BIG)]) == 2
    assert suspicion.limit == 700_000


def test_suspicion_does_not_grow_over_connections_that_end_idle() -> None:
    suspicion = Suspicion(2)
    suspicion.lost([(1, BIG)])
    assert [suspicion.lost([]) for _ in range(5)] == [None] * 5
