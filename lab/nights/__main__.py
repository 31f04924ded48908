"""``python -m lab.nights [--fleets N] [--seed N]``: print the tables."""

from __future__ import annotations

import argparse

from lab.nights.simulation import nights

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m lab.nights")
    parser.add_argument("--fleets", type=int, default=200, metavar="N", help="without drift; with each drift a quarter")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another simulation")
    options = parser.parse_args()
    nights(options.fleets, options.seed)
