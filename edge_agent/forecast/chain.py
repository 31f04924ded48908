"""Records that cannot be changed unseen: each carries the SHA-256 of the one before it. Pure.

A record is one line of canonical JSON (RFC 8785) with, among others:

- ``n``: its number, from 1, without gaps,
- ``previous``: the hash of record ``n - 1``, 64 zeros for the first,
- ``hash``: SHA-256 of the canonical JSON of the record without ``hash`` and ``mac``,
- ``mac``: HMAC-SHA256 of ``hash`` under the vehicle's secret.

A changed record has another hash; a removed, added or reordered one breaks ``n`` or ``previous``; what was written
without the secret has another ``mac``. That the end or the beginning was cut off is shown by the *head*: which records
are kept, and the hash of the last, with an HMAC, too. An old copy of it all is whole. Only a witness shows that there
was more: somebody who has seen a later head.
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
from schemas.messages import LogHead

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

    def log_head(self) -> LogHead | None:
        """Return what a witness is told; None: there is no record yet."""
        return LogHead(n=self.n, hash=self.hash) if self.n else None

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
            is_ours = well and (secret is None or hmac.compare_digest(mac.encode(), head._mac(secret).encode()))
        except (ValueError, TypeError, KeyError, AttributeError, DocumentError, RecursionError) as fault:
            raise VerificationError("the log's head is damaged") from fault
        if not is_ours:
            raise VerificationError("the log's head was not written by this vehicle")
        return head


def _record_mac(digest: str, secret: bytes) -> str:
    return hmac.new(secret, b"glassfleet forecast record 1\0" + digest.encode(), hashlib.sha256).hexdigest()


def seal(record: Mapping[str, Any], n: int, previous: str, secret: bytes) -> tuple[bytes, str]:
    """Return a record's line and its hash.

    Raises
    ------
    DocumentError
        It holds what JSON cannot.
    """
    body = {**record, "n": n, "previous": previous}
    digest = hashlib.sha256(canonical_json(body)).hexdigest()
    return canonical_json({**body, "hash": digest, "mac": _record_mac(digest, secret)}) + b"\n", digest


def unseal(line: bytes, where: str, secret: bytes | None) -> dict[str, Any]:
    """Return a line's record, its own hash verified, and its HMAC; with `secret` None that is not looked at.

    Raises
    ------
    VerificationError
        The line was changed, or was not written by the holder of `secret`; `where` is told.
    """
    try:
        record = json.loads(line)
        body = {name: value for name, value in record.items() if name not in ("hash", "mac")}
        whole = (
            isinstance(body["n"], int)
            and isinstance(body["previous"], str)
            and isinstance(record["mac"], str)
            and hashlib.sha256(canonical_json(body)).hexdigest() == record["hash"]
            and canonical_json(record) + b"\n" == line
        )
    except (ValueError, KeyError, AttributeError, TypeError, DocumentError, RecursionError) as fault:
        raise VerificationError(f"{where} is no record of a forecast log") from fault
    if not whole:
        raise VerificationError(f"{where} was changed after it was written")
    if secret is not None and not hmac.compare_digest(
        record["mac"].encode(), _record_mac(record["hash"], secret).encode()
    ):
        raise VerificationError(f"{where} was not written by this vehicle: its HMAC is not of the vehicle's secret")
    return dict(record)
