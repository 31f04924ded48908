"""What a process signs and verifies with, kept fresh when a certificate is renewed or another one revoked."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from broker.identity import alone_in, load_identity, save_identity
from broker.tls import CA, CERT, CRL, KEY
from schemas.errors import StorageError, UsageError, WireError
from schemas.log import Log
from schemas.trust.certificates import UNREADABLE, newest
from schemas.trust.signing import Signer, Verifier

LOOK_EVERY = 2.0
"""Seconds between two looks whether the files changed, at least: a look costs four calls of the system."""

_log = Log()

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
        """The newest revocation list, PEM; empty: there is none."""
        ...

    def update_crl(self, crl: bytes) -> bool:
        """Take over a list that was heard; whether it is newer than `crl`. Raises WireError when it is not the CA's."""
        ...

    def refresh(self) -> bool:
        """Take over what changed; whether anything did."""
        ...


class FolderCredentials:
    """The credentials in an identity folder, read again when its files change.

    Parameters
    ----------
    clock : callable
        Seconds that only go forward.
    pause : float
        Seconds between two looks at the files, at least.

    Raises
    ------
    UsageError
        The folder is no identity.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.monotonic, pause: float = LOOK_EVERY) -> None:
        self._folder = folder
        self._clock = clock
        self._pause = pause
        self._stamps: _Stamps = {}
        self._complained: _Stamps = {}
        self._looked = clock()
        self._changing = threading.RLock()
        """Whoever publishes looks at the files, and whoever hears a list keeps it: on different threads."""
        identity = load_identity(folder)
        self.signer = Signer(identity.key, identity.certificate)
        self.verifier = Verifier(identity.ca, time.time)
        self._ca = identity.ca
        self.crl = b""
        self._from_folder(identity.crl)
        self._stamps = self._stamp()

    def refresh(self) -> bool:
        """Look, unless that was done a moment ago; whether a file of the identity changed.

        What cannot be read is not taken over: the former stays in use, and the next look may find it whole. An older
        revocation list than the one that is known, or one that the folder's CA did not sign, is not taken over either,
        and gives way to the known one in the folder.
        """
        with self._changing:
            now = self._clock()
            if now - self._looked < self._pause:
                return False
            self._looked = now
            return self._look()

    def _look(self) -> bool:
        stamps = self._stamp()
        if stamps == self._stamps:
            return False
        try:
            identity = load_identity(self._folder)
            signer = Signer(identity.key, identity.certificate)
            # With its list: nobody it has revoked shall be believed in between, on another thread.
            self.verifier.trust(identity.ca, identity.crl)
        except UsageError as fault:
            if stamps != self._complained:
                self._complained = stamps
                _log.warning("identity-unusable", folder=str(self._folder), reason=str(fault), hint="the former stays")
            return False
        self._stamps, self.signer, self._ca = stamps, signer, identity.ca
        self._from_folder(identity.crl)
        self._keep()
        return True

    def update_crl(self, crl: bytes) -> bool:
        """Take over a list that was heard; keep a newer one in the folder, so that a restart does not forget it."""
        with self._changing:
            if not self._take_newer(crl):
                return False
            self._keep()
            return True

    def _take_newer(self, crl: bytes) -> bool:
        """Revoke what a list names; whether it was newer than the known one, and is that now."""
        self.verifier.update_crl(crl)
        return self._know(newest(self._ca, self.crl, crl))

    def _know(self, crl: bytes) -> bool:
        is_news, self.crl = crl != self.crl, crl
        return is_news

    def _keep(self) -> None:
        """Put the known list into the folder, unless somebody has put a newer one there since the last look."""
        # Not for ever: whoever publishes waits for us.
        with alone_in(self._folder, wait=2.0):
            self._merge()

    def _merge(self) -> None:
        stamp, there, ca = self._stamp()[CRL], self._there(CRL), self._there(CA)
        try:
            kept = newest(ca, there, self.crl)
        except UNREADABLE:
            kept = newest(self._ca, there, self.crl)
        if kept in (b"", there):
            return
        # A folder that cannot be written to (a read-only volume) is no reason to trust a stolen vehicle meanwhile.
        with contextlib.suppress(StorageError):
            save_identity(self._folder, crl=kept)
        # Of the list alone: a certificate that was renewed a moment ago is still to be seen. And not of what we have
        # not read: a list that an operator has put there since the last look is for the next one.
        if stamp == self._stamps[CRL] or kept == self.crl:
            self._stamps = {**self._stamps, CRL: self._stamp()[CRL]}

    def _from_folder(self, crl: bytes) -> None:
        # That of a former CA is forgotten, also when there is nothing new.
        self._know(newest(self._ca, self.crl))
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
        stamps: _Stamps = {}
        for name in _FILES:
            try:
                status = (self._folder / name).stat()
            except OSError:
                stamps[name] = (0, 0)
            else:
                stamps[name] = (status.st_mtime_ns, status.st_ino)
        return stamps
