"""Every journal through one suite."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from coordinator.journal import Entry, Journal, postgres
from coordinator.journal.inspect import inspect, rows
from coordinator.journal.port import CHECKPOINT, Damaged, Decision, Kept, Leader, overview
from coordinator.journal.sql import SqlJournal
from coordinator.runs.view import run_document
from schemas.errors import DamagedError, NotFoundError, StorageError
from tests.support.engine_bench import TOY_ENGINE, Play, toy_spec
from tests.support.postgres import PostgresServer

Opener = Callable[[], Journal]


def entry(run: str, number: int, *, at: float | None = None) -> Entry:
    return Entry(run, "answer", float(number) if at is None else at, 1.7e9 + number, b"body %d" % number)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same journal each time it is called."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url(server.database())
        return lambda: SqlJournal(url, busy_timeout=0.3)
    return lambda: SqlJournal(f"sqlite:///{tmp_path / 'state' / 'journal.sqlite'}")


def test_journal_appends_entries_with_decisions_or_nothing(opener: Opener) -> None:
    journal = opener()
    night = Decision("schedule nightly", "schedule.night", 2.0, 1.7e9, {"at": 1.7e9})
    with pytest.raises(TypeError, match="not JSON serializable"):
        journal.append([entry("a", 1)], [night, replace(night, body={"at": object()})])
    assert (journal.unfinished(), journal.decisions(), journal.last_time()) == ([], [], None)
    journal.append([entry("b", 3)], [night])
    journal.append([], [replace(night, at=4.0)])
    journal.close()
    journal = opener()
    assert list(journal.records("b")) == [entry("b", 3)]
    assert journal.decisions("schedule nightly") == [night, replace(night, at=4.0)]
    assert journal.last_time() == 4.0


def test_journal_gives_records_back_in_order_after_reopening(opener: Opener) -> None:
    journal = opener()
    journal.append([entry("b", 1), entry("a", 2), entry("b", 3)])
    journal.append([])
    journal.append([entry("a", 4)])
    journal.close()
    journal = opener()
    assert list(journal.records("b")) == [entry("b", 1), entry("b", 3)]
    assert list(journal.records("a")) == [entry("a", 2), entry("a", 4)]
    assert journal.unfinished() == ["b", "a"]
    assert journal.last_time() == 4.0


def checkpoint(run: str, number: int) -> Entry:
    return replace(entry(run, number), kind=CHECKPOINT, body=b"all of %s until %d" % (run.encode(), number))


def test_journal_puts_a_checkpoint_in_place_of_all_former_records_of_its_run(opener: Opener) -> None:
    journal = opener()
    journal.append([entry("a", 1), entry("b", 2), entry("a", 3)])
    journal.append([entry("a", 4), checkpoint("a", 5), entry("b", 6), entry("a", 7)])
    journal.close()
    journal = opener()
    began = replace(checkpoint("a", 5), wall=entry("a", 1).wall)
    assert list(journal.records("a")) == [began, entry("a", 7)]
    assert list(journal.records("b")) == [entry("b", 2), entry("b", 6)]
    assert journal.unfinished() == ["a", "b"], "in the order of their start"
    assert journal.last_time() == 7.0
    journal.append([checkpoint("a", 8), checkpoint("c", 9)])
    assert list(journal.records("a")) == [replace(checkpoint("a", 8), wall=began.wall)]
    assert list(journal.records("c")) == [checkpoint("c", 9)]
    assert journal.unfinished() == ["a", "b", "c"]
    journal.close()


def test_journal_is_written_to_while_a_run_is_read(opener: Opener) -> None:
    journal = opener()
    many = [entry(run, number) for number in range(250) for run in ("a", "b")]
    journal.append(many)
    result = journal.records("a")
    first = [next(result) for _ in range(120)]
    journal.append([entry("b", 1000)])
    assert [*first, *result] == [each for each in many if each.run == "a"]


def test_journal_refuses_a_second_coordinator_until_it_is_closed(opener: Opener) -> None:
    journal = opener()
    with pytest.raises(StorageError, match="in use by another coordinator"):
        opener()
    journal.close()
    journal.close()
    opener().close()


def test_journal_says_who_led_last_also_when_it_is_opened_again(opener: Opener) -> None:
    journal = opener()
    assert journal.leader() is None
    for incarnation in ("first", "second"):
        journal.lead(Leader(incarnation, {"host": "cloud-1", "settings": {"kept_runs": 3}}))
    journal.check()
    journal.close()
    journal = opener()
    assert journal.leader() == Leader("second", {"host": "cloud-1", "settings": {"kept_runs": 3}})
    journal.close()


@pytest.mark.parametrize(("what", "other"), [("witnessed", "scores"), ("scores", "notices"), ("notices", "witnessed")])
def test_journal_keeps_values_of_so_many_vehicles(opener: Opener, what: Kept, other: Kept) -> None:
    journal = opener()
    heads = [{"n": 3, "hash": "a" * 64, "at": 1.5}]
    assert journal.keep(what, {"v1": heads, "v2": []}, most=2) == 0
    assert journal.keep(what, {"v1": heads * 2, "v3": heads}, most=2) == 1
    journal.close()
    journal = opener()
    assert [journal.kept(what, agent) for agent in ("v1", "v2", "v3")] == [heads * 2, [], []]
    assert journal.kept(other, "v1") == []
    journal.close()


def test_journal_closes_a_run_once_and_keeps_its_document(opener: Opener) -> None:
    journal = opener()
    journal.append([entry("r", 1), entry("s", 2)])
    journal.close_run("r", {"outcome": "finished", "n": [1, 2.5]}, 9.0)
    journal.close_run("r", {"outcome": "other"}, 9.5)
    journal.close()
    journal = opener()
    assert journal.unfinished() == ["s"]
    assert journal.ended() == ["r"]
    assert journal.document("r") == {"outcome": "finished", "n": [1, 2.5]}
    assert journal.last_time() is not None
    assert list(journal.records("r")) == [entry("r", 1)]


def test_journal_gives_overviews_as_the_documents_have_them(opener: Opener) -> None:
    journal = opener()
    state = Play(toy_spec(parameters={"levels": 3})).state
    whole = run_document(TOY_ENGINE, state, started=1.0, ended=2.0, model={"name": "m", "version": 1, "digest": "d"})
    documents = {
        "whole": {**whole, "reason": "é\u2028\"'", "rounds": [{}, {}], "cohort": ["a"]},
        "former": {"run": "former"},
        "declaring": {"run": "declaring", "spec": {"bounds": {"x": [0, 1]}, "domain": None}},
    }
    documents["odd"] = {**whole, "run": "odd", "summary": {"x": float("nan")}}  # no JSON for every database
    for run, document in documents.items():
        journal.close_run(run, document, 1.0)
    expected = {run: overview(document) for run, document in documents.items()}
    assert {run for run, each in expected.items() if each["declares"]} == {"odd", "whole", "declaring"}
    assert journal.overviews(["odd", "none", *documents]) == expected
    del expected["odd"]
    assert journal.overviews([*expected]) == expected


def test_journal_lets_the_records_of_closed_runs_go_by_age_but_not_the_time(opener: Opener) -> None:
    journal = opener()
    journal.append([entry("r", 1), entry("s", 2), entry("live", 3), entry("t", 4)])
    for run, at in (("s", 9.0), ("r", 10.0), ("t", 11.0)):
        journal.close_run(run, {"run": run}, at)

    def forget(until: float) -> tuple[bool, list[str]]:
        return journal.forget_records(until), [run for run in "srt" if list(journal.records(run))]

    assert [forget(until) for until in (8.9, 10.0, 10.0, 10.0)] == [
        (False, ["s", "r", "t"]),
        (True, ["r", "t"]),
        (True, ["t"]),
        (False, ["t"]),
    ]
    assert (journal.document("s"), journal.unfinished(), journal.last_time()) == ({"run": "s"}, ["live"], 11.0)
    journal.close()


def test_journal_keeps_what_was_among_the_newest_when_its_run_was_forgotten_and_lets_references_go(
    opener: Opener,
) -> None:
    journal = opener()
    for name, run in (("m", "Central-of-another-run"), ("m.central", "central-1"), ("m.central", "central-2")):
        journal.add_model(name, run, lambda version: ("d" * 64, b"record %d" % version))

    def finished(*numbers: int) -> None:
        for number in numbers:
            journal.append([entry(f"r{number}", number)])
            journal.add_model("m", f"r{number}", lambda version: ("d" * 64, b"record %d" % version))
            journal.close_run(f"r{number}", {}, 1.0 * number)

    finished(1, 2)
    journal.append([entry("live", 3)])
    journal.add_model("m", "live", lambda version: ("d" * 64, b"record %d" % version))
    journal.close_run("other", {}, 3.0)
    assert sorted(journal.compact(1, 3)) == ["r1", "r2"]
    stay = ["Central-of-another-run", "r1", "r2", "live"]
    assert [model.run for model in journal.models("m")] == stay
    assert [model.run for model in journal.models("m.central")] == ["central-1", "central-2"], "the newest yet"
    finished(4, 5)
    assert sorted(journal.compact(1, 1)) == ["other", "r4"]
    assert [model.run for model in journal.models("m")] == [*stay, "r5"]
    assert [model.run for model in journal.models("m.central")] == ["central-2"]
    journal.add_model("m.central", "central-3", lambda version: ("d" * 64, b"record %d" % version))
    finished(6)
    assert journal.compact(1, 1, {("m.central", 2)}) == ["r5"]
    assert [model.run for model in journal.models("m.central")] == ["central-2", "central-3"]
    journal.close()


def test_journal_puts_another_record_in_place_with_a_decision_or_changes_nothing(opener: Opener) -> None:
    journal = opener()
    for name in ("m", "n"):
        stored = journal.add_model(name, f"r-{name}", lambda version: ("d" * 64, b"record %d" % version))
    decision = Decision("n", "signed", 5.0, 6.0, {"version": 1})
    for other in ({"version": 2}, {"digest": "e" * 64}, {"name": "o"}):
        with pytest.raises(StorageError, match="no version"):
            journal.put_record(replace(stored, record=b"other", **other), [decision])
    assert journal.decisions() == []
    journal.put_record(replace(stored, record=b"signed again"), [decision])
    journal.close()
    journal = opener()
    assert [model.record for model in journal.models()] == [b"record 1", b"signed again"]
    assert [journal.model(name, 1) for name in ("m", "n")] == journal.models()
    assert journal.model("m", 2) is journal.model("o", 1) is None
    assert journal.decisions("n") == [decision]
    journal.put_record(journal.models("m")[0])
    assert len(journal.decisions()) == 1
    journal.close()


def test_journal_forgets_the_oldest_runs_when_it_is_compacted_but_not_the_newest_models(opener: Opener) -> None:
    journal = opener()
    for number in range(6):
        run = f"r{number}"
        journal.append([entry(run, number)])
        journal.add_model("often" if number else "once", run, lambda version: ("d" * 64, b"record %d" % version))
        journal.close_run(run, {"number": number}, 1.0 * number)
    journal.append([entry("open", 9)])
    assert journal.compact(10, 1) == []
    assert sorted(journal.compact(2, 3)) == ["r0", "r1", "r2", "r3"]
    assert journal.compact(2, 3) == []
    journal.close()
    journal = opener()
    assert journal.ended() == ["r4", "r5"]
    assert (journal.document("r3"), journal.document("r4")) == (None, {"number": 4})
    assert (list(journal.records("r3")), list(journal.records("r4"))) == ([], [entry("r4", 4)])
    assert (journal.newest("often", 2), journal.newest("once", 9), journal.newest("never", 9)) == ([5, 4], [1], [])
    assert (
        journal.heads()
        == [replace(model, record=b"") for model in journal.models()]
        == [*journal.heads("often"), *journal.heads("once")]
    )
    assert journal.add_model("often", "r9", lambda version: ("d" * 64, b"%d" % version)).version == 6
    assert journal.unfinished() == ["open"]
    assert journal.last_time() == 9.0


def test_journal_lets_old_rollouts_go_but_no_other_decision(opener: Opener) -> None:
    journal = opener()

    def decided(name: str, kind: str, at: float) -> Decision:
        return Decision(name, kind, at, at, {"rollout": f"{name}-{at}"})

    result = [
        decided(name, kind, 10.0 * number + place)
        for number in (1, 2, 3)
        for name in ("m", "n", "Rollout.m")
        for place, kind in enumerate(("rollout.started", "candidate", "rollout.reported", "current", "ROLLOUT.odd"))
    ]
    # An end and the next beginning may have the same time.
    result.append(decided("m", "rollout.superseded", 40.0))
    result += [decided("m", "rollout.started", 40.0), decided("m", "rollout.reported", 41.0)]
    journal.append([], result)
    assert journal.compact(9, 1) == []
    journal.compact(9, 1, (), {"m": 50.0, "unknown": 0.0})
    assert journal.decisions() == result, "no rollout began then or later: which of them live is not known"
    journal.compact(9, 1, (), {"n": 20.0})
    result = [each for each in result if each.name != "n" or each.at >= 20.0 or not each.kind.startswith("rollout.")]
    assert journal.decisions() == result
    journal.compact(9, 1, rollouts_from={"m": 40.0, "n": 0.0})
    journal.close()
    journal = opener()
    left = [each for each in result if each.name != "m" or not each.kind.startswith("rollout.")]
    assert [each for each in journal.decisions() if each not in result[-2:]] == left
    assert journal.decisions("m")[-2:] == result[-2:]
    assert journal.last_time() == 41.0
    journal.close()


def test_journal_gives_one_version_per_run(opener: Opener) -> None:
    journal = opener()

    def make(version: int) -> tuple[str, bytes]:
        return "d" * 64, b"record %d" % version

    first = journal.add_model("m", "r1", make)
    again = journal.add_model("m", "r1", make)
    second = journal.add_model("m", "r2", make)
    other = journal.add_model("n", "r3", make)
    assert first == again
    assert (first.version, second.version, other.version) == (1, 2, 1)
    journal.close()
    journal = opener()
    assert journal.models("m") == [first, second]
    assert journal.models() == [first, second, other]


def test_journal_registers_nothing_when_the_record_cannot_be_made(opener: Opener) -> None:
    journal = opener()

    def broken(version: int) -> tuple[str, bytes]:
        raise ValueError("no document")

    with pytest.raises(ValueError, match="no document"):
        journal.add_model("m", "r", broken)
    assert journal.models() == []
    journal.append([entry("r", 1)])


# What only tables can suffer


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
