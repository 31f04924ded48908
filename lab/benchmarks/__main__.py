"""``python -m lab.benchmarks [name ...]``: print Markdown tables of measurements. Without names: all but ``peers``.

``scale``, ``storm``, ``long`` and ``intake`` take ``--vehicles N ...``: fleets of so many, one after the other;
``scale --signed`` signs.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys

# As on a vehicle: many processes share a machine. It has to be said before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from lab.benchmarks.measure import machine

MODULES = {
    "vehicle": ("tree", "forecast", "memory"),
    "accuracy": ("ablation", "support", "classes"),
    "peers": ("wire", "peers"),
    "fleets": ("scale", "storm", "intake", "long"),
    "courses": ("ends",),
    "gate": ("gate",),
    "drift": ("drift",),
}
"""Functions by module, which is imported when one is called, for they need more than what prints them."""
BENCHMARKS = {name: module for module, names in MODULES.items() for name in names}
OF_FLEETS = MODULES["fleets"]


def main(words: list[str]) -> None:
    """Run the named benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks")
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(BENCHMARKS)}; none: all but peers")
    parser.add_argument("--vehicles", type=int, nargs="+", metavar="N", help=f"{', '.join(OF_FLEETS)}: fleets of N")
    parser.add_argument("--signed", action="store_true", help="scale: all sign what they say")
    options = parser.parse_args(words)
    unknown = sorted(set(options.names) - set(BENCHMARKS))
    if unknown:
        raise SystemExit(f"no benchmark {unknown[0]!r}; known: {', '.join(BENCHMARKS)}")
    print(f"Machine: {machine()}.")
    print(f"Command: `{' '.join(('python -m lab.benchmarks', *words))}`.")
    for name in options.names or [each for each in BENCHMARKS if each != "peers"]:
        function = getattr(importlib.import_module(f"lab.benchmarks.{BENCHMARKS[name]}"), name)
        arguments = [options.vehicles] if name in OF_FLEETS and options.vehicles else []
        how = {"signed": True} if name == "scale" and options.signed else {}
        function(*arguments, **how)


if __name__ == "__main__":
    main(sys.argv[1:])
