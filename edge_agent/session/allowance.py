"""What a vehicle gives to learning in a month: bytes on its link and seconds of computing, counted by itself.

A run that it may not be able to end within the month is refused when it begins: what the dearest run of this month and
the last took must be left. Past the limits every task is refused, whatever the coordinator asks. What was under way is
counted, so the limits may be passed by one answer. The month is that of the vehicle's clock, in UTC; a clock that jumps
back finds what was spent before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt

from edge_agent.session.own_database import explained, opened, read_only
from glassfleet.errors import TaskError

NAME = "spent.sqlite"
"""In the agent's folder."""

KEPT_DAYS = 730

_MOMENT = 1e-3
"""Shorter looks whether there is something to do are not counted."""

OTHER = ""
"""Stands for what belongs to no run: models, their scores, the coordinator's word."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS spent (
    month TEXT NOT NULL,
    run TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    seconds REAL NOT NULL,
    answers INTEGER NOT NULL,
    PRIMARY KEY (month, run)
);
"""

_explained = partial(explained, about="where this vehicle counts what learning takes")


@dataclass(frozen=True)
class Monthly:
    """What learning may take in a calendar month.

    Attributes
    ----------
    megabytes : float or None
        Most payload received and sent in a month, in millions of bytes; default: no limit. Why: a metered link.
    seconds : float or None
        Most wall-clock seconds of computing in a month; default: no limit. Why: a battery.
    """

    megabytes: Annotated[float, Gt(0)] | None = None
    seconds: Annotated[float, Gt(0)] | None = None


class OverBudgetError(TaskError):
    """The month's limits do not allow it. Says nothing about rows: it is told in private runs, too."""


class Allowance:
    """Counts what is spent. Used by one thread.

    Parameters
    ----------
    path : Path
        Database file; created when missing. What it was told is there after a kill.
    limits : Monthly
    wall : callable
        Seconds since the epoch.

    Raises
    ------
    StorageError
        The file cannot be opened or written.
    """

    def __init__(self, path: Path, limits: Monthly, wall: Callable[[], float]) -> None:
        self._path = path
        self._limits = limits
        self._wall = wall
        with _explained("open", path):
            self._database = opened(path, _SCHEMA)
            self._database.execute("PRAGMA synchronous=NORMAL")
            self._database.execute("DELETE FROM spent WHERE month < ?", (_month(wall() - KEPT_DAYS * 86400.0),))

    def spend(self, run: str, *, size: int = 0, seconds: float = 0.0, answers: int = 0) -> None:
        """Count bytes that travelled, seconds that were computed, and answers; raises StorageError."""
        now = self._wall()
        if not size and not answers and seconds < _MOMENT:
            return
        with _explained("write", self._path):
            self._database.execute(
                "INSERT INTO spent VALUES (?, ?, ?, ?, ?) ON CONFLICT (month, run) DO UPDATE SET "
                "bytes = bytes + excluded.bytes, seconds = seconds + excluded.seconds, "
                "answers = answers + excluded.answers",
                (_month(now), run, size, max(0.0, seconds), answers),
            )

    def why_not(self, run: str = OTHER) -> str:
        """Return why nothing more is given to a run, or to scores; empty: it is."""
        limits, now = self._limits, self._wall()
        if limits == Monthly():
            return ""
        with _explained("read", self._path):
            size, seconds, known = self._database.execute(
                "SELECT total(bytes), total(seconds), total(answers * (run = ?)) FROM spent WHERE month = ?",
                (run, _month(now)),
            ).fetchone()
            # A run that begins is as dear as the dearest that is known.
            dearest = self._database.execute(
                "SELECT coalesce(max(bytes), 0), coalesce(max(seconds), 0) FROM spent WHERE run <> '' AND month >= ?",
                (_month(now - 31 * 86400.0),),
            ).fetchone()
        more = (0, 0) if known or run == OTHER else dearest
        parts = (
            (limits.megabytes, size / 1e6, more[0] / 1e6, "MB", "month_megabytes"),
            (limits.seconds, seconds, more[1], "seconds", "month_seconds"),
        )
        for most, spent, coming, unit, name in parts:
            if most is not None and (spent >= most or spent + coming > most):
                first = (datetime.fromtimestamp(now, tz=UTC).replace(day=1) + timedelta(days=32)).strftime("%Y-%m-01")
                run_takes = f", and a run takes {coming:.3g}" if spent < most else ""
                return (
                    f"over-budget: this vehicle gave {spent:.3g} of {most:g} {unit} of the month (its {name})"
                    f"{run_takes}; more from {first} on"
                )
        return ""

    def check(self, run: str) -> None:
        """Raise OverBudgetError when nothing more is given to a run."""
        if why := self.why_not(run):
            raise OverBudgetError(why)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._database.close()


def read(path: Path) -> list[dict[str, Any]]:
    """Return ``month``, ``megabytes`` and ``seconds`` of each month, the oldest first; raises StorageError."""
    with _explained("read", path):
        rows = read_only(path, "SELECT month, sum(bytes) / 1e6, sum(seconds) FROM spent GROUP BY month ORDER BY month")
    return [dict(zip(("month", "megabytes", "seconds"), row, strict=True)) for row in rows]


def _month(wall: float) -> str:
    return datetime.fromtimestamp(max(0.0, wall), tz=UTC).strftime("%Y-%m")
