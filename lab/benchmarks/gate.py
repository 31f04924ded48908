"""The gate over simulated nights: whether the best version stays champion, and the champion follows a drift.

A fleet learns a linear model every night. Its vehicles have coefficients and noise of their own, and each night they
draw new test rows. The new version is the truth of that night with a random error: on average its error is 1 % above
the least that there is, and often 2 to 4 %. The gate's own functions judge
(`glassfleet.evaluation.paired`); what is true is known, as the rows are drawn from it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from edge_agent.models.evaluation import root_mean_square
from glassfleet.evaluation.paired import (
    LEVEL,
    MARGIN,
    MOST_FORMERS,
    MOST_TOLD,
    Estimate,
    PairedDifference,
    decided,
    difference,
    from_sums,
    over_vehicles,
)
from lab.benchmarks.measure import print_table

Floats = NDArray[np.float64]
Drift = Literal["none", "abrupt", "gradual", "seasonal"]

DRIFTS: Final[tuple[Drift, ...]] = ("none", "abrupt", "gradual", "seasonal")
SIZES: Final = (3, 8, 30)
NIGHTS: Final = 60
INPUTS: Final = 10
ROWS: Final = 200
"""Test rows of a vehicle and night; vehicles have from half to twice as many, the fewest 30."""
EXCESS: Final = 0.02
"""Of a version's mean squared error, on average, over the least: twice that of the root."""


def moved(drift: Drift, night: int) -> float:
    """Return how far the truth has moved until a night; 1 makes an error larger by 41 % (a vehicle of noise 1)."""
    match drift:
        case "abrupt":
            return float(night >= NIGHTS // 2)
        case "gradual":
            return 0.03 * max(0, night - 10)
        case "seasonal":
            return math.sin(2 * math.pi * night / NIGHTS)
    return 0.0


@dataclass
class Night:
    """What is true after a night: how far the champion's error lies above the best, relative to that.

    Attributes
    ----------
    used, shown : float
        The best of the versions that ever were in use, and of those that the gate was shown this night.
    """

    used: float
    shown: float
    changed: bool
    returned: bool


@dataclass
class World:
    """A fleet, its versions, and what is in use.

    Attributes
    ----------
    is_private : bool
        Whether only sums are known.
    """

    vehicles: int
    seed: tuple[int, ...]
    drift: Drift = "none"
    is_private: bool = False
    versions: dict[int, Floats] = field(default_factory=dict)
    formers: list[int] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    present: int = 0

    def __post_init__(self) -> None:
        """Draw what stays."""
        self.rng = np.random.default_rng(self.seed)
        self.center = self.rng.normal(size=INPUTS)
        self.own = 0.1 * self.rng.normal(size=(self.vehicles, INPUTS))
        self.noise = np.exp(0.3 * self.rng.normal(size=self.vehicles))
        self.rows = np.maximum(30, ROWS * np.exp(0.35 * self.rng.normal(size=self.vehicles))).astype(int)
        self.way = self.rng.normal(size=INPUTS)
        self.way /= np.linalg.norm(self.way)

    def learned(self, truth: Floats, excess: float) -> Floats:
        """Return a version whose mean squared error is so much above the least."""
        error = self.rng.normal(size=INPUTS)
        return np.asarray(truth + error * math.sqrt(excess) / np.linalg.norm(error))

    def estimates(self, truth: Floats, pairs: Sequence[tuple[int, int]]) -> list[Estimate]:
        """Return what the gate knows of pairs of versions, from new rows of each vehicle."""
        differences: list[list[PairedDifference]] = [[] for _ in pairs]
        for own, noise, count in zip(truth + self.own, self.noise, self.rows, strict=True):
            X = self.rng.normal(size=(count, INPUTS))
            y = X @ own + noise * self.rng.normal(size=count)
            forecasts = {version: X @ self.versions[version] for pair in pairs for version in pair}
            for place, (one, other) in enumerate(pairs):
                differences[place].append(difference("rmse", root_mean_square, y, forecasts[one], forecasts[other]))
        return [self._summed(each) if self.is_private else over_vehicles(each) for each in differences]

    @staticmethod
    def _summed(differences: list[PairedDifference]) -> Estimate:
        changes = sum(max(-MOST_TOLD, min(MOST_TOLD, each.change)) for each in differences)
        return from_sums(len(differences), changes, sum(min(MOST_TOLD**2, each.variance) for each in differences))

    def errors(self, truth: Floats, version: int) -> Floats:
        """Return the true error of a version at each vehicle."""
        off = truth + self.own - self.versions[version]
        return np.asarray(np.sqrt((off**2).sum(axis=1) + self.noise**2))

    def above(self, truth: Floats, others: set[int]) -> float:
        """Return how far the champion's true error lies above that of the best of others, over the vehicles."""
        champion = self.errors(truth, self.present)
        return max(float(np.mean(champion / self.errors(truth, other)) - 1.0) for other in others)

    def night(self, number: int) -> Night:
        """Learn a version, let the gate judge."""
        truth = self.center + moved(self.drift, number) * self.way
        candidate, present = number + 1, self.present
        self.versions[candidate] = self.learned(truth, EXCESS * self.rng.exponential())
        if not present:
            self.present, self.used = candidate, {candidate}
            return Night(0.0, 0.0, changed=True, returned=False)
        known = [present, *self.formers]
        pairs = [*((candidate, other) for other in known), *((former, present) for former in self.formers)]
        estimates = self.estimates(truth, pairs)
        beside = dict(zip(known, estimates, strict=False))
        chosen = decided(beside, dict(zip(self.formers, estimates[len(known) :], strict=True)), present)
        self.present = candidate if chosen is None else chosen
        self.used.add(self.present)
        # As `coordinator.models.registry` ranks them: the better, the worse the candidate is beside it.
        ranked = sorted(
            {*known, candidate} & self.used, key=lambda version: -beside[version].change if version in beside else 0.0
        )
        self.formers = [version for version in ranked if version != self.present][:MOST_FORMERS]
        shown = {candidate, *known}
        return Night(
            self.above(truth, self.used), self.above(truth, shown), self.present != present, chosen in known[1:]
        )


def fleet_seed(seed: int, number: int) -> int:
    """Return the seed of one of many fleets: two seeds have none in common."""
    return 100_000 * (seed - 1) + 1 + number


def longest(flags: Sequence[bool]) -> int:
    """Return how many in a row are true at most."""
    return max((len(list(group)) for is_true, group in groupby(flags) if is_true), default=0)


def simulated(vehicles: int, drift: Drift, seed: int, nights: int = NIGHTS, *, is_private: bool = False) -> list[Night]:
    """Return the nights of one fleet."""
    world = World(vehicles, (seed, vehicles, DRIFTS.index(drift)), drift, is_private)
    return [world.night(number) for number in range(nights)]


def power(vehicles: int, change: float, seed: int) -> bool:
    """Return whether a version whose true error is larger by `change` passes the test beside one other."""
    world = World(vehicles, (seed, vehicles))
    # One of the two has what versions have on average, the other that and the change.
    least, most = EXCESS, (1.0 + EXCESS) * (1.0 + abs(change)) ** 2 - 1.0
    excess = {1: most, 2: least} if change > 0 else {1: least, 2: most}
    world.own[:], world.noise[:] = 0.0, 1.0
    world.versions = {version: world.learned(world.center, of) for version, of in excess.items()}
    return world.estimates(world.center, [(1, 2)])[0].most <= MARGIN


def gate(fleets: int = 200, seed: int = 1) -> None:
    """Print both tables."""
    lines = []
    for drift in DRIFTS:
        for size, is_private in ((3, False), (8, False), (30, False), (8, True)):
            count = max(1, fleets // len(SIZES) // (1 if drift == "none" else 4))
            runs = [simulated(size, drift, fleet_seed(seed, number), is_private=is_private) for number in range(count)]
            every = [night for run in runs for night in run]
            # Where the truth moves, an old version that nobody kept may be right again.
            above = f"{sum(night.used > MARGIN for night in every)} of {len(every)}" if drift == "none" else ""
            in_a_row = max(longest([night.shown > MARGIN for night in run]) for run in runs)
            lines.append(
                {
                    "drift": drift,
                    "vehicles": f"{size}{' private' if is_private else ''}",
                    "fleets": count,
                    "changes": f"{sum(night.changed for night in every) / count:.1f}",
                    "of these back": f"{sum(night.returned for night in every) / count:.1f}",
                    "nights above the best in use by > 1 %": above,
                    "at most": f"{max(night.used for night in every):.2%}" if above else "",
                    "nights in a row above the best shown by > 1 %": in_a_row,
                    "by at most": f"{max(night.shown for night in every):.1%}",
                }
            )
    print_table(
        f"{fleets} fleets, of {', '.join(map(str, SIZES))} vehicles in turn; {NIGHTS} nights; seed {seed}", lines
    )
    changes = (-0.05, -0.03, -0.02, -0.01, 0.0, MARGIN)
    print_table(
        f"How often a version passes beside one other (level {LEVEL:.2%}), by the true change of its error",
        [
            {"vehicles": f"{size:,}"}
            | {f"{change:+.0%}": f"{_passing(size, change, seed, times):.0%}" for change in changes}
            for size, times in ((3, 300), (8, 300), (30, 100), (1000, 20))
        ],
    )


def _passing(vehicles: int, change: float, seed: int, times: int) -> float:
    return float(np.mean([power(vehicles, change, fleet_seed(seed, number)) for number in range(times)]))
