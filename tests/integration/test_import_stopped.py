"""An import that is stopped, or finds no room, leaves the folder as it was."""

from __future__ import annotations

import json
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

IMPORT = [sys.executable, "-m", "console.main", "data", "import"]
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
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode == 0:
        yield folder
        subprocess.run(["umount", str(folder)], check=True)
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
        [*IMPORT, tmp_path / kind, "--out", out, "--quiet"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 5, done.stderr
    assert "Free some space" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in small.iterdir()] == ["table.parquet"]
    assert out.read_bytes() == b"the former one"


def test_import_that_is_interrupted_leaves_the_former_table(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_bytes(text("utf-8", times=25))
    out = tmp_path / "table.parquet"
    out.write_bytes(b"the former one")
    process = subprocess.Popen([*IMPORT, tmp_path / "plain.csv", "--out", out, "--quiet"], stderr=subprocess.PIPE)
    while process.poll() is None and not list(tmp_path.glob(".glassfleet-import-*/0/part.parquet")):
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate()
    assert process.returncode == 130, words
    assert b"Traceback" not in words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["plain.csv", "table.parquet"]
    assert out.read_bytes() == b"the former one"
