"""What an authority keeps about what it issued: one file, replaced whole, changed by one process at a time."""

from __future__ import annotations

import contextlib
import datetime as dt
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from schemas.errors import StorageError
from schemas.private_files import make_folders, replace_private
from schemas.trust.owner import Role

REGISTER_FILE = "register.json"
ISSUED = "issued"


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
    former : bool
        Whether the authority before this one issued it, see `succession.read_former`.
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
    former: bool = False
    after: str = ""

    def is_good(self, now: dt.datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked is None and now < dt.datetime.fromisoformat(self.ends)

    def state(self, now: dt.datetime) -> str:
        """Return ``valid``, ``valid (former CA)``, ``expired`` or ``revoked (reason)``."""
        if self.revoked is not None:
            return f"revoked ({self.reason})"
        if not self.is_good(now):
            return "expired"
        return "valid (former CA)" if self.former else "valid"


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

    @property
    def is_there(self) -> bool:
        """Whether the folder has a register, or what shows that it had one."""
        return (self.folder / REGISTER_FILE).exists() or (self.folder / ISSUED).exists()

    def path_of(self, serial: str) -> Path:
        """Return where a certificate is stored."""
        return self.folder / ISSUED / f"{serial}.pem"

    def keep(self, certificate: x509.Certificate) -> None:
        """Store a certificate, before the register names it."""
        self.put(f"{certificate.serial_number:x}", certificate.public_bytes(Encoding.PEM))

    def put(self, serial: str, certificate_pem: bytes) -> None:
        """Store a certificate as it stands."""
        path = self.path_of(serial)
        with explained(path.parent):
            make_folders(path.parent)
            replace_private(path, certificate_pem)

    def kept(self, serial: str) -> bytes:
        """Return a stored certificate as PEM. Raises StorageError when it is gone."""
        path = self.path_of(serial)
        try:
            return path.read_bytes()
        except OSError as fault:
            raise StorageError(
                f"cannot read the certificate {path}: {fault.strerror}; restore it from a backup"
            ) from fault

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


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the folder."""
    try:
        yield
    except OSError as fault:
        raise StorageError(f"cannot use the authority's folder {folder}: {fault.strerror}") from fault
