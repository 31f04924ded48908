"""What a process signs and verifies with, kept fresh when a certificate is renewed or another one revoked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from broker.tls import CA, CERT, CRL, KEY, load_identity
from schemas.errors import UsageError, WireError
from schemas.signing import Signer, Verifier


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
        """The fleet's revocation list, PEM; empty: there is none."""
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
    ) -> None:
        self._folder = folder
        self._wall = wall
        self._clock = clock
        self._pause = pause
        self._stamps: tuple[tuple[int, int], ...] = ()
        self._looked = clock()
        identity = load_identity(folder)
        self.signer = Signer(identity.key, identity.certificate)
        self.verifier = Verifier(identity.ca, wall, leeway=leeway)
        self.crl = identity.crl
        self._take_crl()
        self._stamps = self._stamp()

    def refresh(self) -> bool:
        """Look, unless that was done a moment ago; whether certificate or revocation list changed.

        What cannot be read is not taken over: the former stays in use, and the next look may find it whole.
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
        except UsageError:
            return False
        self._stamps, self.signer, self.crl = stamps, signer, identity.crl
        self._take_crl()
        return True

    def _take_crl(self) -> None:
        if self.crl:
            # A list that is not the CA's revokes nobody; the broker's own check tells the operator of it.
            with contextlib.suppress(WireError):
                self.verifier.take_crl(self.crl)

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        found = []
        for name in (KEY, CERT, CA, CRL):
            try:
                status = (self._folder / name).stat()
            except OSError:
                found.append((0, 0))
            else:
                found.append((status.st_mtime_ns, status.st_ino))
        return tuple(found)
