"""Whom a process trusts, changed in its identity folder while it runs: the steps from one CA to the next."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from broker.folders import alone_in
from broker.identity import Identity, load_identity
from broker.tls import CA, CRL
from schemas.errors import StorageError, UsageError, os_faults_as
from schemas.private_files import replace_private
from schemas.trust.certificates import UNREADABLE, is_issued
from schemas.trust.owner import Owner
from schemas.trust.revocation import merged, newest_of_each, of_file


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
    with alone_in(folder):
        identity = load_identity(folder)
        cas, contents = _changed(identity, pem, only=only)
        with os_faults_as(StorageError, f"cannot write to {folder}"):
            for name, content in contents.items():
                replace_private(folder / name, content, 0o644)
    ours = x509.load_pem_x509_certificate(identity.certificate)
    return Trusted(identity.owner, [_described(ca) for ca in cas], any(is_issued(ours, ca) for ca in cas))


def check_trust(folder: Path, pem: bytes, *, only: bool = False) -> None:
    """Raise what `trust` would, and change nothing: of several folders all are changed, or none."""
    _, contents = _changed(load_identity(folder), pem, only=only)
    if contents and not os.access(folder, os.W_OK | os.X_OK):
        raise StorageError(f"cannot write to {folder}: this user may not")


def _changed(identity: Identity, pem: bytes, *, only: bool) -> tuple[list[x509.Certificate], dict[str, bytes]]:
    """Return whom an identity trusts then, and the content of each file that must change for it."""
    added = _authorities(pem)
    try:
        former = [] if only else x509.load_pem_x509_certificates(identity.ca)
    except UNREADABLE as fault:
        raise UsageError(f"{identity.folder / CA} cannot be read as PEM: say --only, which replaces it") from fault
    # The order says nothing; that of a folder is kept, so that saying it again changes no file.
    cas = list(dict.fromkeys([*former, *added]))
    ca_pem = b"".join(ca.public_bytes(Encoding.PEM) for ca in cas)
    crl = merged(ca_pem, of_file(identity.crl), pem)
    # Whom to trust comes first: a running process would put the list of a CA that it does not know aside. Readable by
    # whoever runs the process, though root put it there; there is no secret in it.
    files = ((CA, ca_pem, identity.ca), (CRL, crl, identity.crl))
    return cas, {name: content for name, content, there in files if content != there}


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


def called(ca: x509.Certificate) -> str:
    """Return an authority's name and the beginning of its fingerprint: two may have one name."""
    return f"{ca.subject.rfc4514_string()} (SHA-256 {ca.fingerprint(hashes.SHA256()).hex()[:16]}...)"


def _described(ca: x509.Certificate) -> str:
    return f"{called(ca)[:-1]}, until {ca.not_valid_after_utc:%Y-%m-%d})"
