"""TLS for every process: the context made from an identity folder, and TLS's faults in words with the way out.

An identity folder (`broker.identity` reads it) holds ``key.pem`` (for its owner alone), ``cert.pem``, ``ca.pem`` (whom
to trust) and ``crl.pem`` (whom not any more). A renewal has a key of its own, which lies in ``key.next`` until its
certificate is there and it has taken the former's place. So whoever finds a certificate that ``key.pem`` is not for
takes ``key.next``, and no moment of a renewal leaves a folder without a pair. A context is made anew for each
connection, so that a renewed certificate is used from the next reconnect on, without a restart.
"""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from schemas.errors import BrokerError, UsageError

KEY, CERT, CA, CRL = "key.pem", "cert.pem", "ca.pem", "crl.pem"
"""Names of the files in an identity folder."""

NEXT = "key.next"
"""The key of a renewal that is not complete."""

LOOKS = (KEY, NEXT, KEY, NEXT, KEY)
"""Where the certificate's key is looked for: while a renewal completes, it may have moved since the look before."""


@dataclass(frozen=True)
class Tls:
    """Whom to trust and who we are, as files (PEM).

    Attributes
    ----------
    ca_file : str or None
        Certificates to trust; None: the system's.
    cert_file, key_file : str or None
        Ours; both or neither.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        if (self.cert_file is None) != (self.key_file is None):
            raise UsageError("TLS needs both certificate and key, or neither")

    @property
    def has_certificate(self) -> bool:
        """Whether we show a certificate: mutual TLS."""
        return self.cert_file is not None


def tls_of(identity: Path | str | None, ca_file: Path | str | None = None) -> Tls | None:
    """Return what a process's settings say; None when they say nothing.

    Parameters
    ----------
    identity : Path or None
        Identity folder.
    ca_file : Path or None
        Certificates to trust, in place of the folder's.

    Raises
    ------
    UsageError
        The folder lacks a file.
    """
    if identity is None:
        return None if ca_file is None else Tls(str(ca_file))
    folder = Path(identity)
    for name in (KEY, CERT, CA):
        if not (folder / name).is_file():
            raise UsageError(
                f"{folder} is no identity folder: {name} is missing. `glassfleet ca issue` or `glassfleet agent enrol` "
                "makes one"
            )
    return Tls(str(ca_file or folder / CA), str(folder / CERT), str(folder / KEY))


def worker_identity(identity: Path, number: int) -> Path:
    """Return the identity folder of a coordinator's intake worker, from 1: one identity cannot connect twice."""
    return identity / f"intake-{number}"


class _TellingSocket(ssl.SSLSocket):
    """Remembers why TLS failed: the MQTT library above swallows it, and with TLS 1.3 a refusal comes on reading."""

    fault: ssl.SSLError | None = None

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as fault:
            self.fault = fault
            raise


def fault_of(sock: Any) -> ssl.SSLError | None:
    """Return TLS's own fault of a socket that was made with `client_context`, if there was one."""
    return sock.fault if isinstance(sock, _TellingSocket) else None


def client_context(tls: Tls | None) -> ssl.SSLContext:
    """Make the context of one connection: TLS 1.2 at least, certificate and host name verified, always.

    Raises
    ------
    UsageError
        A file cannot be read, or key and certificate do not belong together.
    """
    tls = tls or Tls()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.sslsocket_class = _TellingSocket
    # No certificate or host name goes unchecked: PROTOCOL_TLS_CLIENT sets both, and nothing here unsets them.
    what: str = ""
    try:
        if tls.ca_file is None:
            context.load_default_certs()
        else:
            what = tls.ca_file
            context.load_verify_locations(tls.ca_file)
        if tls.cert_file is not None:
            what = f"{tls.cert_file} with {tls.key_file}"
            _load_pair(context, tls.cert_file, Path(str(tls.key_file)))
    except FileNotFoundError as fault:
        raise UsageError(f"TLS: {what} does not exist") from fault
    except PermissionError as fault:
        raise UsageError(f"TLS: {what} cannot be read by this user: give it the files (chown), mode 0600") from fault
    except (ssl.SSLError, OSError, ValueError) as fault:
        reason = getattr(fault, "reason", None) or fault
        if reason == "KEY_VALUES_MISMATCH":
            raise UsageError(f"TLS: {what}: the certificate was made for another key; enrol again") from fault
        raise UsageError(f"TLS: {what} cannot be used as PEM ({reason})") from fault
    return context


def _load_pair(context: ssl.SSLContext, cert_file: str, key_file: Path) -> None:
    # Without a password function OpenSSL would ask for one on the terminal of a service that has none.
    for name in LOOKS:
        key = key_file.with_name(name) if name == NEXT else key_file
        try:
            context.load_cert_chain(cert_file, key, password=_no_password)
        except FileNotFoundError:
            if name != NEXT:
                raise
        except ssl.SSLError as fault:
            if fault.reason != "KEY_VALUES_MISMATCH":
                raise
            found = fault
        else:
            return
    raise found


def _no_password() -> str:
    raise ValueError("the key is encrypted; services need one that is not")


def ask_why(host: str, port: int, tls: Tls | None, timeout: float, tries: int) -> ssl.SSLError | None:
    """Shake hands and wait for the server's verdict on our certificate; None when it has nothing against it.

    With TLS 1.3 the verdict comes after the client believes itself connected; a client that has written by then may
    read only that the connection was reset. So nothing is written here, and as the end of the handshake can be enough
    for that, there are a few `tries`.
    """
    for _ in range(tries):
        try:
            with (
                socket.create_connection((host, port), timeout) as plain,
                client_context(tls).wrap_socket(plain, server_hostname=host) as secured,
            ):
                secured.settimeout(min(timeout, 1.0))
                secured.recv(1)
        except (ssl.SSLEOFError, ConnectionResetError):
            continue
        except ssl.SSLError as fault:
            return fault
        # Key and certificate are replaced one after the other: between the two the next attempt will tell.
        except (OSError, UsageError):
            return None
    return None


def wait_for_server(
    host: str, port: int, tls: Tls, timeout: float, *, is_alive: Callable[[], bool] = lambda: True
) -> None:
    """Wait until a server shows a certificate that `tls` trusts, for its name.

    Raises
    ------
    BrokerError
        It did not within `timeout` seconds, or `is_alive` says that its process has ended.
    """
    deadline = time.monotonic() + timeout
    context = client_context(tls)
    while True:
        try:
            with socket.create_connection((host, port), 1.0) as plain, context.wrap_socket(plain, server_hostname=host):
                return
        except OSError as fault:
            if time.monotonic() >= deadline or not is_alive():
                words = tls_words(fault, host) if isinstance(fault, ssl.SSLError) else str(fault)
                raise BrokerError(f"{host}:{port}: {words}") from fault
            time.sleep(0.05)


_OTHER_CA = "name the right CA certificate (ca.pem of --identity, or --ca-file), or the right broker"
_OTHER_FLEET = "the broker does not know the CA of our certificate, it is from another fleet: enrol with this one"
_OTHER_NAME = "use a name that is in it, or issue it again with --host {host}"
_NO_TLS_THERE = "write mqtt:// for it, or name the broker's TLS port (mostly 8883)"

PROBABLY_PLAIN: Final = f"what listens there probably does not speak TLS, but plain MQTT: {_NO_TLS_THERE}"
"""For what a broker without TLS does when it is greeted with it: nothing, or an end without a word."""

_VERIFY = {
    9: "the broker's certificate is not valid yet: is this machine's clock right? (it says {now})",
    10: "the broker's certificate has expired: renew it (or this machine's clock, which says {now}, is wrong)",
    18: f"the broker's certificate is signed by itself: {_OTHER_CA}",
    19: f"the broker's certificate is from a CA that is not ours: {_OTHER_CA}",
    20: f"the broker's certificate is from a CA that is not ours: {_OTHER_CA}",
    26: "the broker shows a certificate that is not for a server: issue one with `glassfleet ca issue --broker`",
    62: f"the broker's certificate is for another host name: {_OTHER_NAME}",
    64: f"the broker's certificate is for another address: {_OTHER_NAME}",
}
"""OpenSSL's verification results (x509_vfy.h) that have a way out."""

_ALERTS = {
    "CERTIFICATE_REQUIRED": "the broker asks for a client certificate: give --identity DIR (made by `glassfleet agent "
    "enrol` or `glassfleet ca issue`)",
    "CERTIFICATE_REVOKED": "our certificate was revoked: ask the fleet's operator for a new token, and enrol again",
    "CERTIFICATE_EXPIRED": "our certificate has expired, or the broker's revocation list has: enrol again with a new "
    "token, or renew the list with `glassfleet ca crl`",
    "UNKNOWN_CA": _OTHER_FLEET,
    "DECRYPT_ERROR": _OTHER_FLEET,
    "BAD_CERTIFICATE": "the broker does not take our certificate: it is not valid (yet), or not for a client",
    "UNSUPPORTED_CERTIFICATE": "the broker does not take our certificate: it is not for a client",
    "PROTOCOL_VERSION": "the broker speaks another version of TLS: it needs 1.2 or 1.3",
    "WRONG_VERSION_NUMBER": f"what listens there does not speak TLS: {_NO_TLS_THERE}",
    "HANDSHAKE_FAILURE": "the broker and we have no cipher, or no kind of certificate, in common",
}
"""TLS alerts (RFC 8446, section 6) that have a way out, by the end of OpenSSL's name for them."""


def tls_words(fault: ssl.SSLError, host: str) -> str:
    """Say what a fault of TLS means, and the way out."""
    now = f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC"
    if isinstance(fault, ssl.SSLCertVerificationError):
        words = _VERIFY.get(fault.verify_code)
        return words.format(now=now, host=host) if words else f"the broker's certificate: {fault.verify_message}"
    reason = fault.reason or str(fault)
    for name, words in _ALERTS.items():
        if reason.endswith(name):
            return words
    return f"{reason}: does the broker speak TLS on this port, and is its certificate trusted?"
