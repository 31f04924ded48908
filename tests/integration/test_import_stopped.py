"""An import that is stopped, or finds no room, leaves the folder as it was; a collector leaves what it has."""

from __future__ import annotations

import json
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from edge_agent.sources.window import WindowStore
from tests.support.processes import Processes, eventually, small_disk

DATA = [sys.executable, "-m", "console.main", "data"]
ROWS = 40_000


def rows() -> list[tuple[float, float, float]]:
    draw = random.Random(1)
    return [(number / 10, draw.random(), draw.random()) for number in range(ROWS)]


def text(encoding: str, times: int = 1) -> bytes:
    lines = "".join(f"{time},{speed},{fuel}\n" for time, speed, fuel in rows())
    return ("time,speed,fuel\n" + lines * times).encode(encoding)


def json_lines(path: Path) -> None:
    names = ("time", "speed", "fuel")
    path.write_text("".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows()))


def table(path: Path) -> None:
    columns = dict(zip(("time", "speed", "fuel"), zip(*rows(), strict=True), strict=True))
    parquet.write_table(pa.table({name: list(column) for name, column in columns.items()}), path)


KINDS: dict[str, Callable[[Path], object]] = {
    "plain.csv": lambda path: path.write_bytes(text("utf-8")),
    "excel.csv": lambda path: path.write_bytes(text("utf-16")),
    "drive.jsonl": json_lines,
    "drive.parquet": table,
}


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of half a megabyte, or where none may be mounted a folder in which no file may be larger."""
    folder = tmp_path / "small"
    folder.mkdir()
    with small_disk(folder, "512k") as is_one:
        if is_one:
            yield folder
            return
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # which the command inherits, as it does the limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, limits[1]))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("kind", KINDS)
def test_import_on_a_full_disk_says_so_and_leaves_the_former_table(kind: str, small: Path, tmp_path: Path) -> None:
    KINDS[kind](tmp_path / kind)
    out = small / "table.parquet"
    out.write_bytes(b"the former one")
    done = subprocess.run(
        [*DATA, "import", tmp_path / kind, "--out", out, "--quiet"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 5, done.stderr
    assert "Free some space" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in small.iterdir()] == ["table.parquet"]
    assert out.read_bytes() == b"the former one"


def test_collector_on_a_full_disk_says_so_and_keeps_what_it_has(small: Path, tmp_path: Path) -> None:
    store, samples = small / "drive.window", tmp_path / "samples.jsonl"
    samples.write_text("".join(f'{{"n": {number}, "note": "{"x" * 200}", "y": 1}}\n' for number in range(5000)))
    collect = [*DATA, "collect", "--source", str(samples), "--store", str(store)]
    done = subprocess.run(collect, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (5, 1), done.stderr
    assert "Check the folder, its rights and the free space" in done.stderr
    with closing(WindowStore.open(store)) as window:
        kept = [row[0] for row in window.read()[1]]
    assert kept
    assert kept == list(range(len(kept)))


def test_import_that_is_interrupted_leaves_the_former_table(tmp_path: Path, processes: Processes) -> None:
    folder = tmp_path / "drive"
    folder.mkdir()
    (folder / "plain.csv").write_bytes(text("utf-8", times=25))
    out = folder / "table.parquet"
    out.write_bytes(b"the former one")
    process = processes.start("data", "import", str(folder / "plain.csv"), "--out", str(out), "--quiet")
    eventually(lambda: list(folder.glob(".glassfleet-import-*/0/part.parquet")))
    process.signal(signal.SIGINT)
    assert process.reap(120) == 130, process.logged()
    assert "Traceback" not in process.logged()
    assert sorted(path.name for path in folder.iterdir()) == ["plain.csv", "table.parquet"]
    assert out.read_bytes() == b"the former one"
