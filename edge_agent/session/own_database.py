"""A small SQLite file in a vehicle's folder that holds what it has to remember of itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from schemas.errors import StorageError
from schemas.private_files import private_database


def opened(path: Path, schema: str) -> sqlite3.Connection:
    """Open a file, which is made when missing, for this user alone; raises sqlite3.Error."""
    with suppress(OSError):  # SQLite says what is wrong
        private_database(path)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript(schema)
    return database


def read_only(path: Path, query: str) -> list[Any]:
    """Return the rows of a query, none where there is no file; raises sqlite3.Error."""
    if not path.exists():
        return []
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
        return database.execute(query).fetchall()


@contextmanager
def explained(what: str, path: Path, about: str) -> Iterator[None]:
    """Let a fault of SQLite be a StorageError that says what the file is about, and the way out."""
    try:
        yield
    except sqlite3.Error as fault:
        raise StorageError(
            f"cannot {what} {path}, {about}: {fault}. Make room, or move it away; then start the agent again"
        ) from fault
