"""Revocation lists of a fleet: the newest of each CA that is trusted, in one PEM bundle. Pure.

A fleet has one CA, and two while it changes from one to the next; each revokes in a list of its own, whose numbers
begin anew (RFC 5280, 5.2.3). So a process keeps one list for each, in the order of its CAs.
"""

from __future__ import annotations

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from schemas.signing import UNREADABLE, is_crl_signed, lists_in


def number_of(crl: x509.CertificateRevocationList) -> int:
    """Return the number of a list (RFC 5280, 5.2.3); 0: it has none."""
    try:
        return crl.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number
    except (x509.ExtensionNotFound, *UNREADABLE):
        return 0


def newest_of_each(ca_pem: bytes, *bundles: bytes) -> list[x509.CertificateRevocationList | None]:
    """Return the newest list of each of these CAs, in their order; None: there is none of it.

    Parameters
    ----------
    ca_pem : bytes
        CA certificates, PEM.
    *bundles : bytes
        Lists, PEM; what cannot be read or is of none of the CAs is passed over. Of two with one number, the first one
        stays.

    Raises
    ------
    ValueError
        No CA certificate can be read.
    """
    lists = [crl for bundle in bundles for crl in lists_in(bundle)]
    made = [[crl for crl in lists if is_crl_signed(crl, ca)] for ca in x509.load_pem_x509_certificates(ca_pem)]
    return [max(ours, key=number_of, default=None) for ours in made]


def merged(ca_pem: bytes, *bundles: bytes) -> bytes:
    """Return the newest list of each of these CAs as one PEM bundle, see `newest_of_each`; empty: there is none.

    The order of the bundles changes nothing but among lists of one number, so what is said again changes nothing.
    """
    found = [crl.public_bytes(Encoding.PEM) for crl in newest_of_each(ca_pem, *bundles) if crl is not None]
    return b"".join(dict.fromkeys(found))
