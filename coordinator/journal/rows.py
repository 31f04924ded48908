"""Rows as they lie in the database: read one by one, held against their checksums, named when they are damaged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import sqlalchemy as sa

from coordinator.journal.port import Damaged, Leader, StoredModel, checksum
from coordinator.journal.tables import DECISIONS, LEADER, MODELS, NOTICES, RECORDS, RUNS, SCORES, WITNESSED
from schemas.errors import DamagedError

Select = Callable[[sa.Executable], Sequence[Any]]
"""Gives the rows of a query; raises DamagedError when the database cannot read them."""

TABLES = (RECORDS, RUNS, MODELS, DECISIONS, WITNESSED, SCORES, NOTICES)

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
"""What a row's checksum is over; the last one is what the row is about. A record's wall clock was left out from the
first version on: see `wall_of`."""

_LAST_WALL = 1e11
"""The year 5138: a later time is no time, and cannot be written as a date."""


def sum_of(table: sa.Table, values: dict[str, Any]) -> str:
    """Return the checksum that belongs to the values of a row."""
    *heads, body = (values[name] for name in _CHECKED[table.name])
    return checksum(heads, body)


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
    """Return a record's wall clock, which is for displays only; 0 when it cannot be one."""
    return float(row.wall) if isinstance(row.wall, float) and 0 <= row.wall < _LAST_WALL else 0.0


def shown(value: Any) -> str:
    """Return what stands in a damaged field so that it can be written into a page or a log."""
    return str(value)[:64].encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def look(select: Select, table: sa.Table) -> Iterator[Any]:
    """Yield each row of a table that is whole, and a `Damaged` for each that is not, by their keys."""
    keys, is_complete = _keys(select, table)
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
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
