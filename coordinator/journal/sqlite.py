"""An SQLite database as a journal: how its connections are set up, and the lock that keeps other coordinators out."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from coordinator.journal.port import Again
from schemas.errors import StorageError, os_faults_as

_MOST_AHEAD = 8 * 1024 * 1024
"""Bytes of the write-ahead log that stay on the disk; as a rule it begins again at half of that."""


def make_engine(url: sa.URL, busy_timeout: float) -> sa.Engine:
    """Return an engine; nothing is connected yet."""
    engine = sa.create_engine(url, connect_args={"timeout": busy_timeout})

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, see below
        connection.text_factory = readable
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file: `shrink` makes it shorter
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        # A transaction that lets many records go writes all their pages ahead; the file would stay as long for good.
        connection.execute(f"PRAGMA journal_size_limit={_MOST_AHEAD}")

    @sa.event.listens_for(engine, "begin")
    def _start(connection: sa.Connection) -> None:
        # Take the write lock at once: a read that turns into a write could otherwise fail half way.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def shrink(connection: sa.Connection) -> None:
    """Give the room of what was let go back to the disk."""
    driver = connection.connection.driver_connection
    assert driver is not None
    (pages,) = driver.execute("PRAGMA freelist_count").fetchone()
    for _ in range(pages):  # of a statement without columns Python takes one step, which is one page
        driver.execute("PRAGMA incremental_vacuum(1)")


def readable(text: bytes) -> str:
    """Return a text, whatever bytes stand there: a damaged one must not keep the others from being read."""
    return text.decode("utf-8", "surrogateescape")


def pick(document: sa.Column[str], places: Iterable[Iterable[str]], counted: Collection[str]) -> list[Any]:
    """Return expressions for parts of a JSON text: one list of what stands at the places, and the lengths of lists."""
    paths = [f"$.{'.'.join(place)}" for place in places]
    return [sa.func.json_extract(document, *paths), *(sa.func.json_array_length(document, f"$.{x}") for x in counted)]


_REFUSAL = (
    "the journal {what} is in use by another coordinator: stop that one first, give this one a journal of its own "
    "(--state-dir or --journal), or let it wait for its turn (--standby)"
)
_GONE = (
    "the lock of the journal {what} is gone: somebody removed or replaced {lock}, so another coordinator may write "
    "there too. Nothing more is written; start the coordinator again, it goes on where it was"
)


class FileLock:
    """An advisory lock on a file beside the database; the kernel releases it when the process ends, however it ends.

    Raises
    ------
    StorageError
        Another coordinator holds it.
    """

    def __init__(self, database: Path, engine: sa.Engine, again: Again) -> None:
        self._what = database
        self._path = database.with_name(database.name + ".lock")
        self._engine = engine
        self._file = -1
        while not self._try():
            if not again(""):
                raise StorageError(_REFUSAL.format(what=database))

    def _try(self) -> bool:
        # Opened anew each time: a lock on a file that was replaced meanwhile would be worth nothing.
        with os_faults_as(StorageError, f"cannot create {self._path}"):
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        self._file = file
        return True

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Give a connection in a transaction.

        Raises
        ------
        StorageError
            The lock's file is not the one that was locked.
        """
        try:
            is_ours = os.path.samestat(os.fstat(self._file), self._path.stat())
        except OSError:
            is_ours = False
        if not is_ours:
            raise StorageError(_GONE.format(what=self._what, lock=self._path.name))
        with self._engine.begin() as connection:
            yield connection

    def release(self) -> None:
        """Give the journal free. Idempotent."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
