"""The QoE simulator and its windows; the vehicles, the plan and the preflight of the demonstration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_agent.sources import Source, read_source
from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from lab.demo.plan import for_private_run, make_plan
from lab.demo.preflight import MANY_ROUNDS, Preflight, run_preflight, tempo
from lab.demo.vehicles import check_columns, labelled_files, read_rows, real_files
from lab.qoe import cells, video
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

FLEET = [f"v{number:02d}" for number in range(15)]


@pytest.fixture(scope="module")
def fleet() -> list[Vehicle]:
    return [simulate_vehicle(number, seed=0) for number in range(6)]


def test_vehicle_is_the_same_when_simulated_again_or_alone(fleet: list[Vehicle]) -> None:
    again = simulate_vehicle(3, seed=0)
    assert again.habits == fleet[3].habits
    assert again.test_runs == fleet[3].test_runs
    assert all(np.array_equal(a, b) for a, b in zip(again.series, fleet[3].series, strict=True))


def test_vehicle_differs_when_number_or_seed_differs(fleet: list[Vehicle]) -> None:
    assert len({vehicle.habits for vehicle in fleet}) == len(fleet)
    assert simulate_vehicle(0, seed=1).habits != fleet[0].habits


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


def test_fleet_resembles_the_real_set_in_zeros_ones_and_persistence(fleet: list[Vehicle]) -> None:
    # The real vehicles: 21 to 35 % zeros, 26 to 34 % ones, lag-1 autocorrelation of 0.87 to 0.91.
    targets = [vehicle.dataset("train").y for vehicle in fleet]
    assert 0.2 < np.mean([np.mean(y == 0) for y in targets]) < 0.45
    assert 0.2 < np.mean([np.mean(y == 1) for y in targets]) < 0.45
    assert 0.85 < np.mean([np.corrcoef(y[1:], y[:-1])[0, 1] for y in targets]) < 0.95


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


def test_stream_shows_everything_when_the_link_is_fast_and_nothing_when_it_is_dead() -> None:
    rng = np.random.default_rng(0)
    capacity = np.stack([np.full(60, 50e6), np.zeros(60), np.full(60, 0.7 * video.Stream().bitrate)])
    shown = video.play(rng, capacity, video.Stream()).displayed
    assert np.array_equal(shown[0], np.ones(60))
    assert np.array_equal(shown[1, 2:], np.zeros(58))
    assert 0.4 < shown[2, 20:].mean() < 0.95


def test_stream_recovers_when_an_outage_ends() -> None:
    capacity = np.full((1, 60), 50e6)
    capacity[0, 20:30] = 0.0
    played = video.play(np.random.default_rng(0), capacity, video.Stream())
    assert played.displayed[0, :20].min() == 1.0
    assert played.displayed[0, 23:29].max() == 0.0
    assert played.displayed[0, 34:].min() == 1.0
    assert played.buffer[0, 25] == 0.0


def test_cells_serve_the_nearest_site_when_nothing_shadows() -> None:
    place = cells.sites()
    distance = cells.distances(place[:, :1].T, place[:, 1:].T)
    serving = cells.serving_cell(-distance)
    assert distance.shape == (1, 7, 7)
    assert serving[0, 0] == 0
    assert np.allclose(np.sort(distance[0, 0])[1:], cells.SITE_DISTANCE)


def test_serving_cell_stays_when_another_is_better_by_less_than_the_hysteresis() -> None:
    slow = np.zeros((1, 20, 7))
    slow[0, 5:, 1] = cells.HYSTERESIS - 0.1
    slow[0, :, 2:] = -50
    assert set(cells.serving_cell(slow)[0].tolist()) == {0}
    slow[0, 10:, 1] = 3 * cells.HYSTERESIS
    assert cells.serving_cell(slow)[0, -1] == 1


def test_channel_quality_covers_its_table_from_out_of_range_to_best() -> None:
    quality = cells.channel_quality(np.array([-20.0, cells.CQI_FIRST, 60.0]))
    assert quality.tolist() == [0, 1, 15]


def test_plan_is_the_same_when_drawn_again_and_another_when_the_seed_changes() -> None:
    assert make_plan(FLEET, 0.3, 0.1, 0.5, 7) == make_plan(FLEET[::-1], 0.3, 0.1, 0.5, 7)
    assert make_plan(FLEET, 0.3, 0.1, 0.5, 7) != make_plan(FLEET, 0.3, 0.1, 0.5, 8)
    assert len(make_plan(FLEET[:3], 0.3, 0.0, 0.0, 0).kills) == 1, "of three"


@pytest.mark.parametrize("drop", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("vehicles", [1, 2, 3, 15])
def test_plan_leaves_enough_vehicles_alone_when_shares_are_large(vehicles: int, drop: float) -> None:
    plan = make_plan(FLEET[:vehicles], drop, 1.0, 1.0, 0)
    assert not set(plan.kills) & set(plan.slow)
    assert vehicles - len(plan.kills) - len(plan.slow) >= (2 if vehicles > 2 else 1)
    assert set(plan.returns) == set(plan.kills)
    assert all(plan.returns[vehicle] > moment for vehicle, moment in plan.kills.items())


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


def test_files_are_taken_when_some_have_more_columns_or_another_order_or_the_target_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("load,temp,y\n1,2,3\n")
    (tmp_path / "b.csv").write_text("extra,temp,load,y\n1,2,3,4\n")
    (tmp_path / "c.csv").write_text("temp,load,split,y\n1,2,train,3\n")
    check_columns(real_files(tmp_path))
    (tmp_path / "d.csv").write_text("y,temp,load\n1,2,3\n")
    check_columns(real_files(tmp_path), "y")


def test_vehicle_file_holds_good_and_poor_and_not_the_share_when_written_for_a_classifier(
    tmp_path: Path, fleet: list[Vehicle]
) -> None:
    write_vehicle(tmp_path / "v.csv.gz", fleet[0], good_above=GOOD_ABOVE)
    source = read_source(tmp_path / "v.csv.gz", labels=True)
    share = fleet[0].dataset("train").y
    assert source.train.target == LABEL
    assert source.train.features == FEATURES
    assert np.array_equal(source.train.y, np.where(share > 0.8, "Good", "Poor"))


def test_labelled_files_are_copies_where_the_target_is_a_number_and_the_files_themselves_where_it_is_text(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text("split,x,q\ntrain,1,0.9\ntrain,2,0.1\ntest,3,0.8\n")
    made = labelled_files({"a": tmp_path / "a.csv"}, tmp_path / "made", None, 0.8, labels=False)
    rows = read_rows(made, labels=True)["a"]
    assert (rows.train.y.tolist(), rows.test.y.tolist()) == (["Good", "Poor"], ["Poor"])
    assert rows.train.X.tolist() == [[1.0], [2.0]]
    (tmp_path / "b.csv").write_text("x,q\n1,red\n2,blue\n")
    texts = {"b": tmp_path / "b.csv"}
    assert labelled_files(texts, tmp_path / "made", None, 0.8, labels=False) == texts
    both = {"a": tmp_path / "a.csv", **texts}
    with pytest.raises(DataError, match=r"text in .*b\.csv and numbers in .*a\.csv"):
        labelled_files(both, tmp_path / "made", None, 0.8, labels=False)
    assert labelled_files(both, tmp_path / "made", None, 0.8, labels=True) == both
    with pytest.raises(DataError, match="no column 'nosuch'"):
        labelled_files(texts, tmp_path / "made", "nosuch", 0.8, labels=False)


def test_plan_kills_and_returns_within_the_run_when_it_has_few_rounds() -> None:
    for seed in range(30):
        plan = make_plan(FLEET, 0.4, 0.1, 1.0, seed, rounds=4)
        assert max(plan.kills.values()) <= 3
        assert all(plan.kills[vehicle] < moment <= 4 for vehicle, moment in plan.returns.items())


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


def test_preflight_counts_the_rounds_of_a_short_scheme_and_stops_in_a_long_one() -> None:
    X = np.random.default_rng(3).uniform(0, 1, (80, 2))
    part = Dataset(("a", "b"), "q", X, np.where(X[:, 0] + 0.3 * X[:, 1] > 0.6, "Good", "Poor"))
    scheme, rows = catalogue.load("frbc"), [Source(part, part)] * 3
    whole = run_preflight(scheme, scheme.exact(scheme.Parameters()), rows, 0, at_most=9)
    assert whole.rounds == 4, "two for the domain, rules, strengths"
    assert whole.seconds > 0
    assert run_preflight(scheme, scheme.Parameters(), rows, 0, at_most=3).rounds == 3


def test_tempo_leaves_time_for_heavy_answers_and_hurries_long_elastic_runs() -> None:
    assert tempo(Preflight(9, 0.001), 15, "cohort") == (0.2, 2.5)
    assert 2.5 < tempo(Preflight(9, 100.0), 15, "cohort")[1] < 30
    assert tempo(Preflight(MANY_ROUNDS, 100.0), 15, "elastic")[1] <= 2.5
    quick_pace, quick_deadline = tempo(Preflight(MANY_ROUNDS, 0.001), 15, "elastic")
    assert quick_pace < 0.2
    assert quick_deadline < 2.5
