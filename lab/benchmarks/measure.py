"""Made-up rows, a coordinator to measure, timing and tables."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from console.client import CoordinatorClient
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from lab.processes import Process, ProcessFleet, api_of

INPUTS = 15
T = TypeVar("T")


def made_up(rows: int, seed: int = 1) -> Dataset:
    """Return rows like a vehicle's: 15 inputs in [0, 1], a target that depends on three of them."""
    rng = np.random.default_rng(seed)
    X = rng.beta(2.0, 2.0, (rows, INPUTS))
    y = np.clip(np.where(X[:, 0] > 0.5, X[:, 1], X[:, 2] ** 2) + rng.normal(0.0, 0.05, rows), 0.0, 1.0)
    return Dataset(tuple(f"x{index}" for index in range(INPUTS)), "y", X, y)


def unit_domain() -> Domain:
    """Return limits 0 and 1 for :func:`made_up`."""
    features = tuple(Variable(name=f"x{index}", low=0.0, high=1.0) for index in range(INPUTS))
    return Domain(features=features, target=Variable(name="y", low=0.0, high=1.0))


def timed(work: Callable[[], T], repeats: int = 5, clock: Callable[[], float] = time.perf_counter) -> tuple[float, T]:
    """Return the best of `repeats` times in seconds by a clock (other work only adds to them), and the last result."""
    seconds = []
    for _ in range(repeats):
        started = clock()
        result = work()
        seconds.append(clock() - started)
    return min(seconds), result


def wait(condition: Callable[[], T], pause: float = 0.5, patience: float = 1800.0) -> T:
    """Return what `condition` gives once that is true; ends the program after `patience` seconds."""
    end = time.monotonic() + patience
    while not (result := condition()):
        if time.monotonic() > end:
            raise SystemExit(f"nothing more happens after {patience:.0f} s")
        time.sleep(pause)
    return result


@contextmanager
def coordinator_process(broker: str, folder: Path, **settings: str) -> Iterator[tuple[CoordinatorClient, Process]]:
    """Start a coordinator process whose state is in `folder`; give its API and the process."""
    environment = {"GLASSFLEET_BROKER": broker, "GLASSFLEET_LOG_LEVEL": "error", "OPENBLAS_NUM_THREADS": "1"}
    with ProcessFleet(folder) as processes:
        arguments = ["coordinator", "--state-dir", str(folder), "--api-port", "0"]
        process = processes.add("coordinator", arguments, environment | settings)
        process.start()
        yield api_of(process, folder), process


def ended(api: CoordinatorClient, run: str, pause: float = 0.5) -> dict[str, Any]:
    """Return a run once it has finished; only then all of it, as each look at a long run costs the coordinator time."""
    wait(lambda: run in [each["run"] for each in api.get("/api/runs") if each["state"] == "ended"], pause)
    record = api.run(run)
    if record["outcome"] != "finished":
        raise SystemExit(f"{record['outcome']}: {record['reason']}")
    return record


def print_table(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print rows, each by the names of its columns, as a Markdown table."""
    header = list(rows[0])
    print(f"\n### {title}\n")
    print("| " + " | ".join(header) + " |")
    print("|---|" + "---:|" * (len(header) - 1))
    for row in rows:
        print("| " + " | ".join(str(row[name]) for name in header) + " |")


def resident(pid: int) -> tuple[float, float, float]:
    """Resident and peak memory of a process, and what is no page of a file, in MB (10^6 bytes)."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return tuple(int(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmRSS", "VmHWM", "RssAnon"))  # type: ignore[return-value]


def cpu_seconds(pid: int) -> float:
    """User and system time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100.0


def ms(seconds: float) -> str:
    """Write seconds as milliseconds."""
    return f"{seconds * 1000:.1f}" if seconds < 0.1 else f"{seconds * 1000:.0f}"


def machine() -> str:
    """Say what was measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return (
        f"{os.cpu_count()} x {model}, {platform.system()}, Python {platform.python_version()}, numpy {np.__version__}, "
        f"{os.environ.get('OPENBLAS_NUM_THREADS', 'default number of')} BLAS thread(s) per process"
    )


def data_folder() -> Path:
    """Return where the datasets are."""
    folder = os.environ.get("GLASSFLEET_DATA")
    if folder is None:
        fetch = "glassfleet lab datasets fetch california weather_izmir --data-dir data"
        raise SystemExit(f"set GLASSFLEET_DATA to a folder with datasets, for example after: {fetch}")
    return Path(folder)
