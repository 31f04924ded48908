"""The QoE simulator and its windows; the vehicles, the plan and the preflight of the demonstration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_agent.sources import read_source
from lab.demo.plan import for_private_run, make_plan
from lab.demo.vehicles import check_columns, real_files
from lab.qoe.simulator import RUNS, TEST_RUNS, Vehicle, simulate_vehicle, write_vehicle
from lab.qoe.windows import (
    BOUNDS,
    FEATURES,
    GOOD_ABOVE,
    HORIZON,
    LABEL,
    METRICS,
    TARGET,
    UNITS,
    WINDOW,
    rows_of_run,
)
from schemas.errors import DataError


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


def test_vehicle_file_reads_as_an_agents_data_when_written(tmp_path: Path, fleet: list[Vehicle]) -> None:
    write_vehicle(tmp_path / "v.csv.gz", fleet[0])
    source = read_source(tmp_path / "v.csv.gz")
    expected = fleet[0].dataset("train")
    assert source.train.features == FEATURES
    assert source.train.target == TARGET
    assert source.test.rows == fleet[0].dataset("test").rows
    assert np.allclose(source.train.X, expected.X, rtol=1e-5, atol=1e-9)
    write_vehicle(tmp_path / "again.csv.gz", fleet[0])
    assert (tmp_path / "v.csv.gz").read_bytes() == (tmp_path / "again.csv.gz").read_bytes()


def test_real_files_are_named_after_files_and_refused_when_two_would_be_one_vehicle(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no csv"):
        real_files(tmp_path)
    for name in ("car 1.csv", "bus-2.csv.gz", "notes.txt", "tram.parquet"):
        (tmp_path / name).touch()
    assert list(real_files(tmp_path)) == ["bus-2", "car-1", "tram"]
    assert list(real_files(tmp_path, 2)) == ["bus-2", "car-1"]
    (tmp_path / "tram.csv").touch()
    with pytest.raises(DataError, match="same vehicle 'tram'"):
        real_files(tmp_path)
    with pytest.raises(DataError, match="not a folder"):
        real_files(tmp_path / "tram.csv")


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ("load,y\n1,2\n", r"e\.csv has no column 'temp'; 4 of 5 files have the columns load, temp, y\."),
        ("load,y,temp\n1,2,3\n", r"the last column of .*e\.csv is 'temp', not 'y' \(name one with --target\)"),
    ],
)
def test_file_with_other_columns_than_most_is_named_before_anything_is_started(
    odd: str, said: str, tmp_path: Path
) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.csv").write_text("split,load,temp,y\ntrain,1,2,3\n")
    (tmp_path / "e.csv").write_text(odd)
    with pytest.raises(DataError, match=said):
        check_columns(real_files(tmp_path))


def test_vehicle_file_holds_good_and_poor_and_not_the_share_when_written_for_a_classifier(
    tmp_path: Path, fleet: list[Vehicle]
) -> None:
    write_vehicle(tmp_path / "v.csv.gz", fleet[0], good_above=GOOD_ABOVE)
    source = read_source(tmp_path / "v.csv.gz", labels=True)
    share = fleet[0].dataset("train").y
    assert source.train.target == LABEL
    assert source.train.features == FEATURES
    assert np.array_equal(source.train.y, np.where(share > 0.8, "Good", "Poor"))


@pytest.mark.parametrize("vehicles", [8, 11, 15, 40])
@pytest.mark.parametrize(("drop", "slow"), [(0.2, 0.1), (0.33, 0.0), (1.0, 0.0)])
def test_plan_of_a_private_run_kills_in_two_moments_at_most_and_leaves_enough(
    vehicles: int, drop: float, slow: float
) -> None:
    fleet = [f"v{number:02d}" for number in range(vehicles)]
    for rounds in (None, 4):
        plan = for_private_run(make_plan(fleet, drop, slow, 1.0, 3, rounds), vehicles, rounds)
        founders = vehicles - len(plan.slow)
        moments = [[*plan.kills.values()].count(moment) for moment in sorted(set(plan.kills.values()))]
        assert len(moments) <= 2
        assert founders - sum(max(3, killed) for killed in moments) >= min(founders, max(8, (founders + 4) // 2))
        assert all(plan.kills[vehicle] < moment for vehicle, moment in plan.returns.items())
    if (vehicles, drop) == (15, 0.33):
        assert len(plan.kills) == 5
