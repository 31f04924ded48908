"""HTTP for a server on the public internet: no peer can hold a place for long, and none can hold them all.

Each exchange with the authority is one short request and one short answer. So a connection has a fixed time to live,
whatever it is busy with - a slow header, a body that never comes, an answer that is not read -, and when all places are
taken the oldest connection gives way to the new one. uvicorn alone waits for ever for a header, and turns everybody
away while its places are held.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

LIFETIME = 20.0
"""Seconds that a connection may last, after TLS."""

HANDSHAKE = 5.0
"""Seconds that TLS may take."""

PLACES = 200
"""Connections at once; the oldest gives way."""


class Impatient(H11Protocol):
    """uvicorn's HTTP/1.1, with an end to each connection."""

    lifetime = LIFETIME
    places = PLACES

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place; the oldest connection makes room when there is none."""
        super().connection_made(transport)
        self.expiry = self.loop.call_later(self.lifetime, transport.abort)
        alive = [one for one in self.connections if isinstance(one, Impatient)]
        if len(alive) > self.places:
            oldest = min(alive, key=lambda one: one.expiry.when())
            oldest.expiry.cancel()
            oldest.transport.abort()
            self.connections.discard(oldest)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self.expiry.cancel()
        super().connection_lost(exc)


class ImpatientLoop(asyncio.SelectorEventLoop):
    """An event loop whose servers wait `HANDSHAKE` seconds for TLS, not a minute: uvicorn has no setting for it."""

    async def create_server(self, *args: Any, **options: Any) -> asyncio.Server:
        """As the loop's own."""
        return await super().create_server(*args, **{"ssl_handshake_timeout": HANDSHAKE, **options})
