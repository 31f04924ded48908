"""The tables (whoever changes them raises `VERSION`), and their rows: held against checksums, named when damaged."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any, TypeVar

import sqlalchemy as sa

from coordinator.journal.port import CHECKPOINT, Damaged, Entry, Kept, Leader, StoredModel
from schemas.errors import DamagedError, StorageError

METADATA = sa.MetaData()

VERSION = 2
"""Which tables these are; a journal of another version is refused."""

JOURNAL = sa.Table("journal", METADATA, sa.Column("version", sa.Integer, primary_key=True, autoincrement=False))
"""The `VERSION` of the tables: one row."""


class _Bytes(sa.LargeBinary):
    """Bytes as the driver gives them: SQLAlchemy would turn a number in a damaged row into so many bytes."""

    def result_processor(self, dialect: sa.Dialect, coltype: object) -> None:  # noqa: ARG002
        """Return no processor."""
        return


def _checksum() -> sa.Column[str]:
    return sa.Column("checksum", sa.String(32), nullable=False)


RECORDS = sa.Table(
    "records",
    METADATA,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("run", sa.String(64), nullable=False, index=True),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("wall", sa.Double, nullable=False),
    sa.Column("body", _Bytes, nullable=False),
    _checksum(),
    sqlite_autoincrement=True,
)
"""Events, append-only."""

RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run", sa.String(64), nullable=False, unique=True),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("document", sa.Text, nullable=False),
    _checksum(),
)
"""Documents of ended runs."""

MODELS = sa.Table(
    "models",
    METADATA,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("run", sa.String(64), nullable=False, unique=True),
    sa.Column("record", _Bytes, nullable=False),
    _checksum(),
)
"""The model registry: one version per run."""

DECISIONS = sa.Table(
    "decisions",
    METADATA,
    sa.Column("number", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("name", sa.String(64), nullable=False, index=True),
    sa.Column("kind", sa.String(40), nullable=False),
    sa.Column("at", sa.Double, nullable=False),
    sa.Column("wall", sa.Double, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    _checksum(),
    sqlite_autoincrement=True,
)
"""What was decided about models and schedules, append-only."""

LEADER = sa.Table(
    "leader",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("incarnation", sa.String(64), nullable=False),
    sa.Column("about", sa.Text, nullable=False),
    _checksum(),
)
"""Who leads with this journal, or led last: one row, for those who stand by."""


def _kept(name: str) -> sa.Table:
    columns = (sa.Column("agent", sa.String(64), primary_key=True), sa.Column("body", sa.Text, nullable=False))
    return sa.Table(name, METADATA, *columns, _checksum())


WITNESSED = _kept("witnessed")
"""Heads of vehicles' logs of forecasts that were seen: one row for each vehicle."""

SCORES = _kept("scores")
"""What vehicles scored of model versions: one row for each vehicle."""

NOTICES = _kept("notices")
"""What whoever is on duty was told: one row for each address."""


def has_tables(connection: sa.Connection, what: str) -> bool:
    """Whether a journal is in a database; raises StorageError for one of another `VERSION`."""
    names = sa.inspect(connection).get_table_names()
    if JOURNAL.name in names:
        version = connection.execute(sa.select(JOURNAL.c.version)).scalar()
    elif RECORDS.name in names:
        version = 0
    else:
        return False
    if version != VERSION:
        raise StorageError(
            f"the journal {what} is of version {version}, this software knows {VERSION}: use the software that wrote "
            "it, or give the coordinator a new journal (--journal)"
        )
    return True


# --- rows as they lie in the database: read one by one, held against their checksums, named when they are damaged -----


Select = Callable[[sa.Executable], Sequence[Any]]
"""Gives the rows of a query; raises DamagedError when the database cannot read them."""

TABLES = (RECORDS, RUNS, MODELS, DECISIONS, WITNESSED, SCORES, NOTICES)

T = TypeVar("T")


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield the items, at most so many at a time."""
    return (items[start : start + size] for start in range(0, len(items), size))


_AT_ONCE = 32
"""Rows that are read together; when they cannot be, each of them is read alone."""

_CHECKED = {
    RECORDS.name: ("run", "kind", "at", "body"),
    RUNS.name: ("run", "at", "document"),
    MODELS.name: ("name", "version", "digest", "run", "record"),
    DECISIONS.name: ("name", "kind", "at", "wall", "body"),
    LEADER.name: ("incarnation", "about"),
    WITNESSED.name: ("agent", "body"),
    SCORES.name: ("agent", "body"),
    NOTICES.name: ("agent", "body"),
}
"""What a row's checksum is over; the last one is what the row is about. A record's wall clock is left out: see
`wall_of`."""


def sum_of(table: sa.Table, values: dict[str, Any]) -> str:
    """Return the checksum that belongs to the values of a row: BLAKE2b-128 (hex) over a line for each, then the body.

    A text may hold what was no UTF-8 in a damaged database (``surrogateescape``).
    """
    *heads, body = (values[name] for name in _CHECKED[table.name])
    lines = "".join([f"{head if isinstance(head, str) else repr(head)}\n" for head in heads])
    digest = hashlib.blake2b(lines.encode("utf-8", "surrogateescape"), digest_size=16)
    digest.update(body.encode("utf-8", "surrogateescape") if isinstance(body, str) else body)
    return digest.hexdigest()


def is_whole(table: sa.Table, row: Any) -> bool:
    """Whether a row is as it was written; in a damaged one anything may stand, and be of any type."""
    try:
        return bool(sum_of(table, row._mapping) == row.checksum)  # noqa: SLF001 - the public name of SQLAlchemy
    except (TypeError, ValueError):
        return False


def model_of(row: Any) -> StoredModel:
    """Return a registered model; of a damaged row what its key says, without the record."""
    if is_whole(MODELS, row):
        return StoredModel(row.name, row.version, row.digest, row.run, bytes(row.record))
    return head_of(row, is_damaged=True)


def head_of(row: Any, *, is_damaged: bool) -> StoredModel:
    """Return a registered model without its record; in a damaged row anything may stand."""
    version = row.version if isinstance(row.version, int) else 0
    return StoredModel(shown(row.name), version, shown(row.digest), shown(row.run), b"", is_damaged=is_damaged)


def leader_of(rows: Sequence[Any]) -> Leader | None:
    """Return who leads according to the rows of `LEADER`; None: nobody yet, or the row is damaged."""
    return next((Leader(row.incarnation, json.loads(row.about)) for row in rows if is_whole(LEADER, row)), None)


def wall_of(row: Any) -> float:
    """Return a record's wall clock, which is for displays only; 0 when it cannot be one, as after the year 5138."""
    return float(row.wall) if isinstance(row.wall, float) and 0 <= row.wall < 1e11 else 0.0


def shown(value: Any) -> str:
    """Return what stands in a damaged field so that it can be written into a page or a log."""
    return str(value)[:64].encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def look(select: Select, table: sa.Table) -> Iterator[Any]:
    """Yield each row of a table that is whole, and a `Damaged` for each that is not, by their keys."""
    keys, is_complete = _keys(select, table)
    for some in batches(keys, _AT_ONCE):
        try:
            rows = select(_between(table, some[0], some[-1]))
        except (DamagedError, UnicodeEncodeError):  # a key may be no text any more
            for key in some:
                try:
                    rows = select(_between(table, key, key))
                except (DamagedError, UnicodeEncodeError) as fault:
                    yield Damaged(table.name, key_text(key), str(fault))
                else:
                    yield from (_judged(table, row) for row in rows)
        else:
            yield from (_judged(table, row) for row in rows)
    if not is_complete:
        yield Damaged(table.name, "", "the file is damaged there: more rows may be lost")


def damaged_of(select: Select, table: sa.Table) -> Iterator[Damaged]:
    """Yield what is damaged in a table to which nobody writes meanwhile, and whether rows are hidden.

    Rows are found by an index, and a bit of that may hide them all without a word from the database. What is in no
    index is counted in the table itself.
    """
    rows = 0
    for row in look(select, table):
        rows += not isinstance(row, Damaged) or row.row != ""
        if isinstance(row, Damaged):
            yield row
    with suppress(DamagedError):  # then a row was named above
        ((there,),) = select(sa.select(sa.func.count(table.c.checksum)))
        if there > rows:
            fault = f"an index is damaged: of {there} rows {rows} are found by it. SQLite's REINDEX may mend it"
            yield Damaged(table.name, "", fault)


def _judged(table: sa.Table, row: Any) -> Any:
    if is_whole(table, row):
        return row
    key = tuple(getattr(row, column.name) for column in table.primary_key)
    of = {what: shown(getattr(row, name)) for what, name in (("run", "run"), ("model", "name")) if name in table.c}
    return Damaged(table.name, key_text(key), "its checksum does not fit", **of)


def key_text(key: Sequence[Any]) -> str:
    """Return a row's key as `Damaged.row` has it."""
    return " ".join(shown(part) for part in key)


def _keys(select: Select, table: sa.Table) -> tuple[list[Any], bool]:
    """Return the keys of all rows, and whether they are all; of a damaged table those before and after the damage."""
    columns = list(table.primary_key)
    with suppress(DamagedError):
        return list(select(sa.select(*columns).order_by(*columns))), True
    if len(columns) > 1:
        return [], False
    (column,) = columns
    keys: set[Any] = set()
    for order, beyond in ((column.asc(), column.__gt__), (column.desc(), column.__lt__)):
        query, last = sa.select(column).order_by(order).limit(1), None
        with suppress(DamagedError):
            while page := select(query if last is None else query.where(beyond(last))):
                last = page[0][0]
                keys.add(page[0])
    return sorted(keys), False


def _between(table: sa.Table, first: Sequence[Any], last: Sequence[Any]) -> sa.Select[Any]:
    columns = list(table.primary_key)
    place = sa.tuple_(*columns) if len(columns) > 1 else columns[0]
    low, high = (tuple(key) if len(columns) > 1 else key[0] for key in (first, last))
    return sa.select(table).where(place >= low, place <= high).order_by(*columns)


_LAST_GIVEN = {
    "sqlite": "SELECT seq FROM sqlite_sequence WHERE name = 'records'",
    "postgresql": "SELECT last_value FROM records_seq_seq",
}
"""The highest sequence number that a record ever had: that of the last one, whether or not it is still there."""


def append_records(connection: sa.Connection, entries: Sequence[Entry]) -> None:
    """Append entries; the database reuses the room of those that a checkpoint takes the place of."""
    for is_checkpoint, some in groupby(entries, lambda entry: entry.kind == CHECKPOINT):
        rows = [_row_of(entry) for entry in some]
        if is_checkpoint:
            for row in rows:
                _begin_anew(connection, row)
        else:
            connection.execute(sa.insert(RECORDS), rows)


def _row_of(entry: Entry) -> dict[str, Any]:
    values = {**vars(entry), "body": packed(entry.body)}
    return {**values, "checksum": sum_of(RECORDS, values)}


_PLAIN, _DEFLATED = b"\0", b"\1"
_SHORT = 8000
"""Bytes of an event that is not worth the time: a journal's size is that of its long answers."""


def packed(body: bytes) -> bytes:
    """Return an event as it is stored: a byte that says how, and its bytes, of long ones deflated (RFC 1951)."""
    if len(body) < _SHORT:
        return _PLAIN + body
    # Most of an answer are the high bytes of small numbers: runs of zeros. To look for more takes half as long again.
    deflate = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, strategy=zlib.Z_RLE)
    return _DEFLATED + deflate.compress(body) + deflate.flush()


def unpacked(stored: bytes) -> bytes:
    """Undo `packed`, of a row that is whole."""
    return zlib.decompress(stored[1:], -zlib.MAX_WBITS) if stored[:1] == _DEFLATED else stored[1:]


def _begin_anew(connection: sa.Connection, row: dict[str, Any]) -> None:
    of_run = RECORDS.c.run == row["run"]
    oldest = sa.select(RECORDS.c.seq, RECORDS.c.wall).where(of_run).order_by(RECORDS.c.seq).limit(1)
    first = connection.execute(oldest).first()
    if first is not None:
        connection.execute(sa.delete(RECORDS).where(of_run))
        row = {**row, "seq": first.seq, "wall": wall_of(first)}
    connection.execute(sa.insert(RECORDS), row)


def mend(connection: sa.Connection) -> tuple[str, ...]:
    """Remove a torn record that was written last, and say so: its append never returned, so nothing was done.

    Not the last one that is there, when a checkpoint took the place of later ones: its append did return, so its run is
    damaged. Nor a checkpoint: it took the place of records whose append did.
    """
    last = connection.execute(sa.text(_LAST_GIVEN[connection.dialect.name])).scalar()
    row = connection.execute(sa.select(RECORDS).where(RECORDS.c.seq == last)).first()
    if row is None or row.kind == CHECKPOINT or is_whole(RECORDS, row):
        return ()
    connection.execute(sa.delete(RECORDS).where(RECORDS.c.seq == row.seq))
    whose = f"{row.seq}, run {shown(row.run)!r}, {shown(row.kind)}"
    return (f"the last record ({whose}) was torn and has been removed",)


_RECORDS_AT_ONCE = 100
"""Records that are read together: a run of a large fleet has a hundred MB of them, and nobody can write meanwhile."""


def entries_of(select: Select, run: str) -> Iterator[Entry]:
    """Yield the records of one run, in order; raises DamagedError on a damaged one."""
    query = sa.select(RECORDS).where(RECORDS.c.run == run).order_by(RECORDS.c.seq).limit(_RECORDS_AT_ONCE)
    last = -1
    while rows := select(query.where(RECORDS.c.seq > last)):
        last = rows[-1].seq
        for row in rows:
            if not is_whole(RECORDS, row):
                raise DamagedError(
                    f"record {row.seq} of the journal is damaged (run {run!r}): restore the journal from a backup, see "
                    "glassfleet coordinator journal verify"
                )
            yield Entry(row.run, row.kind, float(row.at), wall_of(row), unpacked(row.body))


_NAMED_AT_ONCE = 500
"""Vehicles named in one statement; databases bound that."""


OF_AGENTS: dict[Kept, sa.Table] = {"witnessed": WITNESSED, "scores": SCORES, "notices": NOTICES}


def put_of_agents(
    connection: sa.Connection, what: Kept, values: Mapping[str, Sequence[Mapping[str, Any]]], most: int
) -> int:
    """Let values take the place of what is there of these vehicles; return of how many there was no room."""
    table, agents, known = OF_AGENTS[what], list(values), set[str]()
    named = table.c.agent
    for some in batches(agents, _NAMED_AT_ONCE):
        known |= set(connection.execute(sa.select(named).where(named.in_(some))).scalars())
    agents.sort(key=lambda agent: agent not in known)  # a newcomer takes nobody's place
    for some in batches(agents, _NAMED_AT_ONCE):
        connection.execute(sa.delete(table).where(named.in_(some)))
    room = most - connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one()
    rows = [{"agent": agent, "body": json.dumps(values[agent])} for agent in agents[: max(0, room)]]
    if rows:
        connection.execute(sa.insert(table), [{**row, "checksum": sum_of(table, row)} for row in rows])
    return len(agents) - len(rows)


def values_of_agents(select: Select, what: Kept, agents: Collection[str]) -> dict[str, list[dict[str, Any]]]:
    """Return what is there of these vehicles; nothing where a row is damaged."""
    table = OF_AGENTS[what]
    queries = (sa.select(table).where(table.c.agent.in_(some)) for some in batches(list(agents), _NAMED_AT_ONCE))
    return {row.agent: json.loads(row.body) for query in queries for row in select(query) if is_whole(table, row)}
