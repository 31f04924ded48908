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

BENCHMARKS = {
    "tree": "vehicle:tree",
    "ablation": "accuracy:ablation",
    "wire": "peers:wire",
    "peers": "peers:peers",
    "support": "accuracy:support",
    "scale": "fleets:scale",
    "storm": "fleets:storm",
    "intake": "fleets:intake",
    "long": "fleets:long",
    "ends": "courses:ends",
    "forecast": "vehicle:forecast",
    "memory": "vehicle:memory_of_stages",
    "classes": "accuracy:classes",
    "gate": "gate:gate",
    "drift": "drift:drifts",
}
"""Module and function; imported when called, for they need more than what prints them."""
OF_FLEETS = ("scale", "storm", "long", "intake")


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
        module, _, function = BENCHMARKS[name].partition(":")
        arguments = [options.vehicles] if name in OF_FLEETS and options.vehicles else []
        how = {"signed": True} if name == "scale" and options.signed else {}
        getattr(importlib.import_module(f"lab.benchmarks.{module}"), function)(*arguments, **how)


if __name__ == "__main__":
    main(sys.argv[1:])
