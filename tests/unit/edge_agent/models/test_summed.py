"""What a vehicle answers to the last question of a run."""

from __future__ import annotations

import numpy as np

from edge_agent.models.summed import summed
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.simulation import central


def _rows(count: int) -> Dataset:
    rng = np.random.default_rng(count)
    X = rng.random((count, 1))
    return Dataset(("speed",), "quality", X, 0.5 * X[:, 0] + 0.1 * rng.random(count))


def test_vehicle_answers_when_it_cannot_use_the_finished_model() -> None:
    train, test = _rows(200), _rows(60)
    domain = Domain(
        features=(Variable(name="speed", low=-1.0, high=1.0),), target=Variable(name="quality", low=0.0, high=1.0)
    )
    scheme = catalogue.load("tree")
    document = central(scheme, scheme.Parameters.model_validate({"max_rules": 2}), domain, train).model.to_document()
    body = {"model": document, "champion": None, "worse_by": {"constant": 0.0}, "lines": 0}
    result = summed(Task("scores", "scores", body), train, Dataset(("load",), "quality", test.X[:, :1], test.y))
    assert result.sums["rows/candidate"][0] == 0
    assert result.sums["rows/constant"][0] == test.rows
    assert result.sums["worse/constant"].tolist() == [0, 0]
