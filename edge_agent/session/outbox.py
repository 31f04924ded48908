"""Answers that no receipt has ended yet: durable, bounded, the same bytes every time.

SQLite (standard library) in write-ahead mode rather than a file per answer: putting, parking, ending and the bound are
transactions, and a killed process leaves all of one or nothing of it. A full disk is an error of the one statement that
met it, after which everything stored is still there. ``synchronous=NORMAL``: a kill loses nothing; a power cut may lose
the last moments, never the file, and an answer lost that way is computed again from the open request and the snapshot,
byte for byte. That saves two waits for the disk per round.

An entry is ``pending`` (sent until a receipt comes), ``parked`` or ``ended``. Parked: a newer request took its place;
it is kept so that the same bytes are sent if the task is asked again. Ended: a receipt came; the bytes are gone, the
mark stays until the run ends, so that a restarted agent does not answer again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import StorageError
from schemas.private_files import private_database

KEPT_RECEIPTS = 4096
"""Marks of ended answers, a hundred bytes each, so that a restarted agent does not answer again."""

BUSY_WAIT = 5.0
"""Seconds to wait for another process that holds the file: a backup."""

DEFAULT_MAX_BYTES = 256 * 1024 * 1024

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answer (
    run TEXT NOT NULL,
    task_digest TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'parked', 'ended')),
    outcome TEXT NOT NULL DEFAULT '',
    size INTEGER NOT NULL,
    payload BLOB,
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    UNIQUE (run, task_digest)
);
"""


@dataclass(frozen=True)
class Contents:
    """What the outbox remembers, as (run, task digest) pairs, oldest first."""

    pending: tuple[tuple[str, str], ...]
    parked: tuple[tuple[str, str], ...]
    ended: tuple[tuple[str, str], ...]


class Outbox:
    """The durable store of unsent answers, keyed by (run, task digest). Used by one thread.

    Parameters
    ----------
    path : Path
        Database file; created when missing. ``Path(":memory:")`` keeps everything in memory (tests).
    max_bytes : int
        Most payload bytes that are kept. When an answer needs room, parked ones give way first, then pending
        ones, oldest first.

    Raises
    ------
    StorageError
        The file cannot be opened, read or written; the message says why and what to do.
    """

    def __init__(self, path: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._path = path
        self.max_bytes = max_bytes
        with self._explained("open"):
            with suppress(OSError):  # SQLite says what is wrong
                private_database(path)
            self._database = sqlite3.connect(path, timeout=BUSY_WAIT, isolation_level=None, check_same_thread=False)
        with self._explained("open"):
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=NORMAL")
            # An agent is small: half a megabyte of cache instead of two.
            self._database.execute("PRAGMA cache_size=-512")
            self._database.executescript(_SCHEMA)

    def put(self, run: str, task_digest: str, payload: bytes) -> tuple[tuple[str, str], ...]:
        """Store an answer; it survives this process when this returns. A first answer is never replaced.

        Returns
        -------
        tuple of (run, task digest)
            Pending answers that had to give way to keep the bound.

        Raises
        ------
        StorageError
            Not stored: the disk is full, or the answer alone is above ``max_bytes``. What was stored before is
            untouched.
        """
        if len(payload) > self.max_bytes:
            raise StorageError(
                f"an answer of {len(payload)} bytes does not fit the outbox: raise outbox_max_bytes "
                f"(now {self.max_bytes})"
            )
        with self._transaction("write"):
            dropped = self._make_room(len(payload))
            self._database.execute(
                "INSERT INTO answer (run, task_digest, status, size, payload) VALUES (?, ?, 'pending', ?, ?) "
                "ON CONFLICT (run, task_digest) DO UPDATE SET status = 'pending' WHERE status = 'parked'",
                (run, task_digest, len(payload), payload),
            )
        return dropped

    def get(self, run: str, task_digest: str) -> bytes | None:
        """Return the stored answer; None when there is none (any more)."""
        with self._explained("read"):
            row = self._database.execute(
                "SELECT payload FROM answer WHERE run = ? AND task_digest = ?", (run, task_digest)
            ).fetchone()
        return None if row is None else row[0]

    def park(self, run: str, task_digest: str) -> None:
        """Note that the answer is not sent for now (idempotent)."""
        self._mark(run, task_digest, "status = 'parked'", "status = 'pending'")

    def unpark(self, run: str, task_digest: str) -> None:
        """Note that the answer is sent again (idempotent)."""
        self._mark(run, task_digest, "status = 'pending'", "status = 'parked'")

    def end(self, run: str, task_digest: str, outcome: str) -> None:
        """Note that a receipt ended the answer, and drop its bytes (idempotent)."""
        with self._transaction("write"):
            self._database.execute(
                "INSERT INTO answer (run, task_digest, status, outcome, size) VALUES (?, ?, 'ended', ?, 0) "
                "ON CONFLICT (run, task_digest) DO UPDATE "
                "SET status = 'ended', outcome = excluded.outcome, size = 0, payload = NULL",
                (run, task_digest, outcome),
            )
            self._database.execute(
                "DELETE FROM answer WHERE status = 'ended' AND position NOT IN "
                "(SELECT position FROM answer WHERE status = 'ended' ORDER BY position DESC LIMIT ?)",
                (KEPT_RECEIPTS,),
            )

    def end_run(self, run: str) -> None:
        """Drop everything about a run that is over."""
        with self._transaction("write"):
            self._database.execute("DELETE FROM answer WHERE run = ?", (run,))

    def contents(self) -> Contents:
        """Return what a restarted agent has to know."""
        with self._explained("read"):
            rows = self._database.execute("SELECT status, run, task_digest FROM answer ORDER BY position").fetchall()
        return Contents(
            *(
                tuple((run, digest) for status, run, digest in rows if status == wanted)
                for wanted in ("pending", "parked", "ended")
            )
        )

    @property
    def kept_bytes(self) -> int:
        """Payload bytes stored now, at most ``max_bytes``."""
        with self._explained("read"):
            return int(self._database.execute("SELECT coalesce(sum(size), 0) FROM answer").fetchone()[0])

    def close(self) -> None:
        """Close the database. Idempotent."""
        self._database.close()

    def _make_room(self, wanted: int) -> tuple[tuple[str, str], ...]:
        excess = self.kept_bytes + wanted - self.max_bytes
        dropped = []
        if excess > 0:
            rows = self._database.execute(
                "SELECT position, status, size, run, task_digest FROM answer WHERE size > 0 "
                "ORDER BY status = 'pending', position"
            ).fetchall()
            for position, status, size, run, digest in rows:
                if excess <= 0:
                    break
                self._database.execute("DELETE FROM answer WHERE position = ?", (position,))
                excess -= size
                if status == "pending":
                    dropped.append((run, digest))
        return tuple(dropped)

    def _mark(self, run: str, task_digest: str, change: str, condition: str) -> None:
        with self._transaction("write"):
            self._database.execute(
                f"UPDATE answer SET {change} WHERE run = ? AND task_digest = ? AND {condition}",  # noqa: S608 - constants above
                (run, task_digest),
            )

    @contextmanager
    def _transaction(self, what: str) -> Iterator[None]:
        with self._explained(what), self._database:  # which commits at its end, or rolls back
            self._database.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as fault:
            raise StorageError(f"cannot {what} the outbox {self._path}: {_words(fault)}") from fault


def _words(fault: sqlite3.Error) -> str:
    code = getattr(fault, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return "the disk is full. Make room, then start the agent again; nothing that was stored is lost"
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return f"no permission, or no such directory ({fault}). Give the agent a directory of its own with --state-dir"
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return (
            f"the file is damaged ({fault}). Move it away and start the agent again: the open round is answered from "
            "its request"
        )
    if code == sqlite3.SQLITE_BUSY:
        return "another process holds it. Stop that process, then start the agent again"
    return str(fault)
