"""The QoE simulator and its windows."""

from __future__ import annotations

import numpy as np
import pytest

from lab.qoe.simulator import RUNS, TEST_RUNS, Vehicle, simulate_vehicle
from lab.qoe.windows import BOUNDS, FEATURES, HORIZON, METRICS, TARGET, UNITS, WINDOW, rows_of_run


@pytest.fixture(scope="module")
def fleet() -> list[Vehicle]:
    return [simulate_vehicle(number, seed=0) for number in range(6)]


def test_vehicle_is_the_same_when_simulated_again_or_alone(fleet: list[Vehicle]) -> None:
    again = simulate_vehicle(3, seed=0)
    assert again.habits == fleet[3].habits
    assert again.test_runs == fleet[3].test_runs
    assert all(np.array_equal(a, b) for a, b in zip(again.series, fleet[3].series, strict=True))


def test_vehicle_drives_24_runs_of_about_120_seconds_and_keeps_4_for_testing(fleet: list[Vehicle]) -> None:
    for vehicle in fleet:
        assert len(vehicle.series) == RUNS == 24
        assert len(vehicle.test_runs) == TEST_RUNS == 4
        lengths = [len(rows_of_run(run)[1]) for run in vehicle.series]
        assert min(lengths) >= 114
        assert max(lengths) <= 124
        test_rows = sum(lengths[run] for run in vehicle.test_runs)
        assert vehicle.dataset("test").rows == test_rows
        assert vehicle.dataset("train").rows == sum(lengths) - test_rows


def test_rows_lie_within_the_declared_bounds_when_simulated(fleet: list[Vehicle]) -> None:
    assert set(BOUNDS) == set(UNITS) == {*FEATURES, TARGET}
    for vehicle in fleet:
        for split in ("train", "test"):
            data = vehicle.dataset(split)
            for index, name in enumerate(FEATURES):
                low, high = BOUNDS[name]
                # A handover between the far ends of the area may move the distance's slope beyond what driving can.
                share = np.mean((data.X[:, index] < low) | (data.X[:, index] > high))
                assert share < (0.005 if name == "distance_slope_mps" else 1e-12), name
            assert data.y.min() >= 0.0
            assert data.y.max() <= 1.0


def test_windows_see_nothing_of_the_future_when_it_is_changed(fleet: list[Vehicle]) -> None:
    run = fleet[0].series[0]
    X, _ = rows_of_run(run)
    changed = run.copy()
    changed[60:] += 1000.0
    later, _ = rows_of_run(changed)
    untouched = 60 - WINDOW + 1
    assert np.array_equal(X[:untouched], later[:untouched])
    assert not np.array_equal(X[untouched], later[untouched])


def test_target_is_the_share_displayed_three_seconds_after_the_window(fleet: list[Vehicle]) -> None:
    run = fleet[0].series[0]
    X, y = rows_of_run(run)
    assert np.array_equal(y, run[WINDOW - 1 + HORIZON :, METRICS.index("displayed_share")])
    assert np.array_equal(X[:, FEATURES.index("buffer_last_s")], run[WINDOW - 1 : -HORIZON, METRICS.index("buffer_s")])
    assert [part.shape for part in rows_of_run(run[: WINDOW + HORIZON - 1])] == [(0, len(FEATURES)), (0,)]
