"""A look at a journal from outside: nothing is locked or repaired."""

from __future__ import annotations

import base64
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from coordinator.journal import postgres
from coordinator.journal.opening import readable
from coordinator.journal.port import Damaged, Entry, Leader
from coordinator.journal.tables import (
    LEADER,
    MODELS,
    RECORDS,
    RUNS,
    TABLES,
    Select,
    entries_of,
    has_tables,
    leader_of,
    look,
    unpacked,
)
from schemas.errors import DamagedError, NotFoundError, StorageError

_UNREADABLE = (SQLAlchemyError, UnicodeDecodeError)
"""SQLite says in words what is wrong with a damaged table, and quotes it."""


@dataclass(frozen=True)
class JournalSummary:
    """What a journal looks like.

    Attributes
    ----------
    what : str
        File, or URL without its password.
    records, unfinished : int
        Events, and runs that a coordinator would go on with.
    bytes : int
        Room that it takes.
    events, since : int, float
        Bytes of its events, and when the first of them was written, seconds since the epoch; 0: there is none.
    documents, days : int, float
        Bytes of what stays of runs and models, and in how many days of the coordinator's own time they came.
    is_locked : bool
        Whether a coordinator has it now.
    writable : bool
        Whether this user can write it; `why` it cannot.
    why, damage : str
        Empty: there is nothing to say.
    """

    what: str
    records: int
    unfinished: int
    bytes: int
    events: int
    since: float
    documents: int
    days: float
    is_locked: bool
    writable: bool
    why: str = ""
    damage: str = ""


def inspect(url: str) -> JournalSummary | None:
    """Return what a journal looks like; None when there is none yet.

    Raises
    ------
    StorageError
        It cannot be read; the text says what to do.
    """
    parsed = _parsed(url)
    return _file(Path(parsed.database or "")) if parsed.get_backend_name() == "sqlite" else _server(parsed)


def _parsed(url: str) -> sa.URL:
    try:
        parsed = postgres.with_driver(sa.make_url(url))
        parsed.get_dialect()
    except (ArgumentError, NoSuchModuleError) as fault:
        raise StorageError(f"this is no URL of a journal ({fault}): sqlite:///... or postgresql://...") from fault
    return parsed


def rows(url: str) -> Iterator[tuple[str, Any]]:
    """Yield every row of a journal: its table's name, and the row or what is `Damaged`. A coordinator may run.

    Of an SQLite file that is damaged in its structure that comes first, of a table called ``file``.

    Raises
    ------
    NotFoundError
        There is no journal.
    StorageError
        It cannot be read, or is of another version.
    """
    with _reading(url) as (select, is_file):
        if is_file and (damage := _structure(select)):
            yield "file", Damaged("file", "", f"its structure is damaged ({damage})")
        for table in TABLES:
            yield from ((table.name, row) for row in look(select, table))


def runs(url: str) -> list[str]:
    """Return the runs of which there are events, in the order of their start; raises as `rows`."""
    first = sa.func.min(RECORDS.c.seq)
    with _reading(url) as (select, _):
        return [str(row.run) for row in select(sa.select(RECORDS.c.run).group_by(RECORDS.c.run).order_by(first))]


def entries(url: str, run: str) -> list[Entry]:
    """Return the events of one run, in order; none: there is no such run. Raises as `rows`, and for a damaged event."""
    with _reading(url) as (select, _):
        return list(entries_of(select, run))


def leader(url: str) -> Leader | None:
    """Return who leads, or led last; None: nobody is known. Raises as `rows`."""
    with _reading(url) as (select, _):
        return leader_of(select(sa.select(LEADER)))


@contextmanager
def _reading(url: str) -> Iterator[tuple[Select, bool]]:
    """Open a journal to look at it; gives what selects, and whether it is an SQLite file."""
    parsed = _parsed(url)
    what, is_file = parsed.render_as_string(hide_password=True), parsed.get_backend_name() == "sqlite"
    path = Path(parsed.database or "")
    if is_file and not path.exists():
        raise NotFoundError(f"there is no journal {path}")
    engine = (
        _reader(path, stands_still=not os.access(path.parent, os.W_OK)) if is_file else postgres.make_engine(parsed)
    )

    @contextmanager
    def connected() -> Iterator[sa.Connection]:
        try:
            with engine.connect() as connection:
                yield connection
        except _UNREADABLE as fault:
            known = None if is_file else postgres.in_words(getattr(fault, "orig", None), what)
            if known is not None:
                raise StorageError(known) from fault
            raise DamagedError(
                f"the journal {what} cannot be read ({getattr(fault, 'orig', None) or fault})"
            ) from fault

    def select(query: sa.Executable) -> Sequence[Any]:
        with connected() as connection:
            return connection.execute(query).all()

    try:
        with connected() as connection:
            if not has_tables(connection, what):
                raise NotFoundError(f"there is no journal in {what}")
        yield select, is_file
    finally:
        engine.dispose()


def _structure(select: Select) -> str:
    """Say what is wrong with the pages and indexes of an SQLite database; empty: nothing."""
    try:
        ((text,),) = select(sa.text("PRAGMA integrity_check(1)"))
    except DamagedError as fault:
        text = str(fault)
    return "" if text == "ok" else " ".join(str(text).split())[:200]


def as_document(table: str, row: Any) -> dict[str, Any]:
    """Return a whole row as JSON values; an event's bytes, which are MessagePack, in Base64."""
    values = {name: value for name, value in row._mapping.items() if name != "checksum"}  # noqa: SLF001 - public name
    for name in ("document", "record", "body"):
        if name in values:
            body = values[name]
            is_event = table == RECORDS.name
            values[name] = base64.b64encode(unpacked(body)).decode() if is_event else json.loads(body)
    return {"table": table, **values}


def _file(path: Path) -> JournalSummary | None:
    if not path.exists():
        return None
    why = ""
    try:
        path.open("r+b").close()
        with (path.parent / f".{path.name}.doctor").open("xb"):
            pass
        (path.parent / f".{path.name}.doctor").unlink()
    except OSError as fault:
        why = f"{fault.filename}: {fault.strerror}"
    engine = _reader(path, stands_still=bool(why))
    try:
        with engine.connect() as connection:
            damage = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
            if not has_tables(connection, str(path)):
                return None
            counts = _counts(connection)
    except _UNREADABLE as fault:
        text = str(getattr(fault, "orig", None) or fault)
        raise StorageError(
            f"the journal {path} cannot be read ({text}): give it to this user, or restore it from a backup"
        ) from fault
    finally:
        engine.dispose()
    room = sum(each.stat().st_size for each in (path, path.with_name(path.name + "-wal")) if each.exists())
    torn = "" if damage == "ok" else f"the file is damaged ({damage})"
    is_locked = _has_flock(path)
    return JournalSummary(
        what=str(path), bytes=room, is_locked=is_locked, writable=not why, why=why, damage=torn, **counts
    )


def _reader(path: Path, *, stands_still: bool) -> sa.Engine:
    # Read-only; where its side files cannot be made, which a journal in WAL mode needs, as a file that stands still.
    still = "&immutable=1" if stands_still and not path.with_name(path.name + "-wal").exists() else ""
    engine = sa.create_engine(f"sqlite:///file:{quote(str(path.absolute()))}?mode=ro{still}&uri=true")

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.text_factory = readable

    return engine


def _has_flock(path: Path) -> bool:
    """Whether a coordinator holds the lock file; asked by taking it shared for an instant."""
    try:
        file = os.open(path.with_name(path.name + ".lock"), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _server(url: sa.URL) -> JournalSummary | None:
    what = url.render_as_string(hide_password=True)
    engine = postgres.make_engine(url)
    try:
        with engine.connect() as connection:
            if not has_tables(connection, what):
                return None
            counts = _counts(connection)
            locked = connection.execute(
                sa.text(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = "
                    "(SELECT oid FROM pg_database WHERE datname = current_database()) "
                    "AND ((classid::bigint << 32) | objid::bigint) = :key"
                ),
                {"key": postgres.KEY},
            ).scalar_one()
            read_only = connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "on"
            rights = connection.execute(sa.select(sa.func.has_table_privilege(RECORDS.name, "INSERT"))).scalar_one()
            sizes = (sa.func.pg_total_relation_size(table.name) for table in (RECORDS, RUNS, MODELS))
            room = sum(connection.execute(sa.select(*sizes)).one())
    except SQLAlchemyError as fault:
        known = postgres.in_words(getattr(fault, "orig", None), what)
        raise StorageError(known or f"the journal {what} cannot be read: {fault}") from fault
    finally:
        engine.dispose()
    why = "the database is read-only" if read_only else "" if rights else "this user may not insert into it"
    return JournalSummary(what=what, bytes=room, is_locked=bool(locked), writable=not why, why=why, **counts)


def _counts(connection: sa.Connection) -> dict[str, Any]:
    """Return what `JournalSummary` has of the tables."""
    func, zero = sa.func, sa.literal(0)
    of_events = func.count(), func.coalesce(func.sum(func.length(RECORDS.c.body)), zero), func.min(RECORDS.c.wall)
    records, events, since = connection.execute(sa.select(*of_events)).one()
    open_runs = sa.select(func.count(sa.distinct(RECORDS.c.run))).where(RECORDS.c.run.not_in(sa.select(RUNS.c.run)))
    lengths = (
        sa.select(func.coalesce(func.sum(func.length(column)), zero)) for column in (RUNS.c.document, MODELS.c.record)
    )
    documents = sum(connection.execute(each).scalar_one() for each in lengths)
    first, last = connection.execute(sa.select(func.min(RUNS.c.at), func.max(RUNS.c.at))).one()
    return {
        "records": records,
        "unfinished": connection.execute(open_runs).scalar_one(),
        "events": int(events),
        "since": float(since or 0.0),
        "documents": int(documents),
        "days": 0.0 if first is None else float(last - first) / 86400.0,
    }
