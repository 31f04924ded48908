"""Importance is what moves forecasts: its order is that of permutation importance and of Shapley values."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from glassfleet.contract import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.explain import importance, reach
from glassfleet.model.baseline import ReferenceRow, recorded, reference_of
from glassfleet.model.intervals import tell_forecasts
from glassfleet.simulation import central
from tests.support.datasets import numbers

Floats = NDArray[np.float64]

SHIPPED = ("diabetes",)
REAL = ("weather_izmir", "mortgage", "compactiv", "california", "abalone")


@cache
def parts(name: str) -> tuple[Dataset, Dataset]:
    """Return training and test rows."""
    data = numbers(name)
    rows = np.random.default_rng(0).permutation(data.rows)[:3000]
    cut = int(0.7 * len(rows))
    train, test = (Dataset(data.features, data.target, data.X[each], data.y[each]) for each in (rows[:cut], rows[cut:]))
    return train, test


@cache
def learned(name: str) -> tuple[Any, ReferenceRow]:
    train, _ = parts(name)
    domain = discover(DiscoveryParameters(features=list(train.features), target=train.target), [train])
    scheme = catalogue.load("tree")
    outcome = central(scheme, scheme.Parameters(), domain, train)
    model: Any = scheme.from_document(outcome.model.to_document())
    beside = json.loads(json.dumps(recorded(outcome.summary)))
    tell_forecasts(model, beside)
    reference = reference_of(beside, domain)
    assert reference is not None
    return model, reference


def permutation(model: Any, rows: Dataset) -> Floats:
    """Return by how much the squared error grows when an input's values are shuffled."""
    rng, result = np.random.default_rng(0), []
    for place in range(rows.X.shape[1]):
        total = 0.0
        for _ in range(5):
            X = rows.X.copy()
            X[:, place] = rng.permutation(X[:, place])
            total += float(np.mean((model.predict(X) - rows.y) ** 2))
        result.append(total)
    return np.array(result)


def shapley(model: Any, rows: Dataset, background: Dataset) -> Floats:
    """Return the mean absolute Shapley value of each input, sampled over orders and background rows."""
    rng, X = np.random.default_rng(0), rows.X[:80]
    shares = np.zeros(X.shape)
    for at, x in enumerate(X):
        for other in background.X[rng.choice(background.rows, 40)]:
            order = rng.permutation(X.shape[1])
            steps = np.tile(other, (len(order) + 1, 1))
            for step, place in enumerate(order, start=1):
                steps[step:, place] = x[place]
            shares[at, order] += np.diff(model.predict(steps))
    return np.asarray(np.abs(shares / 40).mean(axis=0))


@pytest.mark.parametrize("names", [SHIPPED, pytest.param(REAL, marks=pytest.mark.slow)], ids=["shipped", "real"])
def test_order_of_inputs_is_that_of_permutation_importance_and_of_shapley_values(names: tuple[str, ...]) -> None:
    agree = []
    for name in names:
        model, reference = learned(name)
        train, test = parts(name)
        found = list(importance(model, reference, model.domain.names).values())
        agree.append([spearmanr(found, each)[0] for each in (permutation(model, test), shapley(model, test, train))])
    assert (np.mean(agree, axis=0) >= 0.9).all(), dict(zip(names, agree, strict=True))


def test_spreads_in_the_record_are_those_of_the_rows() -> None:
    model, reference = learned("diabetes")
    train, _ = parts("diabetes")
    domain = model.domain
    low, high = (np.array([getattr(each, end) for each in domain.features]) for end in ("low", "high"))
    expected = np.clip(train.X, low, high).std(axis=0)
    assert list(reference.spreads) == list(domain.names)
    assert np.abs(np.array(list(reference.spreads.values())) - expected).max() < (high - low).max() / 128


def test_limits_far_out_change_what_an_input_could_do_and_not_its_importance() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3))
    y = 0.6 * X[:, 0] + 0.4 * X[:, 1] + 0.1 * X[:, 2]
    rows = Dataset(("a", "b", "c"), "y", X, y)
    limits = {"a": 4.0, "b": 4.0, "c": 60.0}
    features = tuple(Variable(name=name, low=-limit, high=limit) for name, limit in limits.items())
    domain = Domain(features=features, target=Variable(name="y", low=-8.0, high=8.0))
    scheme = catalogue.load("tree")
    outcome = central(scheme, scheme.Parameters(), domain, rows)
    reference = reference_of(recorded(outcome.summary), domain)
    far, near = (each(outcome.model, reference, domain.names) for each in (reach, importance))
    assert max(far, key=far.__getitem__) == "c"
    assert sorted(near, key=near.__getitem__) == ["c", "b", "a"]
