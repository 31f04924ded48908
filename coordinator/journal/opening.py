"""Which database a journal's URL names: connected and locked; and what its faults mean, in words."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from coordinator.journal import postgres, sqlite
from coordinator.journal.port import Again, Lock, Patience
from coordinator.journal.sqlite import FileLock
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
    engine = sqlite.make_engine(url, busy_timeout)
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
