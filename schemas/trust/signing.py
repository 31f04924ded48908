"""Signed messages: Ed25519 (RFC 8032) over a message and its topic, with the signer's certificate inside.

Theory of operation. The broker is not trusted: whoever runs it, or breaks into it, can drop and delay messages, but
must not be able to write one. So each envelope carries, in its ``signature`` field, a `seal`: one marker byte, the 64
bytes of the signature, and the signer's X.509 certificate (DER). A message is therefore verified on its own, in
whatever order messages arrive, with nothing but the fleet's CA certificate. What is signed is

    ``glassfleet-message/1`` NUL topic NUL the encoded envelope with an empty signature

so that a message cannot be moved to another topic, and with it to another agent, run or fleet. The certificate names
its owner by a URI, ``urn:glassfleet:{role}:{id}``; ``schemas.topics`` says who may write which topic, and a message
that another one signed is refused, though the certificate be good.

The seal is spliced into the encoded bytes. The fields of an envelope are in the order of their names, so that after
``signature`` only ``time`` (a float) and ``v`` follow, 17 bytes in all; an empty signature is the two bytes ``c4 00``
before them. Nothing is decoded and encoded again, and an answer that waits in an outbox is sealed when it leaves, with
whatever certificate is current then.

Replay. A sealed message can be sent again by whoever saw it; each kind is harmless then, or is known by its content:

- A contribution names run and task, and the digest of a task covers the run's nonce, which no two runs share; the
  coordinator counts (run, agent, task) once.
- Requests of one run are ordered by their time, which the coordinator's journal keeps rising; an ended run stays ended.
- A receipt names its task. Model pointers carry a sequence number that may only rise.
- A birth or a death may be repeated: it costs a question, and nothing rests on it.

Pure but for the clock that is passed in: keys and certificates come as bytes. OpenSSL reads certificates; libsodium
signs and verifies messages, in half of OpenSSL's time, which a coordinator spends on every answer.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from nacl.bindings import crypto_sign, crypto_sign_open
from nacl.exceptions import CryptoError

from schemas import limits
from schemas.errors import UsageError, WireError
from schemas.topics import PROTOCOL
from schemas.trust.certificates import UNREADABLE, is_crl_signed, is_issued, owner_of, read_list
from schemas.trust.owner import Owner

CLOCK_LEEWAY = 300.0
"""Seconds by which a certificate may seem too young: clocks differ, and by more they are told (as Kerberos does)."""

REMEMBERED = 4096
"""Certificates that are remembered as verified, some MB; the least recently used gives way, and is verified anew."""

SIGNED_AS = b"glassfleet-message/1\x00"
"""What is put before signed bytes: a signature over one kind of thing can never pass for one over another."""

SEALED = 1
"""Marker byte of a seal."""

SIGNATURE_BYTES = 64
_FIELD = b"\xa9signature"
_EMPTY = b"\xc4\x00"
_TIME, _VERSION = b"\xa4time\xcb", b"\xa1v" + bytes([PROTOCOL])
_TAIL = len(_TIME) + 8 + len(_VERSION)


@dataclass(frozen=True)
class _Checked:
    owner: Owner
    key: bytes
    """Ed25519 public key, 32 bytes."""
    serial: int
    begins: float
    ends: float
    """Its end, or that of the authority that issued it."""


@dataclass(frozen=True)
class Trust:
    """Whom a `Verifier` trusts at a moment, swapped as a whole: who verifies meanwhile keeps to one of them.

    Attributes
    ----------
    revoked : frozenset of int
        Serial numbers that the CA has revoked.
    checked : OrderedDict
        Certificates (DER) that the CA issued.
    """

    ca: x509.Certificate
    revoked: frozenset[int]
    checked: OrderedDict[bytes, _Checked] = field(default_factory=OrderedDict, repr=False, compare=False)


class Signer:
    """Signs for one owner.

    Parameters
    ----------
    key_pem, certificate_pem : bytes
        An Ed25519 private key and its certificate, PEM.

    Attributes
    ----------
    certificate : bytes
        DER.

    Raises
    ------
    UsageError
        They cannot be read, are of another kind, or do not belong together.
    """

    def __init__(self, key_pem: bytes, certificate_pem: bytes) -> None:
        try:
            key = load_pem_private_key(key_pem, password=None)
            certificate = x509.load_pem_x509_certificate(certificate_pem)
        except (*UNREADABLE, TypeError) as fault:
            raise UsageError(f"key or certificate cannot be read as PEM: {fault}") from fault
        if not isinstance(key, Ed25519PrivateKey):
            raise UsageError("messages are signed with Ed25519 keys; this key is of another kind: enrol again")
        if certificate.public_key() != key.public_key():
            raise UsageError(
                "the certificate belongs to another key: enrol again, or restore the key that it was made for"
            )
        try:
            self.owner = owner_of(certificate)
        except WireError as fault:
            raise UsageError(f"{fault.detail}: it was not made by this software's CA") from fault
        self.certificate = certificate.public_bytes(Encoding.DER)
        self._key = key.private_bytes_raw() + key.public_key().public_bytes_raw()

    def sign(self, content: bytes) -> bytes:
        """Return the 64 bytes of the signature over `content`."""
        return crypto_sign(content, self._key)[:SIGNATURE_BYTES]

    @property
    def overhead(self) -> int:
        """Bytes by which `seal` makes a message longer."""
        return 1 + SIGNATURE_BYTES + len(self.certificate) + 1  # the last: a length of two bytes in place of one

    def seal(self, topic: str, payload: bytes) -> bytes:
        """Return an encoded envelope with its seal; a blob, an empty or a sealed payload as it is."""
        try:
            body, seal = split(payload)
        except WireError:
            return payload
        if seal:
            return payload
        seal = bytes([SEALED]) + self.sign(_signed(topic, body)) + self.certificate
        cut = len(payload) - _TAIL
        return payload[: cut - len(_EMPTY)] + b"\xc5" + len(seal).to_bytes(2, "big") + seal + payload[cut:]


class Verifier:
    """Verifies seals against the fleet's CA.

    Parameters
    ----------
    ca_pem : bytes
        Its certificate, PEM.
    wall : callable
        Seconds since the epoch, for the dates of certificates.

    Raises
    ------
    UsageError
        It cannot be read.
    """

    def __init__(self, ca_pem: bytes, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._changing = threading.Lock()
        self._trust = Trust(_authority(ca_pem), frozenset())

    def trust(self, ca_pem: bytes, crl_pem: bytes = b"") -> None:
        """Trust this CA in place of the former one; what it has revoked stays revoked.

        Parameters
        ----------
        ca_pem : bytes
            Its certificate, PEM.
        crl_pem : bytes
            A revocation list that counts from the same moment on; one that cannot be read, or is not the CA's, is
            passed over.

        Raises
        ------
        UsageError
            The certificate cannot be read; the former CA stays.
        """
        ca, crl = _authority(ca_pem), read_list(crl_pem)
        listed = _serials(crl) if crl is not None and is_crl_signed(crl, ca) else frozenset[int]()
        with self._changing:
            if ca == self._trust.ca:
                listed |= self._trust.revoked
            # With nothing remembered: a certificate of a CA that goes must not be taken over by who checks it now.
            self._trust = Trust(ca, listed)

    @property
    def trusted(self) -> Trust:
        """What is trusted now; another object as soon as that changes."""
        return self._trust

    @property
    def revoked(self) -> frozenset[int]:
        """Serial numbers that are refused."""
        return self._trust.revoked

    def update_crl(self, crl_pem: bytes) -> int:
        """Take over a revocation list; returns how many certificates are revoked now.

        An older list does no harm, as nothing is unrevoked.

        Raises
        ------
        WireError
            ``bad-crl``: it cannot be read, or our CA did not sign it.
        """
        crl = read_list(crl_pem)
        if crl is None:
            raise WireError("bad-crl", "the revocation list cannot be read")
        with self._changing:
            now = self._trust
            if not is_crl_signed(crl, now.ca):
                raise WireError("bad-crl", "the revocation list was not signed by this fleet's CA")
            if not (listed := _serials(crl)) <= now.revoked:
                self._trust = replace(now, revoked=now.revoked | listed)
            return len(self._trust.revoked)

    def owner(self, certificate: bytes, at: float | None = None) -> Owner:
        """Return whom a certificate (DER) names, after checking it.

        Parameters
        ----------
        at : float or None
            When it must not have expired, seconds since the epoch; None: it must be valid now. It may have begun after
            `at`: a model is signed again when another coordinator's certificate takes the place of a revoked one.

        Raises
        ------
        WireError
            ``bad-certificate``, ``foreign-certificate``, ``expired-certificate`` or ``revoked-certificate``.
        """
        return self._certificate(certificate, at).owner

    def _certificate(self, der: bytes, at: float | None = None) -> _Checked:
        trust = self._trust
        checked = trust.checked.get(der)
        if checked is None:
            checked = _check(der, trust.ca)
        with self._changing:
            trust.checked[der] = checked
            trust.checked.move_to_end(der)
            if len(trust.checked) > REMEMBERED:
                trust.checked.popitem(last=False)
        now = self._wall() if at is None else at
        if checked.serial in trust.revoked:
            raise WireError("revoked-certificate", f"the certificate of {checked.owner} was revoked")
        if now > checked.ends:
            raise WireError(
                "expired-certificate", f"the certificate of {checked.owner}, or its authority's, expired: renew it"
            )
        if at is None and now < checked.begins - CLOCK_LEEWAY:
            raise WireError(
                "expired-certificate", f"the certificate of {checked.owner} is not valid yet: is the clock right?"
            )
        return checked

    def verify(self, content: bytes, signature: bytes, certificate: bytes, at: float | None = None) -> Owner:
        """Verify a detached signature; returns who made it.

        Raises
        ------
        WireError
            As `owner`, and ``bad-signature``.
        """
        return _verified(self._certificate(certificate, at), content, signature)

    def open(self, topic: str, payload: bytes, writers: Sequence[Owner]) -> Owner:
        """Verify the seal of an encoded envelope; returns who sealed it.

        Parameters
        ----------
        topic : str
            Where it arrived.
        writers : sequence of Owner
            Who may write there; the id ``*`` stands for any id of that role.

        Raises
        ------
        WireError
            ``unsigned``, ``wrong-signer``, or as `verify`.
        """
        body, seal = split(payload)
        if not seal:
            raise WireError("unsigned", "this fleet takes signed messages only")
        signature, certificate = seal[1 : 1 + SIGNATURE_BYTES], seal[1 + SIGNATURE_BYTES :]
        if seal[0] != SEALED or not certificate:
            raise WireError("bad-signature", "the seal is of an unknown kind")
        # Cheap first: a certificate that is known costs nothing to look up, a signature 0.05 ms to verify.
        checked = self._certificate(certificate)
        owner = checked.owner
        if not any(writer.role == owner.role and writer.id in ("*", owner.id) for writer in writers):
            raise WireError("wrong-signer", f"{owner} may not write here")
        return _verified(checked, _signed(topic, body), signature)


def split(payload: bytes) -> tuple[bytes, bytes]:
    """Return an encoded envelope without its seal, and the seal; an unsigned one comes back with an empty seal.

    Raises
    ------
    WireError
        ``malformed``: it does not end with a signature field, so it is no envelope of ours.
    """
    cut = len(payload) - _TAIL
    tail = payload[max(0, cut) :]
    if tail.startswith(_TIME) and tail.endswith(_VERSION):
        if payload.endswith(_FIELD + _EMPTY, 0, cut):
            return payload, b""
        start = max(0, cut - limits.MAX_SEAL_BYTES - len(_FIELD) - 3)
        while (at := payload.find(_FIELD + b"\xc5", start, cut)) >= 0:
            head = at + len(_FIELD)
            size = int.from_bytes(payload[head + 1 : head + 3], "big")
            if size and head + 3 + size == cut:
                return payload[:head] + _EMPTY + tail, payload[head + 3 : cut]
            start = at + 1
    raise WireError("malformed", "the message does not end as an envelope does")


def _verified(checked: _Checked, content: bytes, signature: bytes) -> Owner:
    """Return whose certificate it is; raises WireError unless that one made the signature."""
    # The two go as one string: what a signature is too long by would count as signed.
    if len(signature) != SIGNATURE_BYTES:
        raise WireError("bad-signature", f"a signature of {len(signature)} bytes in place of {SIGNATURE_BYTES}")
    try:
        crypto_sign_open(signature + content, checked.key)
    except CryptoError as fault:
        raise WireError("bad-signature", f"the signature is not {checked.owner}'s over these bytes") from fault
    return checked.owner


def _signed(topic: str, body: bytes) -> bytes:
    return SIGNED_AS + topic.encode() + b"\x00" + body


def _authority(ca_pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(ca_pem)
    except UNREADABLE as fault:
        raise UsageError(f"the CA certificate cannot be read as PEM: {fault}") from fault


def _serials(crl: x509.CertificateRevocationList) -> frozenset[int]:
    return frozenset(entry.serial_number for entry in crl)


def _check(der: bytes, ca: x509.Certificate) -> _Checked:
    try:
        return _read(der, ca)
    except WireError:
        raise
    except Exception as fault:  # hostile bytes make the parser raise errors of many kinds
        raise WireError("bad-certificate", "the certificate cannot be read") from fault


def _read(der: bytes, ca: x509.Certificate) -> _Checked:
    certificate = x509.load_der_x509_certificate(der)
    key = certificate.public_key()
    if not isinstance(key, Ed25519PublicKey):
        raise WireError("bad-certificate", "messages are signed with Ed25519 keys")
    if not is_issued(certificate, ca):
        raise WireError("foreign-certificate", "the certificate was not issued by this fleet's CA")
    if not der.endswith(b"\x00" + certificate.signature):
        # The count of unused bits stands outside what the CA signed; DER knows one way to write it.
        raise WireError("bad-certificate", "the certificate is not in DER")
    try:
        if certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            raise WireError("bad-certificate", "a CA does not sign messages")
    except x509.ExtensionNotFound:
        pass
    ends = min(certificate.not_valid_after_utc, ca.not_valid_after_utc)
    return _Checked(
        owner_of(certificate),
        key.public_bytes_raw(),
        certificate.serial_number,
        certificate.not_valid_before_utc.timestamp(),
        ends.timestamp(),
    )
