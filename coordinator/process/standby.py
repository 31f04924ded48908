"""A coordinator on stand-by: it waits for the journal of the one that leads, and then leads itself.

Whoever has the journal's lock leads (`coordinator.journal.sqlite`); the system gives it free when the process that held
it ends, however it ends. So those who wait need not be told of each other, and whoever gets it knows that nobody else
can write. PostgreSQL lets its holder write over the connection that the lock belongs to and no other; a file's lock is
looked at in each transaction. While it waits a stand-by connects to no broker, for the broker knows one coordinator.

The leader writes down in the journal who it is and how it is set up. A stand-by that is set up otherwise says so when
it begins to wait, or when it leads: with its settings the runs go on, and they may forget more than was meant.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import structlog

from broker.url import parse_url, urls_of
from coordinator.config import CoordinatorConfig
from coordinator.journal import inspect
from coordinator.journal.port import Leader
from schemas.errors import DamagedError, NotFoundError, StorageError, UsageError

_log = structlog.get_logger("coordinator")

LOOK = 0.1
"""Seconds between two tries for the lock."""

READ = 10.0
"""Seconds between two looks at who leads."""


class StoppedError(Exception):
    """Told to stop while waiting."""


def about(config: CoordinatorConfig, software: str) -> dict[str, Any]:
    """Return what others should know of a coordinator that leads: where it is, and what should be the same there."""
    return {
        "host": socket.gethostname(),
        "settings": {
            "fleet": config.fleet,
            "broker": ",".join(parse_url(url).public for url in urls_of(config.broker)),
            "retained_versions": config.retained_versions,
            "records_days": config.records_days,
            "kept_runs": config.kept_runs,
            "max_message_bytes": config.connection.max_message_bytes,
            "software": software,
        },
    }


class Standby:
    """What a journal asks while another coordinator has it, see `coordinator.journal.sqlite.Again`.

    Parameters
    ----------
    software : str
        Name and version.
    is_stopped : callable
        Whether to wait no longer.
    begin : callable
        Called when it begins to wait.

    Attributes
    ----------
    host : str
        Where the coordinator is that leads, as far as is known.
    """

    def __init__(
        self, config: CoordinatorConfig, software: str, is_stopped: Callable[[], bool], begin: Callable[[], None]
    ) -> None:
        self.host = ""
        self._config = config
        self._own: dict[str, Any] = about(config, software)["settings"]
        self._is_stopped = is_stopped
        self._begin = begin
        self._since: float | None = None
        self._look_at = 0.0
        self._away = ""
        self._leader = ""

    def __call__(self, why: str) -> bool:
        """Wait a little, and let the journal try again.

        Raises
        ------
        StoppedError
            Told to stop.
        UsageError
            This one is of another fleet than the one that leads.
        """
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._begin()
            _log.info("standing-by")
        if bool(why) != bool(self._away):
            self._away = why
            if why:
                _log.warning("journal-away", why=why)
            else:
                _log.info("journal-back")
        if not why and now >= self._look_at:
            self._look_at = now + READ
            self._look()
        if self._is_stopped():
            raise StoppedError
        time.sleep(LOOK)
        return True

    def leads(self, before: Leader | None) -> None:
        """Take note that the journal is ours; `before` led last. Raises UsageError, see `__call__`."""
        if self._since is not None:
            _log.info("taking-its-place", host=self.host, waited=round(time.monotonic() - self._since, 1))
            self._compare(before)

    def _look(self) -> None:
        try:
            self._compare(inspect.leader(self._config.journal_url))
        except (StorageError, DamagedError, NotFoundError) as fault:  # it has just begun, or is of another version
            _log.debug("leader-unknown", why=str(fault))

    def _compare(self, leader: Leader | None) -> None:
        """Say once of each leader how it is set up otherwise."""
        if leader is None or leader.incarnation == self._leader:
            return
        self._leader, self.host = leader.incarnation, str(leader.about.get("host", ""))
        its = leader.about.get("settings", {})
        if its.get("fleet", self._config.fleet) != self._config.fleet:
            raise UsageError(
                f"this stand-by is of fleet {self._config.fleet!r}, and the journal that it waits for is of fleet "
                f"{its['fleet']!r} (coordinator on {self.host}): give it --fleet {its['fleet']}, or another --journal"
            )
        for name, own in self._own.items():
            if its.get(name, own) != own:
                _log.warning("set-up-otherwise", setting=name, here=own, leader=its[name], host=self.host)
