"""Two coordinators on one fleet: the rules, apart from brokers."""

from __future__ import annotations

import threading

import pytest

from broker.memory import MemoryHub
from broker.memory_client import MemoryTransport
from broker.port import Handlers, Link, Message, Transport
from coordinator.fleet.leader_probe import LeaderProbe, ProbeResult
from coordinator.fleet.leadership import QUIET, Election
from coordinator.messages.publisher import birth
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


class Scripted:
    """A transport that says what a broker would, on the thread that publishes."""

    def __init__(self, *first: Message, answers: tuple[Message, ...] = ()) -> None:
        self._first = first
        self._answers = answers
        self.is_connected = True
        self.stopped = False

    def start(self, handlers: Handlers) -> None:
        self._handlers = handlers
        for message in self._first:
            handlers.message(message)

    def subscribe(self, pattern: str) -> None:
        assert pattern == TOPICS.coordinator_state(), "by its full name, or RabbitMQ says nothing"

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        assert not retain, "the question must not replace what the broker keeps"
        for message in (Message(topic, payload), *self._answers):
            self._handlers.message(message)

    def stop(self) -> None:
        self.stopped = True


def look(transport: object, wait: float = 0.1) -> ProbeResult:
    probe = LeaderProbe(TOPICS, "me", "sw")
    return probe.look(transport, wait, 0.01, cancelled=lambda: False, connect=lambda: True)  # type: ignore[arg-type]


def state(incarnation: str, status: str, term: float, *, retained: bool = False) -> Message:
    made = birth(TOPICS, incarnation, "sw", status, term=term)
    return Message(made.topic, made.payload, retained)


def test_probe_finds_one_that_answers() -> None:
    living = state("other", "up", 7.0)
    transport = Scripted(state("other", "up", 7.0, retained=True), answers=(living,))
    assert look(transport) == ProbeResult(7.0, "other", "sw")
    assert transport.stopped


@pytest.mark.parametrize(
    "first",
    [
        (),
        (state("other", "up", 7.0, retained=True),),
        (state("other", "down", 7.0, retained=True),),
        (Message(TOPICS.coordinator_state(), b"nonsense", retained=True),),
        (Message(TOPICS.coordinator_state(), b"", retained=True),),
    ],
)
def test_probe_finds_nobody_when_nobody_answers(first: tuple[Message, ...]) -> None:
    assert look(Scripted(*first)).living == ""


def test_probe_believes_a_will_that_fires_while_it_looks() -> None:
    transport = Scripted(state("other", "up", 7.0, retained=True), answers=(state("other", "down", 0.0),))
    assert look(transport, wait=30.0) == ProbeResult(7.0), "at once, without waiting for an answer"


def test_probe_stops_when_it_is_told_to() -> None:
    stopping = threading.Event()
    stopping.set()
    hub = MemoryHub()
    transport: Transport = MemoryTransport(hub, Link("mqtt://m", "probe"))
    found = LeaderProbe(TOPICS, "me", "sw").look(transport, 60.0, 60.0, cancelled=stopping.is_set, connect=lambda: True)
    assert found == ProbeResult()
