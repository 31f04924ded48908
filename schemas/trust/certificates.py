"""Certificates of a fleet: whom one names, which authority it is from. Pure."""

from __future__ import annotations

from cryptography import x509
from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm

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
