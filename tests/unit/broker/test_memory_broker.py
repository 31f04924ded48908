"""The broker in memory; messages that end every connection; wills sealed anew, and floods of bad seals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.credentials import FolderCredentials
from broker.identity import save_identity
from broker.oversize import OversizeDetector
from broker.port import Handlers, Link, Message
from broker.signed import SignedTransport, TokenBucket, signed
from schemas.envelope import Envelope
from schemas.limits import MIN_MESSAGE_BYTES
from schemas.messages import AgentState
from schemas.topics import Topics
from tests.support.authorities import NOW, Clock, FixedCredentials, TestCa, look, renew
from tests.support.memory_broker import Faults, MemoryHub, MemoryTransport


class Peer:
    def __init__(self, hub: MemoryHub, client_id: str, **options) -> None:
        self.transport = MemoryTransport(hub, Link("memory://", client_id, **options))
        self.messages: list[Message] = []
        self.events: list[str] = []

    def start(self, *patterns: str) -> Peer:
        for pattern in patterns:
            self.transport.subscribe(pattern)
        self.transport.start(Handlers(self.message, lambda: self.events.append("up"), self.events.append))
        return self

    def message(self, message: Message) -> None:
        self.messages.append(message)

    def first(self, topic: str | None = None) -> list[bytes]:
        return list(dict.fromkeys(m.payload for m in self.messages if topic in (None, m.topic)))


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


def test_detector_learns_no_limit_below_what_came_through() -> None:
    detector = OversizeDetector(2)
    detector.acknowledged(1, 700_000)
    detector.lost([(2, BIG)])
    assert detector.lost([(2, BIG)]) == 2
    assert detector.limit == 700_000


TOPICS = Topics("fleet")


def test_last_will_is_sealed_with_the_certificate_of_the_moment(ca, clock):
    folder = ca.identity("agent", "v1")
    credentials = FolderCredentials(folder, clock=clock)
    state = Envelope(fleet="fleet", body=AgentState(status="down", incarnation="i"), agent="v1")
    will = Message(TOPICS.agent_state("v1"), state.to_bytes(), retained=True)
    made: list[Link] = []

    def make(link: Link) -> Line:
        made.append(link)
        return Line()

    signed(Link("mqtt://x", "v1", will), TOPICS, credentials, lambda *_: None, make)
    link = made[0]
    assert link.seal is not None
    first = link.seal(will)
    renew(ca, folder, "v1")
    assert look(credentials, clock)
    second = link.seal(will)
    assert first.payload != second.payload
    assert second.retained
    assert credentials.signer.certificate in second.payload


class Line:
    """A transport that remembers what was published."""

    max_message_bytes = 100_000
    is_connected = True

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []
        self.handlers = Handlers(lambda _m: None, lambda: None, lambda _w: None)

    def start(self, handlers: Handlers) -> None:
        self.handlers = handlers
        handlers.connected()

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        del retain
        self.published.append((topic, payload))

    def subscribe(self, pattern: str) -> None: ...
    def unsubscribe(self, pattern: str) -> None: ...
    def stop(self) -> None: ...

    def flush(self, timeout: float) -> bool:
        del timeout
        return True


def test_coordinator_says_the_newest_list_again_whoever_said_an_older_one(ca):
    cloud = ca.identity("coordinator", "cloud")
    credentials, line = FolderCredentials(cloud), Line()
    transport = SignedTransport(line, TOPICS, credentials, lambda *_: None)
    transport.start(Handlers(lambda _m: None, lambda: None, lambda _w: None))
    older = (cloud / "crl.pem").read_bytes()
    assert line.published == [(TOPICS.revoked(), older)]
    ca.authority.revoke("cloud")
    newest = ca.authority.crl_pem
    for crl in (newest, older, newest):
        line.handlers.message(Message(TOPICS.revoked(), crl, retained=True))
    assert [crl for _, crl in line.published] == [older, newest, newest]


def test_flood_of_bad_seals_is_not_verified_for_ever_and_concerns_no_other_agent():
    ca, clock = TestCa(), Clock()
    verifier = ca.verifier()
    refused: Counter[str] = Counter()
    heard: list[str] = []
    line = Line()
    credentials = FixedCredentials(ca.coordinator().signer(), verifier)
    transport = SignedTransport(line, TOPICS, credentials, lambda _m, fault: refused.update([fault.code]))
    transport._patience = TokenBucket(20, 5, clock=clock)
    transport.start(Handlers(lambda message: heard.append(message.topic), lambda: None, lambda _w: None))

    def say(name: str, *, good: bool) -> None:
        topic = TOPICS.agent_state(name)
        state = Envelope(fleet="fleet", body=AgentState(status="up", incarnation="i"), agent=name, time=NOW)
        sealed = signers[name].seal(topic, state.to_bytes())
        if not good:
            sealed = replace(Envelope.from_bytes(sealed, fleet="fleet"), time=NOW + 1).to_bytes()
        line.handlers.message(Message(topic, sealed))

    signers = {name: ca.agent(name).signer() for name in ("liar", "v1")}
    for _ in range(500):
        say("liar", good=False)
    assert refused == {"bad-signature": 20, "too-many": 480}
    say("v1", good=True)
    say("liar", good=True)
    assert heard == [TOPICS.agent_state("v1")]
    clock.now += 1.0
    say("liar", good=True)
    assert heard == [TOPICS.agent_state("v1"), TOPICS.agent_state("liar")]


def test_patience_remembers_a_bounded_number_of_agents():
    patience = TokenBucket(1, 0.001, clock=Clock())
    for number in range(10_000):
        patience.spend(f"v{number}")
    assert len(patience._spent) <= 4096
    assert not patience.has("v9999")


def test_quiet_process_says_again_what_is_retained_as_soon_as_its_certificate_has_changed(ca, clock):
    folder, line, connected = ca.identity("coordinator", "cloud"), Line(), []
    credentials = FolderCredentials(folder, clock=clock)
    transport = SignedTransport(line, TOPICS, credentials, lambda *_: None)
    transport.start(Handlers(lambda _m: None, lambda: connected.append(credentials.signer), lambda _w: None))
    fresh = ca.identity("coordinator", "cloud", where="fresh")
    save_identity(folder, key=(fresh / "key.pem").read_bytes(), certificate=(fresh / "cert.pem").read_bytes())
    transport.look()
    assert len(connected) == 1, "no look was due"
    clock.now += 3
    line.is_connected = False
    transport.look()
    line.is_connected = True
    for _ in range(3):
        transport.look()
    assert len(connected) == 2
    assert connected[1].certificate != connected[0].certificate
