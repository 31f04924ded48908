"""A window over a live stream, on disk: the newest rows, bounded in number and age, in one SQLite file.

Every `WindowStore.append` is one transaction (WAL), so a killed collector loses at most the rows that it had not yet
handed over, and never damages the file. An agent reads it when a run takes its snapshot.

No sample decides for the others. A field that comes later is a column from then on, and empty in the rows before. What
a column is, numbers or texts, most of its cells say when the window is read: rows of the others are left out then, and
counted, so that one odd sample cannot spoil the window.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from edge_agent.sources.cells import column_names, is_finite
from edge_agent.sources.location import Location, Origin, Reader
from glassfleet.data.clock import TIMES
from schemas import limits
from schemas.errors import DataError, StorageError
from schemas.log import Log

BUSY_WAIT = 10.0
"""Seconds to wait for another process that writes to the same window: its transactions take milliseconds."""

FORMAT: Final = "2"
ENDING: Final = ".window"
"""How the name of a window store ends."""

ARRIVED: Final = "at"
"""Column with the time of arrival, seconds since 1970, where the samples bring no time of their own."""

MAX_ROWS: Final = 50_000
"""Rows that a window keeps unless told otherwise."""

LONGEST_JUMP: Final = 3600.0
"""Seconds. After a longer step of the clock rows are let go by age only when it has gone on from there for as long: a
clock that is ahead for a while must not empty the window. With a shorter window, half of its age."""

LONGEST_PARKED: Final = 366 * 86_400.0
"""Seconds; a step ahead by more is a clock that is wrong, and makes no row older."""

_log = Log()

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
        Fields of a sample to keep, in this order; empty: as the store was made, or all that come.
    wait : float
        Seconds to wait for another process that writes to the same window.
    clock : callable
        Seconds since the epoch.

    Attributes
    ----------
    left_out : Counter of str
        Rows that `read` left out, by reason.
    times : list of float
        When each row that `read` gave came, seconds since 1970 by this machine's clock.
    columns : tuple of str
        The columns, in their order. A field that comes later stands where its sample has it: behind the column that is
        before it there.

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
        self._places: dict[str, int] = json.loads(known.get("places", "{}"))  # of each column's cells in a stored row
        self.left_out: Counter[str] = Counter()
        self.times: list[float] = []
        self._is_stated = bool(json.loads(known.get("stated", "false")))
        about = {"format": FORMAT, "max_rows": str(self._max_rows), "max_seconds": repr(self._max_seconds)}
        if columns:
            if self.columns and tuple(columns) != self.columns:
                what = f"the window holds the columns {', '.join(self.columns)}, not {', '.join(columns)}"
                raise DataError(what, "Name another --store for other columns", str(path))
            self._is_stated = True
            self.columns = column_names(str(path), columns)
            self._places = {name: place for place, name in enumerate(self.columns)}
            about |= self._about_columns()
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
            Field to number, text, or None for an empty cell, as is a column that has no field.
        about : str
            What to note in the same transaction, for `noted`.

        Returns
        -------
        list of str
            Of each sample that was refused: why.

        Raises
        ------
        StorageError
            The file cannot be written (full disk). Nothing of it is kept.
        """
        faults, rows = [], []
        before = self.columns, dict(self._places)
        for sample in samples:
            try:
                rows.append(json.dumps(self._cells(sample)))
            except ValueError as fault:
                faults.append(str(fault))
        if self.columns != before[0]:
            about = {**about, **self._about_columns()}
        try:
            with self._explained(), self._db:  # which commits at its end, or rolls back
                self._db.execute("BEGIN IMMEDIATE")
                now = self._age_clock()
                self._db.executemany("INSERT INTO rows (at, cells) VALUES (?, ?)", [(now, cells) for cells in rows])
                self._db.executemany("INSERT OR REPLACE INTO about (name, value) VALUES (?, ?)", list(about.items()))
                self._db.execute("DELETE FROM rows WHERE seq <= (SELECT max(seq) FROM rows) - ?", (self._max_rows,))
                if self._max_seconds:
                    self._db.execute("DELETE FROM rows WHERE at < ?", (now - self._max_seconds,))
        except StorageError:
            self.columns, self._places = before
            raise
        return faults

    def read(self) -> tuple[tuple[str, ...], list[list[Any]]]:
        """Return the columns and the rows in the window, oldest first; what is left out is counted in `left_out`.

        Raises
        ------
        DataError
            Nothing was collected yet, or the file cannot be read.
        """
        if not self.columns:
            raise DataError("the window is empty", "Collect samples first: glassfleet data collect", str(self.path))
        with self._explained():
            stored = self._db.execute(
                "SELECT at, cells FROM rows WHERE at >= ? ORDER BY seq DESC LIMIT ?", (self._oldest(), self._max_rows)
            ).fetchall()
            offset = self._offset()
        places = [self._places[name] for name in self.columns]
        rows = []
        for at, text in reversed(stored):
            cells = json.loads(text)
            rows.append([*(cells[place] if place < len(cells) else None for place in places), at - offset])
        self.left_out = Counter()
        for index, name in enumerate(self.columns):
            rows = self._alike(name, index, rows)
        self.times = [row.pop() for row in rows]
        return self.columns, rows

    def _alike(self, name: str, index: int, rows: list[list[Any]]) -> list[list[Any]]:
        """Leave out the rows whose cell is a text where most have a number, or the other way round."""
        texts = sum(isinstance(row[index], str) for row in rows)
        numbers = sum(row[index] is not None for row in rows) - texts
        if not texts or not numbers:
            return rows
        odd, kind = ("a number", str) if texts > numbers else ("a text", int | float)
        kept = [row for row in rows if row[index] is None or isinstance(row[index], kind)]
        self.left_out[f"{odd} in {name!r}, unlike most rows"] += len(rows) - len(kept)
        return kept

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
        with self._explained():
            first, last = self._db.execute(
                "SELECT min(seq), max(seq) FROM rows WHERE at >= ?", (self._oldest(),)
            ).fetchone()
        return int(first or 0), int(last or 0)

    def close(self) -> None:
        """Leave the file."""
        self._db.close()

    def _cells(self, sample: Mapping[str, Any]) -> list[Any]:
        """Return a sample as it is stored; what is new in it becomes a column. Raises ValueError: it is no row."""
        cells = {name: _cell(name, value) for name, value in sample.items() if name in self._places}
        new = {}
        if not self._is_stated:
            others = (item for item in sample.items() if item[0] not in self._places)
            new = {name: _cell(name, value) for name, value in others if isinstance(value, int | float | str)}
            new = {name: cell for name, cell in new.items() if cell is not None}
        if not new and all(cell is None for cell in cells.values()):
            raise ValueError(f"it has none of the fields {', '.join(self.columns[:8]) or 'that make a row'}")
        if new:
            self._add(tuple(sample), new)
        cells |= new
        return [cells.get(name) for name in self._places]

    def _add(self, order: Sequence[str], new: Mapping[str, Any]) -> None:
        """Make columns of new fields, each behind the column that stands before it in its sample."""
        columns = list(self.columns)
        for name in new:
            behind = [columns.index(each) + 1 for each in order[: order.index(name)] if each in columns]
            before = [columns.index(each) for each in order[order.index(name) + 1 :] if each in columns]
            columns.insert(behind[-1] if behind else before[0] if before else len(columns), name)
        if len(columns) > limits.MAX_FEATURES:
            raise ValueError(f"a window has at most {limits.MAX_FEATURES} columns: name those to keep with --columns")
        try:
            column_names(str(self.path), columns)
        except DataError as fault:
            raise ValueError(str(fault)) from fault
        if self.columns:
            _log.warning("new-column", columns=list(new), now=columns, hint="empty in the rows before")
        self.columns = tuple(columns)
        self._places |= {name: len(self._places) + number for number, name in enumerate(new)}

    def _about_columns(self) -> dict[str, str]:
        return {
            "columns": json.dumps(self.columns),
            "places": json.dumps(self._places),
            "stated": json.dumps(self._is_stated),
        }

    def _oldest(self) -> float:
        """Return the time of arrival from which on rows are in the window."""
        if not self._max_seconds:
            return -math.inf
        now, newest = self._clock() + self._offset(), self._newest(self._clock())[1]
        return (now if 0 <= now - newest <= LONGEST_PARKED else newest) - self._max_seconds

    def _offset(self) -> float:
        """Return by how much the times of arrival are ahead of this machine's clock."""
        return float(dict(self._db.execute("SELECT name, value FROM about")).get("offset", 0))

    def _newest(self, without: float) -> tuple[int, float]:
        """Return number and time of the newest row; 0 and `without` when there is none."""
        row = self._db.execute("SELECT seq, at FROM rows ORDER BY seq DESC LIMIT 1").fetchone()
        return (0, without) if row is None else (int(row[0]), float(row[1]))

    def _age_clock(self) -> float:
        """Return the time for rows that come now: this machine's, without jumps that have not lasted yet."""
        known = dict(self._db.execute("SELECT name, value FROM about WHERE name IN ('offset', 'jump')"))
        offset, jump = float(known.get("offset", 0)), json.loads(known.get("jump", "null"))
        wall = self._clock()
        seq, newest = self._newest(wall + offset)
        longest = min(LONGEST_JUMP, self._max_seconds or LONGEST_JUMP)
        step = wall + offset - newest
        if not -1.0 <= step <= longest:
            right = None if jump is None else self._at(jump["seq"])
            if (
                jump is not None
                and right is not None
                and 0 <= wall + jump["offset"] - right <= longest + newest - right
            ):
                offset, jump = jump["offset"], None  # as it was before
            else:
                jump = {"seq": seq, "offset": offset, "since": wall, "step": step} | (jump or {}) | {"since": wall}
                offset = newest - wall
                days = f"{abs(step) / 86_400:.6g} days"
                what = f"the clock {'jumps ahead' if step > 0 else 'steps back'} by {days}"
                _log.warning("clock-jump", reason=what, hint="no row is let go by age until it has lasted")
        elif jump is not None and wall - jump["since"] >= longest:
            if 0 < (ahead := jump["offset"] - offset) <= LONGEST_PARKED:
                self._db.execute("UPDATE rows SET at = at + ? WHERE seq > ?", (ahead, jump["seq"]))
                offset = jump["offset"]
            jump = None
        about = {"offset": repr(offset), "jump": json.dumps(jump)}
        if about.items() - known.items():
            self._db.executemany("INSERT OR REPLACE INTO about (name, value) VALUES (?, ?)", list(about.items()))
        return max(wall + offset, self._newest(-math.inf)[1])

    def _at(self, seq: int) -> float | None:
        row = self._db.execute("SELECT at FROM rows WHERE seq = ?", (seq,)).fetchone()
        return None if row is None else float(row[0])

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


def _cell(name: str, value: Any) -> Any:
    """Return a field as a cell, None where it has no value; raises ValueError when it can be none."""
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None or is_finite(value):
        return value
    raise ValueError(f"the field {name[:40]!r} is neither a finite number nor a text")


@contextmanager
def _rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[Any]]]]]:
    window = _open(place)
    names, rows = window.read()
    if window.left_out:
        _log.warning("rows-left-out", source=place.shown, rows=dict(window.left_out))
    if not TIMES.isdisjoint(name.strip().lower() for name in names):
        yield names, iter([rows] if rows else [])
        return
    timed = [[at, *row] for at, row in zip(window.times, rows, strict=True)]
    yield (ARRIVED, *names), iter([timed] if timed else [])


def _open(place: Location) -> WindowStore:
    return WindowStore.open(Path(place.text))


def _origin(place: Location) -> Origin:
    with closing(_open(place)) as window:
        return Origin(units=json.loads(window.noted("units") or "{}"))


READER: Final = Reader(
    "the newest rows of a live stream; data collect keeps them",
    _rows,
    endings=(ENDING,),
    mark=lambda place: _open(place).mark,
    origin=_origin,
    is_gappy=True,
)
