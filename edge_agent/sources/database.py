"""Rows of a database: one query, read-only, in blocks, through SQLAlchemy Core (an extra; loaded when used)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from edge_agent.sources.cells import column_names, plain_cells
from edge_agent.sources.location import Location, Reader
from schemas.errors import DataError

BLOCK: Final = 2048
"""Rows that are fetched at once."""

CONNECT_SECONDS: Final = 10
"""Seconds that connecting to a database server may take, unless the URL says ``connect_timeout``."""


@contextmanager
def query_rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[Any]]]]]:
    """Run the query of a location; the names of its columns, and blocks of rows.

    The transaction is read-only: a statement that writes is refused by the database. A password comes from the URL,
    or (PostgreSQL) from ``PGPASSWORD``, ``PGPASSFILE`` or ``~/.pgpass``; it is never part of a message.

    Raises
    ------
    DataError
        The packages are missing, the database cannot be reached, or it refuses the query; the text says which.
    """
    try:
        import sqlalchemy as sql  # noqa: PLC0415 - optional: an agent that reads a file must not pay for it
    except ImportError as fault:
        mend = "Install it with: pip install 'glassfleet[sql]'"
        raise DataError("reading a database needs sqlalchemy", mend, place.shown) from fault
    try:
        engine = _engine(sql, place)
        try:
            with engine.connect().execution_options(stream_results=True) as connection:
                if connection.dialect.name == "postgresql":
                    connection.execution_options(postgresql_readonly=True)
                if place.query:
                    # As it is: neither a colon nor (for psycopg, doubled) a percent sign is taken for a parameter.
                    plain = connection.dialect.name == "sqlite"
                    result = connection.exec_driver_sql(place.query if plain else place.query.replace("%", "%%"))
                else:
                    schema, _, name = place.table.rpartition(".")
                    rows = sql.table(name, schema=schema or None)
                    result = connection.execute(sql.select(sql.literal_column("*")).select_from(rows))
                if not result.returns_rows:
                    raise DataError("the statement returns no rows", "Write a SELECT", place.shown)
                names = column_names(place.shown, tuple(result.keys()))
                parts = result.partitions(BLOCK)
                yield names, (plain_cells(place.shown, names, [list(row) for row in part]) for part in parts)
        finally:
            engine.dispose()
    except ModuleNotFoundError as fault:
        mend = "Install it with: pip install 'glassfleet[postgres]'"
        raise DataError("reading PostgreSQL needs psycopg", mend, place.shown) from fault
    except (sql.exc.SQLAlchemyError, sqlite3.Error) as fault:
        raise DataError(*_words(fault, place.query), place.shown) from fault


def _engine(sql: Any, place: Location) -> Any:
    backend, mark, rest = place.text.partition("://")
    url = sql.engine.make_url(f"{backend.lower()}{mark}{rest}")
    if url.get_backend_name() == "sqlite":
        path = url.database
        if not path or path == ":memory:":
            raise DataError("name a file, as in sqlite:///drives.db?table=rows", where=place.shown)
        if not Path(path).is_file():
            mend = "An absolute path has four slashes: sqlite:////..."
            raise DataError(f"there is no file {path}", mend, place.shown)
        # Read-only by SQLite itself: no statement can change the file, and none is made.
        return sql.create_engine(f"sqlite:///file:{quote(str(Path(path).absolute()))}?mode=ro&uri=true")
    return sql.create_engine(
        url.set(drivername="postgresql+psycopg"),
        poolclass=sql.pool.NullPool,
        connect_args={} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_SECONDS},
    )


_WAYS_OUT: Final = (
    (("password", "fe_sendauth"), "Put the password into ~/.pgpass or PGPASSWORD"),
    (("database is locked",), "Another process writes to it: try again when it has finished"),
    (("not a database",), "Name an SQLite database"),
    (("ssl",), "Correct sslmode in the URL, or set up TLS at the server"),
    (("fatal:",), "Name a database and a user that the server knows, and that may log in"),
    (("resolve", "refused", "timeout", "timed out", "connection is bad", "failed: "),
     "Check host, port and that the server runs"),
    (("permission denied",), "Let the database's owner grant SELECT to this user"),
    (("one statement", "multiple commands"), "Write one SELECT, without a semicolon"),
)  # fmt: skip
"""Marks in what a database says, in lower case, and the way out; the first that fits counts."""

_ANY: Final = "Correct the query, and try it in the database's own shell"


def _words(fault: Exception, query: str) -> tuple[str, str]:
    """Return what the database said, in one line, and the way out."""
    text = str(getattr(fault, "orig", None) or fault)
    text = " ".join(line.strip() for line in text.splitlines() if not line.startswith(("[SQL", "(Background")))
    low = text.lower()
    writes = query and query.split(maxsplit=1)[0].upper() not in ("SELECT", "WITH", "VALUES", "TABLE")
    if writes or "readonly" in low or "read-only" in low:
        advice = "Only reading is allowed here: write a SELECT"
    else:
        advice = next((way for marks, way in _WAYS_OUT if any(mark in low for mark in marks)), _ANY)
    return f"the database says: {text[:300].rstrip('.?')}", advice


READER: Final = Reader(
    "a query, read-only: sqlite:///drives.db?query=SELECT ..., postgresql://user@host/database?table=NAME (password in "
    "~/.pgpass or PGPASSWORD)",
    query_rows,
    schemes=("sqlite", "postgresql", "postgres"),
)
