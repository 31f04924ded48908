"""Which message ends every connection: the rule, apart from sockets."""

from __future__ import annotations

from broker.oversize import OversizeDetector
from schemas.limits import MIN_MESSAGE_BYTES

BIG = 1_000_000


def test_detector_gives_a_message_up_when_it_alone_ended_connection_after_connection() -> None:
    detector = OversizeDetector(3)
    assert detector.lost([(1, 10), (2, BIG), (3, 10)]) is None
    assert detector.is_alert, "from here on messages leave one at a time"
    detector.acknowledged(1, 10)
    assert [detector.lost([(2, BIG)]) for _ in range(3)] == [None, None, 2]
    assert (detector.limit, detector.is_alert) == (BIG // 2, False)


def test_detector_never_suspects_what_is_not_larger_than_what_came_through() -> None:
    detector = OversizeDetector(2)
    detector.acknowledged(1, BIG)
    assert [detector.lost([(2, BIG)]) for _ in range(10)] == [None] * 10
    assert not detector.is_alert
    assert [OversizeDetector(2).lost([(1, MIN_MESSAGE_BYTES)]) for _ in range(10)] == [None] * 10


def test_detector_is_calm_again_when_the_suspect_is_acknowledged_after_all() -> None:
    detector = OversizeDetector(2)
    detector.lost([(5, BIG)])
    detector.acknowledged(5, BIG)
    assert not detector.is_alert
    assert detector.lost([(6, BIG + 1)]) is None, "counts from one again"


def test_detector_learns_no_limit_below_what_came_through() -> None:
    detector = OversizeDetector(2)
    detector.acknowledged(1, 700_000)
    detector.lost([(2, BIG)])
    assert detector.lost([(2, BIG)]) == 2
    assert detector.limit == 700_000


def test_detector_does_not_grow_over_connections_that_end_idle() -> None:
    detector = OversizeDetector(2)
    detector.lost([(1, BIG)])
    assert [detector.lost([]) for _ in range(5)] == [None] * 5
