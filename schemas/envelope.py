"""The envelope around every msgpack message, and messages too large for one MQTT payload: cut by the sender.

`schemas.trust.joining` joins what is cut. Two ways, because the two directions differ:

- A contribution is sent once, to one receiver. It travels as `Part` envelopes on its own topic, numbered, each with the
  digest of the whole. `frames_for_contribution` cuts, ``schemas.trust.joining.Assembler`` joins.
- A request or a model is retained, for receivers that may come later. Its bytes are retained raw on
  ``blob/{digest}/{index}`` and its own topic holds a `Manifest` that names them. ``frames_for_request`` and
  ``frames_for_model`` cut, ``schemas.trust.joining.BlobStore`` gathers, `open_request` and `read_model` check what came
  out.

What is cut is the *packed* form: one marker byte, 0 (plain) or 1 (zlib, RFC 1950), then the content. The digest is the
SHA-256 of the packed bytes, so nothing is decompressed before it is verified, and the decompressed size is capped. The
packed form travels in parts and blobs only: a message that fits one payload is the plain envelope. Memory is bounded
everywhere, and a peer's fault is a WireError with its reason.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeVar

from pydantic import ValidationError

from schemas import codec, limits
from schemas.codec import Value
from schemas.errors import BrokerError, UsageError, WireError
from schemas.messages import BODIES, Body, Manifest, Part, Request
from schemas.text import first_fault
from schemas.topics import PROTOCOL, Topics

B = TypeVar("B", bound=Body)
_ID = re.compile(limits.ID_PATTERN)
_FIELDS = frozenset({"v", "kind", "fleet", "run", "round", "attempt", "agent", "time", "scheme", "body", "signature"})


@dataclass(frozen=True)
class Envelope:
    """One message.

    Attributes
    ----------
    body : Body
        Its kind is the message's kind.
    run, agent, scheme : str
        Empty where the kind has none.
    round, attempt : int
        Informative; a contribution is identified by run, agent and task digest.
    time : float
        Sender's clock, seconds since the epoch. Informative: nothing is decided by it.
    signature : bytes
        The seal, see ``schemas.trust.signing``; empty when messages are not signed, and always when they are made.
    """

    fleet: str
    body: Body
    run: str = ""
    agent: str = ""
    scheme: str = ""
    round: int = 0
    attempt: int = 0
    time: float = 0.0
    signature: bytes = b""

    def to_bytes(self) -> bytes:
        """Encode for the wire."""
        value: dict[str, Value] = {
            "v": PROTOCOL,
            "kind": self.body.kind,
            "fleet": self.fleet,
            "run": self.run,
            "round": self.round,
            "attempt": self.attempt,
            "agent": self.agent,
            "time": self.time,
            "scheme": self.scheme,
            "body": self.body.model_dump(),
            "signature": self.signature,
        }
        return codec.encode(value)

    @classmethod
    def from_bytes(cls, data: bytes, *, fleet: str, max_bytes: int = limits.MAX_DECODED_BYTES) -> Envelope:
        """Decode and check a message from the wire.

        Raises
        ------
        WireError
            ``oversize``, ``malformed``, ``unknown-version``, ``unknown-kind`` or ``foreign-fleet``. No other
            exception leaves this function, whatever the bytes.
        """
        value = codec.decode(data, max_bytes=max_bytes)
        if not isinstance(value, dict):
            raise WireError("malformed", "a message is a map")
        version = value.get("v")
        if isinstance(version, bool) or not isinstance(version, int):
            raise WireError("malformed", "the protocol version is missing")
        if version != PROTOCOL:
            raise WireError("unknown-version", f"protocol {version}; this software speaks {PROTOCOL}")
        unknown = set(value) - _FIELDS
        if unknown:
            raise WireError("malformed", f"unknown field {min(unknown)[:40]!r}")
        kind = _text(value, "kind", 40)
        if _text(value, "fleet", 64) != fleet:
            raise WireError("foreign-fleet", "the message belongs to another fleet")
        for name in ("run", "agent"):
            text = _text(value, name, 64)
            if text and _ID.fullmatch(text) is None:
                raise WireError("malformed", f"{name} is not a valid id")
        time = value.get("time", 0.0)
        if isinstance(time, bool) or not isinstance(time, int | float):
            raise WireError("malformed", "time is not a number")
        body = value.get("body")
        signature = value.get("signature", b"")
        if not isinstance(body, dict) or not isinstance(signature, bytes) or len(signature) > limits.MAX_SEAL_BYTES:
            raise WireError("malformed", "body or signature has the wrong type")
        return cls(
            fleet=fleet,
            body=checked(_body_of(kind), body),
            run=value.get("run", ""),
            agent=value.get("agent", ""),
            scheme=_text(value, "scheme", 64),
            round=_count(value, "round"),
            attempt=_count(value, "attempt"),
            time=float(time),
            signature=signature,
        )


def _body_of(kind: str) -> type[Body]:
    body = BODIES.get(kind)
    if body is None:
        raise WireError("unknown-kind", f"this protocol version has no message kind {kind[:40]!r}")
    return body


def checked(body: type[B], value: Value) -> B:
    """Return `value` as a body; raises WireError ``malformed``."""
    try:
        return body.model_validate(value)
    except ValidationError as fault:
        raise WireError("malformed", f"{body.kind}.{first_fault(fault)}"[:400]) from fault


def _text(value: dict[str, Value], name: str, longest: int) -> str:
    text = value.get(name, "")
    if not isinstance(text, str) or len(text) > longest:
        raise WireError("malformed", f"{name} is not a text of at most {longest} characters")
    return text


def _count(value: dict[str, Value], name: str) -> int:
    count = value.get(name, 0)
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < 2**31:
        raise WireError("malformed", f"{name} is not a count")
    return count


PLAIN, ZLIB = 0, 1
"""Marker bytes of the packed form."""


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
        To be published retained and in this order: the message that names the blobs first. To be cleared in the
        opposite order. So whoever dies in between, and whatever a broker goes back to, no blob is retained that
        nothing names.
    blobs : tuple of str
        Blob topics among them (none for a small message).
    """

    frames: tuple[Frame, ...]
    blobs: tuple[str, ...] = ()

    def __add__(self, other: Retained) -> Retained:
        """Return both, `other` last."""
        return Retained(self.frames + other.frames, self.blobs + other.blobs)


def pack(content: bytes) -> bytes:
    """Marker byte and content, compressed only when that shrinks it."""
    small = zlib.compress(content, 6)
    return bytes([ZLIB]) + small if len(small) < len(content) else bytes([PLAIN]) + content


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


def frames_for_contribution(envelope: Envelope, topics: Topics, limit: int = limits.MAX_MESSAGE_BYTES) -> list[Frame]:
    """Cut an agent's answer (or refusal) into payloads of at most `limit` bytes, all for its contribution topic.

    Raises
    ------
    UsageError
        `limit` is below ``MIN_MESSAGE_BYTES`` less the longest seal, or the envelope names no agent or run.
    BrokerError
        The answer needs more than ``MAX_PARTS`` messages, or is larger than any receiver accepts.
    """
    if not envelope.agent or not envelope.run:
        raise UsageError("a contribution's envelope must name its agent and run")
    topic = topics.contribution(envelope.agent)
    whole = envelope.to_bytes()
    if len(whole) <= _checked(limit):
        return [Frame(topic, whole)]
    packed = _packed_for_wire(whole)
    digest = hashlib.sha256(packed).hexdigest()

    def frame(index: int, count: int, data: bytes) -> bytes:
        return _around(envelope, Part(digest=digest, index=index, count=count, data=data))

    room = limit - len(frame(limits.MAX_PARTS, limits.MAX_PARTS, b"")) - _HEADER_ROOM
    pieces = _cut(packed, room, limit)
    return [Frame(topic, frame(index, len(pieces), piece)) for index, piece in enumerate(pieces)]


def frames_for_request(envelope: Envelope, topics: Topics, limit: int = limits.MAX_MESSAGE_BYTES) -> Retained:
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
    return _retained(envelope, topics.request(envelope.run), envelope.to_bytes(), "request", topics, limit)


def frames_for_blobs(packed: bytes, topics: Topics, limit: int) -> Retained:
    """Cut what is packed, to be published after what names it; raises BrokerError."""
    digest, pieces = hashlib.sha256(packed).hexdigest(), _cut(packed, limit, limit)
    names = tuple(topics.blob(digest, index) for index in range(len(pieces)))
    return Retained(tuple(map(Frame, names, pieces)), names)


def named_blobs(body: Body, topics: Topics) -> tuple[str, ...]:
    """Return the topics of all blobs that a request, or the manifest of one, names."""
    if not isinstance(body, Request | Manifest) or (isinstance(body, Manifest) and body.what != "request"):
        return ()
    manifests = [] if body.rosters is None else body.rosters.manifests()
    manifests += [body] if isinstance(body, Manifest) else []
    return tuple(topics.blob(each.digest, index) for each in manifests for index in range(each.count))


def frames_for_model(
    record: bytes, topics: Topics, name: str, version: int, limit: int = limits.MAX_MESSAGE_BYTES
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
    return _retained(pointer, topics.model_version(name, version), record, "model", topics, limit)


def frames_for_crl(crl: bytes, topics: Topics, limit: int) -> Retained:
    """Cut a revocation list (PEM) into retained payloads of at most `limit` bytes; raises as `frames_for_model`."""
    head = Envelope(fleet=topics.fleet, body=Manifest(digest="0" * 64, count=1, size=0, what="revoked"))
    return _retained(head, topics.revoked(), crl, "revoked", topics, limit)


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


def open_request(outer: Envelope, content: bytes) -> Envelope:
    """Decode a request that a manifest stood in for, and check that it belongs to the manifest's envelope.

    Parameters
    ----------
    outer : Envelope
        The envelope of the manifest.
    content : bytes
        What ``BlobStore.add`` returned for it.

    Raises
    ------
    WireError
        Not a request, or one of another run, round or attempt.
    """
    inner = Envelope.from_bytes(content, fleet=outer.fleet)
    if not isinstance(inner.body, Request):
        raise WireError("malformed", f"the manifest promised a request, its blobs hold a {inner.body.kind}")
    if (inner.run, inner.round, inner.attempt) != (outer.run, outer.round, outer.attempt):
        raise WireError("malformed", "the request in the blobs is not the one that the manifest names")
    return inner


def _checked(limit: int) -> int:
    # What can be configured is for whole messages; in a fleet that signs, the seal has been taken off here.
    needed = limits.MIN_MESSAGE_BYTES - limits.MAX_SEAL_BYTES
    if limit < needed:
        raise UsageError(
            f"max_message_bytes leaves {limit} bytes, at least {needed} are needed for an envelope: raise it to "
            f"{limits.MIN_MESSAGE_BYTES} or more, here and at the broker"
        )
    return limit


def _packed_for_wire(whole: bytes) -> bytes:
    if len(whole) > limits.MAX_DECODED_BYTES:
        raise BrokerError(
            f"a message of {len(whole)} bytes cannot be sent: receivers accept at most {limits.MAX_DECODED_BYTES}. "
            "Use fewer features, bins or sets"
        )
    return pack(whole)


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
    return replace(envelope, body=body, signature=b"").to_bytes()


def _retained(  # noqa: PLR0917 - what the functions above hand on
    head: Envelope, topic: str, whole: bytes, what: Literal["request", "model", "revoked"], topics: Topics, limit: int
) -> Retained:
    if len(whole) <= _checked(limit):
        return Retained((Frame(topic, whole),))
    packed = _packed_for_wire(whole)
    digest, blobs = hashlib.sha256(packed).hexdigest(), frames_for_blobs(packed, topics, limit)
    rosters = head.body.rosters if isinstance(head.body, Request) else None
    manifest = Manifest(digest=digest, count=len(blobs.blobs), size=len(packed), what=what, rosters=rosters)
    pointer = _around(head, manifest)
    if len(pointer) > limit:
        raise BrokerError(f"the request names too many groups for messages of {limit} bytes: raise max_message_bytes")
    return Retained((Frame(topic, pointer), *blobs.frames), blobs.blobs)
