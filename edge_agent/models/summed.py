"""A vehicle's answer to the last question of a run: sums over its own test rows. Of a private run they leave masked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.models.evaluation import CANNOT_SCORE, constant, learn_in_steps, predict_in_blocks
from glassfleet import catalogue
from glassfleet.data.categories import encode_inputs
from glassfleet.data.dataset import Dataset
from glassfleet.data.lags import remember
from glassfleet.errors import ContributionError, TaskError
from glassfleet.intervals import TellsRule
from glassfleet.scheme import Contribution, Model, Scheme, Task, personal_model
from glassfleet.scores import compared, scored

_CANNOT = (*CANNOT_SCORE, TaskError, ContributionError)


def summed(task: Task, train: Dataset, test: Dataset) -> Contribution:
    """Return the answer, not masked; a model that cannot be used here is left out of it.

    Parameters
    ----------
    task : Task
        Of `glassfleet.scores`.
    train, test : Dataset
        This vehicle's rows; `test` may have none: it then says so, as others do not wait for it.

    Raises
    ------
    TaskError
        The task is malformed.
    """
    document, champion = task.body["model"], task.body.get("champion")
    forecasts: dict[str, NDArray[Any]] = {}
    deciding = None
    if test.rows and train.rows:
        with suppress(*_CANNOT):
            model = _usable(document, train, test)
            inputs = _inputs(model, test)
            forecasts["candidate"] = predict_in_blocks(model, inputs)
            if isinstance(model, TellsRule):
                deciding = model.deciding(inputs)
        if champion is not None:
            with suppress(*_CANNOT):
                forecasts["champion"] = _apply(_usable(champion, train, test), test)
        if "constant" in compared(task):
            forecasts["constant"] = constant(train.y, test.rows)
        if "local" in compared(task):
            with suppress(*_CANNOT):
                forecasts["local"] = _local(document, train, test)
    labels = test.y if test.rows else np.empty(0)
    return scored(task, labels, forecasts, deciding)


def _usable(document: Mapping[str, Any], train: Dataset, test: Dataset) -> Model:
    scheme: Scheme = catalogue.load(str(document["scheme"]))
    model = scheme.from_document(document)
    if model.domain.target_name != test.target:
        raise ValueError(f"the model's target is {model.domain.target_name!r}, here it is {test.target!r}")
    return personal_model(scheme, model, remember(train, model.domain.memory))


def _local(document: Mapping[str, Any], train: Dataset, test: Dataset) -> NDArray[Any]:
    scheme: Scheme = catalogue.load(str(document["scheme"]))
    domain = scheme.from_document(document).domain
    rows = remember(train, domain.memory)
    (model,) = [step for step in learn_in_steps(scheme, document["parameters"], domain, rows) if step is not None]
    return _apply(model, test)


def _apply(model: Model, test: Dataset) -> NDArray[Any]:
    return predict_in_blocks(model, _inputs(model, test))


def _inputs(model: Model, test: Dataset) -> NDArray[np.float64]:
    return encode_inputs(remember(test, model.domain.memory).select(model.domain.names), model.domain)
