"""Domain discovery: parameters, the two halves, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Variable
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.errors import ContributionError, TaskError
from glassfleet.scheme import Contribution, Done, Next
from schemas import codec, limits
from schemas.errors import RunFailedError

RNG = np.random.default_rng(0)


def vehicle(rows: int, seed: int = 0, features: tuple[str, ...] = ("speed", "load")) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.normal(50.0, 20.0, (rows, len(features)))
    return Dataset(features, "quality", X, rng.uniform(0.0, 1.0, rows))


def parameters(**changed: Any) -> DiscoveryParameters:
    return DiscoveryParameters(**{"features": ("speed", "load"), "target": "quality", **changed})


def rounds_of(chosen: DiscoveryParameters, fleet: list[Dataset]) -> tuple[list[list[Contribution]], Done]:
    step: Next | Done = DISCOVERY.server.start(chosen)
    rounds = []
    while isinstance(step, Next):
        answers = [DISCOVERY.client.contribute(step.task, data, RNG) for data in fleet]
        for answer in answers:
            DISCOVERY.server.check(step.task, answer)
        rounds.append(answers)
        step = DISCOVERY.server.reduce(step.state, answers)
    return rounds, step


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
    rounds, done = rounds_of(parameters(), [vehicle(500, seed) for seed in range(4)])
    assert len(rounds) == 2
    assert done.summary["rows"] == 2000
    assert done.summary["outside"] == {}


def test_fleet_needs_a_third_round_for_a_column_that_varies_little_beside_its_size() -> None:
    data = vehicle(500)
    data.X[:, 0] = np.random.default_rng(0).uniform(1013.0, 1014.0, 500)
    rounds, done = rounds_of(parameters(), [data])
    assert len(rounds) == 3
    limits_ = done.model.features[0]
    assert 1013.0 <= limits_.low < limits_.high <= 1014.0 + 1 / 128


def test_column_at_its_declared_bounds_gets_exactly_these() -> None:
    data = vehicle(60)
    data.X[:, 1] = np.repeat([0.0, 0.5, 1.0], 20)
    found = discover(parameters(bounds={"load": (0.0, 1.0)}), [data]).features[1]
    assert found == Variable(name="load", low=0.0, high=1.0)


def test_values_outside_declared_bounds_are_counted_and_clipped() -> None:
    data = vehicle(100)
    data.X[:7, 1] = -1e6
    _, done = rounds_of(parameters(bounds={"load": (-100.0, 200.0)}), [data])
    assert done.summary["outside"] == {"load": [7, 0]}
    assert done.model.features[1].low == -100.0


def test_target_limits_enclose_every_row_when_nothing_is_withheld() -> None:
    fleet = [vehicle(100, seed) for seed in range(3)]
    domain = discover(parameters().exact(), fleet)
    assert domain.target is not None
    assert domain.target.low <= min(data.y.min() for data in fleet)
    assert domain.target.high >= max(data.y.max() for data in fleet)
    extremes = {float(value) for data in fleet for value in (data.y.min(), data.y.max())}
    assert not {domain.target.low, domain.target.high} & extremes


def test_message_of_an_ordinary_vehicle_fits_the_strictest_broker() -> None:
    names = tuple(f"x{index}" for index in range(15))
    data = vehicle(2400, features=names)
    rounds, _ = rounds_of(parameters(features=names), [data])
    for answers in rounds:
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
    with pytest.raises(TaskError, match="not numeric"):
        DISCOVERY.client.contribute(task, Dataset(data.features, "quality", data.X, np.array(["a"] * 5)), RNG)


def _one_more(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    counts[int(np.argmax(counts))] += 1
    return counts


def _one_negative(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    counts[0], counts[1] = -5, counts[1] + 5
    return counts


def _one_small(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    counts[int(np.argmax(counts))] -= 1
    counts[int(np.argmin(counts))] += 1
    return counts


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda counts: counts[:-1], "shape"),
        (lambda counts: counts[None], "shape"),
        (lambda counts: counts * 0, "add up to 0"),
        (lambda counts: counts + 2**62, "must be in"),
        (_one_more, "add up"),
        (_one_negative, "must be in"),
        (_one_small, "below min_count"),
    ],
)
def test_server_refuses_counts_that_cannot_be_true(spoil: Any, reason: str) -> None:
    task = DISCOVERY.server.start(parameters()).task
    answer = DISCOVERY.client.contribute(task, vehicle(50), RNG)
    wrong = Contribution(answer.kind, answer.rows, {**answer.sums, "counts": spoil(answer.sums["counts"].copy())})
    with pytest.raises(ContributionError, match=reason):
        DISCOVERY.server.check(task, wrong)


@pytest.mark.parametrize(
    "changed",
    [
        {"kind": "level"},
        {"sums": {}},
        {"values": {"x": 1}},
        {"rows": 51},
        {
            "sums": {
                "counts": np.zeros(3, dtype=np.int64),
                "outside": np.zeros((3, 2), dtype=np.int64),
                "x": np.zeros(1),
            }
        },
    ],
)
def test_server_refuses_an_answer_of_another_shape(changed: dict[str, Any]) -> None:
    task = DISCOVERY.server.start(parameters()).task
    answer = DISCOVERY.client.contribute(task, vehicle(50), RNG)
    whole = {"kind": answer.kind, "rows": answer.rows, "sums": answer.sums, "values": answer.values}
    with pytest.raises(ContributionError):
        DISCOVERY.server.check(task, Contribution(**{**whole, **changed}))


def test_server_uses_whoever_answered_each_round() -> None:
    fleet = [vehicle(300, seed) for seed in range(5)]
    step: Next | Done = DISCOVERY.server.start(parameters())
    number = 0
    while isinstance(step, Next):
        answered = fleet[:3] if number == 0 else fleet[2:]
        step = DISCOVERY.server.reduce(
            step.state, [DISCOVERY.client.contribute(step.task, data, RNG) for data in answered]
        )
        number += 1
    low, high = step.model.features[0].low, step.model.features[0].high
    assert -10 < low < 30
    assert 70 < high < 110


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
    found = discover(asked.exact(), [data]).features[0]
    assert (found.low, found.high) == pytest.approx(limits, abs=1e-9 + 0.02 * (limits[0] == limits[1]))
    plain = discover(asked.exact().model_copy(update={"readable": False}), [data]).features[0]
    assert found.low <= plain.low
    assert found.high >= plain.high or (found.high, plain.low >= 0.0) == (1.0, True)
