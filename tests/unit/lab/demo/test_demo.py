"""The demonstration's vehicles, plan, display and verdict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.sources import Source
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.model.baseline import recorded
from lab.demo.command import keep_promise
from lab.demo.display import Live
from lab.demo.options import for_private_run, make_plan
from lab.demo.reference import Verdict, judge
from lab.demo.vehicles import check_columns, real_files
from schemas.errors import DataError, VerificationError
from schemas.record import ModelRecord
from tests.support.agent_bench import record_of


def test_real_files_are_named_after_files_and_refused_when_two_would_be_one_vehicle(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no \.csv"):
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
    ("odd", "text"),
    [
        ("load,y\n1,2\n", r"e\.csv has no column 'temp'; 4 of 5 files have the columns load, temp, y\."),
        ("load,y,temp\n1,2,3\n", r"the last column of .*e\.csv is 'temp', not 'y' \(name one with --target\)"),
    ],
)
def test_file_with_other_columns_than_most_is_named_before_anything_is_started(
    odd: str, text: str, tmp_path: Path
) -> None:
    for name in "abcd":
        (tmp_path / f"{name}.csv").write_text("split,load,temp,y\ntrain,1,2,3\n")
    (tmp_path / "e.csv").write_text(odd)
    with pytest.raises(DataError, match=text):
        check_columns(real_files(tmp_path))


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


def closed_round(**changes: Any) -> dict[str, Any]:
    return {
        "phase": "domain",
        "number": 1,
        "attempt": 1,
        "kind": "histogram",
        "asked": 3,
        "accepted": 2,
        "late": 0,
        "dropped": 1,
        "seconds": 2.5,
        "dropped_agents": {"v1": "deadline"},
        "late_agents": [],
        **changes,
    }


def running(rounds: int, vehicles: dict[str, str], **changes: Any) -> dict[str, Any]:
    return {
        "scheme": "frt",
        "participation": "cohort",
        "phase": "learning",
        "cohort": [],
        "rounds": [closed_round(number=number) for number in range(rounds)],
        "open": {**closed_round(number=rounds), "opened_at": 0.0, "closes_at": 2.5},
        "progress": {"nodes": rounds, "lines": ["x" * 200] * rounds * 9},
        "agents": {name: {"status": "member", "reason": ""} for name in vehicles},
        **changes,
    }


@pytest.mark.parametrize("fleet", [1, 15, 200])
@pytest.mark.parametrize(("columns", "lines"), [(80, 24), (100, 40), (160, 50), (60, 20)])
def test_live_display_fits_the_terminal_and_keeps_its_height_while_a_model_grows(
    monkeypatch: pytest.MonkeyPatch, columns: int, lines: int, fleet: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", str(lines))
    live = Live()
    vehicles = {f"vehicle-{number:02d}": "up" for number in range(fleet)}
    heights = set()
    for rounds in range(12):
        live.say(f"event {rounds}")
        live.look(running(rounds, vehicles), vehicles)
        drawn = live.console.render_lines(live.draw(), pad=False)
        assert all(sum(part.cell_length for part in line) <= columns for line in drawn)
        heights.add(len(drawn))
    assert len(heights) == 1
    assert lines - 2 <= max(heights) <= lines


TWO_INPUTS = (Variable(name="a", low=0, high=1), Variable(name="b", low=0, high=1))
Fleet = dict[str, Source]


def _fleet(*, labels: bool) -> Fleet:
    """Three vehicles' rows, with numbers or with classes."""
    rng = np.random.default_rng(3)
    fleet = {}
    for number in range(3):
        X = rng.uniform(0, 1, (80, 2))
        y: Any = X[:, 0] ** 2 + 0.3 * X[:, 1]
        if labels:
            y = np.where(y > 0.4, "Good", "Poor")
        part = Dataset(("a", "b"), "q", X, y)
        fleet[f"v{number}"] = Source(part, part)
    return fleet


def _learned(fleet: Fleet, scheme: Any, parameters: Any) -> ModelRecord:
    """Return what a fleet publishes that learned in this process."""
    domain = (
        Domain(features=TWO_INPUTS, label="q", classes=("Good", "Poor"))
        if next(iter(fleet.values())).train.y.dtype.kind == "U"
        else Domain(features=TWO_INPUTS, target=Variable(name="q", low=0, high=2))
    )
    train = {vehicle: rows.train for vehicle, rows in fleet.items()}
    outcome = simulation.federated(scheme, parameters, domain, train)
    known = {"participation": "cohort" if "cohort" in scheme.participation else "elastic", **recorded(outcome.summary)}
    return record_of(outcome.model.to_document(), cohort=sorted(train), parameters=known)


def _verdict(name: str, *, labels: bool, rows_lost: int = 0, **parameters: Any) -> Verdict:
    """Judge what the fleet learned; `rows_lost`: rows of the first vehicle that did not count, by some fault."""
    scheme = catalogue.load(name)
    fleet = _fleet(labels=labels)
    first = fleet["v0"].train
    some = Source(Dataset(first.features, first.target, first.X[rows_lost:], first.y[rows_lost:]), first)
    exact = scheme.exact(scheme.Parameters.model_validate(parameters))
    return judge(_learned({**fleet, "v0": some}, scheme, exact), fleet, 0)


@pytest.mark.parametrize(
    ("name", "labels", "parameters"), [("frbc", True, {}), ("tree", False, {"compact": True, "max_rules": 4})]
)
def test_promise_holds_whatever_the_choice_and_the_demo_ends_with_a_fault_when_it_is_broken(
    name: str, labels: bool, parameters: dict[str, Any]
) -> None:
    kept, broken = (_verdict(name, labels=labels, rows_lost=lost, **parameters) for lost in (0, 30))
    assert (kept.promised, kept.equal, broken.promised, broken.equal) == (True, True, True, False)
    assert kept.metric == ("f1" if labels else "rmse")
    assert set(kept.scores) == {"v0", "v1", "v2"}
    federated = kept.mean("federated")
    assert federated is not None
    assert (0.7 if labels else 0.0) < federated <= 1.0
    keep_promise(kept, participation="cohort")
    with pytest.raises(VerificationError, match="is not the central one of its cohort") as caught:
        keep_promise(broken, participation="cohort")
    assert caught.value.exit_code == 8
    keep_promise(broken, participation="elastic")
    keep_promise(replace(kept, promised=False), participation="cohort")


def test_verdict_has_each_vehicles_own_tree_when_the_scheme_makes_personal_ones() -> None:
    scheme = catalogue.load("fedga")
    fleet = _fleet(labels=True)
    parameters = scheme.Parameters.model_validate({"generations": 1, "population": 6})
    verdict = judge(_learned(fleet, scheme, parameters), fleet, 0)
    assert set(verdict.personal) == set(fleet)
    for vehicle, rows in fleet.items():
        own = verdict.personal[vehicle]
        answer = own.explain(rows.test.X[0])
        assert answer.prediction == own.predict(rows.test.X[:1])[0]
        # The population knows no conditions: its thresholds are the vehicle's.
        assert any(rule.conditions for rule in own.rules())
        assert not any(rule.conditions for rule in verdict.model.rules())
    same = _verdict("frbc", labels=True)
    assert all(each is same.model for each in same.personal.values())
