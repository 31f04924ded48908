"""How soon a drift is found, and how often one that is none.

Every night each vehicle draws new test rows; the model stays. Its rules are intervals of its first input, so that they
have as many rows as rules of a real tree. Errors have a size of their own in every vehicle and rule. The functions are
those of vehicles and coordinator (`glassfleet.evaluation.drift`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.evaluation.drift import COLUMNS, DriftMemory, Moved, drifted, figures
from lab.benchmarks.gate import fleet_seed
from lab.benchmarks.measure import print_table

Floats = NDArray[np.float64]
Kind = Literal["none", "restless", "rule", "rule, a quarter", "input", "input, a quarter", "gradual"]

RULES: Final = 12
INPUTS: Final = 10
ROWS: Final = 200
"""Test rows of a vehicle and night; vehicles have from half to twice as many."""
NIGHTS: Final = 40
BEGIN: Final = 20
"""The night of the drift."""
SIZES: Final = (3, 8, 15, 30)
KINDS: Final[tuple[tuple[Kind, str], ...]] = (
    ("none", "nothing moves"),
    ("restless", "nothing, but a vehicle's nights differ: inputs by 0.2 standard deviations, errors by 10 %"),
    ("rule", "abrupt: the errors of a rule are 50 % larger"),
    ("rule, a quarter", "abrupt: twice as large, in a quarter of the vehicles"),
    ("input", "abrupt: an input lower by 0.5 standard deviations"),
    ("input, a quarter", "abrupt: by 2, in a quarter of the vehicles"),
    ("gradual", "gradual: an input lower by 0.05 more each night"),
)
WITHIN: Final = {"found in the first night": 1, "within two": 2, "within seven": 7, "ever": NIGHTS}
RULE, INPUT = 3, RULES + 4
"""The lines that move."""


@dataclass
class Vehicle:
    """One vehicle and what it remembers."""

    rng: np.random.Generator
    rows: int
    noise: Floats
    center: Floats
    is_hit: bool
    memory: DriftMemory

    def night(self, number: int, kind: Kind) -> NDArray[np.int64] | None:
        """Draw rows, and return what is told of them."""
        rng, since = self.rng, max(0, number - BEGIN + 1)
        X = self.center + rng.normal(size=(self.rows, INPUTS))
        line = np.minimum((rng.beta(1.2, 1.6, size=self.rows) * RULES).astype(np.intp), RULES - 1)
        noise = self.noise.copy()
        if kind == "restless":
            X += 0.2 * rng.normal(size=INPUTS)
            noise *= np.exp(0.1 * rng.normal(size=RULES))
        if since and self.is_hit:
            noise[RULE] *= {"rule": 1.5, "rule, a quarter": 2.0}.get(kind, 1.0)
            X[:, INPUT - RULES] -= {"input": 0.5, "input, a quarter": 2.0, "gradual": 0.05 * since}.get(kind, 0.0)
        off = np.abs(noise[line] * rng.standard_t(5, size=self.rows))
        # The model's limits are four standard deviations from the middle.
        self.memory.meet("model", str(number), figures(off, line, RULES, (X + 4.0) / 8.0))
        return self.memory.changes("model", str(number))


def simulated(vehicles: int, kind: Kind, seed: int) -> list[list[Moved]]:
    """Return what is found after each night of one fleet."""
    rng = np.random.default_rng((seed, vehicles, [name for name, _ in KINDS].index(kind)))
    hit = rng.permutation(vehicles) < (max(1, vehicles // 4) if "quarter" in kind else vehicles)
    fleet = [
        Vehicle(
            np.random.default_rng(rng.integers(2**63)),
            int(np.clip(ROWS * np.exp(0.35 * rng.normal()), 30, None)),
            0.05 * np.exp(0.3 * rng.normal(size=RULES)),
            0.5 * rng.normal(size=INPUTS),
            bool(is_hit),
            DriftMemory(),
        )
        for is_hit in hit
    ]
    nights, found = [], []
    for number in range(NIGHTS):
        answers = [each for vehicle in fleet if (each := vehicle.night(number, kind)) is not None]
        # A vehicle is away every tenth night.
        answers = [each for each in answers if rng.random() > 0.1] or answers
        nights.append(np.sum(answers, axis=0, dtype=np.int64).reshape(RULES + INPUTS, COLUMNS))
        found.append(drifted(nights, RULES))
    return found


def judged(found: Sequence[Sequence[Moved]], kind: Kind) -> tuple[int | None, int]:
    """Return after how many nights the drift was found, 1 its first one (None: never), and how many false alarms."""
    line = RULE if kind.startswith("rule") else INPUT if kind.startswith(("input", "gradual")) else -1
    first: dict[int, int] = {}
    for number, moved in enumerate(found):
        for each in moved:
            first.setdefault(each.line, number)
    hit = first.pop(line) - BEGIN + 1 if first.get(line, 0) >= BEGIN else None
    return hit, len(first)


def drift(fleets: int = 40, seed: int = 1) -> None:
    """Print the table."""
    lines = []
    for kind, words in KINDS:
        for size in SIZES:
            results = [judged(simulated(size, kind, fleet_seed(seed, number)), kind) for number in range(fleets)]
            hits = [hit for hit, _ in results if hit is not None]
            line = {"what moves": words, "vehicles": size}
            for what, most in WITHIN.items():
                share = sum(hit <= most for hit in hits) / fleets
                line[what] = f"{share:.0%}" if kind not in {"none", "restless"} else ""
            false = sum(count for _, count in results) / fleets * 30 / (NIGHTS - 1)
            lines.append({**line, "false alarms in 30 nights": f"{false:.2f}"})
    print_table(f"{fleets} fleets a line; {NIGHTS} nights, drift from night {BEGIN + 1} on; seed {seed}", lines)
