"""Live pages over server-sent events: many watchers, one look, and no way to slow the coordinator down.

Theory. The coordinator's thread is told nothing and waits for nobody: while a page is open, a task of the web server
looks at the frozen state a few times a second, and draws again (in a worker thread) when it is another one. A page
consists of *fragments*; a channel keeps only the newest text of each, with the number of its last change. That is all
the memory there is: a slow watcher has no queue that could grow, it gets the newest text when it comes round. For the
same reason a watcher that comes back with ``Last-Event-ID`` misses nothing: it is sent every fragment that changed
after that number - all of them when the number is another process's.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from schemas.text import show_hidden

WATCHERS = 64
"""Live pages at once, over all browsers: each holds a connection; others are told to come again."""

HEARTBEAT = 15.0
"""Seconds after which a silent stream says that it is alive: proxies close silent connections, often after 30 s or
60 s, and so are dead watchers noticed."""

RECONNECT = 2.0
"""Seconds that a browser waits before it connects again."""

FLEET_PERIOD = 1.0
"""Seconds between two looks at what the live page of the fleet shows: births and deaths are not read faster."""

RUN_PERIOD = 0.25
"""The same for the page of a run: rounds of some seconds are seen to move."""


@dataclass(frozen=True)
class PageState:
    """A page as it is now.

    Attributes
    ----------
    fragments : Mapping[str, str or None]
        HTML by the id of the element whose content it is. None asks the page to fetch itself again: what it shows
        depends on its address.
    announcement : str
        One sentence for those who listen rather than look.
    is_last : bool
        Nothing will change any more.
    """

    fragments: Mapping[str, str | None]
    announcement: str = ""
    is_last: bool = False


@dataclass
class LivePage:
    """One live page.

    Attributes
    ----------
    look : callable
        Returns a cheap value that differs when the page does; called in a worker thread.
    draw : callable
        Draws the page; called in a worker thread.
    period : float
        Seconds between two looks.
    """

    look: Callable[[], Hashable]
    draw: Callable[[], PageState]
    period: float
    watchers: int = 0
    is_last: bool = False
    texts: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    announcement: str = ""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Let all watchers look."""
        before, self.changed = self.changed, asyncio.Event()
        before.set()


class Same:
    """Equal to another only when both hold the same object: frozen states change by being replaced."""

    def __init__(self, value: object) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        """Compare identities."""
        return isinstance(other, Same) and other._value is self._value

    def __hash__(self) -> int:
        """Hash the identity."""
        return id(self._value)


class TooManyWatchersError(Exception):
    """All places are taken."""


class Hub:
    """All live pages of one coordinator."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(4)
        self.watchers = 0
        self._number = 0
        self._channels: dict[str, LivePage] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closing = False

    def enter(self) -> None:
        """Take a place; raises TooManyWatchersError. `stream` gives it back."""
        if self.watchers >= WATCHERS or self._is_closing:
            raise TooManyWatchersError
        self.watchers += 1

    async def stream(
        self, name: str, look: Callable[[], Hashable], draw: Callable[[], PageState], *, period: float, last_id: str
    ) -> AsyncIterator[str]:
        """Yield the events of the page `name`, for one watcher that has entered.

        Parameters
        ----------
        name : str
            Watchers of the same name share a channel.
        look, draw, period
            See `LivePage`.
        last_id : str
            What the browser sent as ``Last-Event-ID``; empty at first.
        """
        self._loop = asyncio.get_running_loop()
        channel = self._channels.get(name)
        if channel is None or (channel.task is not None and channel.task.done() and not channel.is_last):
            channel = self._channels[name] = LivePage(look, draw, period)
            channel.task = asyncio.create_task(self._watch(channel))
        channel.watchers += 1
        try:
            async for text in self._events(channel, self._after(last_id)):
                yield text
        finally:
            self.watchers -= 1
            channel.watchers -= 1
            if not channel.watchers:
                if self._channels.get(name) is channel:
                    del self._channels[name]
                if channel.task is not None:
                    channel.task.cancel()

    async def _events(self, channel: LivePage, seen: int) -> AsyncIterator[str]:
        yield f"retry: {round(1000 * RECONNECT)}\n\n"
        while not self._is_closing:
            changed = channel.changed
            news = {name: text for name, (number, text) in channel.texts.items() if number > seen}
            if news:
                seen = max(number for number, _ in channel.texts.values())
                data = show_hidden(json.dumps({"fragments": news, "said": channel.announcement}, ensure_ascii=False))
                yield f"id: {self.id}-{seen}\nevent: page\ndata: {data}\n\n"
            if channel.is_last:
                yield "event: end\ndata: {}\n\n"
                return
            if channel.task is not None and channel.task.done():
                return  # drawing failed; the browser connects again, and finds a new channel
            try:
                await asyncio.wait_for(changed.wait(), HEARTBEAT)
            except TimeoutError:
                yield ": alive\n\n"

    def _after(self, last_id: str) -> int:
        owner, _, number = last_id.partition("-")
        return int(number) if owner == self.id and number.isascii() and number.isdigit() else 0

    async def _watch(self, channel: LivePage) -> None:
        before: object = object()
        try:
            while not channel.is_last and not self._is_closing:
                now = await asyncio.to_thread(channel.look)
                if now != before:
                    before = now
                    picture = await asyncio.to_thread(channel.draw)
                    self._take(channel, picture)
                if not channel.is_last:
                    await asyncio.sleep(channel.period)
        finally:
            channel.wake()

    def _take(self, channel: LivePage, picture: PageState) -> None:
        fresh = {
            name: text
            for name, text in picture.fragments.items()
            if text is None or channel.texts.get(name, (0, None))[1] != text
        }
        if fresh:
            self._number += 1
            channel.texts |= {name: (self._number, text) for name, text in fresh.items()}
            channel.announcement = picture.announcement
        channel.is_last = picture.is_last
        channel.wake()

    def close(self) -> None:
        """End all streams; from any thread."""
        self._is_closing = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._wake_all)

    def _wake_all(self) -> None:
        for channel in self._channels.values():
            channel.wake()
