"""What an authority keeps about what it issued: one file, replaced whole, changed by one process at a time.

Which certificates are good follows from it: what a renewal replaces, how many there may be, what is revoked.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from coordinator.authority.certificates import Revoked
from schemas.errors import StorageError, WireError, os_faults_as
from schemas.private_files import make_folders, replace_private
from schemas.trust.owner import Owner, Role

REGISTER_FILE = "register.json"
ISSUED = "issued"

RENEWALS = 8
"""Certificates of one enrolment that have not expired, at most: then it may renew when the oldest ends."""

LISTED_AFTER = dt.timedelta(days=1)
"""A revoked certificate stays on the list so long after its end: clocks differ."""

REASONS = {
    "unspecified": x509.ReasonFlags.unspecified,
    "stolen": x509.ReasonFlags.key_compromise,
    "replaced": x509.ReasonFlags.superseded,
    "retired": x509.ReasonFlags.cessation_of_operation,
}
"""Why a certificate is revoked, and RFC 5280's word for it."""


@dataclass(frozen=True)
class Issued:
    """A certificate as the register knows it.

    Attributes
    ----------
    serial : str
        Hex digits.
    key : str
        SHA-256 of the public key.
    begins, ends : str
        ISO 8601, UTC.
    revoked : str or None
        When, ISO 8601; None: it is not.
    after : str
        Serial number of the certificate that it renewed; empty: none.
    """

    serial: str
    role: Role
    id: str
    key: str
    begins: str
    ends: str
    hosts: list[str]
    revoked: str | None = None
    reason: str = ""
    after: str = ""

    def is_good(self, now: dt.datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked is None and now < dt.datetime.fromisoformat(self.ends)

    def state(self, now: dt.datetime) -> str:
        """Return ``valid``, ``expired`` or ``revoked (reason)``."""
        if self.revoked is not None:
            return f"revoked ({self.reason})"
        return "valid" if self.is_good(now) else "expired"


@dataclass(frozen=True)
class OpenToken:
    """A token that was handed out.

    Attributes
    ----------
    digest : str
        SHA-256 of its secret.
    ends : str
        ISO 8601, UTC.
    key : str
        SHA-256 of the public key that used it: an answer that was lost on the way can be asked for again, by the same
        key and nobody else. Empty: not used yet.
    serial : str
        What it was used for.
    """

    digest: str
    agent: str
    ends: str
    key: str = ""
    serial: str = ""


@dataclass(frozen=True)
class Register:
    """Every certificate issued, every open token, and the number of the newest revocation list."""

    issued: list[Issued]
    tokens: list[OpenToken]
    crl_number: int = 0


class RegisterFolder:
    """The register and the certificates in an authority's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._last: tuple[tuple[int, int, int], Register] | None = None

    def path_of(self, serial: str) -> Path:
        """Return where a certificate is stored."""
        return self.folder / ISSUED / f"{serial}.pem"

    def keep(self, certificate: x509.Certificate) -> None:
        """Store a certificate, before the register names it."""
        path = self.path_of(f"{certificate.serial_number:x}")
        with explained(path.parent):
            make_folders(path.parent)
            replace_private(path, certificate.public_bytes(Encoding.PEM))

    def kept(self, serial: str) -> bytes:
        """Return a stored certificate as PEM. Raises StorageError when it is gone."""
        path = self.path_of(serial)
        with os_faults_as(StorageError, f"cannot read the certificate {path}", "; restore it from a backup"):
            return path.read_bytes()

    def read(self) -> Register:
        """Return the register. Raises StorageError when it is damaged or gone."""
        path = self.folder / REGISTER_FILE
        try:
            status = path.stat()
            # Read again only when it was replaced: else each wrong token, from anybody, costs the whole fleet's list.
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if self._last is None or self._last[0] != stamp:
                content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
                register = Register(
                    [Issued(**one) for one in content["issued"]],
                    [OpenToken(**one) for one in content["tokens"]],
                    content["crl_number"],
                )
                self._last = (stamp, register)
            return self._last[1]
        except FileNotFoundError:
            raise StorageError(f"{path} is gone: restore it from a backup; without it nothing can be revoked") from None
        except (ValueError, LookupError, TypeError) as fault:
            raise StorageError(f"{path} cannot be read ({fault}): restore it from a backup") from fault
        except OSError as fault:
            raise StorageError(f"cannot read {path}: {fault.strerror}") from fault

    def write(self, register: Register) -> None:
        """Replace the register."""
        content = {
            "crl_number": register.crl_number,
            "issued": [asdict(one) for one in register.issued],
            "tokens": [asdict(one) for one in register.tokens],
        }
        with explained(self.folder):
            replace_private(self.folder / REGISTER_FILE, (json.dumps(content, indent=1) + "\n").encode())

    @contextlib.contextmanager
    def changing(self) -> Iterator[Register]:
        """Hold the lock, and give the register as it is then."""
        with explained(self.folder):
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "r+b") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield self.read()


def explained(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Turn an OSError into a StorageError that names the folder."""
    return os_faults_as(StorageError, f"cannot use the authority's folder {folder}")


def renewed_before(register: Register, present: Issued, key: str, now: dt.datetime) -> Issued | None:
    """Return the good certificate, for this key (its SHA-256), that renewed the present one already; None: none did."""
    return next(
        (one for one in register.issued if one.after == present.serial and one.key == key and one.is_good(now)), None
    )


def check_most(register: Register, present: Issued, most: int, now: dt.datetime) -> None:
    """Raise WireError (``too-many``) when an owner has so many certificates of this authority that have not expired.

    Counted are those that were renewed, one after the other, from the one that the present one comes from: whoever is
    given another (after a theft, by a new token) begins anew. Those that were replaced count, as each is on the list.
    """
    owner = Owner(present.role, present.id)
    first: dict[str, str] = {}
    for one in register.issued:  # in the order of issue
        first[one.serial] = first.get(one.after, one.serial)
    same = (one for one in register.issued if first[one.serial] == first[present.serial])
    running = sorted(end for one in same if now < (end := dt.datetime.fromisoformat(one.ends)))
    if len(running) >= most:
        raise WireError(
            "too-many",
            f"{owner} has {len(running)} certificates that have not expired, and may have {most}: use the present one, "
            f"and renew it from {running[-most]:%Y-%m-%d %H:%M} UTC on",
        )


def after_renewal(register: Register, present: Issued, added: Issued, now: dt.datetime) -> Register:
    """Return the register with a new certificate; of an agent, all are revoked but that and the one it renews.

    Nobody else's are: what a coordinator signed would not be believed any more.
    """

    def after(one: Issued) -> Issued:
        if one.role != "agent" or one.id != present.id or one == present or not one.is_good(now):
            return one
        return replace(one, revoked=now.isoformat(), reason="replaced")

    issued = [after(one) for one in register.issued]
    return replace(register, issued=[*issued, replace(added, after=present.serial)])


def listed(register: Register, now: dt.datetime) -> list[Revoked]:
    """Return what the revocation list holds: what was revoked and has not expired.

    A coordinator's for ever, as who has its key can date a model back.
    """
    return [
        Revoked(int(one.serial, 16), dt.datetime.fromisoformat(one.revoked), REASONS[one.reason])
        for one in register.issued
        if one.revoked is not None
        and (one.role == "coordinator" or now < dt.datetime.fromisoformat(one.ends) + LISTED_AFTER)
    ]
