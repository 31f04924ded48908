"""The way to the broker: reachable, which protocol, TLS and its dates, and how large a message may be."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes

from broker.connection import HEADER_ROOM, ConnectError, Connection
from broker.identity import SOON, Identity, load_identity
from broker.paho_transport import connect_once
from broker.port import Link
from broker.tls import CA, CRL, client_context
from broker.url import BrokerAddress, is_loopback, parse_url, safe_address
from console.checkup.finding import Finding, fine, size, warning, wrong
from schemas.errors import BrokerError
from schemas.limits import MAX_MESSAGE_BYTES, MIN_MESSAGE_BYTES
from schemas.trust.certificates import newest, read_list


def broker(link: Link) -> Iterator[Finding]:
    """Connect once, with each protocol; raises UsageError that says what to look at."""
    address = parse_url(link.url)
    try:
        version = connect_once(link, 5.0)
    except BrokerError as fault:
        yield wrong("broker", str(fault), _other_port(address))
        return
    text = f"{address.public} answers, MQTT {version}"
    if version == "5":
        yield fine("broker", text)
    else:
        yield warning(
            "broker",
            f"{text}: refused messages and size limits are not told by it",
            "works; a broker with MQTT 5 tells more (docs/reference/brokers.md)",
        )
    if not address.tls and not is_loopback(address.host):
        yield warning(
            "tls", f"{address.public} is not encrypted: everybody on the way can read and change what is said",
            "use mqtts:// (docs/howto/secure-fleet.md)",
        )  # fmt: skip
    if version == "5":
        yield message_size(link)


def _other_port(address: BrokerAddress) -> str:
    """Say so when what listens there speaks TLS and we do not, or the other way round; empty when that is not it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Nothing is said over this connection, and nothing believed: it only shows whether there is TLS.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((address.host, address.port), 5.0) as plain:
            try:
                context.wrap_socket(plain, server_hostname=address.host).close()
                speaks_tls = True
            except OSError as fault:
                # An alert is TLS, too; anything else is not.
                speaks_tls = "ALERT" in str(getattr(fault, "reason", ""))
    except OSError:
        return ""
    if speaks_tls == address.tls:
        return ""
    if address.tls:
        return "what listens there does not speak TLS: name the TLS port (mostly 8883), or write mqtt://"
    return "what listens there speaks TLS: write mqtts://, with --identity or --ca-file"


def message_size(link: Link) -> Finding:
    """Compare what the broker carries with what we may send."""
    limit = _largest_packet(link)
    if limit is None:
        return fine("message size", "the broker names no limit")
    room = limit - HEADER_ROOM
    if room < MIN_MESSAGE_BYTES:
        return wrong(
            "message size",
            f"the broker takes packets of {limit} bytes at most, and {MIN_MESSAGE_BYTES + HEADER_ROOM} are needed",
            f"raise its limit (Mosquitto: max_packet_size) to {MAX_MESSAGE_BYTES + HEADER_ROOM} or more",
        )
    if room < MAX_MESSAGE_BYTES:
        return warning(
            "message size",
            f"the broker takes packets of {size(limit)}: larger messages travel in more parts than by default",
            f"raise its limit to {MAX_MESSAGE_BYTES + HEADER_ROOM} bytes, or set GLASSFLEET_MAX_MESSAGE_BYTES={room} "
            "in every process",
        )
    return fine("message size", f"packets of {size(limit)} pass")


def _largest_packet(link: Link) -> int | None:
    connection = Connection(
        safe_address(link.url, link.tls, insecure_plaintext=link.insecure_plaintext),
        link,
        "5",
        on_message=lambda _message: None,
        on_acknowledged=lambda _number, _complaint: None,
        on_refused=lambda _number, _why: None,
    )
    try:
        connection.open()
    except ConnectError:
        return None  # it was told by `connect_once`, or the network has gone since
    finally:
        connection.close()
    return connection.max_packet_bytes


def server_certificate(link: Link) -> Iterator[Finding]:
    """Look at the dates of the broker's certificate; a handshake that fails is told by `broker`."""
    address = parse_url(link.url)
    if not address.tls:
        return
    try:
        with (
            socket.create_connection((address.host, address.port), link.connect_timeout) as plain,
            client_context(link.tls).wrap_socket(plain, server_hostname=address.host) as tls,
        ):
            result = tls.getpeercert() or {}
            version = tls.version()
    except OSError:
        return
    ends = dt.datetime.fromtimestamp(ssl.cert_time_to_seconds(str(result["notAfter"])), tz=dt.UTC)
    yield _dated(
        "tls", f"{version}; the broker's certificate", ends,
        "renew it on the broker: glassfleet ca renew DIR, then glassfleet broker reload",
    )  # fmt: skip


def identity(folder: Path) -> Iterator[Finding]:
    """Look at our certificate, its authority and the revocation list; raises UsageError when they cannot be read."""
    result = load_identity(folder)
    renew = f"glassfleet agent renew --id {result.owner.id} --authority URL, or glassfleet ca renew {folder}"
    now = dt.datetime.now(dt.UTC)
    if result.begins > now:
        yield wrong(
            "certificate", f"of {result.owner} is not valid before {result.begins:%Y-%m-%d %H:%M} UTC",
            f"set this machine's clock: it says {now:%Y-%m-%d %H:%M} UTC",
        )  # fmt: skip
    else:
        yield _dated("certificate", f"of {result.owner}", result.ends, renew)
    ca = x509.load_pem_x509_certificate(result.ca)
    called = f"{ca.subject.rfc4514_string()} (SHA-256 {ca.fingerprint(hashes.SHA256()).hex()[:16]}...)"
    yield _dated(
        "authority", f"{called} in {folder / CA}", ca.not_valid_after_utc,
        "change to a new authority: docs/howto/change-the-authority.md",
    )  # fmt: skip
    yield from _list(result, renew)
    mode = (folder / "key.pem").stat().st_mode
    if mode & 0o077:
        yield wrong("private key", f"{folder / 'key.pem'} can be read by others", f"chmod 600 {folder / 'key.pem'}")


def _list(result: Identity, renew: str) -> Iterator[Finding]:
    """Look at the revocation list of an identity."""
    place, crl = result.folder / CRL, read_list(newest(result.ca, result.crl))
    number = x509.load_pem_x509_certificate(result.certificate).serial_number
    if crl is None:
        is_broker = result.owner.role == "broker"
        harm = "a broker refuses everybody" if is_broker else "whoever was revoked is believed"
        yield wrong(
            "revocation", f"the authority's list is missing in {place}: {harm}",
            f"hand over the authority's crl.pem: glassfleet ca crl --from FILE --into {result.folder}",
        )  # fmt: skip
    elif crl.get_revoked_certificate_by_serial_number(number) is not None:
        yield wrong("revocation", f"the certificate of {result.owner} was revoked", "ask the operator for a token")
    elif crl.next_update_utc is not None:
        yield _dated("revocation", f"the list in {place}", crl.next_update_utc, "fetch it: " + renew)


def _dated(check: str, what: str, ends: dt.datetime, fix: str) -> Finding:
    left = ends - dt.datetime.now(dt.UTC)
    if left < dt.timedelta(0):
        return wrong(check, f"{what} has expired on {ends:%Y-%m-%d %H:%M} UTC", fix)
    if left < SOON:
        hours = left.total_seconds() / 3600
        words = f"{hours:.0f} hours" if hours < 48 else f"{left.days} days"
        return warning(check, f"{what} expires in {words}", fix)
    return fine(check, f"{what} is good until {ends:%Y-%m-%d}")
