"""How a vehicle gets its identity, over the network with a one-time token, and renews it.

The key is made here and stays here. What is stored is stored for this user alone, the key first: an answer that was
lost on the way can be asked for again with the same token, as the authority knows the key that used it.
"""

from __future__ import annotations

import base64
import datetime as dt
import http.client
import json
import ssl
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from broker.identity import alone_in, load_identity, next_key, save_identity
from broker.servers.revocation import check_crl
from broker.tls import CA, CRL, KEY, client_context, tls_of, tls_words
from schemas.errors import BrokerError, StorageError, UsageError, WireError, os_faults_as
from schemas.limits import MAX_CRL_BYTES
from schemas.text import without_password
from schemas.trust.certificates import UNREADABLE, owner_of
from schemas.trust.identity import Token, load_key, make_request, new_key, prove_renewal
from schemas.trust.owner import Owner
from schemas.trust.signing import Verifier

TIMEOUT: Final = 15.0
"""Seconds for each connection with the authority."""


class EnrolmentError(BrokerError):
    """The authority cannot be reached, is another one, or refuses."""


def enrol(folder: Path, token: Token, url: str) -> dt.datetime:
    """Enrol over the network; returns when the certificate ends.

    Parameters
    ----------
    folder : Path
        Identity folder; a key that is in it is used, so that a broken attempt can be repeated.
    token : Token
    url : str
        ``https://host[:port]`` of the authority.

    Raises
    ------
    UsageError
        The URL is wrong, or the folder has a certificate already.
    EnrolmentError
        See there.
    StorageError
        The folder cannot be written.
    """
    owner = Owner("agent", token.agent)
    if (folder / "cert.pem").exists():
        raise UsageError(
            f"{folder} has a certificate already: `glassfleet agent renew` renews it; to begin anew, remove the folder"
        )
    host, port = _place(url)
    # Nothing that is secret is said on this first, unverified connection.
    ca = _call(host, port, _unverified(), "GET", "/v1/ca")
    try:
        is_ours = token.trusts(ca)
    except WireError:
        is_ours = False
    if not is_ours:
        raise EnrolmentError(
            f"{without_password(url)} is not the authority that made the token (another fingerprint): "
            "the URL is wrong, or somebody stands between; nothing was sent"
        )
    key = _key(folder)
    save_identity(folder, ca=ca)
    request = make_request(key, owner).decode()
    body = {"token": token.secret, "request": request}
    context = client_context(tls_of(None, folder / CA))
    answer = _json(_call(host, port, context, "POST", "/v1/enrol", body), url)
    return _store(folder, key, owner, answer | {"ca": ca.decode()})


def renew(folder: Path, url: str) -> dt.datetime:
    """Get a new certificate for a new key, proving that we hold the current one; returns when the new one ends.

    Whoever has a copy of the folder from before is left with a certificate that the next renewal revokes; if it renews
    that itself, ours is revoked, and both are refused by name.

    The revocation list comes with it. A running agent uses the new certificate from its next connection on. Whom to
    trust is not renewed: the folder's CA certificate stays.

    Raises
    ------
    UsageError, EnrolmentError, StorageError
        As `enrol`; also when the current certificate has expired or was revoked.
    """
    host, port = _place(url)
    with alone_in(folder):  # of two at once, the one that stores last could store what the other had revoked
        return _renew(folder, url, host, port)


def _renew(folder: Path, url: str, host: str, port: int) -> dt.datetime:
    identity, key = load_identity(folder), next_key(folder)
    request = make_request(key, identity.owner)
    body = {
        "request": request.decode(),
        "certificate": identity.certificate.decode(),
        "signature": base64.b64encode(prove_renewal(identity.key, request)).decode(),
    }
    context = client_context(tls_of(None, folder / CA))
    answer = _json(_call(host, port, context, "POST", "/v1/renew", body), url)
    return _store(folder, key, identity.owner, answer | {"ca": identity.ca.decode()})


def _key(folder: Path) -> bytes:
    path = folder / KEY
    with os_faults_as(StorageError, f"cannot read {path}"):
        if path.exists():
            key = path.read_bytes()
            load_key(key)
            return key
    key = new_key()
    save_identity(folder, key=key)
    return key


def _store(folder: Path, key: bytes, owner: Owner, answer: dict[str, Any]) -> dt.datetime:
    try:
        certificate, ca, crl = (str(answer[name]).encode() for name in ("certificate", "ca", "crl"))
        made = x509.load_pem_x509_certificate(certificate)
        Verifier(ca, time.time).owner(made.public_bytes(Encoding.DER))
        named = owner_of(made)
    except Exception as fault:
        raise UsageError(f"the answer holds no certificate of its own CA ({fault}): nothing was stored") from fault
    if named != owner:
        raise UsageError(f"the certificate is for {named}, not for {owner}: nothing was stored")
    if made.public_key() != load_key(key).public_key():
        raise UsageError("the certificate is for another key than this vehicle's: nothing was stored")
    if crl:
        try:
            crl, _ = check_crl(crl, ca, (folder / CRL).read_bytes() if (folder / CRL).exists() else None)
        except (UsageError, OSError, ValueError) as fault:
            raise UsageError(f"the answer's revocation list is not taken ({fault}): nothing was stored") from fault
    save_identity(folder, key=key, ca=ca, crl=crl, certificate=certificate)
    return made.not_valid_after_utc


def _place(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError as fault:
        raise UsageError(f"{without_password(url)!r} is not a URL: write https://host[:port]") from fault
    if parts.scheme != "https" or not host or parts.path not in ("", "/") or parts.query or parts.username:
        raise UsageError(f"{without_password(url)!r} is not the authority's URL: write https://host[:port]")
    return host, port or 443


def _unverified() -> ssl.SSLContext:
    """Make a context for the one question whose answer is verified otherwise: by its fingerprint."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _call(  # noqa: PLR0917 - one request, spelled out
    host: str, port: int, context: ssl.SSLContext, method: str, path: str,
    body: dict[str, str] | None = None,
) -> bytes:  # fmt: skip
    place = f"{host}:{port}"
    connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context)
    try:
        connection.connect()
        if context.verify_mode is not ssl.CERT_NONE:
            _check_authority(connection.sock, place)
        headers = {"Content-Type": "application/json"} if body else {}
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        answer = connection.getresponse()
        content = answer.read(MAX_CRL_BYTES + 1)  # a certificate is short, a fleet's revocation list need not be
    except ssl.SSLError as fault:
        words = tls_words(fault, host).replace("the broker", "the authority")
        raise EnrolmentError(f"TLS with {place}: {words}") from fault
    except (OSError, http.client.HTTPException) as fault:
        raise EnrolmentError(
            f"no authority answers at {place} ({str(fault) or type(fault).__name__}): is `glassfleet ca serve` running "
            "there, and is the URL right?"
        ) from fault
    finally:
        connection.close()
    if len(content) > MAX_CRL_BYTES:
        raise EnrolmentError(f"{place} answers more than an authority would ({MAX_CRL_BYTES} bytes): is the URL right?")
    if answer.status != http.HTTPStatus.OK:
        raise EnrolmentError(f"the authority at {place} refuses ({answer.status}): {_detail(content)}")
    return content


def _check_authority(sock: Any, place: str) -> None:
    """Say nothing secret to a server that is no coordinator: a broker on the same host has a good certificate too."""
    try:
        owner = owner_of(x509.load_der_x509_certificate(sock.getpeercert(binary_form=True)))
    except (*UNREADABLE, WireError, TypeError) as fault:
        raise EnrolmentError(f"{place} shows a certificate that is not an authority's: is the URL right?") from fault
    if owner.role != "coordinator":
        raise EnrolmentError(
            f"{place} is {owner}, not the authority's server, which shows a coordinator's certificate: is the port "
            "right? Nothing was sent"
        )


def _detail(content: bytes) -> str:
    try:
        value = json.loads(content)
        return str(value["detail"])[:300]
    except (ValueError, LookupError, TypeError):
        return "it does not say why"


def _json(content: bytes, url: str) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise EnrolmentError(f"{without_password(url)} does not answer as an authority: is the URL right?")
    return value
