"""What only a journal on a server can suffer: lost connections, a restarted server, wrong rights, a full disk."""

from __future__ import annotations

import threading

import pytest
from psycopg import sql

from coordinator.journal.sql import SqlJournal
from schemas.errors import StorageError
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.scratch_journal import entry


@pytest.fixture
def database(postgres: PostgresServer) -> str:
    return postgres.database()


@pytest.fixture
def url(postgres: PostgresServer, database: str) -> str:
    return postgres.url(database)


def times(journal: SqlJournal) -> list[float]:
    return [record.at for record in journal.records("r")]


def test_journal_keeps_all_that_was_appended_when_the_server_is_killed(mortal: PostgresServer) -> None:
    url = mortal.url(mortal.database())
    journal = SqlJournal(url)
    journal.append([entry("r", 1), entry("r", 2)])
    mortal.kill()
    with pytest.raises(StorageError, match=r"connection .* was lost .* start the coordinator again") as raised:
        journal.append([entry("r", 3)])
    assert PASSWORD not in str(raised.value)
    mortal.start()
    # Without the lock nothing is written, though the server is back: another coordinator may have it.
    with pytest.raises(StorageError, match="with it the lock"):
        journal.append([entry("r", 3)])
    with pytest.raises(StorageError, match="with it the lock"):
        journal.close_run("r", {}, 3.0)
    journal.close()
    journal = SqlJournal(url)
    assert times(journal) == [1.0, 2.0]
    journal.append([entry("r", 3)])
    assert times(journal) == [1.0, 2.0, 3.0]
    journal.close()


def test_journal_names_the_server_when_it_is_down(mortal: PostgresServer) -> None:
    url = mortal.url(mortal.database())
    mortal.stop()
    with pytest.raises(StorageError, match=r"cannot be reached .*refused.*: start it, or correct --journal") as raised:
        SqlJournal(url)
    assert PASSWORD not in str(raised.value)


def test_journal_writes_nothing_when_the_server_ended_its_connection_and_another_coordinator_took_over(
    postgres: PostgresServer, database: str, url: str
) -> None:
    first = SqlJournal(url)
    first.append([entry("r", 1)])
    postgres.end_holder(database)
    second = SqlJournal(url)
    second.append([entry("r", 2)])
    for _ in range(2):
        with pytest.raises(StorageError, match="with it the lock"):
            first.append([entry("r", 3)])
    assert times(second) == [1.0, 2.0]
    first.close()
    second.append([entry("r", 4)])
    second.close()


def test_journal_waits_for_a_coordinator_that_is_just_ending(url: str) -> None:
    first = SqlJournal(url)
    ending = threading.Timer(0.5, first.close)
    ending.start()
    second = SqlJournal(url, busy_timeout=30.0)
    ending.join()
    second.append([entry("r", 1)])
    second.close()


def test_journals_of_two_databases_do_not_lock_each_other_out(postgres: PostgresServer) -> None:
    first, second = (SqlJournal(postgres.url(postgres.database()), busy_timeout=0.2) for _ in range(2))
    first.append([entry("r", 1)])
    assert (times(first), times(second)) == ([1.0], [])
    first.close()
    second.close()


def test_journal_applies_nothing_when_the_disk_of_the_server_is_full(
    postgres: PostgresServer, database: str, url: str
) -> None:
    journal = SqlJournal(url)
    journal.append([entry("r", 1)])
    with postgres.connect(database) as connection:
        # What the server says when a table cannot grow, said by the server.
        connection.execute(
            "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.at = 3 THEN "
            "RAISE EXCEPTION USING ERRCODE = 'disk_full', "
            "MESSAGE = 'could not extend file \"base/5/16391\": No space left on device'; END IF; RETURN NEW; END $$"
        )
        connection.execute("CREATE TRIGGER full_disk BEFORE INSERT ON records FOR EACH ROW EXECUTE FUNCTION no_room()")
    with pytest.raises(StorageError, match="no room to write the journal"):
        journal.append([entry("r", 2), entry("r", 3)])
    assert times(journal) == [1.0]
    with postgres.connect(database) as connection:
        connection.execute("DROP TRIGGER full_disk ON records")
    journal.append([entry("r", 2), entry("r", 3)])
    assert times(journal) == [1.0, 2.0, 3.0]
    journal.close()


def test_journal_goes_on_when_a_connection_that_only_reads_was_ended(
    postgres: PostgresServer, database: str, url: str
) -> None:
    journal = SqlJournal(url)
    journal.append([entry("r", 1)])
    assert journal.models() == []
    with postgres.connect(database) as connection:
        ended = connection.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
        ).fetchone()
    assert ended == (1,)
    assert times(journal) == [1.0]
    journal.append([entry("r", 2)])
    journal.close()


@pytest.mark.parametrize(
    ("user", "password", "database", "result"),
    [
        ("glassfleet", "wrong", "postgres", "refuses this user .* right user and password"),
        ("nobody-here", PASSWORD, "postgres", "refuses this user"),
        ("glassfleet", PASSWORD, "no-such-database", "there is no database .*createdb"),
    ],
)
def test_journal_says_what_to_change_when_it_may_not_connect(
    postgres: PostgresServer, user: str, password: str, database: str, result: str
) -> None:
    with pytest.raises(StorageError, match=result) as fault:
        SqlJournal(postgres.url(database, user=user, password=password))
    assert password not in str(fault.value)


def test_journal_asks_for_commits_that_are_on_the_disk_and_names_itself(
    postgres: PostgresServer, database: str, url: str
) -> None:
    with postgres.connect("postgres") as connection:
        connection.execute(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(sql.Identifier(database)))
    journal = SqlJournal(url)
    with journal._write() as connection:
        assert connection.exec_driver_sql("SHOW synchronous_commit").scalar() == "on"
        assert connection.exec_driver_sql("SHOW tcp_user_timeout").scalar() == "30000", "milliseconds"
        assert connection.exec_driver_sql("SHOW application_name").scalar() == "glassfleet-coordinator"
    journal.close()
