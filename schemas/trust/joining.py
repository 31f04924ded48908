"""Joining what `schemas.envelope` cut: contributions from parts, requests and models from retained blobs.

Nothing is decompressed before its digest is verified. Memory is bounded everywhere, and a peer's fault is a WireError
with its reason.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field

from schemas import limits
from schemas.envelope import Envelope, unpack
from schemas.errors import WireError
from schemas.messages import Manifest, Part
from schemas.topics import Topics

_PART_OVERHEAD = 160
"""Bytes that one kept part costs beside its data (dict slot, key, bytes header): tiny parts must not be free."""

_MESSAGE_OVERHEAD = 640
"""The same of a message that waits for its parts (key with agent and digest, dict, place in the table)."""


@dataclass
class _Assembly:
    count: int
    pieces: dict[int, bytes] = field(default_factory=dict)
    cost: int = _MESSAGE_OVERHEAD


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
        if assembly.cost + size > self._max_bytes + _PART_OVERHEAD * assembly.count + _MESSAGE_OVERHEAD:
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

    The order of use: `want` a manifest and subscribe to its blobs; `add` every message that arrives on a blob topic;
    when `add` returns the content, unsubscribe. When it raises, or the manifest is no longer interesting, `close` it
    and unsubscribe. Subscribing again brings the retained blobs again.

    Parameters
    ----------
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
        """Begin to collect (idempotent); the topic filter over all of its blobs.

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
        return self._topics.blobs(manifest.digest)

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

    def close(self, digest: str) -> None:
        """Forget a manifest (idempotent)."""
        self._open.pop(digest, None)

    @property
    def open_digests(self) -> tuple[str, ...]:
        """Manifests that wait for blobs, oldest first."""
        return tuple(self._open)
