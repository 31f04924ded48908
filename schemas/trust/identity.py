"""What an identity is made of: key, request for a certificate, one-time token, proof of renewal. Pure.

Every process of a fleet has one Ed25519 key (RFC 8032) and an X.509 certificate over it (RFC 5280) from the fleet's own
certificate authority. The certificate's common name is the process's id, which the broker takes as its user name; a
URI, ``urn:glassfleet:{role}:{id}``, names its role, which `schemas.trust.signing` reads. The key is made where it is
used and never leaves that machine; what travels is a request (CSR, RFC 2986) signed with it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from schemas import limits
from schemas.errors import UsageError, WireError
from schemas.topics import check_id
from schemas.trust.certificates import UNREADABLE
from schemas.trust.owner import ROLES, URN, Owner

RENEWAL = b"glassfleet-renewal/1\x00"
"""What is put before a request that the current key signs; no other signature of that key begins with it."""

_TOKEN = re.compile(r"gft1\.([A-Za-z0-9._-]{1,64})\.([A-Za-z0-9_-]{43})\.([A-Za-z0-9_-]{43})")


def new_key() -> bytes:
    """Make a private key: Ed25519, PKCS #8, PEM, not encrypted (a vehicle starts without anybody to type)."""
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def load_key(pem: bytes, password: bytes | None = None) -> Ed25519PrivateKey:
    """Read a private key.

    Raises
    ------
    UsageError
        It cannot be read, needs a password or another one, or is of another kind.
    """
    try:
        key = load_pem_private_key(pem, password)
    except TypeError as fault:
        raise UsageError(f"the key cannot be read: {str(fault).lower()}") from fault
    except UNREADABLE as fault:
        raise UsageError("the key cannot be read: it is no PEM, or its password is another") from fault
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError("the key is not an Ed25519 key: make a new one by enrolling again")
    return key


def urn(owner: Owner) -> str:
    """Return the URI that names `owner` in a certificate."""
    return f"{URN}{owner.role}:{owner.id}"


def make_request(key_pem: bytes, owner: Owner) -> bytes:
    """Make a request for a certificate (CSR, PEM), signed with the key that it is about."""
    check_id(owner.role, owner.id)
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, owner.id)]))
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(urn(owner))]), critical=False)
        .sign(load_key(key_pem), None)
        .public_bytes(Encoding.PEM)
    )


def read_request(pem: bytes) -> tuple[Owner, Ed25519PublicKey]:
    """Read a request: whom it names, and its key, whose possession it proves.

    Raises
    ------
    WireError
        ``bad-request``: it cannot be read, names nobody, or is not signed by its own key.
    """
    if len(pem) > limits.MAX_CSR_BYTES:
        raise WireError("bad-request", "the request is too long")
    try:
        request = x509.load_pem_x509_csr(pem)
        key = request.public_key()
        is_signed = request.is_signature_valid
        names = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (*UNREADABLE, x509.ExtensionNotFound) as fault:
        raise WireError("bad-request", "the request cannot be read, or names nobody") from fault
    if not isinstance(key, Ed25519PublicKey):
        raise WireError("bad-request", "the request's key is not an Ed25519 key")
    if not is_signed:
        raise WireError("bad-request", "the request is not signed by its own key")
    if len(uris) != 1:
        raise WireError("bad-request", "the request does not name exactly one owner")
    role, _, name = uris[0].removeprefix(URN).partition(":")
    if role not in ROLES:
        raise WireError("bad-request", f"the request names an unknown role {role[:40]!r}")
    try:
        check_id(role, name)
    except UsageError as fault:
        raise WireError("bad-request", str(fault)) from fault
    return Owner(role, name), key


def key_digest(key: Ed25519PublicKey) -> str:
    """Return the SHA-256 of a public key, as hex digits."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()


def fingerprint(certificate_pem: bytes) -> str:
    """Return the SHA-256 of a certificate (DER), base64url without padding: 43 characters.

    Raises
    ------
    WireError
        ``bad-certificate``: it cannot be read.
    """
    try:
        der = x509.load_pem_x509_certificate(certificate_pem).public_bytes(Encoding.DER)
    except UNREADABLE as fault:
        raise WireError("bad-certificate", "the certificate cannot be read") from fault
    return base64.urlsafe_b64encode(hashlib.sha256(der).digest()).decode().rstrip("=")


@dataclass(frozen=True)
class Token:
    """What lets one agent enrol once: its id, which CA to trust, and a secret. ``str`` is what is handed over.

    Attributes
    ----------
    fingerprint : str
        Of the CA's certificate: with it the vehicle knows the right server before it has anything else.
    secret : str
        256 random bits, base64url. The authority keeps only its SHA-256.
    """

    agent: str
    fingerprint: str
    secret: str

    @classmethod
    def new(cls, agent: str, ca_pem: bytes) -> Token:
        """Draw a token."""
        return cls(check_id("agent", agent), fingerprint(ca_pem), secrets.token_urlsafe(32))

    @classmethod
    def parse(cls, text: str) -> Token:
        """Read a token; raises UsageError when it cannot be one."""
        match = _TOKEN.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                "this is no enrolment token: copy the whole line that `glassfleet ca token` printed, from gft1. on"
            )
        return cls(*match.groups())

    def __str__(self) -> str:
        return f"gft1.{self.agent}.{self.fingerprint}.{self.secret}"

    def __repr__(self) -> str:
        return f"Token({self.agent!r}, secret hidden)"

    @property
    def digest(self) -> str:
        """SHA-256 of the secret: what the authority keeps. 256 random bits need no stretching."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def trusts(self, ca_pem: bytes) -> bool:
        """Whether this is the CA certificate that the token names."""
        return hmac.compare_digest(fingerprint(ca_pem), self.fingerprint)


def prove_renewal(key_pem: bytes, request_pem: bytes) -> bytes:
    """Sign a request with the current key; returns the 64 bytes of the signature."""
    return load_key(key_pem).sign(RENEWAL + request_pem)


def check_renewal(certificate: x509.Certificate, request_pem: bytes, signature: bytes) -> None:
    """Check that the owner of `certificate` asks for this renewal.

    Raises
    ------
    WireError
        ``bad-signature``; ``bad-certificate``: its key cannot be read, or is of another kind.
    """
    try:
        key = certificate.public_key()
    except UNREADABLE as fault:
        raise WireError("bad-certificate", "the certificate's key cannot be read") from fault
    if not isinstance(key, Ed25519PublicKey):
        raise WireError("bad-certificate", "the certificate's key is not an Ed25519 key")
    try:
        key.verify(signature, RENEWAL + request_pem)
    except InvalidSignature as fault:
        raise WireError("bad-signature", "the renewal is not signed by the certificate's key") from fault
