"""Signals of a databroker: kuksa.val.v2 over gRPC, each value with its own time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edge_agent.live.databroker import FINAL, SCHEMES, cell_of, client_of, code_of, refused, words
from edge_agent.live.port import Adapter, LiveSample, SampleRequest, SeenValues, log
from schemas.errors import UsageError

if TYPE_CHECKING:
    from kuksa_client.grpc import EntryUpdate, VSSClient

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


ADAPTER = Adapter("signals of a databroker (kuksa.val.v2): kuksa[s]://HOST[:PORT]", read, schemes=SCHEMES)
