"""Revocation lists that do not fit a message travel in parts, and leave nothing behind."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

import pytest

from broker.port import Handlers, Link, Message
from broker.signed import SignedTransport
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import Manifest
from schemas.topics import Topics
from schemas.trust.signing import Signer, Verifier
from tests.support.authorities import Issued, TestCa
from tests.support.memory_broker import MemoryHub, MemoryTransport

TOPICS = Topics("fleet")
CA = TestCa()
VEHICLE, CLOUD = CA.agent("v1"), CA.coordinator()
GONE = [CA.agent(f"gone-{number}") for number in range(300)]


@dataclass
class Heard:
    """Credentials that never change, and remember the lists."""

    signer: Signer
    verifier: Verifier
    crl: bytes
    heard: list[bytes] = field(default_factory=list)

    def update_crl(self, crl: bytes) -> bool:
        self.verifier.update_crl(crl)
        self.heard.append(crl)
        return False

    def refresh(self) -> bool:
        return False


class Fleet:
    def __init__(self) -> None:
        self.hub = MemoryHub()
        self.refused: Counter[str] = Counter()
        self.why = ""

    def process(self, name: str, owner: Issued, crl: bytes = b"") -> Heard:
        credentials = Heard(owner.signer(), CA.verifier(), crl)
        inner = MemoryTransport(self.hub, Link("mqtt://m", name, max_message_bytes=4096))
        made = SignedTransport(inner, TOPICS, credentials, self.refuse)
        made.start(Handlers(lambda _m: None, lambda: None, lambda _w: None))
        self.hub.pump()
        return credentials

    def refuse(self, _message: Message, fault: WireError) -> None:
        self.refused.update([fault.code])
        self.why = str(fault)

    def blobs(self) -> set[str]:
        return {topic for topic in self.hub.retained if "/blob/" in topic}


@pytest.mark.parametrize("first", ["vehicle", "coordinator"])
def test_long_list_reaches_vehicles_that_were_there_and_those_that_come_later(first: str) -> None:
    fleet, crl = Fleet(), CA.crl(*GONE)
    assert len(crl) > 4096
    if first == "vehicle":
        heard = fleet.process("v1", VEHICLE).heard
        fleet.process("cloud", CLOUD, crl)
    else:
        fleet.process("cloud", CLOUD, crl)
        heard = fleet.process("v1", VEHICLE).heard
    assert set(heard) == {crl}
    assert not fleet.refused
    assert len(fleet.blobs()) > 1


@pytest.mark.parametrize("count", [1, 299])
def test_parts_of_a_former_list_are_cleared_though_another_life_of_the_coordinator_published_it(count: int) -> None:
    fleet = Fleet()
    fleet.process("cloud", CLOUD, CA.crl(*GONE))
    fleet.hub.kill("cloud")
    before = fleet.blobs()
    vehicle = fleet.process("v1", VEHICLE)
    newer = CA.crl(*GONE[:count])
    fleet.process("cloud", CLOUD, newer)
    assert vehicle.heard[-1] == newer
    assert before.isdisjoint(fleet.blobs())
    assert bool(fleet.blobs()) == (count > 1)


def test_list_that_is_longer_than_others_read_is_refused_where_it_would_be_published(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.lists.MAX_CRL_BYTES", 10_000)
    fleet, crl = Fleet(), CA.crl(*GONE)
    vehicle = fleet.process("v1", VEHICLE)
    fleet.process("cloud", CLOUD, crl)
    assert (vehicle.heard, fleet.blobs()) == ([], set())
    assert fleet.refused == {"oversize": 1}
    assert re.search(r"vehicles do not hear .*nobody reads more than 10000\. .*agent renew.*--days", fleet.why)


@pytest.mark.parametrize(
    "payload",
    [
        b"nonsense",
        Envelope(fleet="fleet", body=Manifest(digest="0" * 64, count=9, size=2**30, what="revoked")).to_bytes(),
        Envelope(fleet="fleet", body=Manifest(digest="0" * 64, count=9, size=9, what="model")).to_bytes(),
    ],
)
def test_forged_manifest_is_refused_and_the_next_list_is_heard(payload: bytes) -> None:
    fleet, crl = Fleet(), CA.crl(*GONE)
    vehicle = fleet.process("v1", VEHICLE)
    forger = MemoryTransport(fleet.hub, Link("mqtt://m", "forger"))
    forger.start(Handlers(lambda _m: None, lambda: None, lambda _w: None))
    forger.publish(TOPICS.revoked(), payload, retain=True)
    fleet.hub.pump()
    assert sum(fleet.refused.values()) == 1
    fleet.process("cloud", CLOUD, crl)
    assert vehicle.heard == [crl]
