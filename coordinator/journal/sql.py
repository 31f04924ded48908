"""The journal in a database: SQLite in WAL mode by default, PostgreSQL by another URL, through SQLAlchemy Core."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from coordinator.journal import postgres
from coordinator.journal.lock import FileLock
from coordinator.journal.port import REFERENCES, Decision, Entry, StoredModel
from coordinator.journal.tables import DECISIONS, MODELS, RECORDS, RUNS
from schemas.errors import StorageError
from schemas.private_files import make_folders, private_database, refuse_shared

HEAD = "0002"
"""The newest migration. Alembic is loaded only when the database is at another one: opening stays fast."""

_AT_ONCE = 500
"""Runs named in one statement; databases bound that."""

_FULL = (
    "no room to write the journal {what}: free some space and start the coordinator again; it goes on where it was, "
    "and agents send again what was not acknowledged"
)


class SqlJournal:
    """The `Journal` protocol over a database.

    Parameters
    ----------
    url : str
        ``sqlite:///path/to/file`` or ``postgresql://user:password@host/database``.
    busy_timeout : float
        Seconds to wait for another connection's write (SQLite), or for the lock (PostgreSQL).

    Raises
    ------
    StorageError
        The database cannot be opened, is in use by another coordinator, was written by a newer version, or is damaged.
    """

    def __init__(self, url: str, *, busy_timeout: float = 5.0) -> None:
        try:
            parsed = sa.make_url(url)
            parsed = postgres.with_driver(parsed)
            is_file = parsed.get_backend_name() == "sqlite"
            self._what: str = parsed.database or "" if is_file else parsed.render_as_string()
            self._lock: FileLock | postgres.AdvisoryLock
            self._path: Path | None = None
            if is_file:
                if not parsed.database or parsed.database == ":memory:":
                    raise StorageError("an SQLite journal needs a file: sqlite:///path/to/journal.db")
                path = self._path = Path(parsed.database)
                try:
                    make_folders(path.parent)
                    if not path.parent.stat().st_mode & stat.S_ISVTX:  # as /tmp: nobody can replace another's file
                        refuse_shared(path.parent)
                except OSError as fault:
                    raise StorageError(f"cannot create the directory {path.parent}: {fault.strerror}") from fault
                self._lock = FileLock(path)
                self._engine = _sqlite(parsed, busy_timeout)
            elif parsed.get_backend_name() == "postgresql":
                self._engine = postgres.make_engine(parsed)
                with self._translated():
                    self._lock = postgres.AdvisoryLock(self._engine, busy_timeout)
            else:
                raise StorageError(
                    f"cannot use {self._what} as a journal: it must be sqlite:///... or postgresql://..."
                )
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as fault:
            raise StorageError(f"cannot use {_public(url)} as a journal: {fault}{_extra(fault)}") from fault
        try:
            if self._path is not None:
                with suppress(OSError):  # SQLite says what is wrong
                    private_database(self._path)
            with self._translated():
                self._migrate()
                self.damage = self._mend()
        except BaseException:
            self.close()
            raise

    damage: tuple[str, ...] = ()

    def append(self, entries: Sequence[Entry]) -> None:
        """Append all entries in one transaction."""
        if not entries:
            return
        rows = [{**vars(entry), "checksum": entry.checksum} for entry in entries]
        with self._write() as connection:
            connection.execute(sa.insert(RECORDS), rows)

    def unfinished(self) -> list[str]:
        """Return the runs with records that have not been closed, in the order of their start."""
        query = (
            sa.select(RECORDS.c.run)
            .where(RECORDS.c.run.not_in(sa.select(RUNS.c.run)))
            .group_by(RECORDS.c.run)
            .order_by(sa.func.min(RECORDS.c.seq))
        )
        with self._begin() as connection:
            return list(connection.execute(query).scalars())

    def records(self, run: str) -> Iterator[Entry]:
        """Yield the records of one run, in order."""
        query = sa.select(RECORDS).where(RECORDS.c.run == run).order_by(RECORDS.c.seq)
        with self._begin() as connection:
            for row in connection.execute(query):
                entry = _entry(row)
                if entry.checksum != row.checksum:
                    raise StorageError(
                        f"record {row.seq} of the journal {self._what} is damaged (run {run!r}): restore the file "
                        "from a backup, or move it away to begin anew"
                    )
                yield entry

    def last_time(self) -> float | None:
        """Return the latest ``at`` ever appended."""
        with self._begin() as connection:
            tables = (RECORDS, RUNS, DECISIONS)
            times = [connection.execute(sa.select(sa.func.max(table.c.at))).scalar() for table in tables]
        return max((time for time in times if time is not None), default=None)

    def close_run(self, run: str, document: dict[str, Any], at: float, *, keep_records: bool = True) -> None:
        """Store the document of an ended run."""
        with self._write() as connection:
            if connection.execute(sa.select(RUNS.c.run).where(RUNS.c.run == run)).first() is None:
                connection.execute(sa.insert(RUNS).values(run=run, at=at, document=json.dumps(document)))
            if not keep_records:
                connection.execute(sa.delete(RECORDS).where(RECORDS.c.run == run))

    def compact(self, keep_runs: int, keep_versions: int, keep_models: Collection[tuple[str, int]] = ()) -> list[str]:
        """Forget all but the newest closed runs. The database reuses the room."""
        oldest = sa.select(RUNS.c.run).order_by(RUNS.c.number.desc()).offset(keep_runs)
        with self._write() as connection:
            gone = list(connection.execute(oldest).scalars())
            newer = MODELS.alias()
            newest = sa.select(sa.func.max(newer.c.version)).where(newer.c.name == MODELS.c.name).scalar_subquery()
            pinned = [sa.and_(MODELS.c.name == name, MODELS.c.version == number) for name, number in keep_models]
            free = sa.and_(MODELS.c.version <= newest - keep_versions, sa.not_(sa.or_(sa.false(), *pinned)))
            for start in range(0, len(gone), _AT_ONCE):
                some = gone[start : start + _AT_ONCE]
                connection.execute(sa.delete(MODELS).where(MODELS.c.run.in_(some), free))
                connection.execute(sa.delete(RECORDS).where(RECORDS.c.run.in_(some)))
                connection.execute(sa.delete(RUNS).where(RUNS.c.run.in_(some)))
            if gone:
                # Not LIKE: SQLite's takes capitals for small letters.
                is_reference = sa.func.substr(MODELS.c.run, 1, len(REFERENCES)) == REFERENCES
                known = sa.or_(*(sa.exists().where(table.c.run == MODELS.c.run) for table in (RUNS, RECORDS)))
                connection.execute(sa.delete(MODELS).where(is_reference, sa.not_(known), free))
        return gone

    def ended(self) -> list[str]:
        """Ids of closed runs, in the order of closing."""
        with self._begin() as connection:
            return list(connection.execute(sa.select(RUNS.c.run).order_by(RUNS.c.number)).scalars())

    def document(self, run: str) -> dict[str, Any] | None:
        """Return the document of a closed run."""
        with self._begin() as connection:
            text = connection.execute(sa.select(RUNS.c.document).where(RUNS.c.run == run)).scalar()
        return None if text is None else dict(json.loads(text))

    def add_model(self, name: str, run: str, make: Callable[[int], tuple[str, bytes]]) -> StoredModel:
        """Register the model of a run under the next version of `name`."""
        with self._write() as connection:
            row = connection.execute(sa.select(MODELS).where(MODELS.c.run == run)).first()
            if row is not None:
                return _model(row)
            last = connection.execute(sa.select(sa.func.max(MODELS.c.version)).where(MODELS.c.name == name)).scalar()
            version = 1 + (last or 0)
            digest, record = make(version)
            model = StoredModel(name, version, digest, run, record)
            connection.execute(sa.insert(MODELS).values(**vars(model)))
            return model

    def put_record(self, model: StoredModel, decisions: Sequence[Decision] = ()) -> None:
        """Put another record in place of a registered version's."""
        key = sa.and_(MODELS.c.name == model.name, MODELS.c.version == model.version, MODELS.c.digest == model.digest)
        with self._write() as connection:
            if not connection.execute(sa.update(MODELS).where(key).values(record=model.record)).rowcount:
                raise StorageError(f"the journal has no version {model.version} of {model.name!r} with this digest")
            if decisions:
                connection.execute(sa.insert(DECISIONS), _rows(decisions))

    def models(self, name: str | None = None) -> list[StoredModel]:
        """Return the registered models, by name and version."""
        query = sa.select(MODELS).order_by(MODELS.c.name, MODELS.c.version)
        if name is not None:
            query = query.where(MODELS.c.name == name)
        with self._begin() as connection:
            return [_model(row) for row in connection.execute(query)]

    def model(self, name: str, version: int) -> StoredModel | None:
        """Return one registered model."""
        query = sa.select(MODELS).where(MODELS.c.name == name, MODELS.c.version == version)
        with self._begin() as connection:
            row = connection.execute(query).first()
        return None if row is None else _model(row)

    def numbers(self) -> list[tuple[str, int]]:
        """Return names and versions of all registered models, by name and version."""
        query = sa.select(MODELS.c.name, MODELS.c.version).order_by(MODELS.c.name, MODELS.c.version)
        with self._begin() as connection:
            return [(row.name, row.version) for row in connection.execute(query)]

    def newest(self, name: str, count: int) -> list[int]:
        """Return the newest `count` versions of a model, newest first."""
        query = sa.select(MODELS.c.version).where(MODELS.c.name == name).order_by(MODELS.c.version.desc()).limit(count)
        with self._begin() as connection:
            return list(connection.execute(query).scalars())

    def decide(self, decisions: Sequence[Decision]) -> None:
        """Append decisions about models in one transaction."""
        if not decisions:
            return
        with self._write() as connection:
            connection.execute(sa.insert(DECISIONS), _rows(decisions))

    def decisions(self, name: str | None = None) -> list[Decision]:
        """Return the decisions about one model, or all, in order."""
        query = sa.select(DECISIONS).order_by(DECISIONS.c.number)
        if name is not None:
            query = query.where(DECISIONS.c.name == name)
        with self._begin() as connection:
            rows = connection.execute(query).all()
        return [Decision(row.name, row.kind, float(row.at), float(row.wall), json.loads(row.body)) for row in rows]

    def size_bytes(self) -> int | None:
        """Return the room of the database's files (SQLite) or tables with their indexes (PostgreSQL)."""
        if self._path is not None:
            # The files are asked, not the database: a scrape must not wait for, or hold up, a transaction.
            size = 0
            for end in ("", "-wal"):
                with suppress(FileNotFoundError):  # the second one comes and goes
                    size += self._path.with_name(self._path.name + end).stat().st_size
            return size
        sizes = (sa.func.pg_total_relation_size(table.name) for table in (RECORDS, RUNS, MODELS, DECISIONS))
        with self._begin() as connection:
            return sum(connection.execute(sa.select(*sizes)).one())

    def close(self) -> None:
        """Close the database and release the lock. Idempotent."""
        self._lock.release()
        self._engine.dispose()

    # -- inside ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        with self._translated(), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        """Begin a transaction that only the holder of the lock can commit."""
        with self._translated():
            if isinstance(self._lock, FileLock):
                with self._engine.begin() as connection:
                    yield connection
            else:
                with self._lock.transaction() as connection:
                    yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the database's errors into ours."""
        try:
            yield
        except IntegrityError as fault:
            raise StorageError(f"the journal {self._what} has the same run or model already: {fault.orig}") from fault
        except SQLAlchemyError as fault:
            text = str(getattr(fault, "orig", None) or fault)
            known = postgres.in_words(getattr(fault, "orig", None), self._what) if self._path is None else None
            if known is not None:
                raise StorageError(known) from fault
            if "full" in text or "disk I/O error" in text or "No space left" in text:
                raise StorageError(_FULL.format(what=self._what)) from fault
            if "malformed" in text or "not a database" in text:
                raise StorageError(
                    f"the journal {self._what} is damaged ({text}): restore it from a backup, or move it away to begin "
                    "anew"
                ) from fault
            raise StorageError(f"the journal {self._what} cannot be used: {text}") from fault

    def _migrate(self) -> None:
        with self._write() as connection:
            found = None
            if sa.inspect(connection).has_table("alembic_version"):
                found = connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()
            if found == HEAD:
                return
            if found is not None and found > HEAD:
                raise StorageError(
                    f"the journal {self._what} was written by a newer version ({found}; this software knows {HEAD}): "
                    "update glassfleet"
                )
            from alembic import command  # noqa: PLC0415  slow to import, needed once in a database's life
            from alembic.config import Config  # noqa: PLC0415

            config = Config()
            place = Path(__file__).parent / "migrations"
            config.set_main_option("script_location", str(place).replace("%", "%%"))
            config.set_main_option("path_separator", "os")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")

    def _mend(self) -> tuple[str, ...]:
        """Remove a torn last record: its append never returned, so nothing was done because of it."""
        with self._write() as connection:
            row = connection.execute(sa.select(RECORDS).order_by(RECORDS.c.seq.desc()).limit(1)).first()
            if row is None or _entry(row).checksum == row.checksum:
                return ()
            connection.execute(sa.delete(RECORDS).where(RECORDS.c.seq == row.seq))
            return (f"the last record ({row.seq}, run {row.run!r}, {row.kind}) was torn and has been removed",)


def _rows(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    return [{**vars(each), "body": json.dumps(each.body)} for each in decisions]


def _sqlite(url: sa.URL, busy_timeout: float) -> sa.Engine:
    engine = sa.create_engine(url, connect_args={"timeout": busy_timeout})

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, see below
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    @sa.event.listens_for(engine, "begin")
    def _start(connection: sa.Connection) -> None:
        # Take the write lock at once: a read that turns into a write could otherwise fail half way.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _entry(row: Any) -> Entry:
    return Entry(row.run, row.kind, float(row.at), float(row.wall), bytes(row.body))


def _model(row: Any) -> StoredModel:
    return StoredModel(row.name, row.version, row.digest, row.run, bytes(row.record))


def _public(url: str) -> str:
    """Return a URL that may be shown: what cannot be parsed may hold a password anywhere."""
    try:
        return repr(sa.make_url(url).render_as_string(hide_password=True))
    except ArgumentError:
        return "this URL" if "@" in url else repr(url)


def _extra(fault: Exception) -> str:
    return ": pip install 'glassfleet[postgres]'" if isinstance(fault, ModuleNotFoundError) else ""
