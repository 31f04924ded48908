"""The table of records: appended to, begun anew by a checkpoint, repaired."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from coordinator.journal.port import CHECKPOINT, Entry
from coordinator.journal.rows import is_whole, shown, wall_of
from coordinator.journal.tables import RECORDS

_LAST_GIVEN = {
    "sqlite": "SELECT seq FROM sqlite_sequence WHERE name = 'records'",
    "postgresql": "SELECT last_value FROM records_seq_seq",
}
"""The highest sequence number that a record ever had: that of the last one, whether or not it is still there."""


def append(connection: sa.Connection, entries: Sequence[Entry]) -> None:
    """Append entries; the database reuses the room of those that a checkpoint takes the place of."""
    for is_checkpoint, some in groupby(entries, lambda entry: entry.kind == CHECKPOINT):
        rows = [{**vars(entry), "checksum": entry.checksum} for entry in some]
        if is_checkpoint:
            for row in rows:
                _begin_anew(connection, row)
        else:
            connection.execute(sa.insert(RECORDS), rows)


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


def entry_of(row: Any) -> Entry:
    """Return the entry of a row that is whole."""
    return Entry(row.run, row.kind, float(row.at), wall_of(row), bytes(row.body))
