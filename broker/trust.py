"""Whom a process trusts, changed in its identity folder while it runs: the steps from one CA to the next."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from broker.tls import CA, CRL, load_identity, replace_private
from schemas.errors import StorageError, UsageError
from schemas.revocation import merged, newest_of_each
from schemas.signing import UNREADABLE, Owner


@dataclass(frozen=True)
class Trusted:
    """Whom an identity folder trusts now.

    Attributes
    ----------
    owner : Owner
        Whose folder it is.
    names : list of str
        Of each CA that is trusted: name, fingerprint, end.
    is_ours_among : bool
        Whether one of them issued the folder's own certificate; otherwise it must be renewed at once.
    """

    owner: Owner
    names: list[str]
    is_ours_among: bool


def trust(folder: Path, pem: bytes, *, only: bool = False) -> Trusted:
    """Trust more CAs in an identity folder, or these alone.

    Parameters
    ----------
    folder : Path
    pem : bytes
        CA certificates, and the revocation list of each.
    only : bool
        Trust no other ones from now on.

    Raises
    ------
    UsageError
        The folder is no identity; there is no CA certificate, one has expired, or its list is missing.
    StorageError
        The folder cannot be written.
    """
    identity = load_identity(folder)
    added = _authorities(pem)
    try:
        former = [] if only else x509.load_pem_x509_certificates(identity.ca)
    except UNREADABLE as fault:
        raise UsageError(f"{folder / CA} cannot be read as PEM: say --only, which replaces it") from fault
    # The order says nothing; that of a folder is kept, so that saying it again changes no file.
    cas = list(dict.fromkeys([*former, *added]))
    ca_pem = b"".join(ca.public_bytes(Encoding.PEM) for ca in cas)
    crl = merged(ca_pem, identity.crl, pem)
    try:
        # Whom to trust comes first: a running process would put the list of a CA that it does not know aside. Readable
        # by whoever runs the process, though root put it there; there is no secret in it.
        for name, content, there in ((CA, ca_pem, identity.ca), (CRL, crl, identity.crl)):
            if content != there:
                replace_private(folder / name, content, 0o644)
    except OSError as fault:
        raise StorageError(f"cannot write to {folder}: {fault.strerror}") from fault
    ours = x509.load_pem_x509_certificate(identity.certificate)
    return Trusted(identity.owner, [_described(ca) for ca in cas], any(_has_issued(ca, ours) for ca in cas))


def _authorities(pem: bytes) -> list[x509.Certificate]:
    try:
        cas = x509.load_pem_x509_certificates(pem)
        lists = newest_of_each(pem, pem)
    except UNREADABLE as fault:
        raise UsageError(f"there is no CA certificate in it that can be read as PEM ({fault})") from fault
    now = dt.datetime.now(dt.UTC)
    for ca, crl in zip(cas, lists, strict=True):
        if not _is_authority(ca):
            raise UsageError(f"the certificate {_described(ca)} is not an authority's: take the authority's ca.pem")
        if ca.not_valid_after_utc < now:
            raise UsageError(f"the authority {_described(ca)} has expired (or this machine's clock is wrong)")
        if crl is None:
            raise UsageError(
                f"the revocation list of {_described(ca)} is missing, and a broker without it would refuse all whom it "
                "issued for: put its crl.pem behind its ca.pem, in one file"
            )
    return cas


def _is_authority(ca: x509.Certificate) -> bool:
    try:
        return ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except (x509.ExtensionNotFound, *UNREADABLE):
        return False


def _described(ca: x509.Certificate) -> str:
    print_ = ca.fingerprint(hashes.SHA256()).hex()
    return f"{ca.subject.rfc4514_string()} (SHA-256 {print_[:16]}..., until {ca.not_valid_after_utc:%Y-%m-%d})"


def _has_issued(ca: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(ca)
    except (*UNREADABLE, TypeError, InvalidSignature):
        return False
    return True
