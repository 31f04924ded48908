"""Records that cannot be changed unseen: each carries the SHA-256 of the one before it. Pure.

A record is one line of canonical JSON (RFC 8785) with, among others:

- ``n``: its number, from 1, without gaps,
- ``previous``: the hash of record ``n - 1``, 64 zeros for the first,
- ``hash``: SHA-256 of the canonical JSON of the record without ``hash``.

A changed record has another hash; a removed, added or reordered one breaks ``n`` or ``previous``. What a chain alone
cannot show is that its end or its beginning was cut off, or that all of it was written anew. That is what the *head*
is for: which records are kept, and the hash of the last, with an HMAC under the vehicle's secret.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from schemas.documents import canonical_json
from schemas.errors import DocumentError, VerificationError

ORIGIN = "0" * 64
"""What the first record says of the one before it."""


@dataclass(frozen=True)
class Head:
    """Where a log begins and ends.

    Attributes
    ----------
    first : int
        Number of the oldest record that is kept; older ones gave way.
    before : str
        Hash of the record before it.
    n : int
        Number of the newest record; ``first - 1`` when there is none.
    hash : str
        Its hash.
    """

    first: int = 1
    before: str = ORIGIN
    n: int = 0
    hash: str = ORIGIN

    def to_bytes(self, secret: bytes) -> bytes:
        """Encode, with an HMAC-SHA256 under `secret`."""
        return canonical_json({**asdict(self), "mac": self._mac(secret)}) + b"\n"

    def _mac(self, secret: bytes) -> str:
        content = b"glassfleet forecast log 1\0" + canonical_json(asdict(self))
        return hmac.new(secret, content, hashlib.sha256).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes, secret: bytes | None) -> Head:
        """Decode; with `secret` None the HMAC is not looked at.

        Raises
        ------
        VerificationError
            It is damaged, or was not written by the holder of `secret`.
        """
        try:
            value = json.loads(data)
            mac = value.pop("mac")
            head = cls(**value)
            well = all(isinstance(number, int) for number in (head.first, head.n)) and all(
                isinstance(text, str) for text in (head.before, head.hash, mac)
            )
        except (ValueError, TypeError, KeyError, AttributeError) as fault:
            raise VerificationError("the log's head is damaged") from fault
        if not well or (secret is not None and not hmac.compare_digest(mac, head._mac(secret))):
            raise VerificationError("the log's head was not written by this vehicle")
        return head


def seal(record: Mapping[str, Any], n: int, previous: str) -> tuple[bytes, str]:
    """Return a record's line and its hash.

    Raises
    ------
    DocumentError
        It holds what JSON cannot.
    """
    body = {**record, "n": n, "previous": previous}
    digest = hashlib.sha256(canonical_json(body)).hexdigest()
    return canonical_json({**body, "hash": digest}) + b"\n", digest


def unseal(line: bytes, where: str) -> dict[str, Any]:
    """Return a line's record, its own hash verified.

    Raises
    ------
    VerificationError
        The line was changed; `where` is told.
    """
    try:
        record = json.loads(line)
        body = {name: value for name, value in record.items() if name != "hash"}
        whole = (
            isinstance(body["n"], int)
            and isinstance(body["previous"], str)
            and hashlib.sha256(canonical_json(body)).hexdigest() == record["hash"]
            and canonical_json(record) + b"\n" == line
        )
    except (ValueError, KeyError, AttributeError, TypeError, DocumentError) as fault:
        raise VerificationError(f"{where} is no record of a forecast log") from fault
    if not whole:
        raise VerificationError(f"{where} was changed after it was written")
    return dict(record)
