"""Rows from where they live: a killed collector, an MQTT broker, a PostgreSQL server; all real."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.servers.mosquitto import MosquittoProcess
from edge_agent.sources import read_source
from edge_agent.sources.window import WindowStore
from schemas.errors import DataError
from tests.support.postgres import PASSWORD, USER, PostgresServer

COLLECT = [sys.executable, "-m", "console.main", "data", "collect"]


def wait_for(rows: int, path: Path, seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not path.is_file() or WindowStore.open(path).span()[0] < rows:
        assert time.monotonic() < end, "the collector did not keep the rows"
        time.sleep(0.05)


def line(number: int) -> bytes:
    return json.dumps({"speed": number * 0.5, "load": number % 4, "quality": number / 100}).encode() + b"\n"


def test_collector_loses_nothing_it_was_given_before_it_was_killed(tmp_path: Path) -> None:
    store = tmp_path / "drive.window"
    command = [*COLLECT, "--source", "-", "--store", str(store), "--max-rows", "500"]
    for turn in range(3):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdin is not None
        process.stdin.write(b"".join(line(number) for number in range(turn * 100, turn * 100 + 100)))
        process.stdin.flush()
        wait_for(turn * 100 + 100, store)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdin.close()
    assert [row[0] for row in WindowStore.open(store).read()[1]] == [number * 0.5 for number in range(300)]


def test_collector_ends_cleanly_and_tells_its_counts_when_terminated(tmp_path: Path) -> None:
    store = tmp_path / "drive.window"
    process = subprocess.Popen(
        [*COLLECT, "--source", "-", "--store", str(store), "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(line(1) + b"nonsense\n" + line(2))
    process.stdin.flush()
    wait_for(2, store)
    process.terminate()
    out = process.communicate()[0]
    assert process.returncode == 0
    assert json.loads(out) == {"taken": 2, "refused": 1, "lost": 0, "rows": 2, "store": str(store)}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MosquittoProcess]:
    running = MosquittoProcess(tmp_path / "broker")
    running.start()
    yield running
    running.stop()


@pytest.mark.postgresql
def test_query_reads_postgresql_with_the_password_from_the_environment_and_cannot_write(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = postgres.database()
    with postgres.connect(database) as connection:
        connection.execute("CREATE TABLE drive (speed real, load integer, price numeric, quality double precision)")
        connection.execute(
            "INSERT INTO drive SELECT n * 0.5, n % 4, n / 7.0, n / 100.0 FROM generate_series(1, 5000) AS n"
        )
        connection.execute("CREATE SEQUENCE trips")
        connection.execute("CREATE TABLE gaps AS SELECT 1 AS a, NULL::real AS y UNION ALL SELECT 2, 3")
    place = f"postgresql://{USER}@127.0.0.1:{postgres.port}/{database}"
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(DataError, match=r"Put the password into ~/.pgpass or PGPASSWORD"):
        read_source(f"{place}?table=drive")
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    source = read_source(f"{place}?query=SELECT *, speed::int %25 2 AS even, quality AS y FROM drive WHERE load < 2")
    assert source.train.features == ("speed", "load", "price", "quality", "even")
    assert source.train.rows == 2500
    assert read_source(f"{place}?table=public.drive").train.rows == 5000
    with pytest.raises(DataError, match="Only reading is allowed here"):
        read_source(f"{place}?query=DELETE FROM drive RETURNING speed, quality")
    with pytest.raises(DataError, match=r"cannot execute nextval\(\) in a read-only transaction.*write a SELECT"):
        read_source(f"{place}?query=SELECT nextval('trips') AS a, quality FROM drive")
    with pytest.raises(DataError, match=r"row 1 .* column 'y': the cell is empty"):
        read_source(f"{place}?query=SELECT a, y FROM gaps ORDER BY a")
    with pytest.raises(DataError, match='relation "nosuch" does not exist'):
        read_source(f"{place}?table=nosuch")
    assert read_source(f"{place}?table=drive").train.rows == 5000
