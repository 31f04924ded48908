"""Signals of a databroker: kuksa.val.v2 over gRPC, each value with its own time."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from broker.url import is_loopback
from edge_agent.live.port import Adapter, LiveSample, SampleRequest, SeenValues, ServerAccess, log
from schemas.errors import DataError, UsageError, os_faults_as

if TYPE_CHECKING:
    from kuksa_client.grpc import EntryUpdate, VSSClient, VSSClientError


AGAIN = 2.0
"""Seconds until a databroker that went away is tried again."""


def read(asked: SampleRequest) -> Iterator[LiveSample | str]:
    """Subscribe to the plan's signals, anew whenever the databroker went away."""
    if not asked.signals:
        raise UsageError("a databroker is asked for each signal: give --plan with a table [time] that names them")
    client_of(asked.source, asked.access)  # whose faults are told now
    return _samples(asked)


def _samples(asked: SampleRequest) -> Iterator[LiveSample | str]:
    from kuksa_client.grpc import VSSClientError  # noqa: PLC0415 - the extra `kuksa`

    seen = SeenValues()
    is_known = False
    current: list[VSSClient] = []
    threading.Thread(target=_leave, args=(asked, current), daemon=True).start()
    while not asked.stopping.is_set():
        client = client_of(asked.source, asked.access)  # with the token of now
        try:
            with client:
                current[:] = [client]
                is_first = True
                for updates in client.v2_subscribe(asked.signals):
                    if is_first:
                        log.info("source-connected", source=asked.source)
                    yield from _new(updates, seen, is_stored=is_first)
                    is_first, is_known = False, True
        except VSSClientError as fault:
            if asked.stopping.is_set():
                return
            if not is_known and (code_of(fault) in FINAL or asked.is_urgent):
                raise refused(fault, asked.source) from fault
            log.warning("source-lost", reason=words(fault, asked.source), hint="it is tried again")
        asked.stopping.wait(AGAIN)


def _leave(asked: SampleRequest, current: list[VSSClient]) -> None:
    """End the wait for the next value when no more is wanted."""
    asked.stopping.wait()
    for client in current:
        client.disconnect()


def _new(updates: list[EntryUpdate], seen: SeenValues, *, is_stored: bool) -> Iterator[LiveSample | str]:
    """Yield what was not given before, oldest first: a new connection begins with the values that were there."""
    found = []
    for update in updates:
        path, point = update.entry.path, update.entry.value
        at = None if point is None or point.timestamp is None else point.timestamp.timestamp()
        if at is not None and not seen.is_new(path, at):
            continue
        try:
            found.append((at, path, None if point is None else cell_of(point.value)))
        except TypeError as fault:
            yield f"{path}: {fault}"
    for at, path, value in sorted(found, key=lambda each: (each[0] is not None, each[0] or 0.0, each[1])):
        yield LiveSample({path: value}, at, is_whole=False, is_stored=is_stored)


# --- A databroker that speaks kuksa.val.v2, reached by the official client --------------------------------------------


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


ADAPTER = Adapter("signals of a databroker (kuksa.val.v2): kuksa[s]://HOST[:PORT]", read, schemes=SCHEMES)
