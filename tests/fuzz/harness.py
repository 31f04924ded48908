"""Feeds targets with seeded inputs and collects what they did: outcomes, findings, memory, time."""

from __future__ import annotations

import random
import resource
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.targets import (
    Answers,
    Codec,
    Documents,
    Envelopes,
    Parts,
    Records,
    Target,
    Tasks,
    TopicNames,
    benches,
    names,
)
from tests.fuzz.worlds import AgentWorld, CoordinatorWorld

ROOM = 1536 * 2**20
"""Address space beyond what is loaded at the start. A bomb that goes off ends in MemoryError, which is a finding."""

PATIENCE = 5.0
"""Seconds of processor time that one input may cost. Typical are 0.0005; this finds the quadratic, not the slow."""


@dataclass
class Finding:
    """Something undocumented, and how to make it again."""

    target: str
    index: int
    fault: str
    place: list[str]
    count: int = 1


@dataclass
class Report:
    """What a run of the fuzzer saw."""

    seed: int
    inputs: int = 0
    seconds: float = 0.0
    peak_mb: float = 0.0
    grown_mb: float = 0.0
    slowest_ms: float = 0.0
    outcomes: dict[str, Counter[str]] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)

    def to_document(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "seed": self.seed,
            "inputs": self.inputs,
            "seconds": round(self.seconds, 1),
            "peak_mb": round(self.peak_mb),
            "grown_mb": round(self.grown_mb),
            "slowest_ms": round(self.slowest_ms, 1),
            "outcomes": {name: dict(sorted(counts.items())) for name, counts in sorted(self.outcomes.items())},
            "findings": [vars(finding) for finding in self.findings.values()],
        }


def makers(folder: Path) -> dict[str, tuple[float, Callable[[], Target]]]:
    """All targets by name: their shares of the inputs, and how they are made."""
    every, learned = names(), list(benches())
    shown: dict[str, tuple[float, Callable[[], Target]]] = {
        "codec": (14, Codec),
        "envelope": (14, Envelopes),
        "parts": (8, Parts),
        "topics": (4, TopicNames),
        "record": (4, Records),
        "agent": (3, lambda: AgentWorld(folder)),
    }
    for name in every:
        shown[f"{name}/check"] = (26 / len(every), lambda name=name: Answers(name))  # type: ignore[misc]
        shown[f"{name}/task"] = (6 / len(every), lambda name=name: Tasks(name))  # type: ignore[misc]
    for name in learned:
        shown[f"{name}/document"] = (14 / len(learned), lambda name=name: Documents(name))  # type: ignore[misc]
        shown[f"{name}/coordinator"] = (7 / len(learned), lambda name=name: CoordinatorWorld(name))  # type: ignore[misc]
    return shown


def generator(seed: int, target: str, index: int) -> random.Random:
    """Decides everything about one input."""
    return random.Random(f"{seed}/{target}/{index}")


def plan(inputs: int, only: str, folder: Path) -> Iterator[tuple[int, Target]]:
    """Make the targets one after the other, each with its number of inputs."""
    chosen = {name: maker for name, maker in makers(folder).items() if only in name}
    whole = sum(share for share, _ in chosen.values())
    for share, make in chosen.values():
        yield max(1, round(inputs * share / whole)), make()


def fuzz(inputs: int, seed: int, *, only: str = "", say: Callable[[str], None] = lambda _: None) -> Report:
    """Feed `inputs` inputs to all targets whose name contains `only`."""
    report = Report(seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="glassfleet-fuzz-") as folder:
        for count, target in plan(inputs, only, Path(folder)):
            before = _peak()
            _feed(report, target, count)
            report.grown_mb = max(report.grown_mb, _peak() - before)
            say(f"{target.name}: {count} inputs, {dict(report.outcomes[target.name])}")
    report.seconds = time.monotonic() - began
    report.peak_mb = _peak()
    return report


def _feed(report: Report, target: Target, count: int) -> None:
    outcomes = report.outcomes[target.name] = Counter()
    for index in range(count):
        spent = time.process_time()
        try:
            outcomes[target.feed(generator(report.seed, target.name, index))] += 1
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is what we look for
            outcomes["FINDING"] += 1
            _note(report, target.name, index, fault)
        spent = time.process_time() - spent
        report.slowest_ms = max(report.slowest_ms, spent * 1000)
        if spent > PATIENCE:
            _note(report, target.name, index, TimeoutError(f"{spent:.1f} s for one input"))
        report.inputs += 1
    close = getattr(target, "close", None)
    if close is not None:
        close()


def _note(report: Report, target: str, index: int, fault: Exception) -> None:
    frames = traceback.extract_tb(fault.__traceback__)[-4:]
    place = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    key = f"{target} {type(fault).__name__} {place[-1:]}"
    if key in report.findings:
        report.findings[key].count += 1
    else:
        report.findings[key] = Finding(target, index, f"{type(fault).__name__}: {fault}"[:500], place)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def limit_memory() -> None:
    """Let this process have `ROOM` more address space than it has now (Linux)."""
    status = Path("/proc/self/status")
    if status.exists():
        size = next(line for line in status.read_text().splitlines() if line.startswith("VmSize:"))
        resource.setrlimit(resource.RLIMIT_AS, (int(size.split()[1]) * 1024 + ROOM, resource.RLIM_INFINITY))
