"""From one authority to the next: what the next one takes over, its name, and a folder that is whole or not there."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from coordinator.authority.register import ISSUED, REGISTER_FILE, Issued, RegisterFolder, explained
from schemas.errors import NotFoundError, StorageError, UsageError
from schemas.private_files import private_folder, sync_folder
from schemas.trust.certificates import UNREADABLE

CA_FILE, KEY_FILE, CRL_FILE = "ca.pem", "ca-key.pem", "crl.pem"

_DRAFT = ".unfinished"
_IN_PLACE = (ISSUED, REGISTER_FILE, CRL_FILE, KEY_FILE, CA_FILE)
"""What an authority's folder holds, in the order in which it is put there: there is none before the last one."""


@dataclass(frozen=True)
class Former:
    """The authority before.

    Attributes
    ----------
    issued : list of Issued
        What it issued and took over itself, each marked as a former one's.
    certificates : dict of str to bytes
        Each one's certificate, PEM, by serial number.
    name : str
        Its own common name.
    names : frozenset of str
        Common names of it and of all that were before it.
    """

    issued: list[Issued]
    certificates: dict[str, bytes]
    name: str
    names: frozenset[str]

    def next_name(self) -> str:
        """Return a name for the one that follows: ``fleet CA``, ``fleet CA 2``, ``fleet CA 3``."""
        match = re.fullmatch(r"(.*\S) ([1-9][0-9]{0,5})", self.name)
        stem, number = (match[1], int(match[2])) if match else (self.name, 1)
        while (name := f"{stem} {number + 1}") in self.names:
            number += 1
        return name

    def check_name(self, name: str) -> None:
        """Raise UsageError when it is one of theirs: whoever trusts both could not tell whose list is whose."""
        if name in self.names:
            raise UsageError(
                f"the former authority is named {name!r}, too, and nobody could tell the two apart: choose another "
                f"--name, such as {self.next_name()!r}"
            )


def read_former(folder: Path) -> Former:
    """Read what the next authority takes over; open tokens name their CA, and stay behind.

    Raises
    ------
    NotFoundError
        There is no register with a certificate in the folder.
    StorageError
        The register or a certificate that it names is gone or cannot be read.
    """
    files = RegisterFolder(folder)
    if not files.is_there or not (issued := files.read().issued):
        raise NotFoundError(f"{folder} has no register of certificates: name the former authority's folder")
    certificates = {one.serial: files.kept(one.serial) for one in issued}
    issuers = []
    for one in issued:
        try:
            issuers.append(_common_name(x509.load_pem_x509_certificate(certificates[one.serial]).issuer))
        except UNREADABLE as fault:
            path = files.path_of(one.serial)
            raise StorageError(f"{path} cannot be read as PEM: restore it from a backup") from fault
    # Its own certificate is not needed for anything else, so a copy of the folder without it will do.
    try:
        name = _common_name(x509.load_pem_x509_certificate((folder / CA_FILE).read_bytes()).subject)
    except (OSError, *UNREADABLE):
        name = issuers[-1]
    return Former([replace(one, former=True) for one in issued], certificates, name, frozenset([name, *issuers]))


def _common_name(name: x509.Name) -> str:
    return "".join(str(part.value) for part in name.get_attributes_for_oid(NameOID.COMMON_NAME))


@contextlib.contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """Give a folder to build an authority in, whose files become those of `folder` when the block ends well.

    However it ends, also by a power cut, `folder` is no authority before all of them are in place; what an
    interrupted one has left there gives way.

    Raises
    ------
    UsageError
        There is an authority in `folder`, or a part of one.
    StorageError
        The folder cannot be written.
    """
    draft = folder / _DRAFT
    with explained(folder):
        private_folder(folder)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+b") as lock, explained(folder):
        fcntl.flock(lock, fcntl.LOCK_EX)
        _clear(folder, draft)
        draft.mkdir(mode=0o700)
        try:
            yield draft
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        for name in _IN_PLACE:
            if name == CA_FILE:
                sync_folder(folder)
            if (draft / name).exists():
                (draft / name).rename(folder / name)
        sync_folder(folder)
        shutil.rmtree(draft)


def _clear(folder: Path, draft: Path) -> None:
    """Take away what an interrupted one has left; raise UsageError when there is more than that."""
    if (folder / CA_FILE).exists():
        raise UsageError(f"{folder} has an authority already: choose another folder")
    # As long as the draft holds the certificate, nothing was ever issued with it: what lies beside it is its own.
    if (draft / CA_FILE).exists():
        for name in _IN_PLACE:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(folder / name) if name == ISSUED else (folder / name).unlink()
    elif parts := [name for name in _IN_PLACE if (folder / name).exists()]:
        raise UsageError(
            f"{folder} has a part of an authority already ({', '.join(parts)}), without its {CA_FILE}: restore that "
            "from a backup, or choose another folder"
        )
    if draft.exists():
        shutil.rmtree(draft)
