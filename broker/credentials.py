"""What a process signs and verifies with, kept fresh when a certificate is renewed or another one revoked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import structlog

from broker.tls import CA, CERT, CRL, KEY, load_identity, save_identity
from schemas.errors import StorageError, UsageError, WireError
from schemas.signing import Signer, Verifier, list_number, list_origin

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
        self._ca = identity.ca
        self.crl = b""
        self._from_folder(identity.crl)
        self._stamps = self._stamp()

    def refresh(self) -> bool:
        """Look, unless that was done a moment ago; whether a file of the identity changed.

        What cannot be read is not taken over: the former stays in use, and the next look may find it whole. An older
        revocation list than the one that is known, or one that none of the folder's CAs signed, is not taken over
        either, and gives way to the known one in the folder.
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
        self._stamps, self.signer, self._ca = stamps, signer, identity.ca
        self._from_folder(identity.crl)
        # Only what was read: a list that an operator puts there at this moment is for the next look.
        if self._is_better_than(identity.crl, identity.ca) and self._stamp()[CRL] == stamps[CRL]:
            self._keep()
        return True

    def take_crl(self, crl: bytes) -> bool:
        """Take over a list that was heard; keep a newer one in the folder, so that a restart does not forget it."""
        if not self._take_newer(crl):
            return False
        # What an operator has put there since the last look is replaced only when it is known to be worth less.
        if self._stamp()[CRL] == self._stamps[CRL] or self._is_better_than(self._there(CRL), self._there(CA)):
            self._keep()
        return True

    def _take_newer(self, crl: bytes) -> bool:
        """Revoke what a list names; whether it was newer than the known one, and is that now."""
        self.verifier.take_crl(crl)
        known, found = (list_origin(each, self._ca) for each in (self.crl, crl))
        # Numbers begin anew with each CA. While two are trusted, time decides: a list that is said again wins nothing.
        if known is not None and found is not None:
            is_same = known[0] == found[0]
            if list_number(crl) <= list_number(self.crl) if is_same else found[1] <= known[1]:
                return False
        self.crl = crl
        return True

    def _is_better_than(self, there: bytes, ca: bytes) -> bool:
        """Whether the known list goes in place of a folder's: none of its CAs signed that, or ours is the next one."""
        ours, theirs = list_origin(self.crl, ca), list_origin(there, ca)
        if ours is None or theirs is None:
            return ours is not None
        return ours[0] == theirs[0] and list_number(self.crl) > list_number(there)

    def _keep(self) -> None:
        # A folder that cannot be written to (a read-only volume) is no reason to trust a stolen vehicle meanwhile.
        with contextlib.suppress(StorageError):
            save_identity(self._folder, crl=self.crl)
        # Of the list alone: a certificate that was renewed a moment ago is still to be seen.
        self._stamps = {**self._stamps, CRL: self._stamp()[CRL]}

    def _from_folder(self, crl: bytes) -> None:
        if crl:
            try:
                self._take_newer(crl)
            except WireError as fault:
                _log.warning("revocation-list-unusable", folder=str(self._folder), reason=str(fault))

    def _there(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except OSError:
            return b""

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
