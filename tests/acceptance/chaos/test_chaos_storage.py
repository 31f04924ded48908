"""Full disks, through the real processes."""

from __future__ import annotations

import contextlib
import resource
import sqlite3
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lab.fleet import Fleet
from tests.support.agent_bench import write_rows
from tests.support.cloud import SOURCES, Start, begin_run, central_digest, ended, record_of, spec
from tests.support.processes import small_disk

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]


class SmallDisk:
    """A folder on a disk of 4 MiB that can be filled and freed (needs root)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, pid: int) -> None:
        del pid
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as filler:
            for size in (65536, 512):
                with contextlib.suppress(OSError):
                    while True:
                        filler.write(b"x" * size)

    def free(self) -> None:
        self._filler.unlink()


class SmallLimit:
    """A folder whose process may not make any file larger: the system's own way to say that there is no room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, pid: int) -> None:
        # What exists may be written again (a write-ahead log that has been emptied, say), so nothing at all may grow.
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    def free(self) -> None:
        pass  # the limit was that process's own


@pytest.fixture(params=["disk", pytest.param("limit", marks=pytest.mark.slow)])
def small(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SmallDisk | SmallLimit]:
    """A place that runs full: a small disk where one may be mounted, and a limit on files everywhere."""
    folder = tmp_path / "small"
    folder.mkdir()
    if request.param == "disk":
        with small_disk(folder, "4m") as is_one:
            yield SmallDisk(folder) if is_one else SmallLimit(folder)
    else:
        yield SmallLimit(folder)


def answers_in(journal: Path) -> Counter[tuple[str, bytes]]:
    with contextlib.closing(sqlite3.connect(journal)) as database:
        return Counter(database.execute("SELECT run, body FROM records WHERE kind = 'answer'").fetchall())


def test_coordinator_stops_with_a_clear_error_when_the_disk_is_full_and_finishes_the_run_when_there_is_room(
    small: SmallDisk | SmallLimit, start: Start, broker: str, tmp_path: Path
) -> None:
    coordinator = start(small.folder)
    with Fleet(SOURCES, broker=broker, state_dir=tmp_path / "agents", slow=0.3, resend_first=0.5):
        with coordinator.api() as api:
            begin_run(api, spec("r1"), 1)
        small.fill(coordinator.pid)
        code, result = coordinator.reap(60), coordinator.logged()
        assert code == 5, result
        last = result.strip().splitlines()[-1]
        assert last.startswith("glassfleet: error: no room to write the journal")
        assert "start the coordinator again" in last
        assert "Traceback" not in result
        small.free()
        again = start(small.folder)
        with again.api() as api:
            run = ended(api, "r1")
        assert (run["outcome"], run["cohort"], run["restarts"]) == ("finished", ["va", "vb", "vc"], 0)
        assert again.end() == 0
    record = record_of(small.folder, "r1")
    assert record.digest == central_digest(record)
    assert set(answers_in(small.folder / "journal.sqlite").values()) == {1}


@pytest.mark.slow
def test_agent_stops_with_a_clear_error_when_its_disk_is_full_and_is_counted_when_there_is_room(
    small: SmallDisk | SmallLimit, start: Start, broker: str, tmp_path: Path
) -> None:
    rows = write_rows(tmp_path / "vc.csv", SOURCES["vc"].train)
    options = ("--id", "vc", "--data", str(rows), "--slow", "0.3")
    agent = partial(start, small.folder, *options, command="agent", environment={"GLASSFLEET_AGENT_EVALUATE": "false"})
    coordinator = start(tmp_path / "coordinator")
    two = {name: SOURCES[name] for name in ("va", "vb")}
    process = agent()
    with Fleet(two, broker=broker, state_dir=tmp_path / "agents", slow=0.1), coordinator.api() as api:
        begin_run(api, spec("r1"), 1)
        small.fill(process.pid)
        code, result = process.reap(60), process.logged()
        assert code == 5, result
        assert result.strip().splitlines()[-1].startswith("glassfleet: error: cannot write ")
        assert "Traceback" not in result
        small.free()
        again = agent()
        run = ended(api, "r1")
    again.end()
    assert (run["outcome"], run["cohort"], run["restarts"]) == ("finished", ["va", "vb", "vc"], 0)
    coordinator.end()
    record = record_of(tmp_path / "coordinator", "r1")
    assert record.digest == central_digest(record)
