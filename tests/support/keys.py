"""Keys and certificates for tests, made with nothing but ``cryptography``: what a CA makes, and what it never would."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

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
