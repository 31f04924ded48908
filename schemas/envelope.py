"""The envelope around every msgpack message."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schemas import codec, limits
from schemas.codec import Value
from schemas.errors import WireError
from schemas.messages import Body, parse_body
from schemas.topics import PROTOCOL

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
            body=parse_body(kind, body),
            run=value.get("run", ""),
            agent=value.get("agent", ""),
            scheme=_text(value, "scheme", 64),
            round=_count(value, "round"),
            attempt=_count(value, "attempt"),
            time=float(time),
            signature=signature,
        )


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
