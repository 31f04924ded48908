"""``python -m lab.benchmarks [name ...]``: print Markdown tables of measurements. Without names: all of them."""

from __future__ import annotations

import importlib
import os
import sys

# As on a vehicle: many processes share a machine. It has to be said before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from lab.benchmarks.measure import machine

BENCHMARKS = {
    "level": "learning:level",
    "answer": "learning:first_answer",
    "trees": "learning:trees",
    "wire": "wire:wire",
    "looks": "looks:looks",
    "private": "private:private",
    "support": "support:support",
    "losses": "courses:losses",
    "ends": "courses:ends",
}
"""Module and function; imported when called, as all but the first three need the extras broker and coordinator."""


def main(names: list[str]) -> None:
    """Run the named benchmarks."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        raise SystemExit(f"no benchmark {unknown[0]!r}; known: {', '.join(BENCHMARKS)}")
    print(f"Machine: {machine()}.")
    print(f"Command: `python -m lab.benchmarks{''.join(f' {name}' for name in names)}`.")
    for name in names or BENCHMARKS:
        module, _, function = BENCHMARKS[name].partition(":")
        getattr(importlib.import_module(f"lab.benchmarks.{module}"), function)()


if __name__ == "__main__":
    main(sys.argv[1:])
