"""X.509 for a fleet: the CA's own certificate, certificates for processes, revocation lists. Pure (RFC 5280, 8410).

All keys are Ed25519, the CA's too. What a certificate may be used for follows from its role:

=============  ===========================  ==========================================
role           extended key usage           subject alternative names
=============  ===========================  ==========================================
agent          clientAuth                   ``urn:glassfleet:agent:ID``
operator       clientAuth                   ``urn:glassfleet:operator:ID``
coordinator    clientAuth, serverAuth       its URI, and its host names and addresses
broker         serverAuth                   its URI, and its host names and addresses
=============  ===========================  ==========================================

So a stolen vehicle's key can never pass for a server. Whole certificates are short enough for a message's seal.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from schemas.errors import UsageError
from schemas.topics import check_id
from schemas.trust.identity import urn
from schemas.trust.owner import Owner

BACKDATED = dt.timedelta(minutes=5)
"""Certificates begin so long before they are made: vehicles' clocks differ."""

_LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}$)(\*\.)?{_LABEL}(\.{_LABEL})*")


@dataclass(frozen=True)
class Revoked:
    """An entry of a revocation list."""

    serial: int
    when: dt.datetime
    reason: x509.ReasonFlags = x509.ReasonFlags.unspecified


def make_ca(key: Ed25519PrivateKey, name: str, now: dt.datetime, lasts: dt.timedelta) -> x509.Certificate:
    """Make the CA's own certificate. It may issue for processes, but make no further CA (path length 0)."""
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Glassfleet"), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lasts)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(ca=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, None)
    )


def issue(
    ca: x509.Certificate,
    ca_key: Ed25519PrivateKey,
    owner: Owner,
    key: Ed25519PublicKey,
    *,
    begins: dt.datetime,
    ends: dt.datetime,
    hosts: Sequence[str] = (),
) -> x509.Certificate:
    """Issue a certificate.

    Parameters
    ----------
    ca, ca_key
        The authority's.
    owner : Owner
        Its id becomes the common name; the role decides what the certificate is for (see the module).
    begins, ends : datetime
        UTC; cut to the CA's own dates.
    hosts : sequence of str
        Names and addresses of a server; only brokers and coordinators have them.

    Raises
    ------
    UsageError
        The id or a host is not valid, a broker has no host, or the dates are empty.
    """
    check_id(owner.role, owner.id)
    if hosts and owner.role not in ("broker", "coordinator"):
        raise UsageError(f"a certificate for {owner} is for a client: it takes no --host")
    if owner.role == "broker" and not hosts:
        raise UsageError("a broker's certificate needs the names that clients call it by: give --host, repeatedly")
    begins, ends = max(begins, ca.not_valid_before_utc), min(ends, ca.not_valid_after_utc)
    if ends <= begins:
        raise UsageError("the certificate would end before it begins: is the CA itself expired? (`glassfleet ca list`)")
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(urn(owner)), *(host_name(host) for host in hosts)]
    kinds = [] if owner.role == "broker" else [ExtendedKeyUsageOID.CLIENT_AUTH]
    if owner.role == "broker" or hosts:
        kinds.append(ExtendedKeyUsageOID.SERVER_AUTH)
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, owner.id)]))
        .issuer_name(ca.subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(ca=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(kinds), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(_issuer_key(ca), critical=False)
        .sign(ca_key, None)
    )


def make_crl(
    ca: x509.Certificate,
    ca_key: Ed25519PrivateKey,
    revoked: Iterable[Revoked],
    *,
    number: int,
    now: dt.datetime,
    lasts: dt.timedelta,
) -> x509.CertificateRevocationList:
    """Make the list of revoked certificates; the higher `number` is the newer list (RFC 5280, 5.2.3)."""
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(ca.subject)
        .last_update(now - BACKDATED)
        .next_update(min(now + lasts, ca.not_valid_after_utc))
        .add_extension(x509.CRLNumber(number), critical=False)
        .add_extension(_issuer_key(ca), critical=False)
    )
    for entry in revoked:
        one = x509.RevokedCertificateBuilder().serial_number(entry.serial).revocation_date(entry.when)
        if entry.reason is not x509.ReasonFlags.unspecified:
            one = one.add_extension(x509.CRLReason(entry.reason), critical=False)
        builder = builder.add_revoked_certificate(one.build())
    return builder.sign(ca_key, None)


def host_name(host: str) -> x509.GeneralName:
    """Return a host as a subject alternative name; raises UsageError for what is neither a name nor an address."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    if _HOST.fullmatch(host) is None or host.replace(".", "").isdigit():
        raise UsageError(f"--host {host!r} is neither a host name nor an address")
    return x509.DNSName(host)


def _issuer_key(ca: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    own = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
