"""The authority's folder: its key, what it issued, its tokens, its revocation list.

========================  =====================================================================
``ca.pem``                its certificate; hand it to everybody
``ca-key.pem``            its key, mode 0600; encrypted when ``GLASSFLEET_CA_PASSWORD`` was set at ``ca init``
``register.json``         every certificate issued (serial, owner, dates, revocation) and every open token's hash
``crl.pem``               the current revocation list
========================  =====================================================================

One process changes it at a time (a lock on ``lock``); the register is replaced whole, before anything is handed out:
what the authority forgot it could not revoke.
"""

from __future__ import annotations

import datetime as dt
import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from coordinator.authority.certificates import BACKDATED, issue, make_ca, make_crl
from coordinator.authority.register import (
    REASONS,
    Issued,
    OpenToken,
    Register,
    RegisterFolder,
    after_renewal,
    check_most,
    explained,
    listed,
    renewed_before,
)
from schemas.errors import NotFoundError, StorageError, UsageError, WireError, os_faults_as
from schemas.private_files import make_folders, private_folder, replace_private, sync_folder
from schemas.trust.certificates import UNREADABLE, owner_of
from schemas.trust.identity import Token, check_renewal, key_digest, load_key, read_request
from schemas.trust.owner import Owner

CA_DAYS, DAYS, CRL_DAYS = 3650, 365, 365
"""How long the CA, a certificate and a revocation list are good for. A broker refuses everybody when its list is too
old, so a list lasts long; a new one is made at every revocation, and by the server every day."""

TOKEN_HOURS = 24.0

CA_FILE, KEY_FILE, CRL_FILE = "ca.pem", "ca-key.pem", "crl.pem"


def _utc() -> dt.datetime:
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def _password() -> bytes | None:
    text = os.environ.get("GLASSFLEET_CA_PASSWORD")
    return text.encode() if text else None


def _take_place(draft: Path, folder: Path) -> None:
    """Let a finished folder be `folder`, which is not there, or empty."""
    try:
        draft.rename(folder)
    except OSError as fault:
        if fault.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        what = "has an authority already" if (folder / CA_FILE).exists() else "is not empty"
        raise UsageError(f"{folder} {what}: choose another folder") from fault
    sync_folder(folder.parent)


class Authority:
    """A certificate authority in a folder.

    Parameters
    ----------
    folder : Path
        Made by `Authority.create`.
    clock : callable
        Now, UTC; for tests.

    Raises
    ------
    NotFoundError
        There is no authority in the folder.
    UsageError
        Its key needs a password (``GLASSFLEET_CA_PASSWORD``), or another one.
    StorageError
        A file cannot be read, or other users can write into the folder.
    """

    def __init__(self, folder: Path, *, clock: Callable[[], dt.datetime] = _utc) -> None:
        self.folder = folder
        self._clock = clock
        self._files = RegisterFolder(folder)
        try:
            self.ca_pem = (folder / CA_FILE).read_bytes()
            self._ca = x509.load_pem_x509_certificate(self.ca_pem)
            private_folder(folder)
            self._key = self._read_key()
        except FileNotFoundError as fault:
            raise NotFoundError(f"there is no authority in {folder}: make one with `glassfleet ca init`") from fault
        except ValueError as fault:
            raise StorageError(f"{folder / CA_FILE} cannot be read as PEM: restore it from a backup") from fault
        except OSError as fault:
            raise StorageError(f"cannot read the authority in {folder}: {fault.strerror}") from fault

    def _read_key(self) -> Ed25519PrivateKey:
        try:
            return load_key((self.folder / KEY_FILE).read_bytes(), _password())
        except UsageError as fault:
            raise UsageError(
                f"{self.folder / KEY_FILE}: {fault}. Its password comes from GLASSFLEET_CA_PASSWORD"
            ) from fault

    @classmethod
    def create(
        cls, folder: Path, name: str, *, days: int = CA_DAYS, clock: Callable[[], dt.datetime] = _utc
    ) -> Authority:
        """Make a new authority: key, certificate, register, revocation list. It is whole, or not there.

        Parameters
        ----------
        name : str
            Common name of its certificate.
        days : int
            How long that is good for.
        clock : callable
            Now, UTC.

        Raises
        ------
        UsageError
            There is something in the folder; a second authority would lock out the whole fleet of the first.
        StorageError
            The folder cannot be written.
        """
        password = _password()
        lock: KeySerializationEncryption = BestAvailableEncryption(password) if password else NoEncryption()
        key = Ed25519PrivateKey.generate()
        ca = make_ca(key, name, clock(), dt.timedelta(days=days))
        with explained(folder):
            make_folders(folder.parent)
            draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            RegisterFolder(draft).write(Register([], []))
            replace_private(draft / KEY_FILE, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
            replace_private(draft / CA_FILE, ca.public_bytes(Encoding.PEM), 0o644)
            cls(draft, clock=clock).refresh_crl()
            with explained(folder):
                _take_place(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return cls(folder, clock=clock)

    # What it gives

    @property
    def name(self) -> str:
        """The common name of its certificate."""
        return "".join(str(part.value) for part in self._ca.subject.get_attributes_for_oid(NameOID.COMMON_NAME))

    @property
    def certificate(self) -> x509.Certificate:
        """Its own certificate."""
        return self._ca

    @property
    def crl_pem(self) -> bytes:
        """The current revocation list."""
        with os_faults_as(StorageError, f"cannot read {self.folder / CRL_FILE}"):
            return (self.folder / CRL_FILE).read_bytes()

    def issued(self) -> list[Issued]:
        """Return every certificate, in the order of issue."""
        return list(self._files.read().issued)

    def fallen(self) -> list[str]:
        """Return the ids that have no good certificate any more but a revoked one: what a broker shall shut out."""
        now = self._clock()
        entries = self.issued()
        good = {entry.id for entry in entries if entry.is_good(now)}
        return sorted({entry.id for entry in entries if entry.revoked is not None} - good)

    def token(self, agent: str, hours: float = TOKEN_HOURS) -> Token:
        """Make a one-time token for one agent; only its hash is kept.

        Raises
        ------
        UsageError
            The id is not valid, or belongs to a process of another role.
        """
        made = Token.new(agent, self.ca_pem)
        with self._files.changing() as register:
            self._check_free(register, Owner("agent", agent))
            ends = self._clock() + dt.timedelta(hours=hours)
            self._files.write(
                replace(register, tokens=[*self._fresh(register), OpenToken(made.digest, agent, ends.isoformat())])
            )
        return made

    def enrol(self, request_pem: bytes, token: str, days: float = DAYS) -> bytes:
        """Issue a certificate for a token; returns it as PEM.

        The same request may come again (its answer was lost): the same certificate is returned.

        Raises
        ------
        WireError
            ``bad-request``; ``bad-token``: unknown, expired, used, or for another agent.
        """
        owner, key = read_request(request_pem)
        digest = Token(owner.id, "", token).digest
        with self._files.changing() as register:
            known = next((one for one in register.tokens if one.digest == digest), None)
            if known is None or self._clock() >= dt.datetime.fromisoformat(known.ends):
                raise WireError("bad-token", "the token is unknown or has expired: ask for a new one")
            if owner != Owner("agent", known.agent):
                raise WireError("bad-token", f"the token is for agent {known.agent}, not for {owner}")
            if known.key:
                if known.key != key_digest(key):
                    raise WireError("bad-token", "the token was used: ask for a new one, and whether you were the one")
                return self._files.kept(known.serial)
            try:
                # The id may have become another role's since the token was made.
                self._check_free(register, owner)
            except UsageError as fault:
                raise WireError("bad-token", f"{fault}, and ask for a new token") from fault
            certificate, entry = self._make(owner, key, days)
            used = replace(known, key=entry.key, serial=entry.serial)
            tokens = [used if one is known else one for one in register.tokens]
            self._files.keep(certificate)
            self._files.write(replace(register, issued=[*register.issued, entry], tokens=tokens))
        return certificate.public_bytes(Encoding.PEM)

    def renew(
        self,
        request_pem: bytes,
        certificate_pem: bytes,
        signature: bytes,
        days: float = DAYS,
        *,
        most: int | None = None,
    ) -> bytes:
        """Issue a new certificate to the holder of a good one; returns it as PEM.

        An agent has the one that it renews, until it shows that it has stored the new one, by renewing that; all others
        of it are revoked. So it is not locked out when it dies in between: who renews the same one again gets the same
        new one.

        Parameters
        ----------
        request_pem : bytes
            For the same owner, with the same or a new key.
        certificate_pem : bytes
            The current certificate.
        signature : bytes
            By its key, over the request (`schemas.trust.identity.prove_renewal`).
        days : float
            How long the new one is good for.
        most : int or None
            Refuse when this authority has issued so many since the owner enrolled that have not expired.

        Raises
        ------
        WireError
            ``bad-request``, ``bad-signature``, ``bad-certificate``: not ours, expired or revoked; ``too-many``.
        """
        owner, key = read_request(request_pem)
        try:
            current = x509.load_pem_x509_certificate(certificate_pem)
        except UNREADABLE as fault:
            raise WireError("bad-certificate", "the certificate cannot be read") from fault
        check_renewal(current, request_pem, signature)
        with self._files.changing() as register:
            entry = next((one for one in register.issued if one.serial == f"{current.serial_number:x}"), None)
            if entry is None or self._files.kept(entry.serial) != current.public_bytes(Encoding.PEM):
                raise WireError("bad-certificate", "the certificate is not from this authority")
            now = self._clock()
            if not entry.is_good(now):
                state = entry.state(now)
                raise WireError("bad-certificate", f"the certificate is {state}: enrol again with a new token")
            if owner != owner_of(current):
                raise WireError("bad-request", f"the certificate is {owner_of(current)}'s, not {owner}'s")
            if (again := renewed_before(register, entry, key_digest(key), now)) is not None:
                return self._files.kept(again.serial)
            if most is not None:
                check_most(register, entry, most, now)
            made, added = self._make(owner, key, days, entry.hosts)
            self._files.keep(made)
            after = after_renewal(register, entry, added, now)
            if after.issued[:-1] == register.issued:
                self._files.write(after)
            else:
                self._write_crl(after)
        return made.public_bytes(Encoding.PEM)

    def issue(self, owner: Owner, key: Ed25519PublicKey, *, days: float = DAYS, hosts: Sequence[str] = ()) -> bytes:
        """Issue a certificate on the operator's word; returns it as PEM.

        Raises
        ------
        UsageError
            The id belongs to another role, or as `certificates.issue`.
        """
        with self._files.changing() as register:
            self._check_free(register, owner)
            certificate, entry = self._make(owner, key, days, hosts)
            self._files.keep(certificate)
            self._files.write(replace(register, issued=[*register.issued, entry]))
        return certificate.public_bytes(Encoding.PEM)

    def revoke(self, name: str, reason: str = "unspecified") -> list[Issued]:
        """Revoke every good certificate of an id, or the one with this serial number; a new list is made.

        Said again it changes nothing but the list, and returns those that were revoked before.

        A coordinator's is revoked even when it has expired: models that it signed are verified as of their own date,
        and who has the key can write any date. Tokens that wait for that id are withdrawn too.

        Raises
        ------
        NotFoundError
            There is none, and never was.
        UsageError
            There is no such reason.
        """
        if reason not in REASONS:
            raise UsageError(f"--reason {reason!r}: choose {', '.join(REASONS)}")
        now = self._clock()
        with self._files.changing() as register:
            chosen = [
                one
                for one in register.issued
                if name in (one.id, one.serial)
                and one.revoked is None
                and (one.role == "coordinator" or one.is_good(now))
            ]
            tokens = [one for one in register.tokens if one.agent != name]
            if not chosen and len(tokens) == len(register.tokens):
                before = [one for one in register.issued if name in (one.id, one.serial) and one.revoked is not None]
                if not before:
                    raise NotFoundError(f"{name} has no valid certificate here (`glassfleet ca list` shows all)")
                self._write_crl(register)  # whoever was killed between register and list says it again
                return before
            gone = [replace(one, revoked=now.isoformat(), reason=reason) for one in chosen]
            after = {one.serial: one for one in gone}
            issued = [after.get(one.serial, one) for one in register.issued]
            self._write_crl(replace(register, issued=issued, tokens=tokens))
        return gone

    def refresh_crl(self, *, unless_newer_than: dt.timedelta | None = None) -> bytes:
        """Make a new revocation list (lists expire); returns the current one.

        Parameters
        ----------
        unless_newer_than : timedelta or None
            A list that is younger is left as it is.
        """
        with self._files.changing() as register:
            if unless_newer_than is not None and (self.folder / CRL_FILE).exists():
                made = x509.load_pem_x509_crl(self.crl_pem).last_update_utc
                if self._clock() - made < unless_newer_than:
                    return self.crl_pem
            self._write_crl(register)
        return self.crl_pem

    # Its files

    def _make(
        self, owner: Owner, key: Ed25519PublicKey, days: float, hosts: Sequence[str] = ()
    ) -> tuple[x509.Certificate, Issued]:
        now = self._clock()
        made = issue(
            self._ca, self._key, owner, key, begins=now - BACKDATED,
            ends=now + dt.timedelta(days=days), hosts=hosts,
        )  # fmt: skip
        dates = (made.not_valid_before_utc.isoformat(), made.not_valid_after_utc.isoformat())
        return made, Issued(f"{made.serial_number:x}", owner.role, owner.id, key_digest(key), *dates, list(hosts))

    @staticmethod
    def _check_free(register: Register, owner: Owner) -> None:
        """One id, one role, for ever: the broker knows a process by its id alone."""
        for one in register.issued:
            if one.id == owner.id and one.role != owner.role:
                raise UsageError(
                    f"the id {owner.id} belongs to role {one.role}, and a broker would take one for the other: choose "
                    "another"
                )

    def _fresh(self, register: Register) -> list[OpenToken]:
        now = self._clock()
        return [one for one in register.tokens if now < dt.datetime.fromisoformat(one.ends)]

    def _write_crl(self, register: Register) -> None:
        now = self._clock()
        number = register.crl_number + 1
        crl = make_crl(
            self._ca, self._key, listed(register, now), number=number, now=now, lasts=dt.timedelta(days=CRL_DAYS)
        )
        self._files.write(replace(register, crl_number=number))
        with explained(self.folder):
            replace_private(self.folder / CRL_FILE, crl.public_bytes(Encoding.PEM), 0o644)
