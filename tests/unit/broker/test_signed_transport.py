"""Messages that end every connection; wills sealed anew, and floods of bad seals."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

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
