"""The averaged perceptron: exact averages, honest explanations, clear refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import federated
from glassfleet.scheme import Next
from glassfleet.schemes.fedavg_mlp.messages import BITS
from schemas.errors import UsageError

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

SCHEME = catalogue.load("fedavg_mlp")
PARAMETERS = SCHEME.Parameters(rounds=3, hidden=(8, 4))
NAMES = ("a", "b", "c")
FEATURES = tuple(Variable(name=name, low=0.0, high=10.0) for name in NAMES)
DOMAIN = Domain(features=FEATURES, target=Variable(name="y", low=0.0, high=30.0))
CLASSES = Domain(features=FEATURES, label="y", classes=("high", "low", "middle"))


def rows(count: int, seed: int, *, labels: bool = False) -> Dataset:
    X = np.random.default_rng(seed).uniform(0, 10, (count, 3))
    y: Any = X[:, 0] * 2 + np.where(X[:, 1] > 5, X[:, 2], 0)
    if labels:
        y = np.where(y > 15, "high", np.where(y > 8, "middle", "low"))
    return Dataset(NAMES, "y", X, y)


def test_server_averages_weights_by_rows() -> None:
    step = SCHEME.server.start(PARAMETERS, DOMAIN, 0)
    rng = np.random.default_rng(0)
    given = [SCHEME.client.contribute(step.task, rows(n, n), rng) for n in (30, 90)]
    after = SCHEME.server.reduce(step.state, given)
    assert isinstance(after, Next)
    mean = [part.sums["weights"] / (part.rows << BITS) for part in given]
    assert after.task.body["weights"] == pytest.approx(0.25 * mean[0] + 0.75 * mean[1])
    assert not np.array_equal(mean[0], mean[1])
    turned = SCHEME.server.reduce(step.state, given[::-1])
    assert isinstance(turned, Next)
    assert turned.task.digest == after.task.digest


def test_client_of_one_class_only_and_of_a_foreign_class_answers() -> None:
    whole = rows(200, 1, labels=True)
    one = whole.y == "low"
    foreign = Dataset(NAMES, "y", whole.X[:20], np.array(["unheard"] * 20))
    fleet = {"all": whole, "one": Dataset(NAMES, "y", whole.X[one], whole.y[one]), "foreign": foreign}
    outcome = federated(SCHEME, SCHEME.Parameters(rounds=20, epochs=5), CLASSES, fleet)
    assert outcome.summary["rows"] == 200 + int(one.sum())
    test = rows(500, 99, labels=True)
    assert np.mean(outcome.model.predict(test.X) == test.y) > 0.6


def test_network_of_too_many_weights_is_refused() -> None:
    with pytest.raises(UsageError, match="at most 1048576"):
        SCHEME.server.start(SCHEME.Parameters(hidden=(1024, 1024, 1024)), DOMAIN, 0)
