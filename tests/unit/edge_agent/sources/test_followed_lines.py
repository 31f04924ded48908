"""Lines of files, growing ones and others: places, what becomes of the descriptor, and of a source that fails."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from console.main import run
from edge_agent.forecast.source import Samples
from edge_agent.sources.lines import Lines
from edge_agent.sources.window import WindowStore
from schemas.errors import DataError

ROWS = b'{"n": 1}\n{"n": 2}\n'


def followed(path: Path, behind: str = "") -> tuple[Iterator[tuple[bytes | None, str]], threading.Event]:
    stopping = threading.Event()
    return iter(Lines(str(path), 1 << 16, stopping, follow=True, behind=behind, look=0.01)), stopping


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "samples.jsonl"
    path.write_bytes(ROWS)
    return path


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize(("at", "first"), [(9, b'{"n": 2}'), (0, b'{"n": 1}'), (5, b'{"n": 1}'), (99, b'{"n": 1}')])
def test_follower_takes_places_of_older_windows_when_a_line_ends_there(file: Path, at: int, first: bytes) -> None:
    known = file.stat()
    lines, _ = followed(file, behind=f"{known.st_dev}:{known.st_ino}:{at}")
    assert next(lines)[0] == first


def test_collector_opens_a_window_of_an_older_version_and_goes_on_behind_its_place(file: Path, tmp_path: Path) -> None:
    store = WindowStore(tmp_path / "drive.window")
    known = file.stat()
    store.append([{"n": 1, "y": 0}], **{f"place:{file}": f"{known.st_dev}:{known.st_ino}:9"})
    store.close()
    file.write_bytes(b'{"n": 1}\n{"n": 2, "y": 0}\n')
    done = collect(file, tmp_path, "--follow", "--count", "1")
    assert done.returncode == 0, done.stderr
    assert WindowStore.open(tmp_path / "drive.window").read()[1] == [[1, 0], [2, 0]]


@pytest.mark.parametrize("follow", [False, True])
def test_lines_leave_no_descriptor_open_when_they_were_gone_through(file: Path, follow: bool) -> None:
    gc.collect()  # what other tests left open
    before = descriptors()
    for _ in range(5):
        stopping = threading.Event()
        for number, _ in enumerate(Lines(str(file), 1 << 16, stopping, follow=follow, look=0.01), 1):
            if number == 2 and follow:
                stopping.set()
    assert descriptors() == before


@pytest.fixture
def _undone() -> Iterator[None]:
    """Take back what a command sets up in its process."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    structlog.reset_defaults()
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_undone")
def test_commands_close_each_window_that_they_open(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[WindowStore] = []
    closed: list[WindowStore] = []
    begin, close = WindowStore.__init__, WindowStore.close

    def noted_begin(self: WindowStore, *given: Any, **named: Any) -> None:
        opened.append(self)
        begin(self, *given, **named)

    def noted_close(self: WindowStore) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(WindowStore, "__init__", noted_begin)
    monkeypatch.setattr(WindowStore, "close", noted_close)
    store = str(tmp_path / "drive.window")
    file.write_bytes(b'{"n": 1, "y": 1}\n' * 2)
    for count in (1, 1):
        assert run(
            ["data", "collect", "--source", str(file), "--follow", "--store", store, "--count", str(count)]
        ) == 0  # fmt: skip
    assert len(opened) == 3, "the place was read first"
    assert closed == opened
    assert run(["data", "describe", store]) == 0
    assert "2 rows" in capsys.readouterr().out
    assert opened[-1] in closed


def test_samples_raise_why_after_what_came_when_reading_fails(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.read, []

    def read(handle: int, size: int) -> bytes:
        calls.append(handle)
        if len(calls) > 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(handle, size)

    # The one thing here that is made up: no disk can be told to fail.
    monkeypatch.setattr("edge_agent.sources.lines.os.read", read)
    samples = iter(Samples(str(file)))
    assert [next(samples), next(samples)] == [{"n": 1}, {"n": 2}]
    with pytest.raises(DataError, match=r"samples\.jsonl: reading failed \(Input/output error\)"):
        next(samples)


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


def test_forecaster_ends_with_the_datas_code_when_its_source_fails(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "console.main", "forecast", "run", "--id", "v1", "--state-dir", str(tmp_path),
            "--source", "/proc/self/mem",
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert "glassfleet: error: --source /proc/self/mem: reading failed (Input/output error)" in done.stderr
    assert "forecaster-ends" in done.stderr
    assert "Traceback" not in done.stderr
