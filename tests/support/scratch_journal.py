"""A journal that lasts as long as its process: for simulations, and for trying things out."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace

import sqlalchemy as sa

from coordinator.journal.port import CHECKPOINT, Entry
from coordinator.journal.sql import SqlJournal
from coordinator.journal.tables import MODELS, RECORDS, RUNS

_MEMORY = "/dev/shm"


def entry(run: str, number: int) -> Entry:
    """Return the record of an answer that says its number."""
    return Entry(run, "answer", float(number), 1.7e9 + number, b"body %d \x00\xff" % number)


def checkpoint(run: str, number: int) -> Entry:
    """Return a record that stands for all of a run until then."""
    return replace(entry(run, number), kind=CHECKPOINT, body=b"all of %s until %d" % (run.encode(), number))


class ScratchJournal(SqlJournal):
    """A journal of SQLite in a folder that goes with it, in memory where the machine has such a place.

    `before` is a closed one whose content is opened again, as a restarted coordinator would.
    """

    def __init__(self, before: ScratchJournal | None = None) -> None:
        place = _MEMORY if os.access(_MEMORY, os.W_OK) else None
        self._folder: tempfile.TemporaryDirectory[str] = (
            tempfile.TemporaryDirectory(dir=place, prefix="glassfleet-") if before is None else before._folder
        )
        super().__init__(f"sqlite:///{self._folder.name}/journal.sqlite")

    def __del__(self) -> None:
        if hasattr(self, "_database"):
            self.close()

    @property
    def entries(self) -> list[Entry]:
        """The records, run by run."""
        runs = self._select(sa.select(RECORDS.c.run).group_by(RECORDS.c.run).order_by(sa.func.min(RECORDS.c.seq)))
        return [entry for (run,) in runs for entry in self.records(run)]

    def clear(self) -> None:
        """Let all records, ended runs and models go."""
        with self._write() as connection:
            for table in (RECORDS, MODELS, RUNS):
                connection.execute(sa.delete(table))
