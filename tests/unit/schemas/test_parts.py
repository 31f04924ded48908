"""Messages in parts: cut, joined in any order, verified, and bounded in memory whatever a sender does."""

from __future__ import annotations

import contextlib
import hashlib
import random
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import envelope as parts
from schemas import limits
from schemas.envelope import Envelope
from schemas.errors import WireError
from schemas.messages import ContributionBody, Manifest, Part, Request
from schemas.topics import Topics
from schemas.trust.joining import Assembler, BlobStore

TOPICS = Topics("fleet")
LIMIT = limits.MIN_MESSAGE_BYTES
ROOM = LIMIT - limits.MAX_SEAL_BYTES
"""What the smallest limit that can be set leaves beside a seal."""

DIGEST = "a" * 64


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def answer(size: int, *, agent: str = "v1", seed: int = 0, filler: bytes | None = None) -> Envelope:
    data = noise(size, seed) if filler is None else filler * size
    body = ContributionBody(task_digest=DIGEST, rows=3, data_digest=DIGEST, contribution={"x": data})
    return Envelope(
        fleet="fleet", body=body, run="r1", agent=agent, scheme="frt", round=2, attempt=1, signature=b"s" * 64
    )


def request(size: int, *, seed: int = 0) -> Envelope:
    body = Request(task={"x": noise(size, seed)}, task_digest=DIGEST, remaining=5.0)
    return Envelope(fleet="fleet", body=body, run="r1", round=2, attempt=1, scheme="frt")


def received(frames: list[parts.Frame]) -> list[Envelope]:
    return [Envelope.from_bytes(frame.payload, fleet="fleet") for frame in frames]


def part_of(envelope: Envelope) -> Part:
    assert isinstance(envelope.body, Part)
    return envelope.body


def altered(envelope: Envelope, **changes) -> Envelope:
    body = part_of(envelope)
    head = {name: getattr(envelope, name) for name in ("fleet", "run", "agent", "scheme", "round", "attempt")}
    return Envelope(body=Part(**(body.model_dump() | changes)), **head)


@settings(max_examples=40)
@given(st.integers(1, 60_000), st.integers(ROOM, 20_000), st.booleans(), st.randoms(use_true_random=False))
def test_assembler_gives_back_what_was_cut_whatever_the_order_and_the_duplicates(size, limit, is_noise, rng):
    envelope = answer(size, filler=None if is_noise else b"a")
    frames = parts.frames_for_contribution(envelope, TOPICS, limit)
    assert all(len(frame.payload) <= limit for frame in frames)
    assert {frame.topic for frame in frames} == {TOPICS.contribution("v1")}
    arriving = received(frames)
    if len(frames) == 1 and isinstance(arriving[0].body, ContributionBody):
        assert arriving[0] == envelope
        return
    doubled = arriving[1:] * 2
    rng.shuffle(doubled)
    assembler = Assembler()
    results = [assembler.add(each) for each in [*doubled, arriving[0]]]
    assert results == [None] * len(doubled) + [envelope]


@given(st.binary(max_size=2000) | st.binary(max_size=9).map(lambda part: part * 99))
def test_packing_is_undone_and_never_grows_by_more_than_its_marker(content):
    packed = parts.pack(content)
    assert len(packed) <= min(len(content), len(zlib.compress(content))) + 1
    assert parts.unpack(packed) == content


@pytest.mark.parametrize(
    ("packed", "code"),
    [
        (b"\x01", "malformed"),
        (b"\x01not zlib", "malformed"),
        (b"\x00" + bytes(1001), "oversize"),
        (b"\x01" + zlib.compress(bytes(1001)), "oversize"),
    ],
)
def test_unpacking_refuses_damage_and_bombs(packed, code):
    """What else is refused: tests/fuzz/corpus/packed.json."""
    with pytest.raises(WireError, match=f"^{code}: "):
        parts.unpack(packed, max_bytes=1000)
    assert parts.unpack(b"\x01" + zlib.compress(bytes(1000)), max_bytes=1000) == bytes(1000)


def cut(size: int = 20_000, **options) -> list[Envelope]:
    return received(parts.frames_for_contribution(answer(size, **options), TOPICS, LIMIT))


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"index": 99}, "malformed"),
        ({"data": b""}, "malformed"),
        ({"count": 2}, "malformed"),
        ({"data": b"other"}, "digest-mismatch"),
    ],
)
def test_assembler_drops_a_message_whose_part_cannot_be_right(changes, code):
    assembler, arriving = Assembler(), cut()
    for each in arriving[:-1]:
        assembler.add(each)
    with pytest.raises(WireError, match=f"^{code}: "):
        assembler.add(altered(arriving[-1], **changes))
    assert (assembler.open_messages, assembler.kept_bytes) == (0, 0)
    assert [assembler.add(each) is not None for each in arriving][-1], "a resend completes it"


def wrapped(content: bytes, *, agent: str = "v1", run: str = "r1", fleet: str = "fleet") -> Envelope:
    packed = parts.pack(content)
    digest = hashlib.sha256(packed).hexdigest()
    return Envelope(fleet=fleet, body=Part(digest=digest, index=0, count=1, data=packed), run=run, agent=agent)


def test_assembler_refuses_what_is_not_a_message_of_this_sender():
    inner = answer(10, agent="v1").to_bytes()
    assert Assembler().add(wrapped(inner)) is not None
    nested = parts.frames_for_contribution(answer(9000, filler=b"a"), TOPICS, LIMIT)[0].payload
    for bad, code in [
        (wrapped(inner, agent="v2"), "malformed"),
        (wrapped(inner, run="r2"), "malformed"),
        (wrapped(b"junk"), "malformed"),
        (wrapped(nested), "malformed"),
        (wrapped(Envelope(fleet="other", body=answer(1).body, run="r1", agent="v1").to_bytes()), "foreign-fleet"),
    ]:
        assembler = Assembler()
        with pytest.raises(WireError, match=f"^{code}: "):
            assembler.add(bad)
        assert assembler.kept_bytes == 0


def test_assembler_refuses_more_bytes_than_a_message_may_have():
    assembler = Assembler(max_bytes=10_000)
    arriving = cut(20_000)
    for each in arriving[:2]:
        assert assembler.add(each) is None
    with pytest.raises(WireError, match=r"^oversize: "):
        assembler.add(arriving[2])
    assert assembler.kept_bytes == 0
    (outer,) = received(parts.frames_for_contribution(answer(100_000, filler=b"a"), TOPICS, LIMIT))
    with pytest.raises(WireError, match="oversize: decompresses"):
        assembler.add(outer)


def test_one_sender_cannot_push_the_others_out():
    assembler = Assembler(max_bytes=1_000_000, per_sender=2)
    other = cut(agent="v2", seed=5)
    assembler.add(other[0])
    for seed in range(50):
        assembler.add(cut(agent="v1", seed=seed)[0])
    assert assembler.open_messages == 3
    assert [assembler.add(each) for each in other][-1] is not None


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.integers(1, 4000)), max_size=80))
def test_assembler_stays_within_its_memory_whatever_arrives(arriving):
    total = 40_000
    assembler = Assembler(max_bytes=20_000, total_bytes=total)
    for sender, index, size in arriving:
        digest = hashlib.sha256(bytes([sender])).hexdigest()
        part = Part(digest=digest, index=index, count=10, data=noise(size))
        with contextlib.suppress(WireError):
            assembler.add(Envelope(fleet="fleet", body=part, run="r1", agent=f"v{sender}"))
        assert assembler.kept_bytes <= total


# Requests and models: manifests and retained blobs


@settings(max_examples=40)
@given(st.integers(1, 60_000), st.integers(LIMIT, 20_000), st.randoms(use_true_random=False))
def test_receiver_gets_the_request_whatever_the_order_of_its_blobs(size, limit, rng):
    sent = parts.frames_for_request(request(size), TOPICS, limit)
    assert all(len(frame.payload) <= limit for frame in sent.frames)
    (topic, payload), *blobs = sent.frames
    assert topic == TOPICS.request("r1")
    assert [blob.topic for blob in blobs] == list(sent.blobs)
    outer = Envelope.from_bytes(payload, fleet="fleet")
    if not blobs:
        assert outer == request(size)
        return
    assert isinstance(outer.body, Manifest)
    store = BlobStore(TOPICS)
    assert store.want(outer.body) == f"gf/1/fleet/blob/{outer.body.digest}/+"
    arriving = blobs[1:] * 2
    rng.shuffle(arriving)
    contents = [store.add(*each) for each in [*arriving, blobs[0]]]
    done = [content for content in contents if content is not None]
    assert len(done) == 1
    assert parts.open_request(outer, done[0]) == request(size)
    assert store.open_digests == ()


def large(size: int = 20_000) -> tuple[Envelope, Manifest, list[parts.Frame]]:
    sent = parts.frames_for_request(request(size), TOPICS, LIMIT)
    outer = Envelope.from_bytes(sent.frames[0].payload, fleet="fleet")
    assert isinstance(outer.body, Manifest)
    return outer, outer.body, list(sent.frames[1:])


@pytest.mark.parametrize(("damage", "code"), [(b"shorter", "digest-mismatch"), (bytes(LIMIT), "digest-mismatch")])
def test_store_refuses_blobs_that_are_not_what_was_promised(damage, code):
    _, manifest, blobs = large()
    store = BlobStore(TOPICS)
    store.want(manifest)
    for blob in blobs[1:]:
        store.add(*blob)
    with pytest.raises(WireError, match=f"^{code}: "):
        store.add(blobs[0].topic, damage)
    assert store.open_digests == ()
    store.want(manifest)
    assert [store.add(*blob) for blob in blobs][-1] is not None, "subscribing again cures it"


def test_store_refuses_more_bytes_than_the_manifest_says():
    _, manifest, blobs = large()
    store = BlobStore(TOPICS)
    store.want(manifest)
    with pytest.raises(WireError, match=r"^oversize: "):
        store.add(blobs[0].topic, bytes(manifest.size + 1))
    with pytest.raises(WireError, match=r"^oversize: "):
        BlobStore(TOPICS, max_bytes=manifest.size - 1).want(manifest)


def test_store_starts_anew_when_a_manifest_contradicts_an_earlier_one():
    _, manifest, blobs = large()
    store = BlobStore(TOPICS)
    store.want(manifest.model_copy(update={"count": 1}))
    store.want(manifest)
    assert [store.add(*blob) for blob in blobs][-1] is not None


def test_opened_request_must_be_the_one_that_its_manifest_names():
    outer, _, _ = large()
    content = request(20_000).to_bytes()
    assert parts.open_request(outer, content) == request(20_000)
    other = Envelope(fleet="fleet", body=request(1).body, run="r2", round=2, attempt=1)
    for bad in (other.to_bytes(), answer(5).to_bytes(), b"junk"):
        with pytest.raises(WireError):
            parts.open_request(outer, bad)


def test_receiver_gets_a_model_record_small_or_large():
    small = parts.frames_for_model(b'{"a":1}', TOPICS, "qoe", 3, LIMIT)
    assert small.frames == ((TOPICS.model_version("qoe", 3), b'{"a":1}'),)
    assert parts.read_model(b'{"a":1}', fleet="fleet") == b'{"a":1}'
    record = b'{"a":"' + noise(15_000).hex().encode() + b'"}'
    sent = parts.frames_for_model(record, TOPICS, "qoe", 3, LIMIT)
    pointer, *blobs = sent.frames
    assert pointer.topic == TOPICS.model_version("qoe", 3)
    manifest = parts.read_model(pointer.payload, fleet="fleet")
    assert isinstance(manifest, Manifest)
    store = BlobStore(TOPICS)
    store.want(manifest)
    assert [store.add(*blob) for blob in blobs][-1] == record
