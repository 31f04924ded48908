"""A TCP proxy on loopback: the road between one process and the broker, which can be cut, blocked or made slow."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

_CHUNK = 64 * 1024


@dataclass
class _Road:
    """One process's way to the broker."""

    server: asyncio.Server | None = None
    port: int = 0
    is_cut: bool = False
    delay: float = 0.0
    open: asyncio.Event = field(default_factory=asyncio.Event)
    writers: set[asyncio.StreamWriter] = field(default_factory=set)


class Proxy:
    """Ports on loopback, one for each process, that lead to the broker. Runs in a thread of its own.

    Bytes are never changed, lost or reordered within a connection, as with TCP: a *cut* closes connections and refuses
    new ones, a *stall* lets nothing pass and tells nobody, a *delay* makes every chunk late.

    Parameters
    ----------
    host, port
        The broker's.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._roads: dict[str, _Road] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._thread.start()

    def open(self, name: str) -> int:
        """Open the road of a process; return its port."""

        async def begin() -> int:
            road = self._roads[name] = _Road()
            road.open.set()
            road.server = await asyncio.start_server(
                lambda reader, writer: self._carry(road, reader, writer), "127.0.0.1", 0
            )
            road.port = road.server.sockets[0].getsockname()[1]
            return road.port

        return int(self._ask(begin()))

    def harm(self, name: str, how: str, delay: float = 0.0) -> None:
        """Cut, stall or delay the road of a process.

        Parameters
        ----------
        name : str
        how : {"cut", "stall", "delay"}
            Close the connections and refuse new ones; let nothing pass, and tell neither end; make every chunk `delay`
            seconds late, in both directions.
        delay : float
        """

        async def act() -> None:
            road = self._roads[name]
            road.delay = delay if how == "delay" else 0.0
            if how == "stall":
                road.open.clear()
            if how == "cut":
                road.is_cut = True
                for writer in list(road.writers):
                    writer.transport.abort()

        self._ask(act())

    def mend(self, name: str) -> None:
        """End all that."""
        road = self._roads[name]
        road.is_cut, road.delay = False, 0.0
        self._loop.call_soon_threadsafe(road.open.set)

    def exchange(self, one: str, other: str) -> None:
        """Let two processes have each other's names; each keeps its road."""
        self._roads[one], self._roads[other] = self._roads[other], self._roads[one]

    def close(self) -> None:
        """End the proxy. Idempotent."""
        if self._loop.is_closed():
            return

        async def end() -> None:
            for road in self._roads.values():
                if road.server is not None:
                    road.server.close()
                for writer in list(road.writers):
                    writer.transport.abort()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

        self._ask(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()

    # In the thread

    def _ask(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)

    async def _carry(self, road: _Road, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        road.writers.add(writer)
        beyond: asyncio.StreamWriter | None = None
        try:
            if road.is_cut:
                return
            back, beyond = await asyncio.open_connection(*self._target)
            road.writers.add(beyond)
            ways = [asyncio.ensure_future(self._way(road, reader, beyond)),
                    asyncio.ensure_future(self._way(road, back, writer))]  # fmt: skip
            try:
                # One direction ending ends both: MQTT knows no half-closed connections.
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the broker is not there: the process sees its connection closed
        finally:
            for end in (writer, beyond):
                if end is not None:
                    road.writers.discard(end)
                    end.transport.abort()
            self._tasks.discard(task)

    async def _way(self, road: _Road, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(256)
        loop = asyncio.get_running_loop()

        async def deliver() -> None:
            while True:
                due, chunk = await chunks.get()
                if (wait := due - loop.time()) > 0:
                    await asyncio.sleep(wait)
                await road.open.wait()
                if not chunk:
                    return
                writer.write(chunk)
                await writer.drain()

        carrier = asyncio.ensure_future(deliver())
        try:
            while not carrier.done():
                chunk = await reader.read(_CHUNK)
                await chunks.put((loop.time() + road.delay, chunk))
                if not chunk:
                    await carrier
                    return
        except OSError:
            pass
        finally:
            carrier.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await carrier
