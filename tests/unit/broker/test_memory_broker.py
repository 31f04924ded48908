"""The broker in memory: deterministic, and at least once under every fault that it can make."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.memory import Faults, MemoryHub, Saved
from broker.memory_client import MemoryTransport
from broker.port import Handlers, Link, Message

BAD = Faults(delay=(0.0, 0.5), duplicate=0.2, loss=0.1, reconnect=(0.1, 2.0))


class Peer:
    def __init__(self, hub: MemoryHub, client_id: str, log: list[Any] | None = None, **options) -> None:
        self.transport = MemoryTransport(hub, Link("memory://", client_id, **options))
        self.messages: list[Message] = []
        self.events: list[str] = []
        self.log = [] if log is None else log
        self.hub = hub
        self.client_id = client_id

    def start(self, *patterns: str) -> Peer:
        for pattern in patterns:
            self.transport.subscribe(pattern)
        self.transport.start(Handlers(self.message, lambda: self.events.append("up"), self.events.append))
        return self

    def message(self, message: Message) -> None:
        self.messages.append(message)
        self.log.append((round(self.hub.now, 9), self.client_id, message))

    def first(self, topic: str | None = None) -> list[bytes]:
        return list(dict.fromkeys(m.payload for m in self.messages if topic in (None, m.topic)))


def busy(seed: int, faults: Faults) -> list[Any]:
    log: list[Any] = []
    hub = MemoryHub(seed=seed, faults=faults)
    peers = [Peer(hub, f"p{n}", log).start("t/#") for n in range(3)]
    for n in range(60):
        peers[n % 3].transport.publish(f"t/{n % 4}", b"%d" % n)
        hub.advance(0.05)
    hub.advance(500)
    return log


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.floats(0, 0.3), st.floats(0, 0.5))
def test_every_message_arrives_at_least_once_and_first_arrivals_are_in_order(seed, loss, duplicate):
    hub = MemoryHub(seed=seed, faults=Faults(delay=(0.0, 0.5), duplicate=duplicate, loss=loss, reconnect=(0.1, 2.0)))
    sender, receiver = Peer(hub, "a").start(), Peer(hub, "b").start("t/+")
    hub.advance(5)
    for n in range(40):
        sender.transport.publish(f"t/{n % 2}", b"%d" % n)
        hub.advance(0.1)
    hub.advance(2000)
    assert sender.transport.flush(0)
    for topic in range(2):
        assert receiver.first(f"t/{topic}") == [b"%d" % n for n in range(topic, 40, 2)]


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_one_seed_gives_one_history(seed):
    assert busy(seed, BAD) == busy(seed, BAD)


def test_faults_do_happen():
    seen = {"duplicate": 0, "lost": 0, "overtaken": 0}
    for seed in range(20):
        hub = MemoryHub(seed=seed, faults=BAD)
        sender, receiver = Peer(hub, "a").start(), Peer(hub, "b").start("t/#")
        hub.advance(5)
        for n in range(30):
            sender.transport.publish(f"t/{n}", b"%d" % n)
        hub.advance(500)
        assert len(receiver.first()) == 30
        seen["duplicate"] += len(receiver.messages) > 30
        seen["lost"] += "link lost" in sender.events + receiver.events
        seen["overtaken"] += receiver.first() != [b"%d" % n for n in range(30)]
    assert all(seen.values()), seen


def test_partitioned_client_misses_nothing_when_it_heals_soon():
    hub = MemoryHub()
    a, b = Peer(hub, "a").start(), Peer(hub, "b", will=Message("will", b"down")).start("t")
    watcher = Peer(hub, "w").start("will")
    hub.pump()
    hub.partition(["b"])
    a.transport.publish("t", b"1")
    b.transport.publish("t", b"2")
    hub.advance(20)
    assert b.messages == []
    hub.heal()
    hub.advance(1)
    assert sorted(b.first()) == [b"1", b"2"]
    assert b.events == ["up"]
    assert watcher.messages == []


def test_partitioned_client_is_declared_dead_after_its_keepalive_and_comes_back():
    hub = MemoryHub()
    a = Peer(hub, "a").start("will")
    b = Peer(hub, "b", will=Message("will", b"down"), keepalive=10).start("t")
    hub.pump()
    hub.partition(["b"])
    a.transport.publish("t", b"1")
    hub.advance(14)
    assert a.messages == []
    hub.advance(2)
    assert a.first() == [b"down"]
    hub.advance(60)
    assert b.events == ["up", "link lost"]
    hub.heal(["b"])
    hub.advance(10)
    assert b.events == ["up", "link lost", "up"]
    assert b.first() == [b"1"]


def test_killed_client_never_comes_back_and_its_successor_gets_the_session():
    hub = MemoryHub()
    a = Peer(hub, "a").start("will")
    b = Peer(hub, "b", will=Message("will", b"down", retained=True)).start("t")
    hub.pump()
    hub.kill("b")
    hub.pump()
    assert a.first() == [b"down"]
    assert hub.retained == {"will": b"down"}
    a.transport.publish("t", b"1")
    hub.advance(100)
    assert (b.messages, b.events) == ([], ["up"])
    assert hub.connected() == ["a"]
    again = Peer(hub, "b").start()
    hub.advance(1)
    assert again.first() == [b"1"]


def test_broker_that_forgets_has_neither_sessions_nor_retained_messages():
    hub = MemoryHub()
    a, b = Peer(hub, "a").start(), Peer(hub, "b").start("t")
    a.transport.publish("r", b"kept", retain=True)
    hub.pump()
    hub.stop_broker()
    hub.start_broker(Saved())
    hub.advance(10)
    assert hub.retained == {}
    assert b.events == ["up", "link lost", "up"]
    a.transport.publish("t", b"1")
    hub.pump()
    assert b.first() == [b"1"]


def test_broker_that_goes_back_has_what_was_retained_and_what_waited_when_it_saved():
    hub = MemoryHub()
    a, b = Peer(hub, "a").start(), Peer(hub, "b").start("t")
    hub.pump()
    a.transport.publish("r", b"old", retain=True)
    hub.kill("b")
    a.transport.publish("t", b"1")
    hub.pump()
    saved = hub.save()
    a.transport.publish("r", b"new", retain=True)
    a.transport.publish("t", b"2")
    hub.pump()
    hub.stop_broker()
    hub.start_broker(saved)
    assert hub.retained == {"r": b"old"}
    again = Peer(hub, "b").start()
    hub.advance(10)
    assert again.first() == [b"1"]
    assert b.events == ["up"]


def test_absent_clients_queue_overflows_silently_when_it_is_bounded():
    hub = MemoryHub(max_queued=10)
    a, b = Peer(hub, "a").start(), Peer(hub, "b").start("t")
    hub.pump()
    b.transport.stop()
    for n in range(25):
        a.transport.publish("t", b"%d" % n)
    hub.pump()
    assert a.transport.flush(0)
    assert hub.dropped == 15
    back = Peer(hub, "b").start("t")
    hub.pump()
    assert back.first() == [b"%d" % n for n in range(10)]
