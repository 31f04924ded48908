"""Scores of a published model on a vehicle's own test rows, beside those of a model learned from its rows alone.

The local model is learned with the very halves of the scheme (as ``glassfleet.local.learn_local`` does), but one round
at a time: the agent does a round when it has nothing else to do, so that learning never delays an answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet import catalogue
from glassfleet.categories import encode_inputs
from glassfleet.data import Dataset
from glassfleet.domain import Domain
from glassfleet.local import MAX_ROUNDS
from glassfleet.memory import remember
from glassfleet.scheme import Done, Next, Scheme, personal_model
from schemas.documents import document_digest
from schemas.record import ModelRecord

_BLOCK = 4096


@dataclass(frozen=True)
class Scores:
    """Test scores, in the target's own unit.

    Attributes
    ----------
    metric : "rmse" or "f1"
        F1 is the mean over the classes that occur in the test rows.
    federated, local : float
    rows : int
        Test rows.
    champion : float or None
        Score of the current model on the same rows, for a candidate.
    champion_digest : str
        Which model that was.
    constant : float
        Score of the constant on the same rows: the mean, or the most frequent class, of the training rows.
    """

    metric: Literal["rmse", "f1"]
    federated: float
    local: float
    rows: int
    constant: float
    champion: float | None = None
    champion_digest: str = ""


class Evaluator:
    """Scores models; keeps the local models that it has learned.

    Parameters
    ----------
    train, test : Dataset
    kept : int
        Local models that are remembered, so that they are not learned again.
    """

    def __init__(self, train: Dataset, test: Dataset, kept: int = 4) -> None:
        self._kept = kept
        self._train = train
        self._test = test
        self._local: dict[str, Any] = {}

    def steps(self, record: ModelRecord, champion: ModelRecord | None = None) -> Iterator[Scores | None]:
        """Yield None after each piece of work, and the scores at last.

        Parameters
        ----------
        record : ModelRecord
        champion : ModelRecord or None
            The current model, when `record` is a candidate.

        Raises
        ------
        schemas.errors.NotFoundError, schemas.errors.DocumentError, KeyError, ValueError
            The model cannot be used here: no such scheme, a column is missing.
        """
        scheme = catalogue.load(record.scheme)
        model = scheme.from_document(record.document)
        domain = model.domain
        if domain.target_name != self._test.target:
            raise ValueError(f"the model's target is {domain.target_name!r}, here it is {self._test.target!r}")
        train = remember(self._train, domain.memory)
        test = remember(self._test, domain.memory).select(domain.names)
        # What this vehicle predicts with: the model, or what it makes of it with its own rows (which stay here).
        predicted = predict_in_blocks(personal_model(scheme, model, train), encode_inputs(test, domain))
        yield None
        key = document_digest(
            {"scheme": scheme.name, "parameters": record.document["parameters"], "domain": domain.to_document()}
        )
        if key not in self._local:
            for step in learn_in_steps(scheme, record.document["parameters"], domain, train):
                if step is not None:
                    while len(self._local) >= self._kept:
                        self._local.pop(next(iter(self._local)))
                    self._local[key] = step
                yield None
        own = predict_in_blocks(self._local[key], encode_inputs(test, domain))
        score = root_mean_square if domain.target is not None else macro_f1
        scores = Scores(
            "rmse" if domain.target is not None else "f1",
            score(test.y, predicted),
            score(test.y, own),
            test.rows,
            score(test.y, constant(train.y, test.rows)),
        )
        if champion is None:
            yield scores
            return
        yield None
        former = score(test.y, self._predictions(champion))
        yield replace(scores, champion=former, champion_digest=champion.digest)

    def _predictions(self, record: ModelRecord) -> NDArray[Any]:
        """Predict the test rows as this vehicle would with a model."""
        scheme = catalogue.load(record.scheme)
        model = scheme.from_document(record.document)
        domain = model.domain
        if domain.target_name != self._test.target:
            raise ValueError(f"the current model's target is {domain.target_name!r}, not {self._test.target!r}")
        train = remember(self._train, domain.memory)
        test = remember(self._test, domain.memory).select(domain.names)
        return predict_in_blocks(personal_model(scheme, model, train), encode_inputs(test, domain))


def learn_in_steps(scheme: Scheme, parameters: Any, domain: Domain, train: Dataset) -> Iterator[Any]:
    """Learn from one vehicle's rows, nothing nullified; yields None after each round, and the model at last."""
    alone = getattr(scheme, "alone", None)
    if alone is not None:
        yield alone(scheme.Parameters.model_validate(parameters), domain, train, 0)
        return
    exact = scheme.exact(scheme.Parameters.model_validate(parameters))
    rng = np.random.default_rng(0)  # nothing is nullified or noised in a model that stays here
    step: Next | Done = scheme.server.start(exact, domain, 0)
    for _ in range(MAX_ROUNDS):
        if isinstance(step, Done):
            yield step.model
            return
        step = scheme.server.reduce(step.state, [scheme.client.contribute(step.task, train, rng)])
        yield None
    raise ValueError(f"scheme {scheme.name!r} did not finish in {MAX_ROUNDS} rounds")


def predict_in_blocks(model: Any, X: NDArray[np.float64]) -> NDArray[Any]:
    """Predict a block of rows at a time: a vehicle's memory is small."""
    parts = [model.predict(X[start : start + _BLOCK]) for start in range(0, len(X), _BLOCK)]
    return np.concatenate(parts)


def constant(y: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return what a model without inputs forecasts for so many rows: the mean of `y`, or its most frequent class."""
    if y.dtype.kind == "f":
        return np.full(rows, y.mean())
    labels, counts = np.unique(y, return_counts=True)
    return np.full(rows, labels[counts.argmax()])


def root_mean_square(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean((y - predicted) ** 2)))


def macro_f1(y: NDArray[Any], predicted: NDArray[Any]) -> float:
    """Mean F1 over the classes in `y`."""
    scores = []
    for label in np.unique(y):
        right = int(((y == label) & (predicted == label)).sum())
        scores.append(2 * right / int((y == label).sum() + (predicted == label).sum()))
    return float(np.mean(scores))
