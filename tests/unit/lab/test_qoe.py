"""The QoE simulator, its windows and the plan of the demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.sources import read_source
from glassfleet import catalogue, local
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from lab.demo.plan import for_private_run, make_plan
from lab.demo.preflight import MANY_ROUNDS, Preflight, run_preflight, tempo
from lab.demo.reference import choices, judge, participation_of
from lab.demo.report import score_lines
from lab.demo.vehicles import VehicleRows, check_columns, labelled_files, read_rows, real_files, simulated_files
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
    labels_of,
    rows_of_run,
)
from schemas.errors import DataError, UsageError
from schemas.record import ModelRecord
from tests.support.fake_coordinator import record_of

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


def test_rows_of_run_are_none_when_the_run_is_shorter_than_window_and_horizon() -> None:
    X, y = rows_of_run(np.zeros((WINDOW + HORIZON - 1, len(METRICS))))
    assert X.shape == (0, len(FEATURES))
    assert y.shape == (0,)


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


@pytest.mark.parametrize("drop", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("vehicles", [1, 2, 3, 15])
def test_plan_leaves_enough_vehicles_alone_when_shares_are_large(vehicles: int, drop: float) -> None:
    plan = make_plan(FLEET[:vehicles], drop, 1.0, 1.0, 0)
    assert not set(plan.kills) & set(plan.slow)
    assert vehicles - len(plan.kills) - len(plan.slow) >= (2 if vehicles > 2 else 1)
    assert set(plan.returns) == set(plan.kills)
    assert all(plan.returns[vehicle] > moment for vehicle, moment in plan.kills.items())


def test_plan_drops_one_of_three_when_asked_for_30_percent() -> None:
    plan = make_plan(FLEET[:3], 0.3, 0.0, 0.0, 0)
    assert len(plan.kills) == 1
    assert not plan.returns


def test_plan_is_refused_when_a_share_is_no_share() -> None:
    with pytest.raises(UsageError, match=r"--slow 1\.5"):
        make_plan(FLEET, 0.3, 1.5, 0.5, 0)


def test_real_files_are_named_after_files_when_ids_can_be_made_of_them(tmp_path: Path) -> None:
    for name in ("car 1.csv", "bus-2.csv.gz", "notes.txt", "tram.parquet"):
        (tmp_path / name).write_bytes(b"")
    assert list(real_files(tmp_path)) == ["bus-2", "car-1", "tram"]
    assert list(real_files(tmp_path, 2)) == ["bus-2", "car-1"]


def test_real_files_are_refused_when_two_would_be_one_vehicle_or_none_is_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no csv"):
        real_files(tmp_path)
    (tmp_path / "a.csv").touch()
    (tmp_path / "a.parquet").touch()
    with pytest.raises(DataError, match="same vehicle 'a'"):
        real_files(tmp_path)
    with pytest.raises(DataError, match="not a folder"):
        real_files(tmp_path / "a.csv")


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


def test_simulated_files_hold_one_vehicle_each(tmp_path: Path) -> None:
    files = simulated_files(tmp_path / "data", 2, 0)
    assert list(files) == ["vehicle-00", "vehicle-01"]
    assert files["vehicle-00"].read_bytes() != files["vehicle-01"].read_bytes()


def test_vehicle_file_holds_good_and_poor_and_not_the_share_when_written_for_a_classifier(
    tmp_path: Path, fleet: list[Vehicle]
) -> None:
    write_vehicle(tmp_path / "v.csv.gz", fleet[0], good_above=GOOD_ABOVE)
    source = read_source(tmp_path / "v.csv.gz", labels=True)
    share = fleet[0].dataset("train").y
    assert source.train.target == LABEL
    assert source.train.features == FEATURES
    assert np.array_equal(source.train.y, np.where(share > 0.8, "Good", "Poor"))


def test_label_is_good_only_above_the_threshold() -> None:
    assert labels_of(np.array([0.0, 0.8, 0.81, 1.0])).tolist() == ["Poor", "Poor", "Good", "Good"]
    assert labels_of(np.array([3.0, 5.0]), 4.0).tolist() == ["Poor", "Good"]


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


def small_fleet() -> dict[str, VehicleRows]:
    rng = np.random.default_rng(3)
    fleet = {}
    for number in range(3):
        X = rng.uniform(0, 1, (80, 2))
        part = Dataset(("a", "b"), "q", X, np.where(X[:, 0] + 0.3 * X[:, 1] > 0.6, "Good", "Poor"))
        fleet[f"v{number}"] = VehicleRows(part, part)
    return fleet


def learned_from(fleet: dict[str, VehicleRows], parameters: object, name: str = "frbc") -> ModelRecord:
    """What a fleet publishes that learned in this process."""
    scheme = catalogue.load(name)
    domain = Domain(
        features=(Variable(name="a", low=0, high=1), Variable(name="b", low=0, high=1)),
        label="q",
        classes=("Good", "Poor"),
    )
    train = {name: rows.train for name, rows in fleet.items()}
    document = local.federated(scheme, parameters, domain, train).model.to_document()
    participation = "cohort" if "cohort" in scheme.participation else "elastic"
    return record_of(document, cohort=sorted(train), parameters={"participation": participation})


def test_verdict_is_equal_with_f1_scores_when_a_classifier_pools() -> None:
    fleet = small_fleet()
    scheme = catalogue.load("frbc")
    verdict = judge(learned_from(fleet, scheme.exact(scheme.Parameters())), fleet, 0)
    assert verdict.equal
    assert verdict.promised
    assert verdict.metric == "f1"
    assert set(verdict.scores) == set(fleet)
    federated = verdict.mean("federated")
    assert federated is not None
    assert 0.7 < federated <= 1.0


def test_verdict_learns_the_central_model_once_when_rows_are_used_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = small_fleet()
    scheme = catalogue.load("frbc")
    learned = []
    central = local.central

    def counted(*given: Any) -> local.Outcome:
        learned.append(given)
        return central(*given)

    monkeypatch.setattr(local, "central", counted)
    record = learned_from(fleet, scheme.exact(scheme.Parameters()))
    assert judge(record, fleet, 0).equal
    assert len(learned) == 2, "of the cohort's rows, and of all vehicles'"
    assert judge(learned_from(fleet, scheme.Parameters()), fleet, 0).equal
    assert len(learned) == 5, "of condensed rows, too"


def test_table_says_which_rows_its_central_model_has_when_the_cohort_is_not_everybody() -> None:
    fleet = small_fleet()
    # The last vehicle sees another road, and more of it, so that its rows change the central model.
    last = fleet["v2"].train
    X = np.tile(last.X, (5, 1))
    turned = Dataset(last.features, last.target, X, np.where(X[:, 1] > 0.5, "Good", "Poor"))
    fleet["v2"] = VehicleRows(turned, turned)
    scheme = catalogue.load("frbc")
    parameters = scheme.exact(scheme.Parameters())
    head, note = "central over the rows of all 3 vehicles (CL all)", "central over the cohort's rows alone"
    some = {vehicle: fleet[vehicle] for vehicle in ("v0", "v1")}
    verdict = judge(learned_from(some, parameters), fleet, 0)
    lines = score_lines(verdict, ("v0", "v1"))
    assert verdict.equal
    assert verdict.mean("central") != verdict.mean("federated")
    assert lines[0] == f"test F1 (macro) of q: local (LL), federated (FL), {head}"
    assert lines[1].split() == ["LL", "FL", "CL", "all"]
    assert lines[-1] == f"  {note}, which the dashboard calls CL: the same as FL"
    assert [line.split()[0] for line in lines if line.endswith("not in the cohort")] == ["v2"]
    whole = judge(learned_from(fleet, parameters), fleet, 0)
    lines = score_lines(whole, ("v0", "v1", "v2"))
    assert head in lines[0]
    assert note not in "".join(lines)
    assert whole.mean("central") == whole.mean("federated")
    other = judge(learned_from(some, scheme.Parameters(min_rows=20)), fleet, 0)
    assert other.equal, "of condensed rows, so CL of the rows as they are is another score"
    assert note not in "".join(score_lines(other, ("v0", "v1")))


def test_verdict_has_each_vehicles_own_tree_when_the_scheme_makes_personal_ones() -> None:
    fleet = small_fleet()
    scheme = catalogue.load("fedga")
    parameters = scheme.Parameters.model_validate({"generations": 1, "population": 6})
    verdict = judge(learned_from(fleet, parameters, "fedga"), fleet, 0)
    assert set(verdict.personal) == set(fleet)
    for vehicle, rows in fleet.items():
        own = verdict.personal[vehicle]
        answer = own.explain(rows.test.X[0])
        assert answer.prediction == own.predict(rows.test.X[:1])[0]
        # The population knows no conditions: its thresholds are the vehicle's.
        assert any(rule.conditions for rule in own.rules())
        assert not any(rule.conditions for rule in verdict.model.rules())
    same = judge(learned_from(fleet, catalogue.load("frbc").Parameters()), fleet, 0)
    assert all(model is same.model for model in same.personal.values())


def test_verdict_promises_nothing_but_replays_the_fleet_when_the_setting_is_another_algorithm() -> None:
    fleet = small_fleet()
    scheme = catalogue.load("frbc")
    owners = scheme.exact(scheme.Parameters.model_validate({"weights": "owners"}))
    verdict = judge(learned_from(fleet, owners), fleet, 0)
    assert verdict.setting == ("weights=owners",)
    assert not verdict.promised
    assert verdict.equal or verdict.replayed == verdict.federated
    assert choices(scheme, scheme.Parameters.model_validate({"n_sets": 5})) == ()


def test_verdict_takes_nothing_for_a_cohort_whose_record_does_not_say_so() -> None:
    fleet = small_fleet()
    scheme = catalogue.load("frbc")
    owners = scheme.exact(scheme.Parameters.model_validate({"weights": "owners"}))
    told = learned_from(fleet, owners)
    assert participation_of(told, scheme) == "cohort"
    silent = told.model_copy(update={"parameters": {}, "digest": "0" * 64})
    assert participation_of(silent, scheme) is None
    verdict = judge(silent, fleet, 0)
    assert verdict.replayed is None
    assert verdict.pooled is not None, "how good the central model is can be known all the same"
    # A scheme that knows one way only needs no word about it.
    assert participation_of(silent, catalogue.load("fedga")) == "elastic"
    assert participation_of(silent, catalogue.load("fmt")) == "cohort"


def test_rehearsal_counts_the_rounds_of_a_short_scheme_and_stops_in_a_long_one() -> None:
    scheme = catalogue.load("frbc")
    fleet = list(small_fleet().values())
    whole = run_preflight(scheme, scheme.exact(scheme.Parameters()), fleet, 0, at_most=9)
    assert whole.rounds == 4, "two for the domain, rules, strengths"
    assert whole.seconds > 0
    assert run_preflight(scheme, scheme.Parameters(), fleet, 0, at_most=3).rounds == 3


def test_tempo_leaves_time_for_heavy_answers_and_hurries_long_elastic_runs() -> None:
    assert tempo(Preflight(9, 0.001), 15, "cohort") == (0.2, 2.5)
    assert 2.5 < tempo(Preflight(9, 100.0), 15, "cohort")[1] < 30
    assert tempo(Preflight(MANY_ROUNDS, 100.0), 15, "elastic")[1] <= 2.5
    quick_pace, quick_deadline = tempo(Preflight(MANY_ROUNDS, 0.001), 15, "elastic")
    assert quick_pace < 0.2
    assert quick_deadline < 2.5
