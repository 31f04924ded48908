"""What a vehicle answers to the last question of a run."""

from __future__ import annotations

import numpy as np

from edge_agent.models.summed import summed
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.data.lags import Memory, Recall, remember
from glassfleet.simulation import central
from schemas.codec import Value


def _rows(drives: int) -> Dataset:
    rng = np.random.default_rng(drives)
    X = np.column_stack([rng.random(20 * drives), np.repeat(np.arange(drives), 20)])
    return Dataset(("speed", "drive"), "quality", X, 0.5 * X[:, 0] + 0.1 * rng.random(20 * drives))


def _document(memory: Memory | None, rows: Dataset) -> dict[str, Value]:
    names = ("speed",) if memory is None else ("speed", *memory.columns)
    features = tuple(Variable(name=name, low=-1.0, high=1.0) for name in names)
    domain = Domain(features=features, target=Variable(name="quality", low=0.0, high=1.0), memory=memory)
    scheme = catalogue.load("tree")
    parameters = scheme.Parameters.model_validate({"max_rules": 2})
    document: dict[str, Value] = central(scheme, parameters, domain, remember(rows, memory)).model.to_document()
    return document


DROPS = Memory(inputs=(Recall(input="speed", difference=1),), drive="drive", start="drop")


def test_vehicle_scores_the_rows_that_lagged_features_leave_when_they_drop_the_first_of_each_drive() -> None:
    train, test = _rows(10), _rows(3)
    body = {"model": _document(DROPS, train), "champion": None, "worse_by": {}, "lines": 1}
    result = summed(Task("scores", "scores", body), train, test)
    assert result.rows == result.sums["rows/candidate"][0] == result.sums["counts"].sum() == test.rows - 3


def test_vehicle_leaves_out_a_current_model_of_other_rows_when_it_scores() -> None:
    train, test = _rows(10), _rows(3)
    worse_by = {"champion": 0.0, "constant": 0.0}
    body = {"model": _document(DROPS, train), "champion": _document(None, train), "worse_by": worse_by, "lines": 0}
    result = summed(Task("scores", "scores", body), train, test)
    assert result.sums["rows/champion"][0] == 0
    assert result.sums["rows/constant"][0] == result.sums["rows/local"][0] == test.rows - 3


def test_vehicle_answers_when_it_cannot_use_the_finished_model() -> None:
    train, test = _rows(10), _rows(3)
    body = {"model": _document(None, train), "champion": None, "worse_by": {"constant": 0.0}, "lines": 0}
    result = summed(Task("scores", "scores", body), train, Dataset(("load",), "quality", test.X[:, :1], test.y))
    assert result.sums["rows/candidate"][0] == 0
    assert result.sums["rows/constant"][0] == test.rows
    assert result.sums["worse/constant"].tolist() == [0, 0]
