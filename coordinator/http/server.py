"""Connections: no peer can hold a place for long, and none can hold them all.

uvicorn alone waits for ever for a header or a body, turns everybody away while its places are held, and - with the
event loop of Python 3.11 - writes megabytes of log in a second when there is no free descriptor. So the bounds are
here, below the application and the same for both servers. When all places are taken, a new connection takes the place
of the oldest one whose request is not whole; if there is none, of the oldest.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import resource
import socket
import ssl
import threading
import time
from dataclasses import dataclass, replace
from typing import Any

import h11
import structlog
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from schemas.errors import UsageError
from schemas.limits import MAX_CSR_BYTES

_log = structlog.get_logger("http")

REFUSED_BYTES = 1024 * 1024
"""So much of a body that is not wanted is thrown away, for its sender to read why; then the connection ends."""

NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


@dataclass(frozen=True)
class HttpLimits:
    """What a peer may cost. The defaults are the authority's, whose requests and answers are short.

    Attributes
    ----------
    handshake : float
        Seconds that TLS may take.
    lifetime : float or None
        Seconds that a connection may last, after TLS; None: as long as it is used.
    connections : int
        Connections at once; never more than half of the descriptors that the process may have.
    body_bytes : int
        Longest body that is read.
    header_bytes : int
        Longest headers that are read.
    header, body : float
        Seconds that the header of a request may take, and its body.
    unread : float
        Seconds for which a peer may leave an answer unread.
    """

    handshake: float = 5.0
    lifetime: float | None = 20.0
    connections: int = 200
    body_bytes: int = 4 * MAX_CSR_BYTES
    header_bytes: int = 16 * 1024
    header: float = 10.0
    body: float = 60.0
    unread: float = 60.0


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, with an end to every wait for the peer."""

    limits = HttpLimits()
    """uvicorn makes the objects and passes nothing on: each server has a subclass of its own."""

    _lifetime: asyncio.TimerHandle | None = None
    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _state: object = None
    _refused = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to count the seconds."""
        super().connection_made(transport)
        self.since = self.loop.time()
        # So that `pause_writing` tells of whatever is not taken (0 would stop TLS connections before the first byte).
        transport.set_write_buffer_limits(high=1, low=0)
        if self.limits.lifetime is not None:
            self._lifetime = self.loop.call_later(self.limits.lifetime, transport.abort)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting."""
        for timer in (self._lifetime, self._deadline, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    @property
    def is_whole(self) -> bool:
        """Whether a request has come whole, and its answer has not gone yet."""
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        return cycle is not None and not cycle.response_complete and self.conn.their_state is not h11.SEND_BODY

    def data_received(self, data: bytes) -> None:
        """Take what came; of a body that was refused, only so much."""
        if self.conn.their_state is h11.SEND_BODY and self.cycle.response_complete:
            self._refused += len(data)
            if self._refused > REFUSED_BYTES:
                self.transport.abort()
                return
        super().data_received(data)
        self._expect()

    def send_400_response(self, msg: str) -> None:
        """Say that this is not HTTP; to who has an answer already, nothing more can be said."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._expect()

    def _expect(self) -> None:
        """Give the peer its time for what it owes now; a part that comes late does not make it longer."""
        state = self.conn.their_state
        if state is self._state:
            return
        self._state = state
        if self._deadline is not None:
            self._deadline.cancel()
        seconds = {h11.IDLE: self.limits.header, h11.SEND_BODY: self.limits.body}.get(state)
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)

    def pause_writing(self) -> None:
        """Give the peer its time to read."""
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.unread, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop counting: it has read."""
        if self._unread is not None:
            self._unread.cancel()
        super().resume_writing()


class HttpServer(uvicorn.Server):
    """An application on one address, in a thread of its own.

    Parameters
    ----------
    host : str
        Address to bind.
    port : int
        0: a free one.
    former : int
        A free port that was found before, taken again if it still is free; 0: none.
    stop_wait : int
        Seconds that open requests have to end when the server does.
    certificate, key : path or None
        PEM files; None: without TLS.

    Attributes
    ----------
    port : int
        Where it listens, from the start: who connects before `start` is answered after it.

    Raises
    ------
    UsageError
        The port is taken, or the address is not one of this machine's.
    """

    _accepting: asyncio.Task[None]

    def __init__(
        self,
        app: ASGIApp,
        limits: HttpLimits,
        host: str,
        port: int,
        *,
        former: int = 0,
        stop_wait: int = 1,
        certificate: Any = None,
        key: Any = None,
    ) -> None:
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if descriptors != resource.RLIM_INFINITY:
            limits = replace(limits, connections=min(limits.connections, max(1, descriptors // 2)))
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=type("Protocol", (BoundedProtocol,), {"limits": limits}),
            h11_max_incomplete_event_size=limits.header_bytes,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=stop_wait,
            ssl_certfile=certificate,
            ssl_keyfile=key,
        )
        config.load()
        if config.ssl is not None:
            # The same key seals messages. What TLS 1.3 signs begins with a text of its own (RFC 8446, 4.4.3); what a
            # server signs in 1.2 begins with 32 bytes that the client chooses.
            config.ssl.minimum_version = ssl.TLSVersion.TLSv1_3
        # It tells of each malformed request and of each fault: whoever connects could fill the disk. `ErrorHandler` and
        # the log's bounds (`coordinator.telemetry.logs`) tell of faults.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().__init__(config)
        self.limits = limits
        self._listener = _listen(host, port, former)
        self.port: int = self._listener.getsockname()[1]
        self._thread: threading.Thread | None = None
        self._arriving: dict[asyncio.Task[None], None] = {}

    # -- for other threads ------------------------------------------------------------------------------------------

    def begin(self, name: str) -> None:
        """Serve, in a thread of this name."""
        self._thread = threading.Thread(target=self.run, kwargs={"sockets": [self._listener]}, name=name, daemon=True)
        self._thread.start()
        while not self.started and self._thread.is_alive():
            time.sleep(0.005)

    def end(self) -> None:
        """Stop serving. Idempotent."""
        self.should_exit = True
        if self._thread is not None:
            with contextlib.suppress(RuntimeError, AttributeError):  # its loop has ended, or never began
                self._accepting.get_loop().call_soon_threadsafe(self._accepting.cancel)
            self._thread.join((self.config.timeout_graceful_shutdown or 0) + 4.0)
        with contextlib.suppress(OSError):
            self._listener.close()

    # -- in the thread ----------------------------------------------------------------------------------------------

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take connections: one by one, which the event loop's own servers do not."""
        del sockets  # there is one, and it is ours
        self.servers = []
        self._accepting = asyncio.get_running_loop().create_task(self._accept())
        self.started = True

    async def main_loop(self) -> None:
        """Renew the date of answers each second, until `end`; uvicorn's own looks for it ten times as often."""
        while not (self._accepting.done() or await self.on_tick(0)):
            await asyncio.wait([self._accepting], timeout=1.0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, and end those that are there."""
        for task in (self._accepting, *self._arriving):
            task.cancel()
        await super().shutdown(sockets)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        while True:
            try:
                peer, _ = await loop.sock_accept(self._listener)
            except OSError as fault:
                is_full = fault.errno in NO_ROOM
                if is_full:
                    hint = (
                        "more files are open than this process may have: raise it (ulimit -n), or find out who connects"
                    )
                    _log.error("cannot-take-connections", reason=fault.strerror, hint=hint)
                await asyncio.sleep(0 if is_full and self._make_room() else 0.1)
                continue
            if len(self._arriving) + len(self.server_state.connections) >= self.limits.connections:
                self._make_room()
            task = loop.create_task(self._arrive(peer))
            self._arriving[task] = None
            task.add_done_callback(lambda done: self._arriving.pop(done, None))
            # `sock_accept` does not wait while others stand in line: let the loop close what shall be closed.
            await asyncio.sleep(0)

    async def _arrive(self, peer: socket.socket) -> None:
        """Make a connection of a socket; faults of TLS are the peer's."""
        config, loop = self.config, asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            await loop.connect_accepted_socket(
                lambda: config.http_protocol_class(  # type: ignore[call-arg]
                    config=config, server_state=self.server_state, app_state={}, _loop=loop
                ),
                peer,
                ssl=config.ssl,
                ssl_handshake_timeout=self.limits.handshake if config.ssl else None,
            )

    def _make_room(self) -> bool:
        """End the connection that is missed least; False when there is none."""
        if 2 * len(self._arriving) > self.limits.connections:  # in TLS they cost a place as well
            return next(iter(self._arriving)).cancel()
        made = [one for one in self.server_state.connections if isinstance(one, BoundedProtocol)]
        if made:
            least = min(made, key=lambda one: (one.is_whole, one.since))
            least.transport.abort()
            self.server_state.connections.discard(least)
        return bool(made)


def _listen(host: str, port: int, former: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    tries = [former, 0] if former and not port else [port]
    for position, wanted in enumerate(tries, 1):
        # asyncio sends small packets at once only where the protocol is named; else each answer waits for its reader.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, wanted))
            listener.listen(128)
        except OSError as fault:
            listener.close()
            if position == len(tries):
                raise UsageError(
                    f"cannot listen on {host}:{port} ({fault.strerror}): choose another port (--api-port; of "
                    "`glassfleet ca serve`: --port), or 0 for a free one"
                ) from fault
        else:
            return listener
    raise AssertionError("one of the tries ends it")
