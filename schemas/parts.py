"""Messages too large for one MQTT payload: cut by the sender, joined and verified by the receiver.

Two ways, because the two directions differ:

- A contribution is sent once, to one receiver. It travels as `Part` envelopes on its own topic, numbered, each with the
  digest of the whole. `frames_for_contribution` cuts, `Assembler` joins.
- A request or a model is retained, for receivers that may come later. Its bytes are retained raw on
  ``blob/{digest}/{index}`` and its own topic holds a `Manifest` that names them. ``frames_for_request`` and
  ``frames_for_model`` cut, `BlobStore` gathers, `open_request` and `read_model` check what came out.

What is cut is the *packed* form: one marker byte, 0 (plain) or 1 (zlib, RFC 1950), then the content. The digest is the
SHA-256 of the packed bytes, so nothing is decompressed before it is verified, and the decompressed size is capped. The
packed form travels in parts and blobs only: a message that fits one payload is the plain envelope. Memory is bounded
everywhere, and a peer's fault is a WireError with its reason.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from schemas import limits
from schemas.envelope import Envelope
from schemas.errors import BrokerError, UsageError, WireError
from schemas.messages import Manifest, Part, Request
from schemas.topics import Topics

PLAIN, ZLIB = 0, 1
"""Marker bytes of the packed form."""

_PART_OVERHEAD = 160
"""Bytes that one kept part costs beside its data (dict slot, key, bytes header): tiny parts must not be free."""

_HEADER_ROOM = 16
"""Room for the msgpack length headers that grow with index and data size."""


class Frame(NamedTuple):
    """One payload and the topic that it goes to."""

    topic: str
    payload: bytes


@dataclass(frozen=True)
class Retained:
    """What a request or a model becomes on the wire.

    Attributes
    ----------
    frames : tuple of Frame
        To be published retained and in this order: blobs first, the message that points to them last.
    blobs : tuple of str
        Blob topics among them (none for a small message); clear them with `clearing` when no longer needed.
    """

    frames: tuple[Frame, ...]
    blobs: tuple[str, ...] = ()


def pack(content: bytes, *, compress: bool = True) -> bytes:
    """Marker byte and content, compressed only when that shrinks it."""
    if compress:
        small = zlib.compress(content, 6)
        if len(small) < len(content):
            return bytes([ZLIB]) + small
    return bytes([PLAIN]) + content


def unpack(packed: bytes, *, max_bytes: int = limits.MAX_DECODED_BYTES) -> bytes:
    """Undo `pack`; raises WireError ``malformed`` or ``oversize``, never allocating more than `max_bytes`."""
    if not packed or packed[0] not in (PLAIN, ZLIB):
        raise WireError("malformed", "unknown packing of a message in parts")
    if packed[0] == PLAIN:
        if len(packed) - 1 > max_bytes:
            raise WireError("oversize", f"{len(packed) - 1} bytes, at most {max_bytes} are accepted")
        return packed[1:]
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(memoryview(packed)[1:], max_bytes + 1)
    except zlib.error as fault:
        raise WireError("malformed", "damaged compression") from fault
    if len(content) > max_bytes:
        raise WireError("oversize", f"decompresses to more than {max_bytes} bytes")
    if not inflater.eof or inflater.unused_data:
        raise WireError("malformed", "compressed data end too early or too late")
    return content


def frames_for_contribution(
    envelope: Envelope, topics: Topics, limit: int = limits.MAX_MESSAGE_BYTES, *, compress: bool = True
) -> list[Frame]:
    """Cut an agent's answer (or refusal) into payloads of at most `limit` bytes, all for its contribution topic.

    Raises
    ------
    UsageError
        `limit` is below ``MIN_MESSAGE_BYTES``, or the envelope names no agent or run.
    BrokerError
        The answer needs more than ``MAX_PARTS`` messages, or is larger than any receiver accepts.
    """
    if not envelope.agent or not envelope.run:
        raise UsageError("a contribution's envelope must name its agent and run")
    topic = topics.contribution(envelope.agent, envelope.run)
    whole = envelope.to_bytes()
    if len(whole) <= _checked(limit):
        return [Frame(topic, whole)]
    packed = _packed_for_wire(whole, compress=compress)
    digest = hashlib.sha256(packed).hexdigest()

    def frame(index: int, count: int, data: bytes) -> bytes:
        return _around(envelope, Part(digest=digest, index=index, count=count, data=data))

    room = limit - len(frame(limits.MAX_PARTS, limits.MAX_PARTS, b"")) - _HEADER_ROOM
    pieces = _cut(packed, room, limit)
    return [Frame(topic, frame(index, len(pieces), piece)) for index, piece in enumerate(pieces)]


def frames_for_request(
    envelope: Envelope, topics: Topics, limit: int = limits.MAX_MESSAGE_BYTES, *, compress: bool = True
) -> Retained:
    """Cut a request into retained payloads of at most `limit` bytes.

    Keep the result and publish the same frames again on a reconnect: a request that was built anew has another time
    in it, therefore another digest and other blobs, and the old ones would have to be cleared first.

    Raises
    ------
    UsageError, BrokerError
        As `frames_for_contribution`.
    """
    if not envelope.run:
        raise UsageError("a request's envelope must name its run")
    return _retained(
        envelope, topics.request(envelope.run), envelope.to_bytes(), "request", topics, limit=limit, compress=compress
    )


def frames_for_model(
    record: bytes,
    topics: Topics,
    name: str,
    version: int,
    limit: int = limits.MAX_MESSAGE_BYTES,
    *,
    compress: bool = True,
) -> Retained:
    """Cut a model record (``ModelRecord.to_bytes()``) into retained payloads of at most `limit` bytes.

    A small record is published as the JSON that it is; a larger one as a manifest and blobs. The two are told apart by
    the first byte, see `read_model`. Publish the pointer ``model/{name}/current`` after all of these.

    Raises
    ------
    UsageError, BrokerError
        As `frames_for_contribution`.
    """
    pointer = Envelope(fleet=topics.fleet, body=Manifest(digest="0" * 64, count=1, size=0, what="model"))
    return _retained(
        pointer, topics.model_version(name, version), record, "model", topics, limit=limit, compress=compress
    )


def clearing(topics: tuple[str, ...] | list[str]) -> list[Frame]:
    """Give empty retained payloads that make the broker forget `topics`."""
    return [Frame(topic, b"") for topic in topics]


def read_model(payload: bytes, *, fleet: str) -> bytes | Manifest:
    """Tell a small model record (its JSON bytes, unchecked) from the manifest of a large one.

    A JSON object starts with ``{`` (0x7b); a msgpack map never does.

    Raises
    ------
    WireError
        Neither of the two.
    """
    if payload[:1] == b"{":
        return payload
    body = Envelope.from_bytes(payload, fleet=fleet).body
    if not isinstance(body, Manifest) or body.what != "model":
        raise WireError("malformed", "neither a model record nor the manifest of one")
    return body


def open_request(outer: Envelope, content: bytes, *, max_bytes: int = limits.MAX_DECODED_BYTES) -> Envelope:
    """Decode a request that a manifest stood in for, and check that it belongs to the manifest's envelope.

    Parameters
    ----------
    outer : Envelope
        The envelope of the manifest.
    content : bytes
        What `BlobStore.add` returned for it.

    Raises
    ------
    WireError
        Not a request, or one of another run, round or attempt.
    """
    inner = Envelope.from_bytes(content, fleet=outer.fleet, max_bytes=max_bytes)
    if not isinstance(inner.body, Request):
        raise WireError("malformed", f"the manifest promised a request, its blobs hold a {inner.body.kind}")
    if (inner.run, inner.round, inner.attempt) != (outer.run, outer.round, outer.attempt):
        raise WireError("malformed", "the request in the blobs is not the one that the manifest names")
    return inner


@dataclass
class _Assembly:
    count: int
    pieces: dict[int, bytes] = field(default_factory=dict)
    cost: int = _PART_OVERHEAD


class Assembler:
    """Joins the parts of contributions, in any order, with duplicates, from many senders, in bounded memory.

    Parameters
    ----------
    max_bytes : int
        Largest contribution, packed and unpacked.
    total_bytes : int
        All parts that are kept together; the message touched least recently gives way.
    per_sender : int
        Messages of one sender that may be open at once, so that one agent cannot push the others out.

    Notes
    -----
    Only the sender's own topic leads here, so a sender can spoil only its own messages. A message that gave way, or was
    dropped for a wrong digest, is complete again after the sender's resend: parts carry no state.
    """

    def __init__(
        self,
        *,
        max_bytes: int = limits.MAX_DECODED_BYTES,
        total_bytes: int = 4 * limits.MAX_DECODED_BYTES,
        per_sender: int = 2,
    ) -> None:
        self._max_bytes = max_bytes
        self._total_bytes = max(total_bytes, max_bytes)
        self._per_sender = per_sender
        self._open: OrderedDict[tuple[str, str], _Assembly] = OrderedDict()
        self._cost = 0

    @property
    def kept_bytes(self) -> int:
        """What the open messages cost now, at most ``total_bytes``."""
        return self._cost

    @property
    def open_messages(self) -> int:
        """How many messages wait for parts."""
        return len(self._open)

    def add(self, outer: Envelope) -> Envelope | None:
        """Take one part; the whole message when this part completed it, else None.

        Parameters
        ----------
        outer : Envelope
            Its body is a `Part`. The caller has checked its agent against the topic.

        Raises
        ------
        WireError
            The part cannot be right (``malformed``, ``oversize``), or the whole is not what was promised
            (``digest-mismatch``, ``malformed``). What was kept of this message is dropped.
        """
        part = outer.body
        if not isinstance(part, Part):
            raise TypeError(f"the assembler takes parts, not {part.kind}")
        key = (outer.agent, part.digest)
        try:
            return self._add(key, part, outer)
        except WireError:
            self._drop(key)
            raise

    def forget(self, agent: str) -> None:
        """Drop all open messages of an agent that has left."""
        for key in [key for key in self._open if key[0] == agent]:
            self._drop(key)

    def _add(self, key: tuple[str, str], part: Part, outer: Envelope) -> Envelope | None:
        if part.index >= part.count:
            raise WireError("malformed", f"part {part.index} of {part.count}")
        if not part.data:
            raise WireError("malformed", "an empty part")
        assembly = self._open.get(key)
        if assembly is None:
            self._make_room_for_sender(key[0])
            assembly = self._open[key] = _Assembly(part.count)
            self._cost += assembly.cost
        if part.count != assembly.count:
            raise WireError("malformed", "parts of one message disagree about their number")
        self._open.move_to_end(key)
        if part.index not in assembly.pieces:
            self._keep(assembly, part)
        if len(assembly.pieces) < assembly.count:
            return None
        packed = b"".join(assembly.pieces[index] for index in range(assembly.count))
        self._drop(key)
        if hashlib.sha256(packed).hexdigest() != part.digest:
            raise WireError("digest-mismatch", "the joined parts are not the message that was promised")
        content = unpack(packed, max_bytes=self._max_bytes)
        whole = Envelope.from_bytes(content, fleet=outer.fleet, max_bytes=self._max_bytes)
        if isinstance(whole.body, Part | Manifest):
            raise WireError("malformed", "parts within parts")
        if (whole.agent, whole.run) != (outer.agent, outer.run):
            raise WireError("malformed", "the message in the parts names another agent or run")
        return whole

    def _keep(self, assembly: _Assembly, part: Part) -> None:
        size = len(part.data) + _PART_OVERHEAD
        if assembly.cost + size > self._max_bytes + _PART_OVERHEAD * (assembly.count + 1):
            raise WireError("oversize", f"the parts exceed {self._max_bytes} bytes")
        assembly.pieces[part.index] = part.data
        assembly.cost += size
        self._cost += size
        while self._cost > self._total_bytes and len(self._open) > 1:
            self._drop(next(iter(self._open)))

    def _make_room_for_sender(self, agent: str) -> None:
        own = [key for key in self._open if key[0] == agent]
        for key in own[: max(0, len(own) - self._per_sender + 1)]:
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        assembly = self._open.pop(key, None)
        if assembly is not None:
            self._cost -= assembly.cost


@dataclass
class _Gathering:
    manifest: Manifest
    pieces: dict[int, bytes] = field(default_factory=dict)
    size: int = 0


class BlobStore:
    """Collects the blobs of manifests at the receiver.

    The order of use: `want` a manifest and subscribe to the filter that it returns; `add` every message that arrives on
    a blob topic; when `add` returns the content, unsubscribe from the filter. When it raises, or the manifest is no
    longer interesting, `close` it and unsubscribe. Subscribing again brings the retained blobs again.

    Parameters
    ----------
    topics : Topics
    max_bytes : int
        Largest request or model, packed and unpacked.
    max_open : int
        Manifests that may be open at once; the oldest gives way.
    """

    def __init__(self, topics: Topics, *, max_bytes: int = limits.MAX_DECODED_BYTES, max_open: int = 4) -> None:
        self._topics = topics
        self._max_bytes = max_bytes
        self._max_open = max_open
        self._open: OrderedDict[str, _Gathering] = OrderedDict()

    def want(self, manifest: Manifest) -> str:
        """Begin to collect (idempotent); the topic filter to subscribe to.

        Raises
        ------
        WireError
            ``oversize``: larger than ``max_bytes``.
        """
        if manifest.size > self._max_bytes:
            raise WireError("oversize", f"{manifest.size} bytes, at most {self._max_bytes} are accepted")
        if manifest.digest not in self._open or self._open[manifest.digest].manifest != manifest:
            self._open[manifest.digest] = _Gathering(manifest)
        self._open.move_to_end(manifest.digest)
        while len(self._open) > self._max_open:
            self._open.popitem(last=False)
        return self.filter(manifest.digest)

    def add(self, topic: str, payload: bytes) -> bytes | None:
        """Take a message from a blob topic; the unpacked content when it completed a manifest, else None.

        Blobs that nobody wants (any more), duplicates and empty ones (cleared by the coordinator) are None too: brokers
        deliver them in good faith.

        Raises
        ------
        WireError
            ``oversize``, ``digest-mismatch``, ``malformed`` (also: not a blob topic). The manifest is closed.
        """
        address = self._topics.parse(topic)
        if address.kind != "blob":
            raise WireError("unknown-topic", "not a blob topic")
        gathering = self._open.get(address.digest)
        if gathering is None or not payload or address.number in gathering.pieces:
            return None
        manifest = gathering.manifest
        if address.number >= manifest.count:
            return None
        if gathering.size + len(payload) > manifest.size:
            self.close(address.digest)
            raise WireError("oversize", "the blobs are larger than their manifest says")
        gathering.pieces[address.number] = payload
        gathering.size += len(payload)
        if len(gathering.pieces) < manifest.count:
            return None
        self.close(address.digest)
        packed = b"".join(gathering.pieces[index] for index in range(manifest.count))
        if len(packed) != manifest.size or hashlib.sha256(packed).hexdigest() != manifest.digest:
            raise WireError("digest-mismatch", "the blobs are not what the manifest promised")
        return unpack(packed, max_bytes=self._max_bytes)

    def missing(self, digest: str) -> list[str]:
        """Topics of the blobs that have not arrived; empty when the manifest is not open."""
        gathering = self._open.get(digest)
        if gathering is None:
            return []
        absent = (index for index in range(gathering.manifest.count) if index not in gathering.pieces)
        return [self._topics.blob(digest, index) for index in absent]

    def filter(self, digest: str) -> str:
        """Topic filter over all blobs of a digest, for subscribe and unsubscribe."""
        return self._topics.blobs(digest)

    def close(self, digest: str) -> None:
        """Forget a manifest (idempotent)."""
        self._open.pop(digest, None)

    @property
    def open_digests(self) -> tuple[str, ...]:
        """Manifests that wait for blobs, oldest first."""
        return tuple(self._open)


def _checked(limit: int) -> int:
    if limit < limits.MIN_MESSAGE_BYTES:
        raise UsageError(
            f"max_message_bytes is {limit}; at least {limits.MIN_MESSAGE_BYTES} are needed for an envelope"
        )
    return limit


def _packed_for_wire(whole: bytes, *, compress: bool) -> bytes:
    if len(whole) > limits.MAX_DECODED_BYTES:
        raise BrokerError(
            f"a message of {len(whole)} bytes cannot be sent: receivers accept at most {limits.MAX_DECODED_BYTES}. "
            "Use fewer features, bins or sets"
        )
    return pack(whole, compress=compress)


def _cut(packed: bytes, room: int, limit: int) -> list[bytes]:
    pieces = [packed[start : start + room] for start in range(0, len(packed), room)]
    if len(pieces) > limits.MAX_PARTS:
        raise BrokerError(
            f"a message of {len(packed)} bytes needs {len(pieces)} parts of {limit} bytes, at most {limits.MAX_PARTS} "
            "are allowed: raise max_message_bytes"
        )
    return pieces


def _around(envelope: Envelope, body: Part | Manifest) -> bytes:
    """Encode `body` with the head of `envelope`. The signature stays with the whole message, inside."""
    return Envelope(
        fleet=envelope.fleet,
        body=body,
        run=envelope.run,
        agent=envelope.agent,
        scheme=envelope.scheme,
        round=envelope.round,
        attempt=envelope.attempt,
        time=envelope.time,
    ).to_bytes()


def _retained(
    head: Envelope,
    topic: str,
    whole: bytes,
    what: Literal["request", "model"],
    topics: Topics,
    *,
    limit: int,
    compress: bool,
) -> Retained:
    if len(whole) <= _checked(limit):
        return Retained((Frame(topic, whole),))
    packed = _packed_for_wire(whole, compress=compress)
    digest = hashlib.sha256(packed).hexdigest()
    pieces = _cut(packed, limit, limit)
    blobs = tuple(topics.blob(digest, index) for index in range(len(pieces)))
    pointer = _around(head, Manifest(digest=digest, count=len(pieces), size=len(packed), what=what))
    frames = [Frame(blob, piece) for blob, piece in zip(blobs, pieces, strict=True)]
    return Retained((*frames, Frame(topic, pointer)), blobs)
