"""Signed answers through one process, and through intake workers: what each costs its processes, side by side.

The processes share the machine with vehicles and broker, so rounds tell little of what a larger one would carry. The
processor time does: there each process has a core of its own, and the busiest is the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from lab.benchmarks.measure import ms, print_table, wait
from lab.benchmarks.scale import equality, settled, staged, up
from lab.benchmarks.vehicle import cpu_seconds
from lab.benchmarks.wire import ended

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
        record = ended(api, api.post("/api/runs", {**SPEC, "policy": policy})["run"])
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
