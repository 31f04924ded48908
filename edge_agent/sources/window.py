"""A window over a live stream, on disk: the newest rows, bounded in number and age, in one SQLite file.

Every `WindowStore.append` is one transaction (WAL), so a killed collector loses at most the rows that it had not yet
handed over, and never damages the file. An agent reads it when a run takes its snapshot.

The first row decides the columns and which of them are numbers; what does not fit later is refused, row by row, so
that one odd sample cannot spoil the window.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from edge_agent.sources.cells import column_names, is_finite
from edge_agent.sources.location import Location, Reader
from schemas.errors import DataError, StorageError

BUSY_WAIT = 10.0
"""Seconds to wait for another process that writes to the same window: its transactions take milliseconds."""

FORMAT: Final = "1"
ENDING: Final = ".window"
"""How the name of a window store ends."""

MAX_ROWS: Final = 50_000
"""Rows that a window keeps unless told otherwise."""

_TABLES = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rows (seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, cells TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS rows_at ON rows (at);
"""


class WindowStore:
    """The newest rows of a stream.

    Parameters
    ----------
    path : Path
        File; made when it is not there.
    max_rows : int or None
        Most rows, > 0; None: as the store was made, or `MAX_ROWS`.
    max_seconds : float or None
        Oldest row's age, >= 0, by the time of arrival; 0: any age. None: as the store was made, or any.
    columns : sequence of str
        Fields of a sample to keep, in this order; empty: those of the first sample, or of the store as it was made.
    wait : float
        Seconds to wait for another process that writes to the same window.
    clock : callable
        Seconds since the epoch.

    Raises
    ------
    DataError
        The file is no window store, or one of other columns.
    StorageError
        It cannot be made or written.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_rows: int | None = None,
        max_seconds: float | None = None,
        columns: Sequence[str] = (),
        wait: float = BUSY_WAIT,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = path
        self._clock = clock
        with self._explained():
            # Raw rows: for this user alone; SQLite says what is wrong when it cannot be made. Only a new file is opened
            # here: closing any descriptor of a database drops the locks that this process's connections hold on it
            # (POSIX), and another process may then take away the log under them.
            with suppress(OSError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            self._db = sqlite3.connect(path, timeout=wait, isolation_level=None)
            self._write_ahead(wait)
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_TABLES)
            known = dict(self._db.execute("SELECT name, value FROM about"))
        if known.get("format", FORMAT) != FORMAT:
            raise DataError(f"a window of format {known['format']}; this software reads {FORMAT}", where=str(path))
        self._max_rows = max_rows or int(known.get("max_rows", MAX_ROWS))
        self._max_seconds = float(known.get("max_seconds", 0)) if max_seconds is None else max_seconds
        self.columns: tuple[str, ...] = tuple(json.loads(known.get("columns", "[]")))
        self._text: frozenset[str] = frozenset(json.loads(known.get("text", "[]")))
        self._fixed = bool(self.columns)
        if columns:
            if self._fixed and tuple(columns) != self.columns:
                what = f"the window holds the columns {', '.join(self.columns)}, not {', '.join(columns)}"
                raise DataError(what, "Name another --store for other columns", str(path))
            self.columns = column_names(str(path), columns)
        about = {"format": FORMAT, "max_rows": str(self._max_rows), "max_seconds": repr(self._max_seconds)}
        if about.items() - known.items():  # a reader need not wait for a writer
            self._note(**about)

    def _write_ahead(self, wait: float) -> None:
        """Switch to WAL; SQLite does not wait by itself for another process that opens the new file just now."""
        end = time.monotonic() + wait
        while True:
            try:
                self._db.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as fault:
                if "locked" not in str(fault) or time.monotonic() > end:
                    raise
                time.sleep(0.05)
            else:
                return

    @classmethod
    def open(cls, path: Path, *, wait: float = BUSY_WAIT) -> WindowStore:
        """Open a window that is there already; raises DataError when it is not."""
        if not path.is_file():
            mend = f"Fill one with: glassfleet data collect --source URL --store {path.name}"
            raise DataError("there is no such window", mend, str(path))
        return cls(path, wait=wait)

    @property
    def limits(self) -> tuple[int, float]:
        """Most rows, and the oldest row's age in seconds (0: any)."""
        return self._max_rows, self._max_seconds

    def append(self, samples: Sequence[Mapping[str, Any]], **about: str) -> list[str]:
        """Add rows in one transaction, and let the oldest go.

        Parameters
        ----------
        samples : sequence of mapping
            Field to number or text; fields that are no columns are left out.
        about : str
            What to note in the same transaction, for `noted`.

        Returns
        -------
        list of str
            Of each sample that was refused: why.

        Raises
        ------
        StorageError
            The file cannot be written (full disk).
        """
        faults, rows = [], []
        now = self._clock()
        for sample in samples:
            fault = self._fault(sample)
            if fault:
                faults.append(fault)
            else:
                rows.append((now, json.dumps([sample[name] for name in self.columns])))
        with self._explained(), self._db:  # which commits at its end, or rolls back
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO rows (at, cells) VALUES (?, ?)", rows)
            self._db.executemany("INSERT OR REPLACE INTO about (name, value) VALUES (?, ?)", list(about.items()))
            self._db.execute("DELETE FROM rows WHERE seq <= (SELECT max(seq) FROM rows) - ?", (self._max_rows,))
            if self._max_seconds:
                self._db.execute("DELETE FROM rows WHERE at < ?", (now - self._max_seconds,))
        return faults

    def read(self) -> tuple[tuple[str, ...], list[list[Any]]]:
        """Return the columns and the rows in the window, oldest first.

        Raises
        ------
        DataError
            Nothing was collected yet, or the file cannot be read.
        """
        if not self.columns:
            raise DataError("the window is empty", "Collect samples first: glassfleet data collect", str(self.path))
        oldest = self._clock() - self._max_seconds if self._max_seconds else 0.0
        with self._explained():
            rows = self._db.execute(
                "SELECT cells FROM rows WHERE at >= ? ORDER BY seq DESC LIMIT ?", (oldest, self._max_rows)
            ).fetchall()
        return self.columns, [json.loads(cells) for (cells,) in reversed(rows)]

    def span(self) -> tuple[int, float, float]:
        """Return how many rows there are, and when the oldest and the newest came (since the epoch; 0: none)."""
        with self._explained():
            count, first, last = self._db.execute("SELECT count(*), min(at), max(at) FROM rows").fetchone()
        return int(count), float(first or 0.0), float(last or 0.0)

    def noted(self, name: str) -> str:
        """Return what was noted with `append` under a name; empty: nothing."""
        with self._explained():
            row = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return "" if row is None else str(row[0])

    def mark(self) -> tuple[int, int]:
        """Return something that differs when the rows in the window do."""
        oldest = self._clock() - self._max_seconds if self._max_seconds else 0.0
        with self._explained():
            first, last = self._db.execute("SELECT min(seq), max(seq) FROM rows WHERE at >= ?", (oldest,)).fetchone()
        return int(first or 0), int(last or 0)

    def close(self) -> None:
        """Leave the file."""
        self._db.close()

    def _fault(self, sample: Mapping[str, Any]) -> str:
        """Return why a sample is no row, or an empty text; the first that is one decides the columns."""
        if not self._fixed:
            names = self.columns or tuple(sample)
            try:
                column_names(str(self.path), names)
            except DataError as fault:
                return str(fault)
            text = frozenset(name for name in names if isinstance(sample.get(name), str))
            if misfit := _misfit(sample, names, text):  # before anything is decided by it
                hint = "" if self.columns else ". If it is not needed, name the fields to keep with --columns"
                return f"{misfit}{hint}"
            self.columns, self._text, self._fixed = tuple(names), text, True
            self._note(columns=json.dumps(self.columns), text=json.dumps(sorted(text)))
        return _misfit(sample, self.columns, self._text)

    def _note(self, **about: str) -> None:
        with self._explained():
            self._db.executemany("INSERT OR REPLACE INTO about (name, value) VALUES (?, ?)", list(about.items()))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as fault:
            if isinstance(fault, sqlite3.OperationalError):
                raise StorageError(f"{self.path}: {fault}. Check the folder, its rights and the free space") from fault
            mend = "Name another file with --store"
            raise DataError(f"not a window store ({fault})", mend, str(self.path)) from fault


def _misfit(sample: Mapping[str, Any], names: Sequence[str], text: frozenset[str]) -> str:
    """Return why a sample is no row of these columns, or an empty text."""
    for name in names:
        if name not in sample:
            return f"the field {name!r} is missing"
        cell = sample[name]
        if name in text:
            if not isinstance(cell, str):
                return f"the field {name!r} is not a text, as in the first sample"
            if not cell.strip():
                return f"the field {name!r} is empty"
        elif not is_finite(cell):
            return f"the field {name!r} is not a finite number"
    return ""


@contextmanager
def _rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[Any]]]]]:
    names, rows = _open(place).read()
    yield names, iter([rows] if rows else [])


def _open(place: Location) -> WindowStore:
    return WindowStore.open(Path(place.text))


READER: Final = Reader(
    "the newest rows of a live stream; data collect keeps them",
    _rows,
    endings=(ENDING,),
    mark=lambda place: _open(place).mark,
)
