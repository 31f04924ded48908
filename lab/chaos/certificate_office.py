"""A chaos fleet's authority, for ``--secure``: certificates that are renewed and revoked in the middle of a run.

Everything goes the ways that an operator goes (``glassfleet ca ...``, docs/howto/secure-fleet.md), on a running fleet:
files in identity folders are replaced, broker and coordinator are handed a new revocation list, nobody is restarted.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from broker.identity import load_identity, next_key, save_identity
from broker.paho_transport import connect_once
from broker.port import Link
from broker.servers.mosquitto import MosquittoProcess
from broker.servers.revocation import install_crl
from broker.tls import Tls, tls_of
from coordinator.authority.store import Authority
from lab.demo.secure import DAYS, secure_broker
from schemas.errors import BrokerError
from schemas.trust.identity import make_request, new_key, prove_renewal
from schemas.trust.owner import Owner

AUDITOR = "auditor"
"""Id of the operator that looks at the broker in the end."""


@dataclass
class StolenIdentity:
    """A vehicle that was revoked, and what whoever stole its identity can try.

    Attributes
    ----------
    agent : str
    folder : Path
        The stolen identity: a copy from the moment before it was revoked.
    begins, ends : int or None
        Place in the coordinator's log from which on, and up to which, nothing of the vehicle may be taken; None: it was
        let in again before the list could be everywhere.
    answer : str
        What the broker said to whoever used it in the end; empty: it let them in.
    """

    agent: str
    folder: Path
    begins: int | None = None
    ends: int | None = None
    answer: str = ""


class CertificateOffice:
    """The authority, everybody's identity folder, and a Mosquitto that asks for certificates; it is started here.

    Parameters
    ----------
    work : Path
        Folder of the chaos run.
    fleet : str
    coordinator : str
        Id of the coordinator.
    vehicles : sequence of str
    workers : int
        The coordinator's intake workers; with more than one, each has an identity of its own.

    Raises
    ------
    BrokerError
        Mosquitto is not installed, or did not start.
    """

    def __init__(self, work: Path, fleet: str, coordinator: str, vehicles: Sequence[str], workers: int) -> None:
        self.broker: MosquittoProcess
        self._work = work
        self._coordinator = coordinator
        self.broker, self._identities = secure_broker(
            work, fleet, coordinator, vehicles, operators=[AUDITOR], workers=workers
        )
        self._authority = Authority(work / "ca")
        self.stolen_identities: list[StolenIdentity] = []
        self.revoked: set[str] = set()
        """Who is shut out now."""
        self.reissued: set[str] = set()
        """Whoever had a certificate revoked at some time: what it sealed before is refused, rightly."""

    def identity(self, name: str) -> Path:
        """Return the identity folder of a process."""
        return self._identities / name

    @property
    def auditor(self) -> Tls | None:
        """How the audit connects."""
        return tls_of(self.identity(AUDITOR))

    @property
    def trust(self) -> tuple[bytes, bytes]:
        """CA certificate and current revocation list, PEM."""
        return self._authority.ca_pem, self._authority.crl_pem

    def renew(self, name: str) -> str:
        """Renew a certificate, a vehicle's for a new key; returns the former one's serial number."""
        folder = self.identity(name)
        now = load_identity(folder)
        former = self._serial(now.certificate)
        key = next_key(folder) if now.owner.role == "agent" else now.key
        request = make_request(key, now.owner)
        certificate = self._authority.renew(request, now.certificate, prove_renewal(now.key, request), DAYS)
        save_identity(folder, key=key, crl=self._authority.crl_pem, certificate=certificate)
        if name == "broker":
            self.broker.reload()
        return former

    def replace(self, name: str) -> None:
        """Renew a certificate and revoke the former one: whoever still uses it is shut out."""
        self._authority.revoke(self.renew(name), "replaced")
        self.reissued.add(name)
        self._hand_out()

    def steal(self, name: str) -> StolenIdentity:
        """Revoke a vehicle, as stolen; a copy of its identity stays with the thief."""
        stolen = StolenIdentity(name, self._work / "stolen" / f"{len(self.stolen_identities) + 1:03d}-{name}")
        shutil.copytree(self.identity(name), stolen.folder)
        self.stolen_identities.append(stolen)
        self.revoked.add(name)
        self.reissued.add(name)
        self._authority.revoke(name, "stolen")
        self._hand_out(deny=[name])
        return stolen

    def admit(self, name: str) -> None:
        """Let a revoked vehicle enrol again: a new token, a new key, a new certificate."""
        key, owner = new_key(), Owner("agent", name)
        token = self._authority.token(name)
        certificate = self._authority.enrol(make_request(key, owner), token.secret, DAYS)
        authority = self._authority
        save_identity(self.identity(name), key=key, ca=authority.ca_pem, crl=authority.crl_pem, certificate=certificate)
        install_crl(self.broker.config.state_dir, authority.crl_pem, allow=[name])
        self.revoked.discard(name)

    def try_stolen(self, stolen: StolenIdentity) -> None:
        """Be the thief: connect with a stolen identity, and note what the broker says."""
        try:
            connect_once(Link(self.broker.url, "thief", tls=tls_of(stolen.folder)), 5.0)
        except BrokerError as fault:
            stolen.answer = str(fault)

    def _hand_out(self, deny: Sequence[str] = ()) -> None:
        for folder in (self.broker.config.state_dir, self.identity(self._coordinator)):
            install_crl(folder, self._authority.crl_pem, deny=deny if folder == self.broker.config.state_dir else ())

    @staticmethod
    def _serial(certificate: bytes) -> str:
        from cryptography import x509  # here alone

        return f"{x509.load_pem_x509_certificate(certificate).serial_number:x}"
