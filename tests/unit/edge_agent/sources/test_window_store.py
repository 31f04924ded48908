"""The window over a live stream, and the lines that fill it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_agent.sources import read_source, read_table
from edge_agent.sources.window import WindowStore
from schemas.errors import DataError, StorageError
from tests.support.agent_bench import Bench, first_task, rows


def sample(number: int, **more: Any) -> dict[str, Any]:
    return {"a": number, "b": number % 3, "c": 0.5 * number, "y": number / 100, **more}


def test_window_keeps_the_newest_rows_when_more_come(tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window", max_rows=10)
    for start in range(0, 35, 5):
        assert store.append([sample(number) for number in range(start, start + 5)]) == []
    names, kept = store.read()
    assert names == ("a", "b", "c", "y")
    assert [row[0] for row in kept] == list(range(25, 35))
    assert store.span()[0] == 10
    assert WindowStore.open(tmp_path / "w.window").limits == (10, 0.0)  # a restarted collector keeps the bound


@pytest.mark.parametrize("categories", [False, True])
def test_window_with_one_signal_a_row_is_refused(tmp_path: Path, *, categories: bool) -> None:
    store = WindowStore(tmp_path / "w.window")
    store.append([{"name": name, "value": n, "timestamp": n} for n in range(30) for name in ("speed", "fuel")])
    with pytest.raises(DataError, match="each row has one signal"):
        read_source(tmp_path / "w.window", categories=categories)


def test_window_lets_rows_go_by_age_also_when_nothing_comes(tmp_path: Path) -> None:
    now = [1000.0]
    store = WindowStore(tmp_path / "w.window", max_seconds=60, clock=lambda: now[0])
    store.append([sample(1)])
    now[0] += 50
    store.append([sample(2)])
    now[0] += 11
    assert [row[0] for row in store.read()[1]] == [2]
    store.append([sample(3)])
    assert store.span()[0] == 2
    now[0] += 3600
    assert store.read()[1] == []


class Clock:
    """A machine's clock, wrong at times; some rows come every second by it."""

    def __init__(self, path: Path, max_seconds: float) -> None:
        self.now = 1.7e9
        self.store = WindowStore(path, max_seconds=max_seconds, clock=lambda: self.now)

    def rows(self, count: int) -> int:
        """Take rows; return how many there are."""
        for _ in range(count):
            self.now += 1.0
            self.store.append([{"n": 1, "y": 2}])
        return self.store.span()[0]


DAY, WEEKS = 86_400.0, 1024 * 7 * 86_400.0


@pytest.mark.parametrize("step", [WEEKS, 30 * DAY, 8 * DAY, -1.7e9, -30 * DAY])
@pytest.mark.parametrize("wrong", [1, 100])
def test_clock_that_jumps_for_a_while_costs_no_row(step: float, wrong: int, tmp_path: Path) -> None:
    clock = Clock(tmp_path / "w.window", 7 * DAY)
    clock.rows(60)
    clock.now += step
    assert clock.rows(wrong) == len(clock.store.read()[1]) == 60 + wrong
    clock.now -= step
    assert clock.rows(1) == len(clock.store.read()[1]) == 61 + wrong
    _, first, last = clock.store.span()
    assert first < last <= clock.now, "no row is of the wrong time"
    clock.now += 3000
    clock.rows(1)
    for _ in range(200):  # each hour one, for more than a week
        clock.now += 3599
        clock.rows(1)
    assert clock.store.span()[1] >= clock.now - 7 * DAY, "they go as all others"


def test_rows_of_before_a_long_stop_go_when_the_clock_has_gone_on_from_there_for_an_hour(tmp_path: Path) -> None:
    clock = Clock(tmp_path / "w.window", 7 * DAY)
    clock.rows(60)
    clock.now += 21 * DAY  # parked
    assert clock.store.read()[1] == [], "too old to learn from, but there"
    assert clock.rows(10) == 70
    clock.now += 3595
    assert clock.rows(10) == 20
    assert clock.store.span()[2] == clock.now


def test_window_does_not_grow_on_disk_when_rows_pass_through(tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window", max_rows=200)
    sizes = []
    for turn in range(12):
        for _ in range(5):
            store.append([sample(number) for number in range(200)])
        with sqlite3.connect(store.path) as look:
            look.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if turn > 3:
            sizes.append(store.path.stat().st_size)
    assert max(sizes) <= 1.2 * min(sizes)


def test_window_refuses_what_is_no_row_and_keeps_the_others(tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window")
    odd = [
        sample(1, b=[]),
        sample(1, c=float("nan")),
        sample(1, gps=[1, 2]),
        sample(2, kind=None),
        {"other": {}},
        {"a": None, "y": " "},
    ]
    assert store.append([sample(0), *odd]) == [
        "the field 'b' is neither a finite number nor a text",
        "the field 'c' is neither a finite number nor a text",
        "it has none of the fields a, b, c, y",
        "it has none of the fields a, b, c, y",
    ]
    assert store.read() == (("a", "b", "c", "y"), [[*sample(number).values()] for number in range(3)])


def test_field_that_comes_later_is_a_column_where_its_sample_has_it_and_empty_before(tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window")
    store.append([{"speed": 1, "quality": 5}, {"speed": 2, "load": 3, "quality": 6}])
    store.append([{"height": 9, "load": 4}, {"speed": 7, "quality": 8, "late": 1}])
    names, kept = store.read()
    assert names == ("speed", "height", "load", "quality", "late")
    assert kept == [[1, None, None, 5, None], [2, None, 3, 6, None], [None, 9, 4, None, None], [7, None, None, 8, 1]]
    assert WindowStore.open(store.path).read() == store.read()


@pytest.mark.parametrize("first", ["n/a", 0.5])
def test_odd_sample_decides_for_no_other_whenever_it_comes(first: float | str, tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window")
    cells = ["n/a", *range(40)] if isinstance(first, str) else [*range(40), "n/a"]
    assert store.append([{"load": cell, "y": number} for number, cell in enumerate(cells)]) == []
    assert len(store.read()[1]) == 40
    assert store.left_out == {"a text in 'load', unlike most rows": 1}
    assert read_source(store.path).train.rows == 40


def test_agent_leaves_out_rows_of_a_window_that_lack_the_target_or_an_input(tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window")
    store.append([{"a": 1, "y": 1}, *({"a": 2, "b": number, "y": number} for number in range(5)), {"a": 3, "b": 1}])
    assert read_source(store.path).train.rows == 5
    assert read_source(store.path, missing=True).train.rows == 6
    assert [row[1] for row in store.read()[1]] == [None, 0, 1, 2, 3, 4, 1]


@pytest.mark.parametrize("categories", [False, True])
def test_field_that_one_sample_has_costs_the_others_nothing(categories: bool, tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window")
    store.append([{"boot": 1, "a": 0, "y": 0}, *({"a": number, "y": number} for number in range(1, 10))])
    train = read_source(store.path, categories=categories).train
    assert (train.features, train.rows) == (("at", "a"), 10)
    assert read_source(store.path, categories=categories, missing=True).train.features == ("at", "boot", "a")


def test_window_takes_truth_values_as_parquet_does(tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window")
    assert store.append([sample(0, b=True), sample(1, b=False)]) == []
    for categories in (False, True):
        source = read_source(store.path, categories=categories)
        assert (source.train.X[:, source.train.features.index("b")].tolist(), source.train.categories) == (
            [1.0, 0.0],
            {},
        )


def test_window_keeps_texts_and_stated_columns_alone(tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window", columns=("speed", "fuel", "y"))
    good = [{"y": 1, "speed": 2.5, "fuel": "petrol", "id": 7}, {"y": 2, "speed": 3, "fuel": "diesel"}]
    assert store.append(good) == []
    table = read_table(store.path)
    assert (table.names, table.text) == (("at", "speed", "fuel", "y"), ("fuel",))
    source = read_source(store.path, categories=True)
    assert source.train.categories == {"fuel": ("diesel", "petrol")}


def test_window_is_refused_when_file_or_columns_are_others(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no such window\. Fill one with: glassfleet data collect"):
        read_source(tmp_path / "none.window")
    (tmp_path / "text.window").write_text("no database\n" * 100)
    with pytest.raises(DataError, match="not a window store"):
        WindowStore.open(tmp_path / "text.window")
    with pytest.raises(StorageError, match="Check the folder"):
        WindowStore(tmp_path / "nofolder" / "w.window")
    WindowStore(tmp_path / "w.window").append([sample(0)])
    with pytest.raises(DataError, match=r"holds the columns a, b, c, y, not b, a"):
        WindowStore(tmp_path / "w.window", columns=("b", "a"))
    WindowStore(tmp_path / "empty.window")
    with pytest.raises(DataError, match="the window is empty"):
        read_source(tmp_path / "empty.window")


def test_window_file_is_for_its_user_alone(tmp_path: Path) -> None:
    WindowStore(tmp_path / "w.window").append([sample(0)])
    assert (tmp_path / "w.window").stat().st_mode & 0o077 == 0


def test_agent_freezes_what_is_in_the_window_when_a_run_asks(bench: Bench, tmp_path: Path) -> None:
    data = rows(count=90)
    store = WindowStore(tmp_path / "w.window", max_rows=60)

    def collect(start: int, end: int) -> None:
        lines = zip(data.X[start:end].tolist(), data.y[start:end].tolist(), strict=True)
        assert store.append([{**dict(zip("abc", x, strict=True)), "y": y} for x, y in lines]) == []

    collect(0, 20)
    coordinator = bench.coordinator
    agent = bench.agent(data=read_source(store.path))
    bench.run(1)
    collect(20, 70)  # the window is full, and moves
    first = first_task(data)
    coordinator.ask(first)
    bench.run(1)
    collect(70, 90)
    coordinator.acknowledge("v1", first.digest)
    second = first_task(data, max_depth=2)
    coordinator.ask(second, number=2)
    bench.run(1)
    coordinator.acknowledge("v1", second.digest)
    coordinator.ask(first, run="r2")
    bench.run(1)
    answers = [(answer.rows, answer.data_digest) for answer in coordinator.answers]
    assert [count for count, _ in answers] == [60, 60, 60]
    assert answers[0][1] == answers[1][1]  # one run, one set of rows, though the window moved
    assert answers[2][1] != answers[0][1]
    agent.stop()


def test_agent_refuses_a_run_and_lives_on_when_its_window_has_run_empty(bench: Bench, tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window")
    data = rows(count=30)
    lines = zip(data.X.tolist(), data.y.tolist(), strict=True)
    store.append([{**dict(zip("abc", x, strict=True)), "y": y} for x, y in lines])
    agent = bench.agent(data=read_source(store.path))
    with sqlite3.connect(store.path) as other:
        other.execute("DELETE FROM rows")
    bench.coordinator.ask(first_task(data))
    bench.run(2)
    (refusal,) = bench.coordinator.refusals
    assert "Collect data first" in refusal.reason
    assert bench.coordinator.answers == []
    agent.stop()


def collect(source: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "console.main", "data", "collect", "--source", str(source)]
    return subprocess.run(
        [*command, "--store", str(folder / "drive.window"), "--json", *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_collector_ends_with_the_datas_code_and_keeps_what_came_when_its_source_fails(tmp_path: Path) -> None:
    # A process's own memory is a file whose first bytes cannot be read: EIO, from the system itself.
    source = Path("/proc/self/mem")
    done = collect(source, tmp_path)
    assert done.returncode == 3, done.stderr
    assert "--source /proc/self/mem: reading failed (Input/output error)" in done.stderr
    assert "Traceback" not in done.stderr
    assert json.loads(done.stdout)["taken"] == 0


def test_collector_says_that_nothing_came_when_its_source_has_no_sample(tmp_path: Path) -> None:
    source = tmp_path / "lists.json"
    source.write_text("[1]\n[2]\n[3]\n[4]\n")
    done = collect(source, tmp_path)
    assert (done.returncode, json.loads(done.stdout)["rows"]) == (3, 0), done.stderr
    assert f"--source {source}: it had no sample to take (4 refused)." in done.stderr


def test_full_disk_takes_nothing_of_a_batch_and_the_window_goes_on_when_there_is_room(tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "w.window")
    store.append([sample(1)])
    (pages,) = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StorageError, match=r"full\. Check the folder, its rights and the free space"):
        store.append([sample(number, late="x" * 500) for number in range(50)], place="50")
    assert (store.noted("place"), store.columns) == ("", ("a", "b", "c", "y"))
    assert [row[0] for row in WindowStore.open(store.path).read()[1]] == [1]
    store._db.execute(f"PRAGMA max_page_count={100 * pages}")
    store.append([sample(2, late="x")])
    assert WindowStore.open(store.path).read() == (
        ("a", "b", "c", "y", "late"), [[*sample(1).values(), None], [*sample(2).values(), "x"]]
    )  # fmt: skip
