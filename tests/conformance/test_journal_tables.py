"""What only a journal's tables can suffer: torn and damaged rows, a full disk, a lock that somebody removed."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from coordinator.journal import Entry, postgres
from coordinator.journal.inspect import inspect, rows
from coordinator.journal.port import Damaged, Decision
from coordinator.journal.sql import SqlJournal
from schemas.errors import DamagedError, NotFoundError, StorageError
from tests.support.postgres import PostgresServer
from tests.support.scratch_journal import checkpoint, entry


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def address(request: pytest.FixtureRequest, path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{path}"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.url(server.database())


def filled(address: str) -> str:
    journal = SqlJournal(address)
    journal.append([entry("r", number) for number in range(1, 6)])
    journal.close()
    return address


@contextlib.contextmanager
def changing(address: str) -> Iterator[sa.Connection]:
    engine = sa.create_engine(postgres.with_driver(sa.make_url(address)))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


def damage(address: str, *statements: str) -> None:
    with changing(address) as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def test_journal_removes_and_reports_a_torn_last_record(address: str) -> None:
    damage(filled(address), "UPDATE records SET body = substr(body, 1, 2) WHERE seq = 5")
    journal = SqlJournal(address)
    assert "(5, run 'r', answer) was torn" in journal.damage[0]
    assert [record.at for record in journal.records("r")] == [1, 2, 3, 4]
    journal.append([entry("r", 6)])
    assert len(list(journal.records("r"))) == 5
    journal.close()


def test_journal_keeps_a_damaged_checkpoint_as_its_run_would_be_gone_without_it(address: str) -> None:
    journal = SqlJournal(address)
    journal.append([entry("r", 1), checkpoint("r", 2)])
    journal.close()
    damage(address, "UPDATE records SET body = substr(body, 1, 2)")
    journal = SqlJournal(address)
    assert journal.damage == ()
    assert journal.unfinished() == ["r"]
    with pytest.raises(DamagedError, match=r"record 1 .* is damaged"):
        list(journal.records("r"))
    journal.close()


def test_journal_keeps_a_damaged_record_after_which_a_checkpoint_was_written(address: str) -> None:
    journal = SqlJournal(address)
    journal.append([entry("elastic", 1), entry("r", 2)])
    journal.append([entry("elastic", 3), checkpoint("elastic", 3)])
    journal.close()
    damage(address, "UPDATE records SET body = substr(body, 1, 2) WHERE run = 'r'")
    journal = SqlJournal(address)
    assert journal.damage == ()
    with pytest.raises(DamagedError, match=r"record 2 .* is damaged"):
        list(journal.records("r"))
    assert [record.at for record in journal.records("elastic")] == [3]
    journal.close()


def test_journal_keeps_all_records_when_a_checkpoint_cannot_be_written(address: str) -> None:
    journal = SqlJournal(address)
    journal.append([entry("r", 1), entry("r", 2)])
    with pytest.raises(StorageError):
        journal.append([checkpoint("r", 3), replace(entry("r", 4), kind=None)])  # type: ignore[arg-type]
    assert list(journal.records("r")) == [entry("r", 1), entry("r", 2)]
    journal.close()


def test_journal_refuses_a_damaged_record_in_the_middle(address: str) -> None:
    damage(filled(address), "UPDATE records SET at = 2.5 WHERE seq = 2")
    journal = SqlJournal(address)
    with pytest.raises(StorageError, match=r"record 2 .* is damaged"):
        list(journal.records("r"))
    journal.close()


def test_journal_names_damaged_rows_and_gives_all_others(address: str) -> None:
    journal = SqlJournal(address)
    journal.append([entry("a", 1), entry("b", 2), entry("a", 3), entry("b", 4)])
    for number, ended in enumerate(("r1", "r2"), start=1):
        journal.close_run(ended, {"run": ended}, 5.0)
        journal.add_model("m", ended, lambda version: ("d" * 64, b"record %d" % version))
        journal.append([], [Decision("m", "current", 6.0, 0.0, {"version": number})])
    journal.close()
    damage(
        address,
        "UPDATE records SET at = 1e300 WHERE seq = 1",
        "UPDATE runs SET at = 1e300, document = replace(document, 'r1', 'r7') WHERE run = 'r1'",
        "UPDATE models SET digest = 'e' WHERE version = 1",
        "UPDATE decisions SET at = 1e300 WHERE number = 1",
    )
    journal = SqlJournal(address)
    assert [(row.table, row.run, row.model) for row in journal.damaged] == [
        ("runs", "r1", ""), ("models", "r1", "m"), ("decisions", "", "m"),
    ]  # fmt: skip
    with pytest.raises(DamagedError, match=r"record 1 .* is damaged \(run 'a'\)"):
        list(journal.records("a"))
    assert list(journal.records("b")) == [entry("b", 2), entry("b", 4)]
    with pytest.raises(DamagedError, match="'r1' is damaged"):
        journal.document("r1")
    assert (journal.ended(), journal.document("r2")) == (["r1", "r2"], {"run": "r2"})
    assert [(model.is_damaged, model.record) for model in journal.models("m")] == [(True, b""), (False, b"record 2")]
    assert journal.model("m", 1) == journal.models()[0]
    assert [each.body for each in journal.decisions("m")] == [{"version": 2}]
    assert journal.last_time() == 6.0, "a damaged time would let the clock run away"
    result = [(table, row) for table, row in rows(address) if isinstance(row, Damaged)]
    assert [(table, row.row) for table, row in result] == [
        ("records", "1"), ("runs", "1"), ("models", "m 1"), ("decisions", "1"),
    ]  # fmt: skip
    again = journal.add_model("m", "r1", lambda version: ("d" * 64, b"again %d" % version))
    assert (again.version, journal.models("m")[0]) == (1, again), "whoever knows a damaged model can register it again"


def test_sqlite_journal_names_what_to_do_when_the_file_is_not_a_database(path: Path) -> None:
    path.write_bytes(b"not a database at all, but long enough to be looked at" * 50)
    with pytest.raises(StorageError, match="restore it from a backup"):
        SqlJournal(f"sqlite:///{path}")


def test_sqlite_journal_applies_nothing_when_the_disk_is_full(path: Path) -> None:
    journal = SqlJournal(filled(f"sqlite:///{path}"))
    with journal._database.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    limit = f"PRAGMA max_page_count={pages}"

    from sqlalchemy import event

    @event.listens_for(journal._database.engine, "begin")
    def _no_room(connection: Any) -> None:
        connection.exec_driver_sql(limit)

    big = Entry("r", "answer", 6.0, 0.0, random.Random(1).randbytes(1_000_000))
    with pytest.raises(StorageError, match="no room to write the journal"):
        journal.append([entry("r", 6), big])
    event.remove(journal._database.engine, "begin", _no_room)
    journal.close()
    journal = SqlJournal(f"sqlite:///{path}")
    assert [record.at for record in journal.records("r")] == [1, 2, 3, 4, 5]
    journal.append([entry("r", 6), big])
    assert len(list(journal.records("r"))) == 7


@pytest.mark.parametrize(
    ("statement", "version"), [("UPDATE journal SET version = 9999", 9999), ("DROP TABLE journal", 0)]
)
def test_journal_of_another_version_is_refused(address: str, statement: str, version: int) -> None:
    damage(filled(address), statement)
    for look in (SqlJournal, inspect, lambda url: list(rows(url))):
        with pytest.raises(StorageError, match=f"is of version {version}, this software knows"):
            look(address)


def test_a_database_without_our_tables_is_no_journal_yet(address: str) -> None:
    damage(address, "CREATE TABLE other (x INTEGER)")
    assert inspect(address) is None
    with pytest.raises(NotFoundError, match="there is no journal"):
        list(rows(address))


def test_sqlite_journal_whose_lock_was_removed_is_written_no_more(path: Path) -> None:
    first = SqlJournal(f"sqlite:///{path}")
    first.append([entry("r", 1)])
    path.with_name("journal.sqlite.lock").unlink()
    second = SqlJournal(f"sqlite:///{path}")
    second.append([entry("r", 2)])
    for refused in (first.check, lambda: first.append([entry("r", 3)]), lambda: first.close_run("r", {}, 3.0)):
        with pytest.raises(StorageError, match=r"the lock of the journal .* is gone"):
            refused()
    first.close()
    assert [each.at for each in second.records("r")] == [1.0, 2.0]
    second.close()


def test_sqlite_journal_is_written_ahead_and_synchronously(path: Path) -> None:
    journal = SqlJournal(f"sqlite:///{path}")
    with journal._database.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_sqlite_journal_keeps_many_small_numbers_in_a_third_of_their_room(path: Path) -> None:
    journal = SqlJournal(f"sqlite:///{path}")
    answers = [
        replace(entry("r", 1), body=(np.arange(number, number + 15_000) % 100).tobytes()) for number in range(20)
    ]
    journal.append(answers)
    assert list(journal.records("r")) == answers
    journal.close()
    assert path.stat().st_size < sum(len(each.body) for each in answers) / 3


def test_sqlite_journal_whose_run_begins_anew_takes_no_more_room(path: Path) -> None:
    journal = SqlJournal(f"sqlite:///{path}")
    for number in range(5):
        journal.append([replace(entry("r", 1), body=random.Random(each).randbytes(1500)) for each in range(8000)])
        journal.append([checkpoint("r", 2)])
        journal.append([entry("r", 3)])
        size = journal.size_bytes()
        assert size < 28_000_000, f"{12 * (number + 1)} MB of answers were written"
    assert path.with_name(path.name + "-wal").stat().st_size < 9_000_000
    journal.close()
