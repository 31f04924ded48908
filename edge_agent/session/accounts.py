"""What a vehicle remembers of itself, in small files of its folder: what it has told, what learning takes, what it saw.

    told.sqlite     what it has told, run by run; `glassfleet agent ledger` prints it. Written before an answer is sent,
                    so it never says less than what left. It holds no rows and no answers.
    spent.sqlite    what it gives to learning in a month: bytes on its link and seconds of computing, counted by itself
    drift.json      what it remembers of models that it was asked about: figures of its test rows by night, no rows

A run that it may not be able to end within the month is refused when it begins: what the dearest run of this month and
the last took must be left. Past the limits every task is refused, whatever the coordinator asks. What was under way is
counted, so the limits may be passed by one answer. The month is that of the vehicle's clock, in UTC; a clock that jumps
back finds what was spent before.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt

from edge_agent.storage import explained as explained_file
from edge_agent.storage import replacing
from glassfleet.errors import TaskError
from glassfleet.evaluation.drift import DriftMemory
from schemas.errors import StorageError
from schemas.private_files import private_database

TOLD, SPENT, WATCHED = "told.sqlite", "spent.sqlite", "drift.json"
"""Names of the files in the agent's folder."""

KEPT_RUNS = 10_000
"""Runs that are remembered, some hundred bytes each; the oldest go first."""

KEPT_DAYS = 730

_MOMENT = 1e-3
"""Shorter looks whether there is something to do are not counted."""

OTHER = ""
"""Stands for what belongs to no run: models, their scores, the coordinator's word."""

_SPENT_TABLE = """
CREATE TABLE IF NOT EXISTS spent (
    month TEXT NOT NULL,
    run TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    seconds REAL NOT NULL,
    answers INTEGER NOT NULL,
    PRIMARY KEY (month, run)
);
"""

_TOLD_TABLE = """
CREATE TABLE IF NOT EXISTS told (
    run TEXT PRIMARY KEY,
    scheme TEXT NOT NULL,
    began REAL NOT NULL,
    last REAL NOT NULL,
    answers INTEGER NOT NULL,
    numbers INTEGER NOT NULL,
    protection TEXT NOT NULL,
    members TEXT NOT NULL
);
"""

_COLUMNS = ("run", "scheme", "began", "last", "answers", "numbers", "protection", "members")


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


class _Account:
    """One table in a file of its own, made when missing, for this user alone. Used by one thread."""

    def __init__(self, path: Path, table: str, wall: Callable[[], float]) -> None:
        self._path = path
        self._wall = wall
        with suppress(OSError):  # SQLite says what is wrong
            private_database(path)
        with _explained("open", path):
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.executescript(table)

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._database.close()


class Allowance(_Account):
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
        super().__init__(path, _SPENT_TABLE, wall)
        self._limits = limits
        with _explained("open", path):
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


class Disclosures(_Account):
    """The list of runs that were answered. Used by one thread.

    Parameters
    ----------
    path : Path
        Database file; created when missing.
    wall : callable
        Seconds since the epoch.

    Raises
    ------
    StorageError
        The file cannot be opened or written.
    """

    def __init__(self, path: Path, wall: Callable[[], float]) -> None:
        super().__init__(path, _TOLD_TABLE, wall)

    def note(
        self, run: str, scheme: str, numbers: int, protection: Mapping[str, int] | None, members: Sequence[str]
    ) -> None:
        """Count one answer of a run.

        Parameters
        ----------
        run, scheme : str
            `scheme`: of its first answer that is about learning or scores, as far as there is one.
        numbers : int
            How many leave with it.
        protection : Mapping or None
            ``floor`` and ``company`` of a private run; None: coordinator and broker read the numbers.
        members : sequence of str
            Over whom the answer is summed; empty in a plain run. The smallest set of a run is kept.
        """
        now, terms = self._wall(), json.dumps(dict(protection or {}), sort_keys=True)
        with _explained("write", self._path):
            self._database.execute(
                "INSERT INTO told VALUES (?, ?, ?, ?, 1, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET "
                "last = excluded.last, answers = answers + 1, numbers = numbers + excluded.numbers, "
                "scheme = CASE WHEN scheme IN ('private', 'domain', 'pairs') THEN excluded.scheme ELSE scheme END, "
                "members = CASE WHEN excluded.members = '[]' THEN members ELSE excluded.members END",
                (run, scheme, now, now, numbers, terms, json.dumps(list(members))),
            )
            self._database.execute(
                "DELETE FROM told WHERE run NOT IN (SELECT run FROM told ORDER BY last DESC, run LIMIT ?)", (KEPT_RUNS,)
            )

    def was_private(self, run: str) -> bool:
        """Whether this vehicle answered a run as a private one, by its own record."""
        with _explained("read", self._path):
            row = self._database.execute("SELECT protection FROM told WHERE run = ?", (run,)).fetchone()
        return row is not None and bool(json.loads(row[0]))


class WatchStore:
    """The memory on disk. A file that cannot be read is begun anew: drift is then told from the next night on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> DriftMemory:
        """Return what is remembered; raises StorageError for a disk that cannot be read."""
        try:
            with explained_file("read", self._path):
                content = self._path.read_bytes() if self._path.exists() else b"{}"
            return DriftMemory.from_value(json.loads(content))
        except (ValueError, LookupError, TypeError, AttributeError):
            return DriftMemory()

    def take(self, news: Mapping[str, Any]) -> None:
        """Take over what is new, of `DriftMemory.to_value`; raises StorageError."""
        memory = self.load()
        memory.take(DriftMemory.from_value(news))
        with replacing(self._path) as file:
            file.write(json.dumps(memory.to_value()).encode())


def told(path: Path) -> list[dict[str, Any]]:
    """Return what a vehicle has told, the oldest run first; empty when it has told nothing.

    Each has ``run``, ``scheme``, ``began`` and ``last`` (seconds since the epoch), ``answers``, ``numbers``,
    ``protection`` (``{}``: none) and ``members``.

    Raises
    ------
    StorageError
        The file cannot be read.
    """
    selected = _read_only(path, f"SELECT {', '.join(_COLUMNS)} FROM told ORDER BY began, run")  # noqa: S608
    rows = [dict(zip(_COLUMNS, row, strict=True)) for row in selected]
    return [{**row, **{name: json.loads(row[name]) for name in ("protection", "members")}} for row in rows]


def numbers_in(contribution: Mapping[str, Any]) -> int:
    """Return how many numbers an answer holds: of its sums, and of what is no sum."""
    return _count(contribution.get("sums")) + _count(contribution.get("values"))


def _count(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return int(value.size)
    if isinstance(value, Mapping):
        return sum(_count(each) for each in value.values())
    if isinstance(value, list | tuple):
        return sum(_count(each) for each in value)
    return int(isinstance(value, int | float))


def spent(path: Path) -> list[dict[str, Any]]:
    """Return ``month``, ``megabytes`` and ``seconds`` of each month, the oldest first; raises StorageError."""
    rows = _read_only(path, "SELECT month, sum(bytes) / 1e6, sum(seconds) FROM spent GROUP BY month ORDER BY month")
    return [dict(zip(("month", "megabytes", "seconds"), row, strict=True)) for row in rows]


def _month(wall: float) -> str:
    return datetime.fromtimestamp(max(0.0, wall), tz=UTC).strftime("%Y-%m")


def _read_only(path: Path, query: str) -> list[Any]:
    """Return the rows of a query, none where there is no file; raises StorageError."""
    if not path.exists():
        return []
    with _explained("read", path), closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


@contextmanager
def _explained(what: str, path: Path) -> Iterator[None]:
    """Let a fault of SQLite be a StorageError that says the way out."""
    try:
        yield
    except sqlite3.Error as fault:
        raise StorageError(
            f"cannot {what} {path}, what this vehicle has told, or spent: {fault}. Make room, or move it "
            "away; then start the agent again"
        ) from fault
