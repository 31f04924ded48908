"""Storms: a large fleet that comes up at once, whose broker is started again, whose coordinator is killed.

All of it in one elastic run over a real broker, with the vehicles of `raw_vehicles`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Self

import httpx

from console.client import CoordinatorClient, CoordinatorError
from lab.benchmarks.measure import ms, print_table, wait
from lab.benchmarks.scale import ELASTIC, FLEETS, equality, settled, staged, up
from lab.benchmarks.vehicle import cpu_seconds, memory
from lab.benchmarks.wire import ended

ROUNDS = 6
"""Of learning, after those that find the limits."""


def storm(fleets: Sequence[int] = FLEETS) -> None:
    """Let fleets come up at once; then start the broker again in the midst of a run, and kill the coordinator."""
    header = ["vehicles", "what", "s until", "processor, s", "longest queue", "coordinator, MB"]
    print_table(
        "Storms (seconds of wall-clock until all vehicles are known, or the next answer is accepted)",
        header,
        [row for vehicles in fleets for row in _storm(vehicles)],
    )


@dataclass
class _Looks:
    """What is seen from outside while something happens; `with` looks all the time."""

    api: CoordinatorClient
    queue: int = 0
    _end: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        with httpx.Client(timeout=60.0, trust_env=False) as http:
            while not self._end.wait(0.1):
                with suppress(httpx.TransportError):  # there is none just now
                    metrics = http.get(f"{self.api.url}/api/metrics").json()
                    self.queue = max(self.queue, metrics["queue.messages"])


def _storm(vehicles: int) -> list[list[Any]]:
    with staged(vehicles) as (api, process, broker, tell, _):
        tell("connect", silent=True)

        def seen(what: str, trouble: Callable[[], float]) -> list[Any]:
            """Return a line of the table; `trouble` returns the processor time that was used before, s."""
            begun = time.perf_counter()
            with _Looks(api) as looks:
                before = trouble()
                seconds, resident = time.perf_counter() - begun, memory(process.pid)[1]
            used = cpu_seconds(process.pid) - before
            figures = [f"{seconds:.2f}", f"{used:.1f}", f"{looks.queue:,}", f"{resident:.0f}"]
            return [f"{vehicles:,}", what, *figures]

        def births() -> float:
            before = cpu_seconds(process.pid)
            tell("announce")
            wait(lambda: sum(each["status"] == "up" for each in api.get("/api/agents")) == vehicles, 0.1)
            return before

        def restart() -> float:
            before, connected = cpu_seconds(process.pid), _count(api, "connected")
            broker.restart()
            wait(lambda: _count(api, "connected") > connected, 0.02)
            accepted = _count(api, "receipts.accepted")
            wait(lambda: _count(api, "receipts.accepted") > accepted, 0.02)
            return before

        def kill() -> float:
            process.kill()
            process.start()
            wait(lambda: _count(api, "receipts.accepted") > 0, 0.02)
            return 0.0

        rows = [seen("births", births)]
        policy = {"gather_agents": vehicles, "min_agents": 1.0, "deadline": 600.0}
        spec = {**ELASTIC, "parameters": {**ELASTIC["parameters"], "rounds": ROUNDS}}
        name = api.post("/api/runs", {**spec, "model": "bench", "rounds": policy})["run"]
        _in_a_round(api, 4, vehicles)
        rows.append(seen("broker again", restart))
        _in_a_round(api, 6, vehicles)
        rows.append(seen("coordinator killed", kill))
        record = ended(api, name)
        result = settled(tell)
        # Elastic rounds do not wait for who is down: then there is no one cohort whose model it could be.
        few = sum(each["accepted"] < vehicles for each in record["rounds"])
        equal = f"a round was of fewer ({few})" if few else equality(record)
    print(f"{vehicles:,} vehicles: {result['waiting']} lost, {result.get('doubled', 0)} doubled, equal: {equal}")
    return rows


def _in_a_round(api: CoordinatorClient, closed: int, vehicles: int) -> None:
    """Wait until so many rounds are closed, and a third of the vehicles is accepted in the next one."""
    wait(lambda: _count(api, "rounds.closed") >= closed, 0.05)
    accepted = _count(api, "receipts.accepted")
    wait(lambda: _count(api, "receipts.accepted") >= accepted + vehicles // 3, 0.05)


def _count(api: CoordinatorClient, name: str) -> int:
    """Return one of the counters of a coordinator's life; 0 while there is none."""
    api.look_again()
    try:
        return int(api.get("/api/metrics").get(name, 0))
    except CoordinatorError:
        return 0


# --- signed answers through one process, and through intake workers: what each costs its processes, side by side ------
#
# The processes share the machine with vehicles and broker, so rounds tell little of what a larger one would carry. The
# processor time does: there each process has a core of its own, and the busiest is the bound.


WORKERS = (1, 2)
SPEC: dict[str, Any] = {"scheme": "frt", "model": "bench"}


def intake(fleets: Sequence[int] = (500,)) -> None:
    """Let each fleet learn with one process, and with two workers."""
    print_table(
        "Signed answers through one process and through two intake workers (processor time; rounds in wall-clock ms)",
        [
            *("vehicles", "workers", "answers", "round p50", "broker, ms an answer", "coordinator, ms an answer"),
            *("busiest worker, ms an answer", "answers a second that the busiest process can take"),
            *("lost", "doubled", "equal"),
        ],
        [_measure(vehicles, workers) for vehicles in fleets for workers in WORKERS],
    )


def _measure(vehicles: int, workers: int) -> list[Any]:
    with staged(vehicles, signed=True, workers=workers) as (api, process, broker, tell, _):
        tell("connect")
        wait(lambda: up(api) == vehicles)
        pids = [broker.pid, process.pid, *_children(process.pid)]
        before = [cpu_seconds(pid) for pid in pids]
        policy = {"gather_agents": vehicles, "min_agents": 0.5, "deadline": 600.0, "gather_timeout": 600.0}
        record = ended(api, api.post("/api/runs", {**SPEC, "rounds": policy})["run"])
        spent = [cpu_seconds(pid) - begun for pid, begun in zip(pids, before, strict=True)]
        result = settled(tell)
    accepted = sum(each["accepted"] for each in record["rounds"])
    of_broker, own, *others = (each / accepted for each in spent)
    return [
        f"{vehicles:,}",
        len(others) or "none",
        f"{accepted:,}",
        ms(median(each["seconds"] for each in record["rounds"])),
        *(f"{1000 * each:.2f}" for each in (of_broker, own)),
        f"{1000 * max(others):.2f}" if others else "-",
        f"{1 / max(own, *others, 0.0):,.0f}",
        result["waiting"],
        result.get("doubled", 0),
        equality(record),
    ]


def _children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    found = (each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for children in found for child in children.split()]
