"""Revocation lists of a fleet: the newest of each CA that is trusted, in one PEM bundle. Pure.

A fleet has one CA, and two while it changes from one to the next; each revokes in a list of its own, whose numbers
begin anew (RFC 5280, 5.2.3). So a process keeps one list for each, in the order of its CAs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from schemas import limits
from schemas.trust.certificates import UNREADABLE

_BEGIN, _END = b"-----BEGIN X509 CRL-----", b"-----END X509 CRL-----"


def lists_in(crl_pem: bytes) -> list[x509.CertificateRevocationList]:
    """Return the revocation lists that can be read in a PEM bundle: a fleet that changes its CA has one of each.

    Of so many blocks: whoever runs the broker can fill a message with them.
    """
    return list(_readable(crl_pem.split(_BEGIN, limits.MAX_LISTS + 1)[1 : limits.MAX_LISTS + 1]))


def of_file(crl_pem: bytes) -> bytes:
    """Return the lists of a file of ours, PEM, without what cannot be read: many such blocks hide no good list."""
    lists = islice(_readable(crl_pem.split(_BEGIN)[1:]), limits.MAX_LISTS)
    return b"".join(crl.public_bytes(Encoding.PEM) for crl in lists)


def _readable(parts: Iterable[bytes]) -> Iterator[x509.CertificateRevocationList]:
    halves = (part.partition(_END) for part in parts)
    for block in dict.fromkeys(block for block, end, _ in halves if end):
        with suppress(*UNREADABLE):
            yield x509.load_pem_x509_crl(_BEGIN + block + _END + b"\n")


def is_crl_signed(crl: x509.CertificateRevocationList, ca: x509.Certificate) -> bool:
    """Whether a CA signed a revocation list."""
    key = ca.public_key()
    try:
        return crl.issuer == ca.subject and crl.is_signature_valid(key)  # type: ignore[arg-type]  # any public key
    except (*UNREADABLE, TypeError):
        return False


Made = list[tuple[x509.CertificateRevocationList, x509.Certificate]]
"""Lists, each with the CA that signed it."""


def by_maker(lists: Sequence[x509.CertificateRevocationList], cas: Sequence[x509.Certificate]) -> Made:
    """Return each list with the CA that signed it, without those that none of them did."""
    return [(crl, ca) for crl in lists for ca in cas if is_crl_signed(crl, ca)]


def with_lists(listed: dict[bytes, frozenset[int]], made: Made) -> dict[bytes, frozenset[int]]:
    """Return the serial numbers that each CA (DER) has revoked, with those of more lists."""
    after = dict(listed)
    for crl, ca in made:
        maker = ca.public_bytes(Encoding.DER)
        after[maker] = after.get(maker, frozenset()) | {entry.serial_number for entry in crl}
    return after


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


def is_behind(crl_pem: bytes, known: bytes) -> bool:
    """Whether lists hold an older one, by its number, than the known ones of the same CA."""
    numbers = {crl.issuer: number_of(crl) for crl in lists_in(known)}
    return any(number_of(crl) < numbers.get(crl.issuer, 0) for crl in lists_in(crl_pem))


def merged(ca_pem: bytes, *bundles: bytes) -> bytes:
    """Return the newest list of each of these CAs as one PEM bundle, see `newest_of_each`; empty: there is none.

    The order of the bundles changes nothing but among lists of one number, so what is said again changes nothing.
    """
    lists = [crl.public_bytes(Encoding.PEM) for crl in newest_of_each(ca_pem, *bundles) if crl is not None]
    return b"".join(dict.fromkeys(lists))
