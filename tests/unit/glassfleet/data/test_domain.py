"""Domains, how a fleet finds them: labels, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from glassfleet.contract.messages import Contribution
from glassfleet.data.categories import MAX_LABELS
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.errors import ContributionError, TaskError
from schemas import codec, limits
from schemas.errors import RunFailedError
from tests.support.sample_models import search

SPEED = Variable(name="speed", low=0.0, high=100.0, unit="km/h")
FLAT = Variable(name="flat", low=5.0, high=5.0)
TARGET = Variable(name="y", low=-1.0, high=3.0)


def test_domain_scales_to_the_unit_interval_and_clips_what_is_outside() -> None:
    domain = Domain(features=(SPEED, FLAT), target=TARGET)
    X = np.array([[0.0, 5.0], [50.0, 4.0], [100.0, 6.0], [-20.0, 5.0], [900.0, 5.0]])
    assert domain.scale_inputs(X).tolist() == [[0.0, 0.0], [0.5, 0.0], [1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]
    assert domain.scale_target(np.array([-1.0, 1.0, 7.0])).tolist() == [0.0, 0.5, 1.0]
    assert domain.unscale_target(np.array([0.0, 0.5, 1.0])).tolist() == [-1.0, 1.0, 3.0]


@pytest.mark.parametrize(
    "fields",
    [
        {"features": (), "target": TARGET},
        {"features": (SPEED, SPEED), "target": TARGET},
        {"features": (SPEED,)},
        {"features": (SPEED,), "target": TARGET, "classes": ("a",)},
        {"features": (SPEED,), "target": TARGET, "extra": 1},
    ],
)
def test_domain_refuses_what_does_not_fit_together(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Domain(**fields)


GAPPY = Domain(features=(FLAT, SPEED.model_copy(update={"missing": 40.0})), target=TARGET)


def test_empty_cells_are_taken_for_a_number_and_have_an_indicator_behind_the_features() -> None:
    X = np.array([[5.0, np.nan], [5.0, 90.0]])
    assert GAPPY.input_names == ("flat", "speed", "speed is missing")
    rows = GAPPY.check_rows(X)
    assert rows.tolist() == [[5.0, 40.0, 1.0], [5.0, 90.0, 0.0]]
    assert GAPPY.scale_inputs(rows).tolist() == [[0.0, 0.4, 1.0], [0.0, 0.9, 0.0]]
    assert np.array_equal(GAPPY.as_given(rows), X, equal_nan=True)
    assert GAPPY.by_feature(np.array([1.0, 2.0, 3.0])).tolist() == [1.0, 5.0]
    assert Domain.from_document(GAPPY.to_document()) == GAPPY
    assert SPEED.text(np.nan) == "missing"


def test_empty_cells_that_a_domain_does_not_know_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'flat' has an empty cell, and none was there to learn from"):
        GAPPY.check_rows(np.array([[np.nan, 1.0]]))
    with pytest.raises(ValueError, match=r"finite$"):
        GAPPY.check_rows(np.array([[5.0, np.inf]]))


def test_domain_refuses_an_input_called_like_an_indicator() -> None:
    features = (SPEED.model_copy(update={"missing": 40.0}), Variable(name="speed is missing", low=0, high=1))
    with pytest.raises(ValidationError, match="must differ"):
        Domain(features=features, target=TARGET)


@pytest.mark.parametrize(
    "fields", [{"missing": 101.0}, {"missing": -1.0}, {"categories": ("a",), "high": 0.0, "missing": 0.0}]
)
def test_an_empty_cell_is_taken_for_a_number_within_the_limits(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="an empty cell is taken for a number within the limits"):
        Variable(**{"name": "speed", "low": 0.0, "high": 100.0, **fields})


RNG = np.random.default_rng(0)


def _vehicle(labels: Any, seed: int = 0) -> Dataset:
    y = np.array(list(labels), dtype=np.str_)
    X = np.random.default_rng(seed).normal(1013.0, 0.5, (y.size, 2))  # needs a third round
    return Dataset(("pressure", "load"), "kind", X, y)


def _parameters(**changed: Any) -> DiscoveryParameters:
    return DiscoveryParameters(**{"features": ("pressure", "load"), "target": "kind", "labels": True, **changed})


FLEET = [_vehicle("g" * 20 + "h" * 5 + "z" * 2, 1), _vehicle("k" * 9 + "h" * 8, 2), _vehicle("", 3)]


def test_labels_are_asked_once_and_reported_with_their_rows() -> None:
    rounds, done = search(_parameters(), FLEET)
    asked = ["labels" in step.task.body for step, _ in rounds]

    assert asked == [True] + [False] * (len(asked) - 1)
    assert len(asked) >= 2
    assert done.summary["class_rows"] == {"g": 20, "h": 13, "k": 9}


def test_fleet_without_a_frequent_label_ends_by_name() -> None:
    with pytest.raises(RunFailedError, match="no-classes: no vehicle has a label of 'kind' in 3 rows"):
        discover(_parameters(), [_vehicle("ghk")])


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "no counts": ({"label_rows": None}, "int64 array"),
    "a count too few": ({"label_rows": np.array([20])}, "one count per label"),
    "more than the rows": ({"label_rows": np.array([20, 9])}, "27 rows at most"),
    "a small count": ({"label_rows": np.array([20, 2])}, "at least 3"),
    "not in order": ({"labels": ["h", "g"]}, "lexicographic order"),
    "twice": ({"labels": ["g", "g"]}, "each once"),
    "no text": ({"labels": ["g", 1]}, "must be texts"),
    "a text that arrays shorten": ({"labels": ["g", "h\0"]}, "NUL"),
    "no list": ({"labels": "gh"}, "must be a list"),
    "more": ({"extra": 1}, "expected the labels"),
}


@pytest.mark.parametrize("lie", LIES)
def test_server_refuses_labels_that_cannot_be_true(lie: Any) -> None:
    changed, reason = LIES[lie]
    task = DISCOVERY.server.start(_parameters()).task
    answer = DISCOVERY.client.contribute(task, FLEET[0], RNG)
    DISCOVERY.server.check(task, answer)

    wrong = Contribution(answer.kind, answer.rows, answer.sums, {**answer.values, **changed}, answer.nullified)
    with pytest.raises(ContributionError, match=reason):
        DISCOVERY.server.check(task, wrong)


def vehicle(rows: int, seed: int = 0, features: tuple[str, ...] = ("speed", "load")) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.normal(50.0, 20.0, (rows, len(features)))
    return Dataset(features, "quality", X, rng.uniform(0.0, 1.0, rows))


def parameters(**changed: Any) -> DiscoveryParameters:
    return DiscoveryParameters(**{"features": ("speed", "load"), "target": "quality", **changed})


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"features": ("a", "a")}, "different names"),
        ({"target": "speed"}, "different names"),
        ({"bounds": {"height": (0, 1)}}, "bounds names 'height'"),
        ({"units": {"height": "m"}}, "units names 'height'"),
        ({"bounds": {"load": (1, 1)}}, "low < high"),
        ({"bounds": {"load": (1, float("inf"))}}, "finite"),
        ({"bounds": {"load": (1.0, 1.0 + 1e-14)}}, "too close"),
        ({"input_quantiles": (0.9, 0.1)}, "input_quantiles"),
        ({"target_quantiles": (0.0, 1.5)}, "target_quantiles"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_parameters_refuse_what_cannot_be_meant(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        parameters(**changed)


def test_fleet_needs_two_rounds_for_ordinary_columns() -> None:
    rounds, done = search(parameters(), [vehicle(500, seed) for seed in range(4)])
    assert len(rounds) == 2
    assert done.summary["rows"] == 2000
    assert done.summary["outside"] == {}


def test_fleet_needs_a_third_round_for_a_column_that_varies_little_beside_its_size() -> None:
    data = vehicle(500)
    data.X[:, 0] = np.random.default_rng(0).uniform(1013.0, 1014.0, 500)
    rounds, done = search(parameters(), [data])
    assert len(rounds) == 3
    limits_ = done.model.features[0]
    assert 1013.0 <= limits_.low < limits_.high <= 1014.0 + 1 / 128


def test_message_of_an_ordinary_vehicle_fits_the_strictest_broker() -> None:
    names = tuple(f"x{index}" for index in range(15))
    data = vehicle(2400, features=names)
    rounds, _ = search(parameters(features=names), [data])
    for _, answers in rounds:
        assert len(codec.encode(answers[0].to_value())) < limits.MAX_MESSAGE_BYTES - 2048


@pytest.mark.parametrize("rows", [0, 2])
def test_fleet_without_enough_rows_ends_by_name(rows: int) -> None:
    with pytest.raises(RunFailedError, match="no-rows"):
        discover(parameters(), [vehicle(rows), vehicle(0)])


def test_vehicle_refuses_when_a_column_or_the_target_is_missing() -> None:
    task = DISCOVERY.server.start(parameters()).task
    with pytest.raises(TaskError, match="'load' is missing"):
        DISCOVERY.client.contribute(task, vehicle(5, features=("speed",)), RNG)
    data = vehicle(5)
    with pytest.raises(TaskError, match="target here is 'other'"):
        DISCOVERY.client.contribute(task, Dataset(data.features, "other", data.X, data.y), RNG)
    with pytest.raises(TaskError, match="holds classes here"):
        DISCOVERY.client.contribute(task, Dataset(data.features, "quality", data.X, np.array(["a"] * 5)), RNG)


@pytest.mark.parametrize(
    ("values", "declared", "limits"),
    [
        (np.linspace(39.187, 104.53, 900), None, (39.0, 105.0)),
        (np.linspace(0.0, 1.0, 900) ** 2, None, (0.0, 1.0)),  # a share
        (np.linspace(0.013, 0.9996, 900), None, (0.01, 1.0)),
        (np.linspace(0.0, 1.2, 900), None, (0.0, 1.21)),  # it only begins like one
        (np.linspace(-0.02, 1.0, 900), None, (-0.03, 1.01)),
        (np.linspace(1003.21, 1021.37, 900), (1003.1, 1021.38), (1003.2, 1021.38)),
        (np.full(900, 7.3), None, (7.3, 7.3)),
    ],
)
def test_limits_of_a_run_are_readable_and_neither_beyond_declared_ones_nor_those_of_a_share(
    values: NDArray[np.float64], declared: tuple[float, float] | None, limits: tuple[float, float]
) -> None:
    data = Dataset(("speed",), "quality", values[:, None], np.linspace(0.0, 1.0, len(values)))
    bounds = {} if declared is None else {"speed": declared}
    asked = DiscoveryParameters(
        features=("speed",), target="quality", input_quantiles=(0.0, 1.0), bounds=bounds, readable=True
    )
    result = discover(asked.exact(), [data]).features[0]
    assert (result.low, result.high) == pytest.approx(limits, abs=1e-9 + 0.02 * (limits[0] == limits[1]))
    plain = discover(asked.exact().model_copy(update={"readable": False}), [data]).features[0]
    assert result.low <= plain.low
    assert result.high >= plain.high or (result.high, plain.low >= 0.0) == (1.0, True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (Dataset(("pressure", "load"), "kind", np.zeros((3, 2)), np.zeros(3)), "numeric here"),
        (Dataset(("pressure", "load"), "other", np.zeros((3, 2)), np.array(["a"] * 3)), "'other', not 'kind'"),
        (_vehicle(str(i) for i in range(MAX_LABELS + 1)), "4097 different labels"),
        (_vehicle(["x" * 201] * 3), "1 to 200"),
    ],
)
def test_vehicle_refuses_a_target_that_is_no_class(data: Any, reason: Any) -> None:
    with pytest.raises(TaskError, match=reason):
        DISCOVERY.client.contribute(DISCOVERY.server.start(_parameters()).task, data, RNG)
