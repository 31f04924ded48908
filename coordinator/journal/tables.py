"""The tables, as SQLAlchemy Core sees them. Whoever changes them raises `VERSION`."""

from __future__ import annotations

import sqlalchemy as sa

from schemas.errors import StorageError

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
