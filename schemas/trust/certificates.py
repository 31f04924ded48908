"""Certificates of a fleet: whom one names, which authority it is from, and which are revoked. Pure."""

from __future__ import annotations

from contextlib import suppress

from cryptography import x509
from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from schemas.errors import WireError
from schemas.trust.owner import ROLES, URN, Owner

UNREADABLE = (
    ValueError,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    UnsupportedAlgorithm,
    InternalError,
)
"""What reading hostile bytes as a key, a certificate, a request or a revocation list raises: relatives of nobody."""


def owner_of(certificate: x509.Certificate) -> Owner:
    """Read the owner from a certificate's URI.

    Raises
    ------
    WireError
        ``bad-certificate``: it names nobody, or more than one.
    """
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = [uri for uri in names.get_values_for_type(x509.UniformResourceIdentifier) if uri.startswith(URN)]
    except (*UNREADABLE, x509.ExtensionNotFound) as fault:
        raise WireError("bad-certificate", "the certificate names no owner") from fault
    if len(uris) != 1:
        raise WireError("bad-certificate", "the certificate does not name exactly one owner")
    role, _, name = uris[0].removeprefix(URN).partition(":")
    if role not in ROLES or not name:
        raise WireError("bad-certificate", f"the certificate names an unknown role {role[:40]!r}")
    return Owner(role, name)


def is_issued(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Whether a CA issued a certificate: its name and its signature. Dates are not looked at."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (*UNREADABLE, TypeError, InvalidSignature):
        return False
    return True


# --- the revocation list of a fleet's CA. Pure ------------------------------------------------------------------------


def read_list(crl_pem: bytes) -> x509.CertificateRevocationList | None:
    """Return a revocation list (PEM); None: it cannot be read."""
    with suppress(*UNREADABLE):
        return x509.load_pem_x509_crl(crl_pem)
    return None


def is_crl_signed(crl: x509.CertificateRevocationList, ca: x509.Certificate) -> bool:
    """Whether a CA signed a revocation list."""
    key = ca.public_key()
    try:
        return crl.issuer == ca.subject and crl.is_signature_valid(key)  # type: ignore[arg-type]  # any public key
    except (*UNREADABLE, TypeError):
        return False


def number_of(crl: x509.CertificateRevocationList) -> int:
    """Return the number of a list (RFC 5280, 5.2.3); 0: it has none."""
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (x509.ExtensionNotFound, *UNREADABLE):
        return 0


def newest(ca_pem: bytes, *lists_pem: bytes) -> bytes:
    """Return the newest of several lists, PEM; empty: a CA signed none of them.

    What cannot be read, or another CA signed, is passed over. Of two with one number the first one stays.

    Raises
    ------
    ValueError
        The CA's certificate (PEM) cannot be read.
    """
    ca = x509.load_pem_x509_certificate(ca_pem)
    lists = [crl for crl in map(read_list, lists_pem) if crl is not None and is_crl_signed(crl, ca)]
    return max(lists, key=number_of).public_bytes(Encoding.PEM) if lists else b""


def is_behind(crl_pem: bytes, known_pem: bytes) -> bool:
    """Whether a list is older, by its number, than the known one of the same CA."""
    crl, known = read_list(crl_pem), read_list(known_pem)
    return crl is not None and known is not None and crl.issuer == known.issuer and number_of(crl) < number_of(known)
