"""The typical row in a model's record, and forecasts that are compared with it or with a row that is given."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet import catalogue, local
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable, pooled_domain
from glassfleet.explain import explain_row
from glassfleet.reference import Reference, explained, recorded, reference_of, typical_row
from schemas.errors import VerificationError

NAMES = ("hour", "load", "heat")


def rows(seed: int, count: int = 200) -> Dataset:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(0, 24, count) * 1.0, rng.uniform(0, 9, count), rng.uniform(-5, 5, count)])
    y = 100 + 20 * np.sin(X[:, 0] / 4) + np.where(X[:, 1] > 5, 3 * X[:, 2], -X[:, 2])
    return Dataset(NAMES, "minutes", X, y)


FLEET = {"a": rows(1), "b": rows(2, 300)}
X = np.concatenate([each.X for each in FLEET.values()])
Y = np.concatenate([each.y for each in FLEET.values()])
DOMAIN = pooled_domain(NAMES, "minutes", X, Y)


@cache
def learned(scheme: str) -> local.Outcome:
    chosen = catalogue.load(scheme)
    return local.federated(chosen, chosen.exact(chosen.Parameters()), DOMAIN, FLEET)


@pytest.mark.parametrize("scheme", ["fmt", "bmt", "frt", "tsk"])
def test_base_is_the_forecast_for_the_fleets_means_and_lies_near_the_targets_mean(scheme: str) -> None:
    outcome = learned(scheme)
    reference = reference_of(recorded(outcome.summary), DOMAIN)
    assert reference is not None
    steps = [(variable.high - variable.low) / 256 for variable in DOMAIN.features]
    # Sums of training rows leave out those that are held out, so the means are near those of all rows.
    assert np.all(np.abs(reference.row - X.mean(axis=0)) < [6 * step for step in steps])
    told = explain_row(outcome.model, X[7], reference)
    assert told.base == pytest.approx(float(outcome.model.predict(reference.row[None])[0]), rel=1e-12)
    assert abs(told.base - Y.mean()) < 0.5 * Y.std()
    assert math.fsum((told.base, told.rounding, *told.shares.values())) == told.prediction
    hour = next(each for each in told.inputs if each.feature == "hour")
    assert hour.difference == f"22 instead of {reference.row[0]:.4g}"
    assert told.base_text == "the forecast for a typical row, the fleet's mean of each input"


def test_categories_are_compared_with_one_that_no_vehicle_told() -> None:
    rng = np.random.default_rng(0)
    cities = tuple(f"c{number:03}" for number in range(129))
    city, size = rng.integers(0, 129, 2000) * 1.0, rng.uniform(0, 9, 2000)
    y = np.where(city % 2 == 0, 60.0, 40.0) + size
    data = Dataset(("city", "size"), "price", np.column_stack([city, size]), y, categories={"city": cities})
    features = (Variable(name="city", low=0, high=128, categories=cities), Variable(name="size", low=0, high=9))
    domain = Domain(features=features, target=Variable(name="price", low=40, high=70))
    fmt = catalogue.load("fmt")
    outcome = local.central(fmt, fmt.exact(fmt.Parameters()), domain, data)
    told = explain_row(outcome.model, data.X[0], reference_of(recorded(outcome.summary), domain))
    assert told.base == pytest.approx(y.mean(), abs=0.5 * y.std())
    difference = next(each.difference for each in told.inputs if each.feature == "city")
    assert difference == f"{cities[int(city[0])]} instead of an unknown category"


class Formula:
    """A model of rules that answers by a function of the row."""

    domain = Domain(
        features=tuple(Variable(name=name, low=0, high=10) for name in "abcd"),
        target=Variable(name="y", low=0, high=99),
    )
    scheme = "formula"

    def __init__(self, function: Any) -> None:
        self.predict = function

    def explain(self, x: NDArray[np.float64]) -> Any:
        own = learned("frt").model.explain(X[0])
        return type(own)(float(self.predict(x[None])[0]), own.fired, shares=dict.fromkeys("abcd", 0.0))


def test_shares_of_inputs_that_act_in_pairs_are_their_shapley_values() -> None:
    model: Any = Formula(lambda z: 3 * z[:, 0] + z[:, 1] * z[:, 2])
    at, reference = np.array([2.0, 4.0, 5.0, 9.0]), np.array([1.0, 1.0, 1.0, 1.0])
    told = explained(model, at, Reference(reference, "row 1"))
    # The pair's change, 19, by halves of either order: b alone 3, c alone 4.
    assert told.base == 4.0
    assert told.shares == pytest.approx({"a": 3.0, "b": (3 + 15) / 2, "c": (4 + 16) / 2, "d": 0.0}, abs=1e-12)
    assert told.base_text == "the forecast for row 1"


def test_row_that_is_the_reference_has_no_shares_but_zeros() -> None:
    model: Any = Formula(lambda z: z.sum(axis=1))
    told = explained(model, np.ones(4), Reference(np.ones(4), "row 1"))
    assert (told.base, set(told.shares.values()), told.differences) == (4.0, {0.0}, {})


def test_without_a_typical_row_the_base_stays_the_models_own_and_says_so() -> None:
    outcome = learned("fmt")
    told = explain_row(outcome.model, X[7], reference_of({}, DOMAIN))
    own = outcome.model.explain(X[7])
    assert (told.base, told.shares, told.reference) == (own.base, own.shares, None)
    assert told.base_text.endswith("the model's record has no typical row to compare with")


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
