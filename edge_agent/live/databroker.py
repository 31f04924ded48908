"""A databroker that speaks kuksa.val.v2, reached by the official client."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from broker.url import is_loopback
from edge_agent.live.port import ServerAccess
from schemas.errors import DataError, UsageError, os_faults_as

if TYPE_CHECKING:
    from kuksa_client.grpc import VSSClient, VSSClientError

SCHEMES: Final = ("kuksa", "kuksas")
"""Without and with TLS."""

_PORT: Final = 55555

_HINTS: Final = {
    5: "Does the databroker's catalogue (its --vss) have these signals?",
    7: "May this token read, or provide, these signals?",
    14: "Does it run there, and does it speak TLS just as this URL says (kuksa:// without, kuksas:// with)?",
    16: "Give a token of this databroker with a --...-token-file option; is it still valid?",
}
"""By the code of gRPC: not found, permission denied, unavailable, unauthenticated."""

FINAL: Final = frozenset({3, 5, 7, 16})
"""Codes that do not go away by themselves."""


def client_of(url: str, access: ServerAccess) -> VSSClient:
    """Return a client, which connects when it is entered.

    Raises
    ------
    UsageError
        The URL, or the access to it, is none that can be used.
    """
    from kuksa_client.grpc import VSSClient  # noqa: PLC0415 - the extra `kuksa`

    parts = urlsplit(url)
    try:
        host, port = parts.hostname or "", parts.port or _PORT
    except ValueError as fault:
        raise UsageError(f"{url}: {fault}") from fault
    if not host or parts.path.strip("/") or parts.query or parts.username:
        raise UsageError(f"{parts.scheme}://{host}: write kuksa[s]://HOST[:PORT], and name signals in the plan")
    ca_file = access.ca_file
    if access.identity is not None:
        raise UsageError(f"{url}: a databroker takes a token, not a certificate: leave out the identity")
    if parts.scheme == "kuksas" and ca_file is None:
        raise UsageError(f"{url}: name the certificate authority of its certificate too, with --...-ca-file")
    if parts.scheme == "kuksa":
        if ca_file is not None:
            raise UsageError(f"{url} is without TLS: write kuksas://, or leave out the certificate authority")
        if not is_loopback(host) and not access.insecure_plaintext:
            raise UsageError(
                f"{url}: on the way to another machine everybody can read and change what is said: use kuksas://, or "
                "allow it with --insecure-plaintext"
            )
    return VSSClient(
        host,
        port,
        token=None if access.token_file is None else _read(access.token_file).strip() or None,
        root_certificates=ca_file,
        ensure_startup_connection=False,  # which would need kuksa.val.v1
    )


def _read(path: Path) -> str:
    with os_faults_as(UsageError, f"{path}"):
        return path.read_text(encoding="utf-8")


def code_of(fault: VSSClientError) -> int:
    """Return the code of gRPC."""
    return int(fault.error["code"])


def words(fault: VSSClientError, url: str) -> str:
    """Say what a databroker answered, and what to look at."""
    answer = str(fault.error.get("message") or fault.error.get("reason"))[:200]
    return f"{url}: {answer}. {_HINTS.get(code_of(fault), '')}".rstrip()


def refused(fault: VSSClientError, url: str) -> DataError:
    """Return a databroker's answer as an error of the source."""
    return DataError(words(fault, url))


def cell_of(value: Any) -> Any:
    """Return a value as a cell; raises TypeError for an array."""
    if value is not None and not isinstance(value, bool | int | float | str):
        raise TypeError("it is an array, and a cell is a number or a text")
    return None if isinstance(value, float) and math.isnan(value) else value
