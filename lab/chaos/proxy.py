"""A TCP proxy on loopback: the road between one process and the broker, which can be cut, blocked or made slow."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

_CHUNK = 64 * 1024


@dataclass
class _Road:
    """One process's way to the broker."""

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
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)
        self._thread.start()

    def open(self, name: str) -> int:
        """Open the road of a process; return its port."""

        async def begin() -> int:
            road = self._roads[name] = _Road()
            road.open.set()
            server = await asyncio.start_server(partial(self._carry, road), "127.0.0.1", 0)
            self._servers.append(server)
            return int(server.sockets[0].getsockname()[1])

        return int(self._ask(begin()))

    def harm(self, name: str, how: str, delay: float = 0.0) -> None:
        """Cut, stall or delay the road of a process.

        Parameters
        ----------
        name : str
        how : {"cut", "stall", "delay"}
            Close the connections and refuse new ones; let nothing pass, and tell neither end; let every chunk, in both
            directions, wait for `delay` seconds, and what comes meanwhile behind it.
        delay : float
        """

        async def act() -> None:
            road = self._roads[name]
            road.delay = delay if how == "delay" else 0.0
            if how == "stall":
                road.open.clear()
            if how == "cut":
                road.is_cut = True
                for writer in road.writers:
                    writer.transport.abort()

        self._ask(act())

    def mend(self, name: str) -> None:
        """End all that."""
        road = self._roads[name]
        road.is_cut, road.delay = False, 0.0
        self._loop.call_soon_threadsafe(road.open.set)

    def close(self) -> None:
        """End the proxy. Idempotent."""
        if self._loop.is_closed():
            return

        async def end() -> None:
            for server in self._servers:
                server.close()
            carried = asyncio.all_tasks() - {asyncio.current_task()}
            for task in carried:
                task.cancel()
            await asyncio.gather(*carried, return_exceptions=True)

        self._ask(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5.0)
        self._loop.close()

    # In the thread

    def _ask(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10.0)

    async def _carry(self, road: _Road, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = [writer]
        road.writers.add(writer)
        try:
            if not road.is_cut:
                back, beyond = await asyncio.open_connection(*self._target)
                ends.append(beyond)
                road.writers.add(beyond)
                await asyncio.gather(self._way(road, reader, beyond), self._way(road, back, writer))
        except OSError:
            pass  # the broker is not there, or an end is gone: the process sees its connection closed
        finally:
            road.writers.difference_update(ends)
            for end in ends:
                end.transport.abort()

    @staticmethod
    async def _way(road: _Road, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK):
            await asyncio.sleep(road.delay)
            await road.open.wait()
            writer.write(chunk)
            await writer.drain()
        await road.open.wait()
        # One direction ending ends both: MQTT knows no half-closed connections.
        writer.transport.abort()
