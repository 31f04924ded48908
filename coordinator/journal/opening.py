"""Which database a journal's URL names: connected and locked; and what its faults mean, in words.

What is particular to SQLite is here; to PostgreSQL, in `postgres`.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from coordinator.journal import postgres
from coordinator.journal.port import Again, Lock, Patience
from schemas.errors import DamagedError, StorageError, os_faults_as
from schemas.private_files import make_folders, private_database, refuse_shared

_FULL = (
    "no room to write the journal {what}: free some space and start the coordinator again; it goes on where it was, "
    "and agents send again what was not acknowledged"
)
_DAMAGED = (
    "the journal {what} is damaged ({text}): restore it from a backup, or save what can be read (glassfleet "
    "coordinator journal export) and move it away to begin anew"
)


@dataclass(frozen=True)
class Database:
    """A database that is ours alone to write.

    Attributes
    ----------
    lock : Lock
        Held.
    what : str
        File, or URL without its password.
    path : Path or None
        The file (SQLite).
    """

    engine: sa.Engine
    lock: Lock
    what: str
    path: Path | None


def open_database(url: str, busy_timeout: float, again: Again | None) -> Database:
    """Connect to a database and lock it; `again` is asked whenever it cannot be had (None: see `SqlJournal`).

    Raises
    ------
    StorageError
        It cannot be used, or another coordinator has it.
    """
    try:
        parsed = postgres.with_driver(sa.make_url(url))
        kind = parsed.get_backend_name()
        if kind == "sqlite":
            return _open_file(parsed, busy_timeout, again or Patience(0.0))
        what = parsed.render_as_string()
        if kind != "postgresql":
            raise StorageError(f"cannot use {what} as a journal: it must be sqlite:///... or postgresql://...")
        engine = postgres.make_engine(parsed)
    except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as fault:
        raise StorageError(f"cannot use {_public(url)} as a journal: {fault}{_extra(fault)}") from fault
    with translated(what):
        return Database(engine, postgres.AdvisoryLock(engine, again or Patience(busy_timeout)), what, None)


def _open_file(url: sa.URL, busy_timeout: float, again: Again) -> Database:
    if not url.database or url.database == ":memory:":
        raise StorageError("an SQLite journal needs a file: sqlite:///path/to/journal.db")
    path = Path(url.database)
    with os_faults_as(StorageError, f"cannot create the directory {path.parent}"):
        make_folders(path.parent)
        if not path.parent.stat().st_mode & stat.S_ISVTX:  # as /tmp: nobody can replace another's file
            refuse_shared(path.parent)
    engine = _file_engine(url, busy_timeout)
    lock = FileLock(path, engine, again)
    with suppress(OSError):  # SQLite says what is wrong
        private_database(path)
    return Database(engine, lock, url.database, path)


@contextmanager
def translated(what: str, *, is_file: bool = False) -> Iterator[None]:
    """Turn the database's errors into ours; `what` names the journal."""
    try:
        yield
    except IntegrityError as fault:
        raise StorageError(f"the journal {what} has the same run or model already: {fault.orig}") from fault
    except UnicodeDecodeError as fault:  # in what SQLite quotes of a damaged table
        raise DamagedError(_DAMAGED.format(what=what, text="its tables are no text")) from fault
    except SQLAlchemyError as fault:
        text = str(getattr(fault, "orig", None) or fault)
        known = None if is_file else postgres.in_words(getattr(fault, "orig", None), what)
        if known is not None:
            raise StorageError(known) from fault
        if "full" in text or "disk I/O error" in text or "No space left" in text:
            raise StorageError(_FULL.format(what=what)) from fault
        if "malformed" in text or "not a database" in text:
            raise DamagedError(_DAMAGED.format(what=what, text=text)) from fault
        raise StorageError(f"the journal {what} cannot be used: {text}") from fault


def _public(url: str) -> str:
    """Return a URL that may be shown: what cannot be parsed may hold a password anywhere."""
    try:
        return repr(sa.make_url(url).render_as_string(hide_password=True))
    except ArgumentError:
        return "this URL" if "@" in url else repr(url)


def _extra(fault: Exception) -> str:
    return ": pip install 'glassfleet[postgres]'" if isinstance(fault, ModuleNotFoundError) else ""


# --- SQLite ----------------------------------------------------------------------------------------------------------


_MOST_AHEAD = 8 * 1024 * 1024
"""Bytes of the write-ahead log that stay on the disk; as a rule it begins again at half of that."""


def _file_engine(url: sa.URL, busy_timeout: float) -> sa.Engine:
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
