"""The typical row in a model record; what rules say of their own rows; compared forecasts; the scores of a fleet."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.models.evaluation import mean_f1
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError
from glassfleet.evaluation.drift import COLUMNS, MOST
from glassfleet.evaluation.scores import SCORES, ScoresAsked, scored
from glassfleet.explain import explain_row, in_words_of
from glassfleet.model.baseline import ReferenceRow, explained, filled, recorded, reference_of, typical_row
from glassfleet.model.intervals import tell_forecasts
from glassfleet.private.layout import layout_of
from lab.protocols.paper import pooled_domain
from schemas.errors import VerificationError
from tests.support.sample_models import unit_domain

NAMES = ("hour", "load", "heat")


def rows(seed: int, count: int = 200) -> Dataset:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(0, 24, count) * 1.0, rng.uniform(0, 9, count), rng.uniform(-5, 5, count)])
    y = 100 + 20 * np.sin(X[:, 0] / 4) + np.where(X[:, 1] > 5, 3 * X[:, 2], -X[:, 2])
    return Dataset(NAMES, "minutes", X, y)


FLEET = {"a": rows(1), "b": rows(2, 300)}
ALL = pool(list(FLEET.values()))
X, Y = ALL.X, ALL.y
DOMAIN = pooled_domain(NAMES, "minutes", X, Y)


@cache
def learned(scheme: str) -> simulation.Outcome:
    chosen = catalogue.load(scheme)
    return simulation.federated(chosen, chosen.exact(chosen.Parameters()), DOMAIN, FLEET)


@pytest.mark.parametrize("scheme", ["tree", "frt", "tsk"])
def test_base_is_the_forecast_for_the_fleets_means_and_lies_near_the_targets_mean(scheme: str) -> None:
    outcome = learned(scheme)
    reference = reference_of(recorded(outcome.summary), DOMAIN)
    assert reference is not None
    steps = [(variable.high - variable.low) / 256 for variable in DOMAIN.features]
    # Sums of training rows leave out those that are held out, so the means are near those of all rows.
    assert np.all(np.abs(reference.row - X.mean(axis=0)) < [6 * step for step in steps])
    result = explain_row(outcome.model, X[7], reference)
    assert result.base == pytest.approx(float(outcome.model.predict(reference.row[None])[0]), rel=1e-12)
    assert abs(result.base - Y.mean()) < 0.5 * Y.std()
    assert math.fsum((result.base, result.rounding, *result.shares.values())) == result.prediction
    hour = next(each for each in result.inputs if each.feature == "hour")
    assert hour.difference == f"22 instead of {reference.row[0]:.4g}"
    assert result.base_text == "the forecast for a typical row, the fleet's mean of each input"


def test_categories_are_compared_with_one_that_no_vehicle_told() -> None:
    rng = np.random.default_rng(0)
    cities = tuple(f"c{number:03}" for number in range(129))
    city, size = rng.integers(0, 129, 2000) * 1.0, rng.uniform(0, 9, 2000)
    y = np.where(city % 2 == 0, 60.0, 40.0) + size
    data = Dataset(("city", "size"), "price", np.column_stack([city, size]), y, categories={"city": cities})
    features = (Variable(name="city", low=0, high=128, categories=cities), Variable(name="size", low=0, high=9))
    domain = Domain(features=features, target=Variable(name="price", low=40, high=70))
    tree = catalogue.load("tree")
    outcome = simulation.central(tree, tree.exact(tree.Parameters()), domain, data)
    result = explain_row(outcome.model, data.X[0], reference_of(recorded(outcome.summary), domain))
    assert result.base == pytest.approx(y.mean(), abs=0.5 * y.std())
    difference = next(each.difference for each in result.inputs if each.feature == "city")
    assert difference == f"{cities[int(city[0])]} instead of an unknown category"


class Formula:
    """A model of rules that answers by a function of the row."""

    domain = unit_domain("abcd", high=99.0)
    scheme = "formula"

    def __init__(self, function: Any) -> None:
        self.predict = function

    def explain(self, x: NDArray[np.float64]) -> Any:
        own = learned("frt").model.explain(X[0])
        return type(own)(float(self.predict(x[None])[0]), own.fired, shares=dict.fromkeys("abcd", 0.0))


def test_shares_of_inputs_that_act_in_pairs_are_their_shapley_values() -> None:
    model: Any = Formula(lambda z: 3 * z[:, 0] + z[:, 1] * z[:, 2])
    at, reference = np.array([2.0, 4.0, 5.0, 9.0]), np.array([1.0, 1.0, 1.0, 1.0])
    result = explained(model, at, ReferenceRow(reference, "row 1"))
    # The pair's change, 19, by halves of either order: b alone 3, c alone 4.
    assert result.base == 4.0
    assert result.shares == pytest.approx({"a": 3.0, "b": (3 + 15) / 2, "c": (4 + 16) / 2, "d": 0.0}, abs=1e-12)
    assert result.base_text == "the forecast for row 1"


def test_typical_row_is_the_weighted_mean_of_parts_and_unknown_without_rows_or_sums() -> None:
    sums = np.array([[3, 1], [0, 1], [1.5, 0.5], [3, 1]])
    places = (0.25, 0.5, 1.0)
    means = [each.low + at * (each.high - each.low) for each, at in zip(DOMAIN.features, places, strict=True)]
    assert typical_row(DOMAIN, sums) == pytest.approx(dict(zip(NAMES, means, strict=True)))
    assert typical_row(DOMAIN, np.zeros(4)) == typical_row(DOMAIN, np.array([[3, 1]])) == {}


@pytest.mark.parametrize(
    "change", [{"digest": "0" * 64}, {"row": {"hour": 1.0}}, {"row": None}, {"row": dict.fromkeys(NAMES, "x")}]
)
def test_typical_row_that_was_changed_in_the_record_is_refused(change: dict[str, Any]) -> None:
    kept = recorded({"reference": dict.fromkeys(NAMES, 1.0)})["reference"]
    with pytest.raises(VerificationError, match="typical row in the model's record"):
        reference_of({"reference": {**kept, **change}}, DOMAIN)


def with_forecasts(scheme: str) -> tuple[Any, dict[str, Any]]:
    """Return a model that its record's forecasts were told, and what stands beside it there."""
    model = catalogue.load(scheme).from_document(learned(scheme).model.to_document())
    beside = json.loads(json.dumps(recorded(learned(scheme).summary)))
    tell_forecasts(model, beside)
    return model, beside


@pytest.mark.parametrize("scheme", ["tree", "frt", "tsk"])
def test_forecasts_of_rules_are_those_of_their_own_rows(scheme: str) -> None:
    model, _ = with_forecasts(scheme)
    forecasts = [rule.forecast for rule in model.rules()]
    assert sum(each.rows for each in forecasts) == pytest.approx(1.0, abs=0.01)
    together = sum(each.rows * each.mean for each in forecasts)
    assert together == pytest.approx(ALL.y.mean(), abs=0.02 * (ALL.y.max() - ALL.y.min()))


def test_middle_of_a_rules_forecasts_holds_about_eight_rows_of_ten() -> None:
    model, _ = with_forecasts("frt")
    X = np.clip(ALL.X, [each.low for each in DOMAIN.features], [each.high for each in DOMAIN.features])
    inside, step = 0.0, (ALL.y.max() - ALL.y.min()) / 1024
    for rule in model.rules():
        own, told_of = degree(rule, X), rule.forecast
        slopes = {slope.feature: slope.per_unit for slope in rule.consequent.slopes}
        forecasts = rule.consequent.value + X @ [slopes.get(name, 0.0) for name in NAMES]
        assert told_of.mean == pytest.approx(np.average(forecasts, weights=own), abs=step)
        for name, move in told_of.moves.items():
            x = X[:, NAMES.index(name)]
            deviation = np.sqrt(np.average((x - np.average(x, weights=own)) ** 2, weights=own))
            assert move == pytest.approx(2 * 1.2816 * slopes[name] * deviation, abs=step)
        inside += own[(forecasts >= told_of.low) & (forecasts <= told_of.high)].sum()
    assert 0.7 < inside / len(X) < 0.9


def degree(rule: Any, X: np.ndarray) -> np.ndarray:
    result = np.ones(len(X))
    for part in rule.conditions:
        x = np.clip(X[:, NAMES.index(part.feature)], part.low, part.high)
        up = (x - part.low) / (part.peak - part.low) if part.peak > part.low else np.ones(len(X))
        down = (part.high - x) / (part.high - part.peak) if part.high > part.peak else np.ones(len(X))
        result *= np.minimum(up, down)
    return result


def test_rule_says_share_of_rows_forecasts_and_error_in_the_targets_unit() -> None:
    model, _ = with_forecasts("tree")
    assert DOMAIN.target is not None
    target = DOMAIN.target.model_copy(update={"unit": "min"})
    spoken = in_words_of(model, DOMAIN.model_copy(update={"target": target}))
    rule: Any = spoken.rules()[0]
    assert rule.forecast == model.rules()[0].forecast
    share, mean, middle, error = rule.measures.split(", ")
    assert (share, error) == (f"{100 * rule.forecast.rows:.3g} % of the rows", f"error {rule.error:.3g} min")
    assert mean == f"mean forecast {rule.forecast.mean:.4g}"
    assert middle == f"8 of 10 from {rule.forecast.low:.4g} to {rule.forecast.high:.4g} min"


def test_model_of_a_former_record_tells_support_and_error_alone() -> None:
    model = catalogue.load("tree").from_document(learned("tree").model.to_document())
    tell_forecasts(model, {})
    rule = model.rules()[0]
    assert rule.measures == f"support {rule.support:.3f}, error {rule.error:.3g}"


@pytest.mark.parametrize(
    "change", [{"digest": "0" * 64}, {"rules": [{"rows": 0.5, "mean": 1.0, "low": 0.0, "high": 2.0}]}, {"rules": None}]
)
def test_forecasts_that_were_changed_in_the_record_are_refused(change: dict[str, Any]) -> None:
    model, beside = with_forecasts("frt")
    with pytest.raises(VerificationError, match="forecasts in the model's record"):
        tell_forecasts(model, {"forecasts": {**beside["forecasts"], **change}})


FEATURES = (Variable(name="a", low=0.0, high=1.0),)
NUMBERS = Domain(features=FEATURES, target=Variable(name="y", low=-5.0, high=5.0))
CLASSES = Domain(features=FEATURES, label="y", classes=("no", "yes"))


def task_of(domain: Domain) -> Task:
    asked = ScoresAsked({"domain": domain.to_document()}, None, {"champion": 0.05, "constant": -0.01})
    return SCORES.server.start(asked, domain, 0).task


def reduced(task: Task, answers: list[Contribution]) -> Any:
    return SCORES.server.reduce({"task": task.body}, [replace(each, vehicles=1) for each in answers]).summary


def test_sums_of_classes_give_the_f1_of_all_rows_together() -> None:
    rng, task = np.random.default_rng(1), task_of(CLASSES)
    labels = np.array(["no", "yes", "unheard of"])
    truths, forecasts = (
        [labels[rng.integers(0, 3, 20)] for _ in range(4)],
        [labels[rng.integers(0, 2, 20)] for _ in range(4)],
    )
    answers = [scored(task, y, {"candidate": text}) for y, text in zip(truths, forecasts, strict=True)]
    for answer in answers:
        SCORES.server.check(task, answer)
    assert reduced(task, answers)["candidate"] == pytest.approx(
        mean_f1(np.concatenate(truths), np.concatenate(forecasts))
    )
    result, y, text = reduced(task, answers)["confusion"], np.concatenate(truths), np.concatenate(forecasts)
    assert result == [[int(((y == a) & (text == b)).sum()) for b in labels] for a in labels]


def test_all_answers_have_one_length_also_without_test_rows() -> None:
    task = task_of(NUMBERS)
    layout = layout_of(SCORES, task)
    full = layout.flatten(scored(task, np.ones(3), {"candidate": np.ones(3), "constant": np.zeros(3)}))
    none = layout.flatten(scored(task, np.empty(0), {}))
    assert full.shape == none.shape == (layout.size,)
    assert not none.any()


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows/candidate", 9), ("errors/candidate", -1), ("errors/candidate", 2**40), ("worse/constant", 2)],
)
def test_sums_that_no_rows_can_have_are_refused(name: str, value: int) -> None:
    task = task_of(NUMBERS)
    answer = scored(task, np.ones(3), {"candidate": np.ones(3), "constant": np.zeros(3)})
    SCORES.server.check(task, answer)
    answer.sums[name][-1] = value
    with pytest.raises(ContributionError):
        SCORES.server.check(task, answer)


def errors_task(lines: int = 2) -> Task:
    return SCORES.server.start(ScoresAsked({"domain": NUMBERS.to_document()}, lines=lines), NUMBERS, 0).task


def errors_answer(off: float, rows: int) -> Contribution:
    zeros = np.zeros(rows)
    return scored(errors_task(), zeros + off, {"candidate": zeros}, np.zeros(rows, dtype=np.intp))


def test_rules_that_decide_one_or_two_of_a_vehicles_rows_are_not_told_of() -> None:
    zeros = np.zeros(5)
    answer = scored(errors_task(), zeros, {"candidate": zeros}, np.array([0, 0, 0, 1, 1]))
    SCORES.server.check(errors_task(), answer)

    assert answer.sums["counts"].sum(axis=1).tolist() == [3, 0]


@pytest.mark.parametrize("wrong", [-1, 31, 2**62])
def test_counts_that_no_rows_can_have_are_refused(wrong: int) -> None:
    answer = errors_answer(0.5, 30)
    answer.sums["counts"][1, :4] = wrong
    with pytest.raises(ContributionError, match="counts of errors"):
        SCORES.server.check(errors_task(), answer)


def test_one_vehicle_weighs_no_more_than_five_usual_ones() -> None:
    usual = [errors_answer(1.0, 100) for _ in range(14)]
    state = {"task": errors_task().body}
    summary = SCORES.server.reduce(state, [*usual, errors_answer(0.0, 1_000_000)]).summary

    # 1,400 honest rows and about 500 of the other, which is right about none.
    assert 1_400 < sum(summary["errors"]["counts"]) < 2_000
    assert summary["errors"]["lines"][0]["high"] == pytest.approx(1.0, rel=0.13)


def test_what_a_rule_does_not_tell_is_as_in_others() -> None:
    sums = np.array([[2.0, 6.0, 4.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    columns = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 1]], dtype=bool)
    expected = [[2.0, 6.0, 4.0], [1.0, 6.0 * 2.0 / 6.0, 1.0], [1.0, 3.0, 2.0]]  # of the second nobody tells: a half
    assert filled(sums, columns).tolist() == expected
    assert filled(sums, None) is sums


DRIFT = ScoresAsked({"domain": NUMBERS.to_document()}, {"domain": NUMBERS.to_document()}, lines=1, watched=2)


def test_scores_ask_and_sum_how_far_the_champion_moved_and_refuse_what_cannot_be():
    task = SCORES.server.start(DRIFT, NUMBERS, 0).task
    shape = SCORES.layout(task)["drift"]
    assert shape == (2 + len(NUMBERS.features), COLUMNS)
    own = np.zeros(shape, dtype=np.int64)
    own[0] = 1, -12, 144, 20, 1, 20
    y = np.linspace(0.0, 1.0, 20)
    answers = [scored(task, y, {"candidate": y}, drift=each) for each in (own, own, None)]
    for each in answers:
        SCORES.server.check(task, each)
    drift = SCORES.server.reduce({"task": task.body}, answers).summary["drift"]
    assert drift["rules"] == 2
    assert drift["sums"][0] == (2 * own[0]).tolist()
    for column, value in ((0, 2), (1, 5 * MOST), (1, 13), (2, 143), (3, MOST + 1), (4, 2), (5, -MOST - 1)):
        false = own.copy()
        false[0, column] = value
        with pytest.raises(ContributionError):
            SCORES.server.check(task, scored(task, y, {"candidate": y}, drift=false))
