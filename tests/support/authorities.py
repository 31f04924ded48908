"""Keys, certificates and authorities for tests: as the product makes them, and as it never would."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from broker.credentials import FolderCredentials
from broker.identity import load_identity, save_identity
from coordinator.authority.store import Authority
from schemas.trust.certificates import number_of, read_list
from schemas.trust.identity import load_key, new_key
from schemas.trust.owner import Owner, Role
from schemas.trust.signing import Signer, Verifier

NOW = 1_800_000_000.0
DAY = 86_400.0


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _when(at: float) -> dt.datetime:
    return dt.datetime.fromtimestamp(at, tz=dt.UTC)


def pem(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


@dataclass
class Issued:
    """A key and its certificate."""

    key: Ed25519PrivateKey
    certificate: x509.Certificate

    def signer(self) -> Signer:
        return Signer(pem(self.key), self.certificate.public_bytes(Encoding.PEM))


class TestCa:
    """Issues whatever it is told to."""

    __test__ = False

    def __init__(self, name: str = "test CA") -> None:
        self.key = Ed25519PrivateKey.generate()
        self.name = _name(name)
        self.certificate = self._build(
            self.name, self.key, NOW - DAY, NOW + 1000 * DAY, [x509.BasicConstraints(ca=True, path_length=0)]
        )
        self.pem = self.certificate.public_bytes(Encoding.PEM)

    def _build(self, subject, key, begins, ends, extensions) -> x509.Certificate:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_when(begins))
            .not_valid_after(_when(ends))
        )
        for extension in extensions:
            builder = builder.add_extension(extension, critical=False)
        return builder.sign(self.key, None)

    def issue(self, *uris: str, begins: float = NOW - DAY, ends: float = NOW + DAY, extensions=()) -> Issued:
        key = Ed25519PrivateKey.generate()
        names = [x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri) for uri in uris])] if uris else []
        return Issued(key, self._build(_name("somebody"), key, begins, ends, [*names, *extensions]))

    def agent(self, name: str, **dates: float) -> Issued:
        return self.issue(f"urn:glassfleet:agent:{name}", **dates)

    def coordinator(self, name: str = "cloud", **dates: float) -> Issued:
        return self.issue(f"urn:glassfleet:coordinator:{name}", **dates)

    def verifier(self, at: float = NOW) -> Verifier:
        return Verifier(self.pem, lambda: at)

    def crl(self, *revoked: Issued) -> bytes:
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(_when(NOW - DAY))
            .next_update(_when(NOW + DAY))
        )
        for each in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(each.certificate.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(_when(NOW - DAY)).build())
        return builder.sign(self.key, None).public_bytes(Encoding.PEM)


@dataclass(frozen=True)
class FixedCredentials:
    """Credentials that never change."""

    signer: Signer
    verifier: Verifier
    crl: bytes = b""

    def update_crl(self, crl: bytes) -> bool:
        """Revoke what it lists; it is not kept."""
        self.verifier.update_crl(crl)
        return False

    def refresh(self) -> bool:
        """Nothing changes."""
        return False


HOSTS = ("localhost", "127.0.0.1")


class FleetCa:
    """An authority in a folder; each identity in a folder beside it."""

    def __init__(self, folder: Path, name: str = "test CA") -> None:
        self.folder = folder
        self.authority = Authority.create(folder / "ca", name)

    def identity(
        self, role: Role, name: str, *, days: float = 30, hosts: tuple[str, ...] = (), where: str = "", ago: float = 0
    ) -> Path:
        """Issue an identity; `ago` days ago, so that it may have expired."""
        if not hosts and role == "broker":
            hosts = HOSTS
        key = new_key()
        authority = self.authority
        if ago:
            then = dt.datetime.now(dt.UTC) - dt.timedelta(days=ago)
            authority = Authority(self.authority.folder, clock=lambda: then)
            # The CA was made today; for its certificate to be older than the CA, the cut to the CA's dates is lifted.
            authority._ca = _Older(authority._ca, then)  # type: ignore[assignment]
        made = authority.issue(Owner(role, name), load_key(key).public_key(), days=days, hosts=hosts)
        folder = self.folder / (where or name)
        save_identity(folder, key=key, ca=authority.ca_pem, crl=authority.crl_pem, certificate=made)
        return folder


class _Older:
    """A CA certificate that claims to have begun earlier."""

    def __init__(self, real, begins) -> None:
        self._real = real
        self.not_valid_before_utc = begins - dt.timedelta(days=1)

    def __getattr__(self, name: str):
        return getattr(self._real, name)


def serial_of(folder: Path) -> int:
    from cryptography import x509

    return x509.load_pem_x509_certificate(load_identity(folder).certificate).serial_number


def number_in(crl_pem: bytes) -> int:
    """The number of the first revocation list in a bundle."""
    crl = read_list(crl_pem)
    assert crl is not None
    return number_of(crl)


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Calendar:
    """The time of day of an authority, which passes when a test says so."""

    def __init__(self) -> None:
        self.now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def __call__(self) -> dt.datetime:
        return self.now

    def seconds(self) -> float:
        return self.now.timestamp()

    def skip(self, **time: float) -> None:
        self.now += dt.timedelta(**time)


def look(credentials: FolderCredentials, clock: Clock) -> bool:
    """Let the time pass after which credentials look into their folder again; whether they took something over."""
    clock.now += 3
    return credentials.refresh()


def renew(ca: FleetCa, folder: Path, name: str) -> None:
    """Give an agent's folder a new key and certificate."""
    fresh = ca.identity("agent", name, where=f"{name}-fresh")
    save_identity(folder, key=(fresh / "key.pem").read_bytes(), certificate=(fresh / "cert.pem").read_bytes())
