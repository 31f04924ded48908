"""The cloud side: the coordinator's HTTP API, its clock, and its journal."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from console.checkup.access import clock
from console.checkup.finding import Finding, fine, size, warning, wrong
from coordinator.config import CoordinatorConfig
from schemas.text import counted

if TYPE_CHECKING:
    from coordinator.journal.inspect import JournalSummary


WARN_DAYS = 90.0
"""So long before its disk is full doctor says so."""


def coordinator(url: str | None, state_dir: Path) -> Iterator[Finding]:
    """Ask the coordinator how it is; raises CoordinatorError when nobody answers."""
    import httpx  # extra operator

    from console.client import CoordinatorClient

    api = CoordinatorClient(url, None, state_dir)
    try:
        health = api.get("/api/health")
        who = f"fleet {health.get('fleet')}, {health.get('software')}"
        if health.get("status") == "stand-by":
            yield fine("coordinator", f"{api.shown} stands by for the one that leads, {who}")
        elif not health.get("connected"):
            yield wrong(
                "coordinator", f"{api.shown} answers, but cannot hear its fleet ({health.get('status')})",
                "look at its log, and run this where it runs",
            )  # fmt: skip
        else:
            yield fine("coordinator", f"{api.shown} answers, {who}")
        sent = time.time()
        answer = httpx.get(f"{api.url}/api/health", trust_env=False, timeout=10.0)
        came = time.time()
        if date := answer.headers.get("date"):
            # Whole seconds, and cached for one by the server: known to within a second and a half at best.
            yield clock(parsedate_to_datetime(date).timestamp() + 0.5 - (sent + came) / 2, 1.5 + (came - sent) / 2)
    finally:
        api.close()


def journal(url: str) -> Iterator[Finding]:
    """Look at the journal without taking its lock; raises StorageError when it cannot be read."""
    from coordinator.journal.inspect import inspect, rows  # extra coordinator
    from coordinator.journal.port import Damaged

    seen = inspect(url)
    if seen is None:
        yield fine("journal", "none yet: the coordinator makes it at its first start")
        return
    used = "in use by a running coordinator" if seen.is_locked else "not in use"
    holds = f"{counted(seen.records, 'records')}, {counted(seen.unfinished, 'unfinished runs')}, {size(seen.bytes)}"
    says = f"{seen.what}: {holds}, {used}"
    if not seen.writable:
        yield wrong("journal", f"{says}; it cannot be written: {seen.why}", "give it to the coordinator's user (chown)")
    elif seen.damage:
        yield wrong(
            "journal", f"{says}; {seen.damage}", "restore it from a backup, or move it away to begin anew",
        )  # fmt: skip
    elif damaged := sum(isinstance(row, Damaged) for _, row in rows(url)):
        fix = "glassfleet coordinator journal verify names them; restore it from a backup"
        yield wrong("journal", f"{says}; {counted(damaged, 'rows')} damaged", fix)
    else:
        yield fine("journal", says)
        yield growth(url, seen, time.time())


def growth(url: str, seen: JournalSummary, now: float) -> Finding:
    """Return by how much a journal grows, and when its disk is full."""
    import sqlalchemy as sa  # extra coordinator

    from coordinator.journal.inspect import leader

    leads = leader(url)
    settings = {} if leads is None else leads.about["settings"]
    days = float(settings.get("records_days", CoordinatorConfig.model_fields["records_days"].default))
    age = max(1.0, (now - seen.since) / 86400.0) if seen.since else 1.0
    grows = JournalGrowth(seen.events, seen.events / age, seen.documents / max(1.0, seen.days, age), days)
    most = size(OVERHEAD * seen.events + grows.to_come)
    says = f"the journal grows by {size(grows.daily)} a day"
    says += f"; events of ended runs stay for {days:g} days, which comes to {most}"
    file = sa.make_url(url).database if url.startswith("sqlite") else None
    if file is None:
        return fine("growth", says)
    free = shutil.disk_usage(Path(file).parent).free
    left = grows.days_until(free)
    if left > WARN_DAYS:
        return fine("growth", says)
    date = f"{datetime.fromtimestamp(now + left * 86400.0, tz=UTC):%Y-%m-%d}"
    fix = "keep events for fewer days (coordinator records_days), or move the journal to a larger disk"
    return warning("growth", f"{says}: the disk, with {size(free)} free, is full on {date}", fix)


def notified(urls: str) -> Iterator[Finding]:
    """Send a message to each address; raises UsageError for what is none."""
    from coordinator.process.notifier import channels  # extra notify

    for channel in channels(urls):
        if channel.send("Glassfleet", "glassfleet doctor tries whether its messages come here."):
            yield fine("notify", f"{channel.shown} took a message: look whether it came")
        else:
            yield wrong("notify", f"{channel.shown} took no message", "look at its address, password and network")


OVERHEAD = 1.15
"""Bytes of the database for each byte in its rows: measured, with indexes and half-filled pages."""


class JournalGrowth(NamedTuple):
    """What a journal grows by.

    Attributes
    ----------
    events : float
        Bytes of events that it has.
    events_daily, rest_daily : float
        Bytes a day that come: of events, which go again by age; and of all else, which stays.
    days : float
        So long events stay.
    """

    events: float
    events_daily: float
    rest_daily: float
    days: float

    @property
    def daily(self) -> float:
        """Bytes of disk that are written a day."""
        return OVERHEAD * (self.events_daily + self.rest_daily)

    @property
    def to_come(self) -> float:
        """Bytes of disk by which events grow until as many go as come."""
        return OVERHEAD * max(0.0, self.events_daily * self.days - self.events)

    def days_until(self, free: float) -> float:
        """Return the days until so many bytes are full; infinite: never.

        Examples
        --------
        >>> JournalGrowth(27e6, 27e6, 0.0, 30).days_until(10e9)
        inf
        >>> round(JournalGrowth(27e6, 27e6, 0.0, 3650).days_until(10e9))
        322
        """
        if free < self.to_come:
            return free / self.daily
        rest = OVERHEAD * self.rest_daily
        return (free - self.to_come) / rest if rest else math.inf
