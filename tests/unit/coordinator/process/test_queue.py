"""What waits for the coordinator: bounded, in order, and in time when it came in time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.port import Link, Message
from coordinator.config import CoordinatorConfig
from coordinator.journal import Entry
from coordinator.journal.port import Decision
from coordinator.main import assemble
from coordinator.messages import Verified
from coordinator.process.queue import EventQueue
from coordinator.process.service import Service
from schemas.envelope import Envelope
from schemas.messages import AgentState
from tests.support.coordinator_bench import TOPICS, Fleet, answer_of
from tests.support.engine_bench import TOY_ENGINE, toy_spec
from tests.support.memory_broker import MemoryHub, MemoryTransport
from tests.support.scratch_journal import ScratchJournal


def test_answers_that_came_in_time_count_when_the_coordinator_was_busy_until_after_the_deadline() -> None:
    fleet = Fleet().begin("a", "b", rounds={"deadline": 10})
    messages = [answer_of(agent, fleet.task()) for agent in "ab"]
    began = fleet.hub.now
    fleet.hub.advance(60)  # another run's reduction
    fleet.core.handle(messages[:1], [began + 8])
    fleet.core.tick(fleet.core.timeline.at(began + 9))
    fleet.core.handle(messages[1:], [began + 9])
    fleet.core.tick()
    state = fleet.state()
    assert state.cohort == ("a", "b")


def test_nothing_carries_the_time_past_what_another_source_may_still_bring() -> None:
    queue = EventQueue(max_messages=9, max_bytes=10_000, clock=lambda: 20.0)
    queue.hold(1, 5.0)
    queue.hold(2, 3.0)
    for topic, arrived in (("one", 4.0), ("one", 6.0), ("two", 2.0), ("two", 7.0)):
        queue.put(Verified(topic, b"x", arrived=arrived))
    batch = queue.get_batch(3, 0.0)
    assert [message.topic for message in batch.messages] == ["two", "one", "one"]
    assert batch.arrived == [2.0, 3.0, 3.0]
    assert queue.oldest() == 3.0
    queue.hold(2, None)
    assert queue.oldest() == 5.0
    queue.hold(1, 8.0)
    assert (queue.get_batch(3, 0.0).arrived, queue.oldest()) == ([7.0], 8.0)


def test_service_takes_what_waits_before_it_lets_a_deadline_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(ScratchJournal):
        """Stalls at every answer, as a full machine does, until well after the deadline."""

        def append(self, entries: Sequence[Entry], decisions: Sequence[Decision] = ()) -> None:
            super().append(entries, decisions)
            if entries and entries[0].kind == "answer":
                clock[0] += 60

    clock, hub = [0.0], MemoryHub()
    transport, journal = MemoryTransport(hub, Link("mqtt://m", "c")), Slow()
    config = CoordinatorConfig(fleet="f", state_dir=tmp_path)
    core = assemble(config, transport, journal, TOY_ENGINE, clock=lambda: clock[0], wall=lambda: 1.7e9 + clock[0])
    monkeypatch.setattr("coordinator.process.service.BATCH_MESSAGES", 1)
    service = Service(config, core)
    agents = tuple("abcd")
    for agent in agents:
        body = AgentState(status="up", incarnation="1", schemes=["toy"], features=["x"], target="y")
        service.queue.put(Message(TOPICS.agent_state(agent), Envelope(fleet="f", body=body, agent=agent).to_bytes()))
    service.work(0.0)
    core.start_run(toy_spec(rounds={"deadline": 10}))
    state = core.runs.live.get("r1")
    assert state is not None
    for agent in agents:
        service.queue.put(answer_of(agent, state.levels[-1].task))
    for _ in agents:
        service.work(0.0)
    state = core.runs.live.get("r1")
    assert state is not None
    assert state.cohort == agents


def test_event_queue_drops_contributions_above_its_bounds_but_never_states() -> None:
    queue = EventQueue(max_messages=3, max_bytes=5000, full_wait=0.01)
    for number in range(5):
        queue.put(Message(f"c/{number}", b"x"))
        queue.put(Message("agent/a/state", b"%d" % number))
    assert queue.dropped == 2
    batch = queue.get_batch(2, 0.0)
    assert [message.payload for message in batch.messages] == [b"4", b"x"], "of states only the latest is kept"
    queue.put(Message("c/big", b"y" * 4900))
    assert queue.dropped == 3
    assert queue.depth()[0] == 2


def test_event_queue_counts_topics_as_well_and_gives_states_no_endless_room() -> None:
    queue = EventQueue(max_messages=100, max_bytes=50_000)
    for number in range(20):
        queue.put(Message(f"c/{number:09000d}", b""))
        queue.put(Message(f"agent/{number:09000d}/state", b""))
    assert len(queue.get_batch(100, 0.0).messages) == 10, "five of each: their topics alone take 9 kB"
    assert queue.dropped == 30
    assert queue.depth() == (0, 0)


def test_event_queue_that_is_full_lets_who_puts_wait_for_room_and_loses_nothing() -> None:
    queue = EventQueue(max_messages=3, max_bytes=5000)
    taken: list[Message] = []

    def write() -> None:
        for number in range(200):
            queue.put(Message(f"c/{number}", b"x"))

    writer = threading.Thread(target=write)
    writer.start()
    while len(taken) < 200:
        waiting, _ = queue.depth()
        assert waiting <= 3
        taken += queue.get_batch(2, 5.0).messages
    writer.join()
    assert [message.topic for message in taken] == [f"c/{number}" for number in range(200)]
    assert queue.dropped == 0


def test_event_queue_lets_nobody_wait_again_until_something_is_taken() -> None:
    queue = EventQueue(max_messages=1, max_bytes=5000, full_wait=0.2)
    begun = time.monotonic()
    for number in range(100):
        queue.put(Message(f"c/{number}", b"x"))
    assert queue.dropped == 99
    assert time.monotonic() - begun < 10, "one of them waited"


def test_who_puts_waits_while_a_batch_is_decided_and_what_comes_meanwhile_is_one_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("coordinator.process.queue.TURN", 60.0)
    queue = EventQueue(max_messages=1000, max_bytes=1_000_000)
    queue.put(Message("c/0", b"x"))
    assert len(queue.get_batch(500, 5.0).messages) == 1

    def write() -> None:
        for number in range(1, 200):
            queue.put(Message(f"c/{number}", b"x"))

    writer = threading.Thread(target=write)
    writer.start()
    writer.join(0.2)
    assert writer.is_alive()
    assert queue.depth() == (0, 0), "the batch is still decided"
    taken = queue.get_batch(500, 5.0).messages
    writer.join()
    assert [message.topic for message in taken] == [f"c/{number}" for number in range(1, 200)]


def test_who_puts_waits_once_for_a_batch_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.process.queue.TURN", 0.2)
    queue = EventQueue(max_messages=1000, max_bytes=1_000_000)
    queue.put(Message("c/0", b"x"))
    queue.get_batch(500, 5.0)
    begun = time.monotonic()
    for number in range(100):
        queue.put(Message(f"c/{number}", b"x"))
    assert 0.2 <= time.monotonic() - begun < 10, "the first of them waited"
    assert queue.depth()[0] == 100


def test_a_batch_is_taken_when_nothing_more_comes_or_after_a_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = EventQueue(max_messages=1000, max_bytes=1_000_000)
    coming = [1, 1, 0, 1, 1, 1, 1, 1, 0]

    def wait(seconds: float) -> None:
        for _ in range(coming.pop(0)):
            queue._put(Message("c/1", b"x"), 0.0)

    monkeypatch.setattr(queue._ready, "wait", wait)
    queue.put(Message("c/0", b"x"))
    assert [len(queue.get_batch(500, 5.0).messages), coming.pop(0)] == [3, 1], "none came at the third look"
    queue.put(Message("c/0", b"x"))
    assert [len(queue.get_batch(500, 5.0).messages), len(coming)] == [5, 1], "four looks, though more came at each"


def test_a_batch_is_taken_as_soon_as_all_that_is_awaited_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = EventQueue(max_messages=1000, max_bytes=1_000_000)
    woken: list[int] = []
    monkeypatch.setattr(queue._ready, "notify", lambda: woken.append(len(queue._messages)))
    monkeypatch.setattr(queue._ready, "wait", lambda seconds: queue._put(Message("c/1", b"x"), 0.0))
    queue.put(Message("c/0", b"x"))
    assert len(queue.get_batch(500, 5.0, awaited=3).messages) == 3
    assert woken == [1, 3], "the last one wakes who waits for it, and none before"


def test_a_call_does_not_wait_for_more_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.process.queue.GATHER", 60.0)
    queue = EventQueue(max_messages=1000, max_bytes=1_000_000)
    queue.put(Message("c/0", b"x"))
    queue.call(int)
    batch = queue.get_batch(500, 5.0)
    assert (len(batch.messages), len(batch.calls)) == (1, 1)


def test_event_queue_runs_calls_on_the_thread_that_takes_and_hands_back_what_they_raise() -> None:
    queue = EventQueue(10, 1000)
    futures = [queue.call(threading.get_ident), queue.call(lambda: 1 // 0)]
    for call in queue.get_batch(10, 0.0).calls:
        call()
    assert futures[0].result(0) == threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        futures[1].result(0)


def test_event_queue_stamps_messages_when_they_arrive_and_knows_the_oldest() -> None:
    now = [0.0]
    queue = EventQueue(max_messages=9, max_bytes=10_000, clock=lambda: now[0])
    assert queue.oldest() is None
    for now[0], topic in ((1.0, "c/1"), (2.0, "c/2"), (3.0, "agent/a/state")):
        queue.put(Message(topic, b"x"))
    batch = queue.get_batch(2, 0.0)
    assert [message.topic for message in batch.messages] == ["agent/a/state", "c/1"]
    assert batch.arrived == [1.0, 1.0], "a state goes first, at the time of what it overtook"
    assert queue.oldest() == 2.0
    queue.get_batch(9, 0.0)
    assert queue.oldest() is None
