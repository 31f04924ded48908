"""``python -m lab.benchmarks [name ...]``: print Markdown tables of measurements. Without names: all of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

# As on a vehicle: many processes share a machine. It has to be said before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from lab.benchmarks.learning import first_answer, level, trees
from lab.benchmarks.measure import machine


def wire() -> None:
    """Rounds over real brokers; needs the extras broker and coordinator, hence imported late."""
    from lab.benchmarks.wire import wire as measure

    measure()


def private() -> None:
    """Masks of private runs; needs the cryptography, hence imported late."""
    from lab.benchmarks.private import private as measure

    measure()


def looks() -> None:
    """Looks at runs that wait; needs the extra coordinator, hence imported late."""
    from lab.benchmarks.looks import looks as measure

    measure()


BENCHMARKS: dict[str, Callable[[], None]] = {
    "level": level,
    "answer": first_answer,
    "trees": trees,
    "wire": wire,
    "looks": looks,
    "private": private,
}


def main(names: list[str]) -> None:
    """Run the named benchmarks."""
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        raise SystemExit(f"no benchmark {unknown[0]!r}; known: {', '.join(BENCHMARKS)}")
    print(f"Machine: {machine()}.")
    print(f"Command: `python -m lab.benchmarks{''.join(f' {name}' for name in names)}`.")
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
