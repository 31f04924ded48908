"""One suite for every transport and broker: in memory, amqtt, Mosquitto (MQTT 5, 3.1.1, signed), NATS.

What a broker does otherwise than the others is named in `DEVIATIONS`; nothing else differs.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator

import pytest

from broker.port import Message
from broker.servers.process import ChildBroker
from tests.support.transports import SUITE, MemoryBench, RealBench, bench_on, make_ready, mark_of, start_broker

REORDERS = "what was in flight when a link broke may come after what followed it"
KEEPS = "the session outlives the seconds that its client asked for (MQTT 3.1.1 has no such wish)"

DEVIATIONS = {
    "embedded": {
        "forgets-on-restart": "sessions and retained messages are in memory only",
        "reorders-after-loss": REORDERS,
        "keeps-sessions": KEEPS,
    },
    "mosquitto-3.1.1": {"keeps-sessions": KEEPS},
    "nats": {"reorders-after-loss": REORDERS, "keeps-sessions": KEEPS},
}

OVERSIZE = {
    "memory": "carried", "embedded": "carried", "mosquitto-5": "told", "mosquitto-3.1.1": "disconnected",
    "mosquitto-signed": "told", "nats": "carried",
}  # fmt: skip
"""What happens to a payload of 2 MiB where 128 KiB is the limit. The client is told the limit when it connects, and
refuses by itself; the broker ends the connection (again, on every resend); or it has no limit and carries it."""


@pytest.fixture(scope="module", params=[pytest.param(name, marks=mark_of(name)) for name in SUITE])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, ChildBroker | None]]:
    running = start_broker(request.param, tmp_path_factory.mktemp("broker"))
    yield request.param, running
    if running is not None:
        running.stop()


@pytest.fixture
def bench(broker: tuple[str, ChildBroker | None]) -> Iterator[MemoryBench | RealBench]:
    name, running = broker
    if running is not None and not running.is_running:
        running.start()
    with contextlib.closing(bench_on(name, running)) as made:
        yield made


@pytest.fixture
def base() -> str:
    """Topics of this test alone; the broker is shared."""
    return f"gf/1/t{uuid.uuid4().hex[:12]}"


def deviates(bench: MemoryBench | RealBench, how: str) -> bool:
    return how in DEVIATIONS.get(bench.name, {})


def ids(count: int) -> list[str]:
    return [f"c-{uuid.uuid4().hex[:12]}" for _ in range(count)]


def test_subscriber_gets_what_is_published(bench, base):
    a, b = (bench.client(i).start() for i in ids(2))
    b.transport.subscribe(f"{base}/x/+")
    make_ready(bench.settle, a, b)
    a.transport.publish(f"{base}/x/1", b"one")
    bench.settle(lambda: b.payloads() == [b"one"], "message arrived")
    assert b.messages[0] == Message(f"{base}/x/1", b"one", retained=False)
    assert a.messages == []
    assert a.transport.is_connected


def test_late_subscriber_gets_the_last_retained_message(bench, base):
    a, b = (bench.client(i).start() for i in ids(2))
    for payload in (b"old", b"new"):
        a.transport.publish(f"{base}/state", payload, retain=True)
    bench.settle(lambda: a.transport.flush(0), "acknowledged")
    b.transport.subscribe(f"{base}/+")
    bench.settle(lambda: b.messages, "retained message arrived")
    assert b.messages == [Message(f"{base}/state", b"new", retained=True)]


def test_late_subscriber_with_a_wildcard_gets_what_is_retained(bench, base):
    a, b = (bench.client(i).start() for i in ids(2))
    for n in range(5):
        a.transport.publish(f"{base}/{n}/request", b"%d" % n, retain=True)
    bench.settle(lambda: a.transport.flush(0), "acknowledged")
    b.transport.subscribe(f"{base}/+/request")
    make_ready(bench.settle, b)
    a.transport.publish(f"{base}/z/request", b"marker")
    bench.settle(lambda: b"marker" in b.payloads(), "marker arrived")
    assert set(b.payloads()) == {*(b"%d" % n for n in range(5)), b"marker"}


def test_live_subscriber_gets_a_retained_message_as_live(bench, base):
    a, b = (bench.client(i).start() for i in ids(2))
    b.transport.subscribe(f"{base}/state")
    make_ready(bench.settle, a, b)
    a.transport.publish(f"{base}/state", b"now", retain=True)
    bench.settle(lambda: b.messages, "message arrived")
    assert b.messages == [Message(f"{base}/state", b"now", retained=False)]


def test_empty_retained_message_clears_the_topic(bench, base):
    a, watcher, newcomer = (bench.client(i).start() for i in ids(3))
    watcher.transport.subscribe(f"{base}/#")
    make_ready(bench.settle, watcher)
    a.transport.publish(f"{base}/request", b"open", retain=True)
    a.transport.publish(f"{base}/request", b"", retain=True)
    a.transport.publish(f"{base}/other", b"kept", retain=True)
    bench.settle(lambda: a.transport.flush(0), "acknowledged")
    bench.settle(lambda: len(watcher.messages) >= 3, "the watcher was told, also of the end")
    assert watcher.payloads() == [b"open", b"", b"kept"]
    newcomer.transport.subscribe(f"{base}/#")
    bench.settle(lambda: newcomer.messages, "the other retained message arrived")
    assert newcomer.payloads() == [b"kept"]


def test_client_gets_nothing_after_it_unsubscribed(bench, base):
    a, b = (bench.client(i).start() for i in ids(2))
    b.transport.subscribe(f"{base}/x")
    b.transport.subscribe(f"{base}/marker")
    make_ready(bench.settle, b)
    b.transport.unsubscribe(f"{base}/x")
    make_ready(bench.settle, b)
    a.transport.publish(f"{base}/x", b"after")
    a.transport.publish(f"{base}/marker", b"end")
    bench.settle(lambda: b"end" in b.payloads(), "marker arrived")
    assert b.payloads() == [b"end"]


def test_will_is_published_and_retained_when_its_process_is_killed(bench, base):
    watcher = bench.client(ids(1)[0]).start()
    watcher.transport.subscribe(f"{base}/agent/+/state")
    make_ready(bench.settle, watcher)
    victim = bench.victim(ids(1)[0], Message(f"{base}/agent/v/state", b"down", retained=True))
    victim.kill()
    bench.settle(lambda: watcher.messages, "will arrived")
    assert watcher.payloads() == [b"down"]
    newcomer = bench.client(ids(1)[0]).start()
    newcomer.transport.subscribe(f"{base}/agent/+/state")
    bench.settle(lambda: newcomer.messages, "will was retained")
    assert newcomer.messages == [Message(f"{base}/agent/v/state", b"down", retained=True)]


def test_will_is_not_published_when_its_client_stops_cleanly(bench, base):
    watcher, probe = (bench.client(i).start() for i in ids(2))
    watcher.transport.subscribe(f"{base}/#")
    leaver = bench.client(ids(1)[0], will=Message(f"{base}/state", b"down", retained=True)).start()
    make_ready(bench.settle, watcher, leaver, probe)
    leaver.transport.stop()
    probe.transport.publish(f"{base}/marker", b"after")
    bench.settle(lambda: watcher.messages, "marker arrived")
    assert watcher.payloads() == [b"after"]


def test_session_ends_after_the_seconds_that_its_client_asked_for(bench, base):
    sender, absent = ids(2)
    a = bench.client(sender).start()
    b = bench.client(absent, session_expiry=1).start()
    b.transport.subscribe(f"{base}/x")
    make_ready(bench.settle, a, b)
    b.transport.stop()
    bench.pass_time(2.2)
    a.transport.publish(f"{base}/x", b"missed")
    bench.settle(lambda: a.transport.flush(0), "acknowledged")
    back = bench.client(absent)
    back.transport.subscribe(f"{base}/x")
    back.start()
    make_ready(bench.settle, back)
    a.transport.publish(f"{base}/x", b"marker")
    bench.settle(lambda: b"marker" in back.payloads(), "marker arrived")
    expected = [b"missed", b"marker"] if deviates(bench, "keeps-sessions") else [b"marker"]
    assert back.payloads() == expected


def test_two_thousand_answers_wait_for_an_absent_coordinator(bench, base):
    sender, absent = ids(2)
    b = bench.client(absent).start()
    b.transport.subscribe(f"{base}/agent/+/answer")
    make_ready(bench.settle, b)
    a = bench.client(sender).start()
    a.transport.publish(f"{base}/agent/0/answer", b"ready")
    bench.settle(lambda: b.messages, "subscription stands")
    b.transport.stop()
    for n in range(2000):
        a.transport.publish(f"{base}/agent/{n}/answer", b"%d" % n)
    bench.settle(lambda: a.transport.flush(0), "acknowledged")
    back = bench.client(absent)
    back.transport.subscribe(f"{base}/agent/+/answer")
    back.start()
    bench.settle(lambda: len(back.payloads()) == 2000, "every acknowledged answer arrived")
    assert set(back.payloads()) == {b"%d" % n for n in range(2000)}
    assert not any(m.retained for m in back.messages)


def test_messages_of_one_topic_keep_their_order(bench, base):
    a, b = (bench.client(i).start() for i in ids(2))
    b.transport.subscribe(f"{base}/+")
    make_ready(bench.settle, a, b)
    for n in range(500):
        a.transport.publish(f"{base}/{n % 3}", b"%d" % n)
    bench.settle(lambda: len(b.payloads()) == 500, "all arrived")
    for topic in range(3):
        assert b.payloads(f"{base}/{topic}") == [b"%d" % n for n in range(topic, 500, 3)]


def test_nothing_is_lost_and_all_are_back_when_the_broker_was_down(bench, base):
    a, b = (bench.client(i).start() for i in ids(2))
    b.transport.subscribe(f"{base}/x")
    make_ready(bench.settle, a, b)
    a.transport.publish(f"{base}/state", b"kept", retain=True)
    bench.settle(lambda: a.transport.flush(0), "acknowledged")
    bench.stop_broker()
    bench.settle(lambda: a.losses and b.losses, "both noticed")
    assert all(a.losses + b.losses), "each loss has its reason"
    assert not a.transport.is_connected
    for n in range(100):
        a.transport.publish(f"{base}/x", b"%d" % n)
    assert not a.transport.flush(0.01)
    bench.start_broker()
    bench.settle(lambda: a.connects == 2 and b.connects == 2, "both connected again")
    if deviates(bench, "forgets-on-restart"):
        # The sender may have been quicker than the subscriber, who then has no session that could have kept it.
        bench.settle(lambda: a.transport.flush(0), "acknowledged")
        make_ready(bench.settle, b)
        a.transport.publish(f"{base}/x", b"99")
        bench.settle(lambda: b"99" in b.payloads(), "the subscription is back")
    else:
        bench.settle(lambda: len(b.payloads()) == 100, "all arrived")
        assert b.payloads() == [b"%d" % n for n in range(100)]
    newcomer = bench.client(ids(1)[0]).start()
    newcomer.transport.subscribe(f"{base}/#")
    make_ready(bench.settle, newcomer)
    newcomer.transport.publish(f"{base}/z", b"marker", retain=True)
    bench.settle(lambda: b"marker" in newcomer.payloads(), "marker arrived")
    expected = [b"marker"] if deviates(bench, "forgets-on-restart") else [b"kept", b"marker"]
    assert newcomer.payloads() == expected
    assert bench.remembers is not deviates(bench, "forgets-on-restart")


def test_every_client_is_back_and_lost_nothing_after_reconnect_storms(bench, base):
    sender, *fleet = (bench.client(i).start() for i in ids(17))
    for n, client in enumerate(fleet):
        client.transport.subscribe(f"{base}/{n}")
        client.transport.subscribe(f"{base}/all")
    make_ready(bench.settle, sender, *fleet)
    for storm in range(3):
        before = [client.connects for client in fleet]
        for client in fleet:
            bench.cut(client)
        sender.transport.publish(f"{base}/all", b"storm %d" % storm)
        for n in range(16):
            sender.transport.publish(f"{base}/{n}", b"%d in storm %d" % (n, storm))
        bench.settle(
            lambda before=before: all(c.connects > old for c, old in zip(fleet, before, strict=True)), "all are back"
        )
    for n, client in enumerate(fleet):
        bench.settle(lambda client=client: len(client.payloads()) == 6, "all arrived")
        assert set(client.payloads(f"{base}/all")) == {b"storm %d" % storm for storm in range(3)}
        assert set(client.payloads(f"{base}/{n}")) == {b"%d in storm %d" % (n, storm) for storm in range(3)}


def test_slow_subscriber_holds_up_nobody_and_loses_nothing(bench, base):
    sender, slow, quick = (bench.client(i).start() for i in ids(3))
    is_free = threading.Event()
    if bench.name == "memory":
        is_free.set()  # in virtual time nobody can wait
    slow.on_message = lambda _: is_free.wait()
    for client in (slow, quick):
        client.transport.subscribe(f"{base}/x")
    make_ready(bench.settle, sender, slow, quick)
    payloads = [b"%04d" % n + bytes(65536) for n in range(100)]
    try:
        for payload in payloads:
            sender.transport.publish(f"{base}/x", payload)
        bench.settle(lambda: len(quick.payloads()) == 100, "the quick one has all of 6 MB while the slow one has one")
        bench.settle(lambda: sender.transport.flush(0), "the sender was not held up")
        assert bench.name == "memory" or len(slow.messages) == 1
    finally:
        is_free.set()
    bench.settle(lambda: len(slow.payloads()) == 100, "the slow one has all in the end")
    assert slow.payloads() == payloads
    assert slow.losses == []


def test_broker_lets_others_go_on_when_a_client_sends_too_much(bench, base):
    hostile, a, b = (bench.client(i, max_message_bytes=4 * 2**20).start() for i in ids(3))
    b.transport.subscribe(f"{base}/+")
    make_ready(bench.settle, hostile, a, b)
    too_much = b"too much" * 2**18
    if OVERSIZE[bench.name] == "told":
        with pytest.raises(ValueError, match="at most"):
            hostile.transport.publish(f"{base}/x", too_much)
    else:
        hostile.transport.publish(f"{base}/x", too_much)
    if OVERSIZE[bench.name] == "disconnected":
        bench.settle(lambda: hostile.losses, "the broker ended the connection")
    elif OVERSIZE[bench.name] == "carried":
        bench.settle(lambda: b.messages, "carried: there is no limit")
    a.transport.publish(f"{base}/y", b"of another")
    bench.settle(lambda: b"of another" in b.payloads(), "others go on")
    assert (too_much in b.payloads()) == (OVERSIZE[bench.name] == "carried")
    assert a.losses == b.losses == []


def test_oversize_payload_is_refused_and_the_connection_stays(bench, base):
    a, b = (bench.client(i, max_message_bytes=10_000).start() for i in ids(2))
    b.transport.subscribe(f"{base}/x")
    make_ready(bench.settle, a, b)
    with pytest.raises(ValueError, match=r"10001 bytes .* at most 10000"):
        a.transport.publish(f"{base}/x", bytes(10_001))
    a.transport.publish(f"{base}/x", bytes(10_000))
    bench.settle(lambda: b.messages, "the largest allowed arrived")
    assert a.losses == []
    assert a.transport.max_message_bytes == 10_000


def test_second_client_with_the_same_id_takes_the_session_over(bench, base):
    shared, sender = ids(2)
    first = bench.client(shared).start()
    first.transport.subscribe(f"{base}/x")
    a = bench.client(sender).start()
    make_ready(bench.settle, first, a)
    second = bench.client(shared)
    second.transport.subscribe(f"{base}/x")
    second.start()
    bench.settle(lambda: first.losses, "the first one was thrown out")
    first.transport.stop()
    bench.settle(lambda: second.transport.is_connected, "the second one is connected")
    make_ready(bench.settle, second)
    a.transport.publish(f"{base}/x", b"for the second")
    bench.settle(lambda: b"for the second" in second.payloads(), "message arrived")
