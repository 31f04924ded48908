"""An SQLite database as a journal: how its connections are set up."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa

_MOST_AHEAD = 8 * 1024 * 1024
"""Bytes of the write-ahead log that stay on the disk; as a rule it begins again at half of that."""


def make_engine(url: sa.URL, busy_timeout: float) -> sa.Engine:
    """Return an engine; nothing is connected yet."""
    engine = sa.create_engine(url, connect_args={"timeout": busy_timeout})

    @sa.event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # BEGIN is ours, see below
        connection.text_factory = readable
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file: `shrink` makes it shorter
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        # A transaction that lets many records go writes all their pages ahead; the file would stay as long for good.
        connection.execute(f"PRAGMA journal_size_limit={_MOST_AHEAD}")

    @sa.event.listens_for(engine, "begin")
    def _start(connection: sa.Connection) -> None:
        # Take the write lock at once: a read that turns into a write could otherwise fail half way.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def shrink(connection: sa.Connection) -> None:
    """Give the room of what was let go back to the disk."""
    driver = connection.connection.driver_connection
    assert driver is not None
    (pages,) = driver.execute("PRAGMA freelist_count").fetchone()
    for _ in range(pages):  # of a statement without columns Python takes one step, which is one page
        driver.execute("PRAGMA incremental_vacuum(1)")


def readable(text: bytes) -> str:
    """Return a text, whatever bytes stand there: a damaged one must not keep the others from being read."""
    return text.decode("utf-8", "surrogateescape")


def pick(document: sa.Column[str], places: Iterable[Iterable[str]], counted: Collection[str]) -> list[Any]:
    """Return expressions for parts of a JSON text: one list of what stands at the places, and the lengths of lists."""
    paths = [f"$.{'.'.join(place)}" for place in places]
    return [sa.func.json_extract(document, *paths), *(sa.func.json_array_length(document, f"$.{x}") for x in counted)]
