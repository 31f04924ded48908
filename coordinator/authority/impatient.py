"""HTTP for a server on the public internet: no peer can hold a place for long, and none can hold them all.

Each exchange with the authority is one short request and one short answer. So a connection has a fixed time to live,
whatever it is busy with - a slow header, a body that never comes, an answer that is not read -, and when all places are
taken the oldest connection gives way to the new one. uvicorn alone waits for ever for a header, and turns everybody
away while its places are held.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from schemas.identity import MAX_REQUEST_BYTES


@dataclass(frozen=True)
class DoorLimits:
    """What a peer may cost.

    Attributes
    ----------
    handshake : float
        Seconds that TLS may take.
    lifetime : float
        Seconds that a connection may last, after TLS.
    places : int
        Connections at once; the oldest gives way.
    body_bytes : int
        Longest request that is read.
    header_bytes : int
        Longest headers that are read.
    """

    handshake: float = 5.0
    lifetime: float = 20.0
    places: int = 200
    body_bytes: int = 4 * MAX_REQUEST_BYTES
    header_bytes: int = 16 * 1024


class Impatient(H11Protocol):
    """uvicorn's HTTP/1.1, with an end to each connection."""

    limits = DoorLimits()
    """uvicorn makes the objects and passes nothing on: servers with limits of their own use a subclass (`within`)."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place; the oldest connection makes room when there is none."""
        super().connection_made(transport)
        self.expiry = self.loop.call_later(self.limits.lifetime, transport.abort)
        alive = [one for one in self.connections if isinstance(one, Impatient)]
        if len(alive) > self.limits.places:
            oldest = min(alive, key=lambda one: one.expiry.when())
            oldest.expiry.cancel()
            oldest.transport.abort()
            self.connections.discard(oldest)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.expiry.cancel()
        super().connection_lost(exc)


def within(limits: DoorLimits) -> type[Impatient]:
    """Return the protocol of one server."""
    return type("Impatient", (Impatient,), {"limits": limits})


class ImpatientLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers wait `handshake` seconds for TLS, not a minute: uvicorn has no setting for it."""

    def __init__(self, handshake: float) -> None:
        super().__init__()
        self._handshake = handshake

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """As the loop's own."""
        return await super().create_server(*args, **{"ssl_handshake_timeout": self._handshake, **options})
