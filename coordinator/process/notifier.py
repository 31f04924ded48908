"""Messages to whoever is on duty, by webhook or e-mail: a thread of its own that looks at the coordinator.

What was told is written into the journal before it is sent, and taken back when nobody took it: at most once a day
also for a coordinator that is killed in between. Apprise knows how to send.
"""

from __future__ import annotations

import hashlib
import threading
import time
from typing import TYPE_CHECKING

import structlog
from apprise import Apprise, NotifyFormat

from coordinator import duty
from coordinator.journal.port import Decision
from coordinator.models.aliases import CURRENT
from coordinator.process.service import Service
from coordinator.runs.attendance import Recent
from schemas.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_log = structlog.get_logger("coordinator")

LOOK = 30.0
"""Seconds between two looks; the first comes after one: by then the broker has told who is there."""

AGAIN = 300.0
"""Seconds until a channel that took no message is tried again."""

CHANNELS = 16
RUNS = 50
"""So many of the last runs are looked at."""


class Channel:
    """One address that messages go to.

    Attributes
    ----------
    name : str
        Tells it from others, and tells nobody its password.
    """

    def __init__(self, url: str) -> None:
        self._apprise = Apprise()
        if not self._apprise.add(url):
            raise UsageError(
                f"notify: {url.partition(':')[0][:20]}:... is no address that Apprise knows. For example: "
                "mailtos://USER:PASSWORD@HOST?to=WHOM or jsons://HOST/PATH"
            )
        self.name = hashlib.blake2b(url.encode(), digest_size=8).hexdigest()
        self.shown = self._apprise.urls(privacy=True)[0].partition("?")[0]

    def send(self, title: str, text: str) -> bool:
        """Return whether somebody took the message."""
        return bool(self._apprise.notify(title=title, body=text, body_format=NotifyFormat.TEXT))


def channels(urls: str) -> list[Channel]:
    """Return the channels of a setting; raises UsageError for what cannot be meant."""
    result = [Channel(url) for url in urls.split()]
    if len(result) > CHANNELS:
        raise UsageError(f"notify: at most {CHANNELS} addresses, not {len(result)}")
    return result


class Notifier:
    """Tells whoever is on duty.

    Parameters
    ----------
    wall : callable
        Seconds since the epoch.
    """

    def __init__(self, service: Service, to: list[Channel], wall: Callable[[], float] = time.time) -> None:
        self._service = service
        self._channels = to
        self._wall = wall
        core = service.coordinator
        kept = core.journal.kept("notices", [each.name for each in to])
        self._memory = {each.name: duty.NoticeMemory.of(kept.get(each.name, [])) for each in to}
        self._again = dict.fromkeys(self._memory, 0.0)
        self._recent = Recent()
        self._current: dict[str, tuple[int, Decision]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="glassfleet-notifier", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a message that is being sent may still go out."""
        self._stopping.set()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK):
            try:
                self.tell()
            except Exception as fault:  # noqa: BLE001 - busy, say: the next look comes
                _log.warning("notices-not-looked-at", reason=f"{type(fault).__name__}: {fault}"[:200])

    def tell(self) -> None:
        """Send what is due now to each channel.

        Raises
        ------
        GlassfleetError, TimeoutError
            The journal cannot be read or written.
        """
        core, now = self._service.coordinator, self._wall()
        fleet = duty.look(core, self._recent)
        offset = now - core.timeline.now()
        ended = (each for each in core.rollouts.documents() if each["ended"] is not None)
        rollouts = [{**each, "ended": each["ended"] + offset} for each in ended]
        runs = core.runs.overviews(core.runs.newest(RUNS)[::-1])
        found = duty.conditions(fleet, runs, self._decisions(), rollouts, now)
        for channel in self._channels:
            if now >= self._again[channel.name]:
                self._tell(channel, found, set(fleet.known), now)

    def _tell(self, channel: Channel, found: dict[duty.Key, str], known: set[str], now: float) -> None:
        before = self._memory[channel.name]
        due, after = duty.due(before, found, known, now)
        self._keep(channel.name, after)
        if not due:
            return
        title, text = duty.message(self._service.config.fleet, [found[key] for key in due])
        if channel.send(title, text):
            _log.info("notice-sent", to=channel.shown, causes=len(due))
            return
        _log.warning("notice-not-sent", to=channel.shown, causes=len(due), again=AGAIN)
        self._again[channel.name] = now + AGAIN
        since = {**after.since, **{key: before.since.get(key, now) for key in due}}
        self._keep(channel.name, duty.NoticeMemory(since, before.sent))

    def _keep(self, name: str, memory: duty.NoticeMemory) -> None:
        values = memory.to_values()
        if values != self._memory[name].to_values():
            self._service.call(lambda core: core.journal.keep("notices", {name: values}, 100 * CHANNELS))
        self._memory[name] = memory

    def _decisions(self) -> list[Decision]:
        """Return the decisions by which versions are current; read anew of a name that stands for another one."""
        core = self._service.coordinator
        aliases, registry = core.aliases, core.registry
        for name, pointer in aliases.current.items():
            if self._current.get(name, (0,))[0] != pointer.sequence:
                newest = [each for each in registry.journal.decisions(name) if each.kind == CURRENT][-1]
                self._current[name] = (pointer.sequence, newest)
        return [decision for _, decision in self._current.values()]
