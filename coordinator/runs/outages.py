"""When the coordinator had no broker: an end that this brought about must not be laid at the vehicles' door."""

from __future__ import annotations

import threading
from collections.abc import Callable

from coordinator.engine import NoBroker

_REPORTED_FROM = 0.1
"""Seconds: shorter losses wait until they come to so much together. A broker that flaps must not fill the journal."""


class Outages:
    """Remembers connections that were lost until the runs have been told.

    `lost` and `regained` are for the transport's thread, `pop_events` for the coordinator's own.

    Parameters
    ----------
    now : callable
        The coordinator's own time, seconds; from any thread.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._over: list[NoBroker] = []
        self._unreported_since: float | None = None
        self._short = 0.0
        self.since: float | None = None
        """Since when there is no broker; None: there is one."""

    def lost(self) -> None:
        """Note that there is no broker from now on; more than once is as once."""
        with self._lock:
            if self.since is None:
                self.since = self._unreported_since = self._now()

    def regained(self) -> None:
        """Note that there is a broker again."""
        with self._lock:
            self._note(self._now())
            self.since = self._unreported_since = None

    @property
    def are_over(self) -> bool:
        """Whether something has ended that `pop_events` has not given yet."""
        return bool(self._over)

    def pop_events(self, until: float) -> list[NoBroker]:
        """Return what has not been given yet; of what goes on, the time up to `until`. No two overlap.

        Losses shorter than a tenth of a second are one with the next, as if they had come right before it.
        """
        with self._lock:
            if self._unreported_since is not None and until - self._unreported_since >= _REPORTED_FROM:
                self._note(until)
                self._unreported_since = until
            taken, self._over = self._over, []
            return taken

    def _note(self, until: float) -> None:
        """Let what began at `_unreported_since` end; under the lock."""
        if self._unreported_since is None:
            return
        since = self._unreported_since - self._short
        self._short = max(0.0, until - since)
        if self._short >= _REPORTED_FROM:
            self._over.append(NoBroker(until, since))
            self._short = 0.0
