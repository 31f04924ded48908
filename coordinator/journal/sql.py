"""The journal in a database: SQLite in WAL mode by default, PostgreSQL by another URL, through SQLAlchemy Core."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import sqlalchemy as sa

from coordinator.journal import opening, postgres
from coordinator.journal.opening import open_database, translated
from coordinator.journal.port import (
    COUNTED,
    OVERVIEW,
    REFERENCES,
    ROLLOUT_STARTED,
    ROLLOUTS,
    Again,
    Damaged,
    Decision,
    Entry,
    Kept,
    Leader,
    StoredModel,
    brief,
    overview,
)
from coordinator.journal.tables import (
    DECISIONS,
    JOURNAL,
    LEADER,
    METADATA,
    MODELS,
    RECORDS,
    RUNS,
    VERSION,
    append_records,
    batches,
    damaged_of,
    entries_of,
    has_tables,
    head_of,
    is_whole,
    key_text,
    leader_of,
    look,
    mend,
    model_of,
    put_of_agents,
    shown,
    sum_of,
    values_of_agents,
)
from schemas.errors import DamagedError, StorageError

_AT_ONCE = 500
"""Runs named in one statement; databases bound that."""

_SHOWN_AT_ONCE = 8
"""Documents that are looked into in one transaction: nobody can write meanwhile."""


class SqlJournal:
    """The `Journal` protocol over a database.

    Parameters
    ----------
    url : str
        ``sqlite:///path/to/file`` or ``postgresql://user:password@host/database``.
    busy_timeout : float
        Seconds to wait for another connection's write (SQLite), or for the lock (PostgreSQL).
    again : callable or None
        Asked whenever another coordinator has the journal, or its server is away meanwhile: whether to try again. None:
        as `busy_timeout` says.

    Raises
    ------
    StorageError
        The database cannot be opened, is in use by another coordinator, is of another version, or is damaged.
    """

    def __init__(self, url: str, *, busy_timeout: float = 5.0, again: Again | None = None) -> None:
        self._database = open_database(url, busy_timeout, again)
        self._what = self._database.what
        try:
            with self._translated():
                self._make_tables()
                with self._write() as connection:
                    self.damage = mend(connection)
                # Not the records: those of a run that goes on are looked at when it is resumed, the others are history.
                looked = (damaged_of(self._select, table) for table in (RUNS, MODELS, DECISIONS))
                self.damaged = tuple(each for table in looked for each in table)
        except BaseException:
            self.close()
            raise

    damage: tuple[str, ...] = ()
    damaged: tuple[Damaged, ...] = ()

    def append(self, entries: Sequence[Entry], decisions: Sequence[Decision] = ()) -> None:
        """Append all in one transaction. The database reuses the room of entries that a checkpoint replaces."""
        if not entries and not decisions:
            return
        with self._write() as connection:
            append_records(connection, entries)
            if decisions:
                connection.execute(sa.insert(DECISIONS), _rows(decisions))

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
        return entries_of(self._select, run)

    def last_time(self) -> float | None:
        """Return the latest ``at`` ever appended."""
        return max((time for table in (RECORDS, RUNS, DECISIONS) for time in self._last_times(table)), default=None)

    def _last_times(self, table: sa.Table) -> Iterator[float]:
        """Yield the latest time in a table, if there is one; a damaged row's would let the clock run away."""
        (key,) = table.primary_key
        latest = sa.select(key).order_by(table.c.at.desc(), key.desc()).limit(1)
        for start in itertools.count():
            first = self._select(latest.offset(start))
            if not first:
                return
            with suppress(DamagedError):
                row = self._select(sa.select(table).where(key == first[0][0]))[0]
                if is_whole(table, row):
                    yield float(row.at)
                    return

    def close_run(self, run: str, document: dict[str, Any], at: float) -> None:
        """Store the document of an ended run."""
        with self._write() as connection:
            if connection.execute(sa.select(RUNS.c.run).where(RUNS.c.run == run)).first() is None:
                values = {"run": run, "at": float(at), "document": json.dumps(document)}
                connection.execute(sa.insert(RUNS).values(**values, checksum=sum_of(RUNS, values)))

    def forget_records(self, until: float) -> bool:
        """Let the records of one closed run go; PostgreSQL reuses their room."""
        has_records = sa.exists().where(RECORDS.c.run == RUNS.c.run)
        oldest = sa.select(RUNS.c.run).where(RUNS.c.at <= until, has_records).order_by(RUNS.c.number).limit(1)
        with self._write() as connection:
            run = connection.execute(oldest).scalar()
            if run is not None:
                connection.execute(sa.delete(RECORDS).where(RECORDS.c.run == run))
                if self._database.path is not None:
                    opening.shrink(connection)
        return run is not None

    def compact(
        self,
        keep_runs: int,
        keep_versions: int,
        keep_models: Collection[tuple[str, int]] = (),
        rollouts_from: Mapping[str, float] | None = None,
    ) -> list[str]:
        """Forget all but the newest closed runs, and old rollouts. The database reuses the room."""
        oldest = sa.select(RUNS.c.run).order_by(RUNS.c.number.desc()).offset(keep_runs)
        with self._write() as connection:
            for name, since in (rollouts_from or {}).items():
                _forget_rollouts(connection, name, since)
            gone = list(connection.execute(oldest).scalars())
            newer = MODELS.alias()
            newest = sa.select(sa.func.max(newer.c.version)).where(newer.c.name == MODELS.c.name).scalar_subquery()
            pinned = [sa.and_(MODELS.c.name == name, MODELS.c.version == number) for name, number in keep_models]
            free = sa.and_(MODELS.c.version <= newest - keep_versions, sa.not_(sa.or_(sa.false(), *pinned)))
            for some in batches(gone, _AT_ONCE):
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
            runs = connection.execute(sa.select(RUNS.c.run).order_by(RUNS.c.number)).scalars()
            return [shown(run) for run in runs]

    def document(self, run: str) -> dict[str, Any] | None:
        """Return the document of a closed run."""
        rows = self._select(sa.select(RUNS).where(RUNS.c.run == run))
        if not rows:
            return None
        if not is_whole(RUNS, rows[0]):
            raise DamagedError(f"what the journal says of run {run!r} is damaged: restore it from a backup")
        return dict(json.loads(rows[0].document))

    def overviews(self, runs: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return by run the `overview` of closed runs: the database takes it out of the documents."""
        pick = (postgres if self._database.path is None else opening).pick
        documents: dict[str, dict[str, Any]] = {}
        parts = pick(RUNS.c.document, OVERVIEW.values(), COUNTED)
        for some in batches(runs, _SHOWN_AT_ONCE):
            try:
                for run, text, *counts in self._select(sa.select(RUNS.c.run, *parts).where(RUNS.c.run.in_(some))):
                    values = zip((*OVERVIEW, *COUNTED), (*json.loads(text), *counts), strict=True)
                    documents[run] = brief(dict(values))
            except (StorageError, DamagedError, ValueError):  # one of them is no JSON as the database knows it
                for run in some:
                    with suppress(DamagedError, ValueError):
                        if (document := self.document(run)) is not None:
                            documents[run] = overview(document)
        return documents

    def add_model(self, name: str, run: str, make: Callable[[int], tuple[str, bytes]]) -> StoredModel:
        """Register the model of a run under the next version of `name`."""
        with self._write() as connection:
            row = connection.execute(sa.select(MODELS).where(MODELS.c.run == run)).first()
            former = None if row is None else model_of(row)
            if former is not None and not former.is_damaged:
                return former
            if former is not None and former.name == name:
                version = former.version
            else:
                newest = sa.select(sa.func.max(MODELS.c.version)).where(MODELS.c.name == name)
                version = 1 + (connection.execute(newest).scalar() or 0)
            if former is not None:
                connection.execute(sa.delete(MODELS).where(MODELS.c.run == run))
            digest, record = make(version)
            values = {"name": name, "version": version, "digest": digest, "run": run, "record": record}
            connection.execute(sa.insert(MODELS).values(**values, checksum=sum_of(MODELS, values)))
            return StoredModel(name, version, digest, run, record)

    def put_record(self, model: StoredModel, decisions: Sequence[Decision] = ()) -> None:
        """Put another record in place of a registered version's."""
        key = sa.and_(MODELS.c.name == model.name, MODELS.c.version == model.version, MODELS.c.digest == model.digest)
        with self._write() as connection:
            row = connection.execute(sa.select(MODELS).where(key)).first()
            if row is None or not is_whole(MODELS, row):
                raise StorageError(f"the journal has no version {model.version} of {model.name!r} with this digest")
            changed = {**row._mapping, "record": model.record}  # noqa: SLF001 - the public name of SQLAlchemy
            connection.execute(
                sa.update(MODELS).where(key).values(record=model.record, checksum=sum_of(MODELS, changed))
            )
            if decisions:
                connection.execute(sa.insert(DECISIONS), _rows(decisions))

    def models(self, name: str | None = None) -> list[StoredModel]:
        """Return the registered models, by name and version."""
        query = sa.select(MODELS).order_by(MODELS.c.name, MODELS.c.version)
        if name is not None:
            query = query.where(MODELS.c.name == name)
        return [model_of(row) for row in self._each(MODELS, query, name)]

    def model(self, name: str, version: int) -> StoredModel | None:
        """Return one registered model."""
        query = sa.select(MODELS).where(MODELS.c.name == name, MODELS.c.version == version)
        return next((model_of(row) for row in self._select(query)), None)

    def heads(self, name: str | None = None) -> list[StoredModel]:
        """Return the registered models without their records, by name and version."""
        columns = (MODELS.c.name, MODELS.c.version, MODELS.c.digest, MODELS.c.run)
        query = sa.select(*columns).order_by(MODELS.c.name, MODELS.c.version)
        damaged = {each.row for each in self.damaged if each.table == MODELS.name}
        rows = self._each(MODELS, query if name is None else query.where(MODELS.c.name == name), name)
        return [head_of(row, is_damaged=key_text((row.name, row.version)) in damaged) for row in rows]

    def newest(self, name: str, count: int) -> list[int]:
        """Return the newest `count` versions of a model, newest first."""
        query = sa.select(MODELS.c.version).where(MODELS.c.name == name).order_by(MODELS.c.version.desc()).limit(count)
        with self._begin() as connection:
            return list(connection.execute(query).scalars())

    def decisions(self, name: str | None = None) -> list[Decision]:
        """Return the decisions about one model, or all, in order."""
        query = sa.select(DECISIONS).order_by(DECISIONS.c.number)
        if name is not None:
            query = query.where(DECISIONS.c.name == name)
        return [
            Decision(row.name, row.kind, row.at, row.wall, json.loads(row.body))
            for row in self._each(DECISIONS, query, name)
            if is_whole(DECISIONS, row)
        ]

    def lead(self, leader: Leader) -> None:
        """Write down who leads."""
        values = {"number": 1, "incarnation": leader.incarnation, "about": json.dumps(leader.about)}
        with self._write() as connection:
            connection.execute(sa.delete(LEADER))
            connection.execute(sa.insert(LEADER).values(**values, checksum=sum_of(LEADER, values)))

    def leader(self) -> Leader | None:
        """Return who leads, or led last."""
        return leader_of(self._select(sa.select(LEADER)))

    def keep(self, what: Kept, values: Mapping[str, Sequence[Mapping[str, Any]]], most: int) -> int:
        """Write down something by vehicle."""
        with self._write() as connection:
            return put_of_agents(connection, what, values, most)

    def kept(self, what: Kept, agents: Collection[str]) -> dict[str, list[dict[str, Any]]]:
        """Return what `keep` wrote of these vehicles."""
        return values_of_agents(self._select, what, agents)

    def check(self) -> None:
        """Raise StorageError when the lock is not held any more."""
        with self._write() as connection:
            connection.execute(sa.select(1))

    def size_bytes(self) -> int:
        """Return the room of the database's files (SQLite) or tables with their indexes (PostgreSQL)."""
        path = self._database.path
        if path is not None:
            # The files are asked, not the database: a scrape must not wait for, or hold up, a transaction.
            size = 0
            for end in ("", "-wal"):
                with suppress(FileNotFoundError):  # the second one comes and goes
                    size += path.with_name(path.name + end).stat().st_size
            return size
        sizes = (sa.func.pg_total_relation_size(table.name) for table in (RECORDS, RUNS, MODELS, DECISIONS))
        with self._begin() as connection:
            return int(sum(connection.execute(sa.select(*sizes)).one()))

    def close(self) -> None:
        """Close the database and release the lock. Idempotent."""
        self._database.lock.release()
        self._database.engine.dispose()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _select(self, query: sa.Executable) -> Sequence[Any]:
        with self._begin() as connection:
            return connection.execute(query).all()

    def _each(self, table: sa.Table, query: sa.Select[Any], name: str | None) -> Sequence[Any]:
        """Return the rows of a query about one name, or all; where the file is damaged, those that can be read."""
        try:
            return self._select(query)
        except DamagedError:
            rows = (row for row in look(self._select, table) if not isinstance(row, Damaged))
            return [row for row in rows if name in {None, row.name}]

    @contextmanager
    def _begin(self) -> Iterator[sa.Connection]:
        with self._translated(), self._database.engine.begin() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[sa.Connection]:
        """Begin a transaction that only the holder of the lock can commit."""
        with self._translated(), self._database.lock.transaction() as connection:
            yield connection

    def _translated(self) -> AbstractContextManager[None]:
        return translated(self._what, is_file=self._database.path is not None)

    def _make_tables(self) -> None:
        with self._write() as connection:
            if not has_tables(connection, self._what):
                METADATA.create_all(connection, checkfirst=False)
                connection.execute(sa.insert(JOURNAL).values(version=VERSION))


def _rows(decisions: Sequence[Decision]) -> list[dict[str, Any]]:
    rows = [
        {**vars(each), "at": float(each.at), "wall": float(each.wall), "body": json.dumps(each.body)}
        for each in decisions
    ]
    return [{**row, "checksum": sum_of(DECISIONS, row)} for row in rows]


def _forget_rollouts(connection: sa.Connection, name: str, since: float) -> None:
    """Drop the events before the first rollout of a name that began at `since` or later."""
    columns = DECISIONS.c
    began = sa.and_(columns.name == name, columns.kind == ROLLOUT_STARTED, columns.at >= since)
    first = connection.execute(sa.select(columns.number).where(began).order_by(columns.number).limit(1)).scalar()
    if first is not None:
        is_event = sa.func.substr(columns.kind, 1, len(ROLLOUTS)) == ROLLOUTS  # not LIKE: see `SqlJournal.compact`
        connection.execute(sa.delete(DECISIONS).where(columns.name == name, columns.number < first, is_event))
