"""What a process signs and verifies with, kept fresh when a certificate is renewed or another one revoked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from broker.tls import CA, CERT, CRL, KEY, Identity, load_identity, save_identity
from schemas.errors import StorageError, UsageError, WireError
from schemas.signing import Signer, Verifier, list_number

_log = structlog.get_logger("glassfleet.broker")

_FILES = (KEY, CERT, CA, CRL)

_Stamps = dict[str, tuple[int, int]]
"""When each file was written, and its number; zeros: it is not there."""


class Credentials(Protocol):
    """What `broker.signed` needs of a process's identity."""

    @property
    def signer(self) -> Signer:
        """Signs in our name."""
        ...

    @property
    def verifier(self) -> Verifier:
        """Knows whom to trust."""
        ...

    @property
    def crl(self) -> bytes:
        """The newest revocation list of the fleet that is known here, PEM; empty: there is none."""
        ...

    def take_crl(self, crl: bytes) -> bool:
        """Take over a list that was heard; whether it is newer than `crl`. Raises WireError when it is not the CA's."""
        ...

    def refresh(self) -> bool:
        """Take over what changed; whether anything did."""
        ...


@dataclass(frozen=True)
class FixedCredentials:
    """Credentials that never change: for short lives and for tests."""

    signer: Signer
    verifier: Verifier
    crl: bytes = b""

    def take_crl(self, crl: bytes) -> bool:
        """Revoke what it lists; it is not kept."""
        self.verifier.take_crl(crl)
        return False

    def refresh(self) -> bool:
        """Nothing changes."""
        return False


class FolderCredentials:
    """The credentials in an identity folder, read again when its files change.

    Parameters
    ----------
    folder : Path
    wall : callable
        Seconds since the epoch, for the dates of certificates.
    clock : callable
        Seconds that only go forward.
    pause : float
        Seconds between two looks at the files, at least.
    leeway : float
        Seconds by which clocks may differ, see `Verifier`.
    remembered : int
        Certificates that are remembered as verified, see `Verifier`.

    Raises
    ------
    UsageError
        The folder is no identity.
    """

    def __init__(
        self,
        folder: Path,
        *,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        pause: float = 2.0,
        leeway: float = 300.0,
        remembered: int = 4096,
    ) -> None:
        self._folder = folder
        self._wall = wall
        self._clock = clock
        self._pause = pause
        self._stamps: _Stamps = {}
        self._complained: _Stamps = {}
        self._looked = clock()
        identity = load_identity(folder)
        self.signer = Signer(identity.key, identity.certificate)
        self.verifier = Verifier(identity.ca, wall, leeway=leeway, remembered=remembered)
        self.crl = b""
        self._from_folder(identity)
        self._stamps = self._stamp()

    def refresh(self) -> bool:
        """Look, unless that was done a moment ago; whether a file of the identity changed.

        What cannot be read is not taken over: the former stays in use, and the next look may find it whole. An older
        revocation list than the one that is known is not taken over either.
        """
        now = self._clock()
        if now - self._looked < self._pause:
            return False
        self._looked = now
        stamps = self._stamp()
        if stamps == self._stamps:
            return False
        try:
            identity = load_identity(self._folder)
            signer = Signer(identity.key, identity.certificate)
            self.verifier.trust(identity.ca)
        except UsageError as fault:
            if stamps != self._complained:
                self._complained = stamps
                _log.warning("identity-unusable", folder=str(self._folder), reason=str(fault), hint="the former stays")
            return False
        self._stamps, self.signer = stamps, signer
        self._from_folder(identity)
        return True

    def take_crl(self, crl: bytes) -> bool:
        """Take over a list that was heard; keep a newer one in the folder, so that a restart does not forget it."""
        if not self._is_newer(crl):
            return False
        if self._stamp()[CRL] != self._stamps[CRL] and not self._supersedes_folder(crl):
            return True  # an operator has put a list there: the next look tells what it is worth
        # A folder that cannot be written to (a read-only volume) is no reason to trust a stolen vehicle meanwhile.
        with contextlib.suppress(StorageError):
            save_identity(self._folder, crl=crl)
        # Of the list alone: a certificate that was renewed a moment ago is still to be seen.
        self._stamps = {**self._stamps, CRL: self._stamp()[CRL]}
        return True

    def _supersedes_folder(self, crl: bytes) -> bool:
        """Whether a list is newer than the one in the folder, of a CA that we know; or there is none to be read."""
        try:
            there = (self._folder / CRL).read_bytes()
        except OSError:
            return True
        try:
            self.verifier.take_crl(there)
        except WireError:
            return False  # the list of a new CA, perhaps, which is still to be seen: its numbers begin anew
        return list_number(there) < list_number(crl)

    def _is_newer(self, crl: bytes) -> bool:
        self.verifier.take_crl(crl)
        if self.crl and list_number(crl) <= list_number(self.crl):
            return False
        self.crl = crl
        return True

    def _from_folder(self, identity: Identity) -> None:
        if identity.crl:
            try:
                self._is_newer(identity.crl)
            except WireError as fault:
                _log.warning("revocation-list-unusable", folder=str(self._folder), reason=str(fault))

    def _stamp(self) -> _Stamps:
        found: _Stamps = {}
        for name in _FILES:
            try:
                status = (self._folder / name).stat()
            except OSError:
                found[name] = (0, 0)
            else:
                found[name] = (status.st_mtime_ns, status.st_ino)
        return found
