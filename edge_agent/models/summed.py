"""A vehicle's answer to the last question of a private run: sums over its own test rows, which leave it masked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.models.evaluation import CANNOT_SCORE, constant, learn_in_steps, predict_in_blocks
from glassfleet import catalogue
from glassfleet.data.categories import encode_inputs
from glassfleet.data.dataset import Dataset
from glassfleet.data.lags import remember
from glassfleet.errors import ContributionError, TaskError
from glassfleet.private.scores import scored
from glassfleet.scheme import Contribution, Model, Scheme, Task, personal_model

_CANNOT = (*CANNOT_SCORE, TaskError, ContributionError)


def summed(task: Task, train: Dataset, test: Dataset) -> Contribution:
    """Return the answer, not yet masked; a model that cannot be used here is left out of it.

    Parameters
    ----------
    task : Task
        Of `glassfleet.private.scores`.
    train, test : Dataset
        This vehicle's rows; `test` may have none: it then says so, as others do not wait for it.

    Raises
    ------
    TaskError
        The task is malformed.
    """
    model, champion = task.body["model"], task.body.get("champion")
    forecasts: dict[str, NDArray[Any]] = {}

    def tried(name: str, forecast: Callable[[], NDArray[Any]]) -> None:
        try:
            forecasts[name] = forecast()
        except _CANNOT:  # its sums stay zero
            return

    if test.rows and train.rows:
        tried("candidate", lambda: _forecast(model, train, test))
        if champion is not None:
            tried("champion", lambda: _forecast(champion, train, test))
        tried("constant", lambda: constant(train.y, test.rows))
        tried("local", lambda: _local(model, train, test))
    labels = test.y if test.rows else np.empty(0)
    return scored(task, labels, forecasts)


def _forecast(document: Mapping[str, Any], train: Dataset, test: Dataset) -> NDArray[Any]:
    scheme: Scheme = catalogue.load(str(document["scheme"]))
    model = scheme.from_document(document)
    if model.domain.target_name != test.target:
        raise ValueError(f"the model's target is {model.domain.target_name!r}, here it is {test.target!r}")
    return _apply(personal_model(scheme, model, remember(train, model.domain.memory)), test)


def _local(document: Mapping[str, Any], train: Dataset, test: Dataset) -> NDArray[Any]:
    scheme: Scheme = catalogue.load(str(document["scheme"]))
    domain = scheme.from_document(document).domain
    rows = remember(train, domain.memory)
    (model,) = [step for step in learn_in_steps(scheme, document["parameters"], domain, rows) if step is not None]
    return _apply(model, test)


def _apply(model: Model, test: Dataset) -> NDArray[Any]:
    rows = remember(test, model.domain.memory).select(model.domain.names)
    return predict_in_blocks(model, encode_inputs(rows, model.domain))
