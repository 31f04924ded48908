"""A vehicle's answer to the last question of a run: sums over its own test rows. Of a private run they leave masked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.models.evaluation import (
    CANNOT_SCORE,
    constant,
    inputs_of,
    learn_in_steps,
    predict_in_blocks,
    usable,
)
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import Scheme
from glassfleet.data.dataset import Dataset
from glassfleet.errors import ContributionError, TaskError
from glassfleet.evaluation.drift import DriftMemory, figures
from glassfleet.evaluation.scores import FORMERS, SCORES, compared, scored
from glassfleet.model.intervals import WORST, TellsRule, lines_of, width_of
from glassfleet.model.protocol import Model
from schemas.codec import document_digest


@dataclass
class Watch:
    """The memory, in the hands of one answer.

    Attributes
    ----------
    memory : DriftMemory
    run : str
    is_masked : bool
        Whether the answer leaves masked.
    """

    memory: DriftMemory
    run: str
    is_masked: bool

    def meet(self, digest: str, model: Model, X: NDArray[np.float64], y: NDArray[Any], forecast: NDArray[Any]) -> None:
        """Take over how a model does on rows `X`, shape (n, F), in the inputs' own units."""
        domain, lines = model.domain, lines_of(model)
        deciding = model.deciding(X) if lines > 1 and isinstance(model, TellsRule) else np.zeros(len(X), dtype=np.intp)
        labels = domain.target is None
        off = (y != forecast).astype(float) if labels else np.abs(y - forecast) / width_of(domain)
        off = np.nan_to_num(np.minimum(off, WORST), nan=WORST)
        low = np.array([each.low for each in domain.features])
        # A position among categories has no mean; a constant does not move within its limits.
        width = np.array([np.nan if each.categories else each.high - each.low or np.nan for each in domain.features])
        tonight = figures(off, deciding, lines, (X[:, : len(low)] - low) / width, labels=labels)
        self.memory.meet(digest, self.run, tonight, is_private=self.is_masked)

    def changes(self, digest: str) -> NDArray[np.int64] | None:
        """Return what is told of a model; None: nothing, as of one that a private run asked about, openly."""
        return self.memory.changes(digest, self.run) if self.is_masked or not self.memory.is_private(digest) else None


_CANNOT = (*CANNOT_SCORE, TaskError, ContributionError)
Forecast = tuple[Model, NDArray[Any], NDArray[Any]]
"""A version, its inputs of the test rows, and its forecasts."""


def answered(
    task: Task, train: Dataset, test: Dataset, memory: Mapping[str, Any], run: str, *, is_masked: bool
) -> dict[str, Any]:
    """Return ``rows`` and ``contribution`` as the session wants them, and what is to be remembered: ``memory``.

    Parameters
    ----------
    task, train, test
        See `summed`.
    memory : mapping
        What was remembered, of `DriftMemory.to_value`.
    run : str
    is_masked : bool
        See `Watch`.
    """
    watch = Watch(DriftMemory.from_value(memory), run, is_masked)
    given = summed(task, train, test, watch)
    return {"rows": given.rows, "contribution": given.to_value(), "memory": watch.memory.to_value()}


def summed(task: Task, train: Dataset, test: Dataset, watch: Watch | None = None) -> Contribution:
    """Return the answer, not masked; a model that cannot be used here is left out of it.

    Parameters
    ----------
    task : Task
        Of `glassfleet.evaluation.scores`.
    train, test : Dataset
        This vehicle's rows; `test` may have none: it then says so, as others do not wait for it.
    watch : Watch or None
        Takes over how the models do, so that another night a drift can be told; None: none is told.

    Raises
    ------
    TaskError
        The task is malformed.
    """
    asked = SCORES.layout(task)
    document, formers = task.body["model"], task.body.get("formers") or []
    others = {"champion": task.body.get("champion"), **dict(zip(FORMERS, formers, strict=False))}
    forecasts: dict[str, NDArray[Any]] = {}
    deciding = None

    @cache
    def of_other(name: str) -> Forecast:
        return _forecast(others[name], train, test)

    if test.rows and train.rows:
        with suppress(*_CANNOT):
            model, inputs, forecasts["candidate"] = _forecast(document, train, test)
            if isinstance(model, TellsRule):
                deciding = model.deciding(inputs)
            if watch is not None:
                watch.meet(document_digest(document), model, inputs, test.y, forecasts["candidate"])
        for name, other in others.items():
            if other is not None and (name in FORMERS or f"rows/{name}" in asked):
                with suppress(*_CANNOT):
                    *_, forecasts[name] = of_other(name)
        if "constant" in compared(task):
            forecasts["constant"] = constant(train.y, test.rows)
        if "local" in compared(task):
            with suppress(*_CANNOT):
                forecasts["local"] = _local(document, train, test)
    labels, drift = test.y if test.rows else np.empty(0), None
    if watch is not None and "drift" in asked:
        with suppress(*_CANNOT):
            drift = _drift(document_digest(others["champion"]), of_other("champion"), test.y, watch)
    return scored(task, labels, forecasts, deciding, drift)


def _drift(digest: str, known: Forecast, y: NDArray[Any], watch: Watch) -> NDArray[np.int64] | None:
    """Return what is told of how far the model in use has moved."""
    model, inputs, forecasts = known
    if len(y):
        watch.meet(digest, model, inputs, y, forecasts)
    return watch.changes(digest)


def _forecast(document: Mapping[str, Any], train: Dataset, test: Dataset) -> Forecast:
    """Return what a version forecasts."""
    model = usable(document, train, test)
    if not test.rows:
        return model, test.X, test.y
    inputs = inputs_of(model, test)
    return model, inputs, predict_in_blocks(model, inputs)


def _local(document: Mapping[str, Any], train: Dataset, test: Dataset) -> NDArray[Any]:
    scheme: Scheme = catalogue.load(str(document["scheme"]))
    domain = scheme.from_document(document).domain
    (model,) = [step for step in learn_in_steps(scheme, document["parameters"], domain, train) if step is not None]
    return predict_in_blocks(model, inputs_of(model, test))
