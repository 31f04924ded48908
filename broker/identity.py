"""An identity folder, read and written: whose it is, and until when. `broker.tls` makes connections from it.

Apart from that module as this one needs the cryptography, which a process that does not sign never loads.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

from cryptography import x509

from broker.tls import CA, CERT, CRL, KEY, LOOKS, NEXT, tls_of
from schemas.errors import StorageError, UsageError, WireError, os_faults_as
from schemas.private_files import make_folders, replace_private
from schemas.trust.certificates import UNREADABLE, owner_of
from schemas.trust.identity import load_key, new_key
from schemas.trust.owner import Owner, Role


@contextmanager
def alone_in(folder: Path, wait: float = math.inf) -> Iterator[None]:
    """Wait until nobody else is in the folder, and keep others out meanwhile; not to be entered twice by one.

    The kernel lets the next one in when a process ends, however it ends. Where a folder cannot be locked, or is none,
    nobody waits.

    Parameters
    ----------
    wait : float
        Seconds after which one goes on though somebody else is there (suspended, or on a disk that hangs): what a
        running process does besides matters more than what may be lost.
    """
    descriptor = -1
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        _lock(descriptor, monotonic() + wait)
    try:
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _lock(descriptor: int, until: float) -> None:
    if math.isinf(until):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= until:
                return
            sleep(0.05)
        else:
            return


SOON = dt.timedelta(days=30)
"""A certificate that ends within it should be renewed."""


@dataclass(frozen=True)
class Identity:
    """An identity folder, read.

    Attributes
    ----------
    owner : Owner
        Whom the certificate names.
    key, certificate, ca : bytes
        PEM; the key is the certificate's.
    crl : bytes
        PEM; empty: there is none.
    begins, ends : datetime
        Of the certificate, UTC.
    """

    folder: Path
    owner: Owner
    key: bytes
    certificate: bytes
    ca: bytes
    crl: bytes
    begins: dt.datetime
    ends: dt.datetime


def load_identity(folder: Path) -> Identity:
    """Read an identity folder.

    Raises
    ------
    UsageError
        A file is missing or unreadable, key and certificate do not belong together, or it names nobody.
    """
    tls_of(folder)
    with os_faults_as(UsageError, f"cannot read the identity in {folder}"):
        ca = (folder / CA).read_bytes()
        crl = (folder / CRL).read_bytes() if (folder / CRL).exists() else b""
    for name in LOOKS:
        key = _next_key(folder) if name == NEXT else _read(folder, KEY)
        certificate = _read(folder, CERT)
        try:
            parsed = x509.load_pem_x509_certificate(certificate)
            owner = owner_of(parsed)
        except (*UNREADABLE, WireError) as fault:
            raise UsageError(f"{folder / CERT} is no certificate of a fleet: {fault}") from fault
        if key and parsed.public_key() == load_key(key).public_key():
            begins, ends = parsed.not_valid_before_utc, parsed.not_valid_after_utc
            return Identity(folder, owner, key, certificate, ca, crl, begins, ends)
    raise UsageError(f"{folder / CERT} was made for another key than {folder / KEY}: enrol again")


def _read(folder: Path, name: str) -> bytes:
    with os_faults_as(UsageError, f"cannot read the identity in {folder}"):
        return (folder / name).read_bytes()


def check_owner(folder: Path, role: Role, name: str | None = None) -> Identity:
    """Read the identity of a process and check that it is its own.

    Raises
    ------
    UsageError
        As `load_identity`, or it is another's: the broker would refuse every message, one by one and silently.
    """
    identity = load_identity(folder)
    if identity.owner.role != role or name not in (None, identity.owner.id):
        wanted = role if name is None else f"{role} {name}"
        raise UsageError(
            f"--identity {folder} is {identity.owner}'s, and this process is {wanted}: name the right folder or id"
        )
    return identity


def save_identity(folder: Path, *, key: bytes | None = None, **files: bytes) -> None:
    """Write parts of an identity (``certificate``, ``ca``, ``crl``, ``key``), for their owner alone, each whole or not.

    A key that comes with its certificate is there before it, and takes the former's place after it: whenever this
    process is killed, the folder has a pair.

    Raises
    ------
    StorageError
        The folder cannot be written.
    """
    names = {"certificate": CERT, "ca": CA, "crl": CRL}
    contents = {names[name]: content for name, content in files.items() if content}
    if key is not None:
        contents = {NEXT: key, **contents, KEY: key} if CERT in contents else {KEY: key, **contents}
    with os_faults_as(StorageError, f"cannot write the identity to {folder}", "; choose another folder"):
        make_folders(folder)
        if NEXT in contents:
            with suppress(UsageError):  # it has no pair yet
                _settled(folder)
        for name, content in contents.items():
            replace_private(folder / name, content)
        if NEXT in contents:
            (folder / NEXT).unlink()


def next_key(folder: Path) -> bytes:
    """Return the key for the next certificate: one of a renewal that was cut off, or a new one, which is kept.

    The same again after a lost answer, as the authority knows which key it answered.

    Raises
    ------
    UsageError
        As `load_identity`.
    StorageError
        The folder cannot be written.
    """
    with os_faults_as(StorageError, f"cannot write the identity to {folder}"):
        present, key = _settled(folder), _next_key(folder)
        if key in (b"", present):
            key = new_key()
            replace_private(folder / NEXT, key)
    return key


def _next_key(folder: Path) -> bytes:
    """Return the key of a renewal that is not complete, PEM; empty: there is none."""
    path, key = folder / NEXT, b""
    with os_faults_as(UsageError, f"cannot read {path}"), suppress(FileNotFoundError):
        key = path.read_bytes()
    try:
        if key:
            load_key(key)
    except UsageError as fault:
        raise UsageError(f"{path}: {fault}. Delete it, and renew") from fault
    return key


def _settled(folder: Path) -> bytes:
    """Return the present key, which is ``key.pem`` then, also where a renewal was cut off behind its certificate."""
    key = load_identity(folder).key
    if key != (folder / KEY).read_bytes():
        replace_private(folder / KEY, key)
    return key
