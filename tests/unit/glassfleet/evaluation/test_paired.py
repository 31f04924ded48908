"""Which version is current after a night: noise, fleets of any size, liars, and nights of resampled rows."""

from __future__ import annotations

import numpy as np
import pytest

from edge_agent.models.evaluation import root_mean_square
from glassfleet.evaluation.paired import (
    LEVEL,
    MARGIN,
    MOST,
    Estimate,
    PairedDifference,
    decided,
    difference,
    over_vehicles,
)
from lab.benchmarks.gate import Drift, longest, power, simulated


@pytest.mark.parametrize(("vehicles", "fleets", "nights"), [(3, 6, 20), (8, 3, 20)])
def test_champion_is_never_more_than_the_margin_above_the_best_that_was_in_use(
    vehicles: int, fleets: int, nights: int
) -> None:
    runs = [simulated(vehicles, "none", seed, nights) for seed in range(fleets)]
    assert max(night.used for run in runs for night in run) <= MARGIN
    assert sum(night.changed for run in runs for night in run) > fleets, "and yet better ones come"


@pytest.mark.parametrize("drift", ["abrupt", "gradual"])
def test_champion_follows_a_drift_within_two_nights(drift: Drift) -> None:
    for seed in range(2):
        run = simulated(8, drift, seed, 36)
        assert longest([night.shown > 3 * MARGIN for night in run]) <= 2


@pytest.mark.parametrize(
    ("vehicles", "change", "least", "most"), [(3, -0.05, 0.3, 1.0), (3, MARGIN, 0.0, 0.0), (30, -0.01, 0.5, 1.0)]
)
def test_test_beside_one_other_has_the_power_that_is_told(
    vehicles: int, change: float, least: float, most: float
) -> None:
    assert least <= np.mean([power(vehicles, change, seed) for seed in range(20)]) <= most


def test_variance_of_a_vehicle_is_that_of_its_rows_also_where_rows_beside_each_other_have_much_in_common() -> None:
    rng = np.random.default_rng(1)
    changes, variances = [], []
    for _ in range(200):
        error = np.repeat(rng.normal(size=40), 10)  # ten rows in a row are one
        one = difference("rmse", root_mean_square, np.zeros(400), error + 0.2, error)
        changes.append(one.change)
        variances.append(one.variance)
    assert np.mean(variances) == pytest.approx(np.var(changes), rel=0.35)
    assert difference("rmse", root_mean_square, np.zeros(1), np.ones(1), np.ones(1)) == (0.0, MOST**2)


def test_vehicle_that_lies_moves_the_fleet_by_no_more_than_an_honest_one_could() -> None:
    honest = [PairedDifference(0.002 * place, 1e-4) for place in range(-5, 6)]
    lies = [
        over_vehicles([*honest, PairedDifference(change, variance)])
        for change in (-MOST, MOST)
        for variance in (0.0, MOST)
    ]
    truth = over_vehicles(honest)
    assert all(abs(each.change - truth.change) < 0.004 for each in lies)
    assert all(0.8 * truth.noise < each.noise < 1.4 * truth.noise for each in lies)


def estimate(change: float, noise: float = 0.002) -> Estimate:
    return Estimate(change, noise, 9)


@pytest.mark.parametrize(
    ("candidate", "formers", "chosen"),
    [
        ({5: estimate(0.0)}, {}, None),
        ({5: estimate(0.009)}, {}, 5),
        ({5: estimate(0.0), 2: estimate(0.009)}, {2: estimate(-0.009)}, 5),
        ({5: estimate(0.0), 2: estimate(0.03)}, {2: estimate(-0.03)}, 2),
        ({5: estimate(0.0), 2: estimate(0.03), 3: estimate(0.05)}, {2: estimate(-0.03), 3: estimate(-0.05)}, 3),
        ({5: estimate(-0.2, 0.05), 2: estimate(-0.001, 0.05)}, {2: estimate(-0.19, 0.05)}, None),
        ({5: estimate(-0.2, 0.05), 2: estimate(0.001, 0.05)}, {2: estimate(-0.201, 0.05)}, 2),
        ({5: estimate(-0.02, 0.05)}, {}, 5),
    ],
)  # fmt: skip
def test_decision(candidate: dict[int, Estimate], formers: dict[int, Estimate], chosen: int | None) -> None:
    assert decided(candidate, formers, 5) == chosen


def test_level_is_kept_at_the_margin() -> None:
    rng = np.random.default_rng(0)
    passed = 0
    for _ in range(4000):
        # What three vehicles say whose true difference is the margin, with variances as ten blocks tell them.
        differences = [PairedDifference(MARGIN + 0.01 * rng.normal(), 1e-4 * rng.chisquare(9) / 9) for _ in range(3)]
        passed += over_vehicles(differences).most <= MARGIN
    assert passed <= 4000 * LEVEL * 4
