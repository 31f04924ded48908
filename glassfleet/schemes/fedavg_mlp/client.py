"""The vehicle's half: trains the averaged network on from where it stands, on the vehicle's own rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.rows import class_numbers, select_columns, select_numbers
from glassfleet.data.dataset import Dataset
from glassfleet.errors import TaskError
from glassfleet.schemes.fedavg_mlp.messages import BITS, KIND, Question
from glassfleet.schemes.fedavg_mlp.network import BOUND, Floats, centred


class FedAvgClient:
    """Answers a round with its weights times its rows, as exact sums."""

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:  # noqa: ARG002 - no noise
        """Answer `task` from the rows in `data`; raises :class:`TaskError` when it cannot."""
        question = Question.from_task(task)
        inputs, wanted = _rows(question, data)
        weights = np.zeros(question.shape.size, dtype=np.int64)
        if len(inputs):
            trained = np.clip(_train(question, inputs, wanted), -BOUND, BOUND)
            weights = np.rint(trained * (1 << BITS)).astype(np.int64) * len(inputs)
        sums = {"weights": weights, "rows": np.array([len(inputs)], dtype=np.int64)}
        return Contribution(KIND, data.rows, sums)


def _rows(question: Question, data: Dataset) -> tuple[Floats, Floats]:
    """Return inputs, shape (n, F), and wanted outputs, shape (n, outputs); rows of foreign classes are left out."""
    domain = question.domain
    if domain.target is not None:
        chosen = select_numbers(data, domain)
        return centred(domain.scale_inputs(chosen.X)), domain.scale_target(chosen.y)[:, None]
    number = class_numbers(data, domain)
    known = number >= 0
    inputs = centred(domain.scale_inputs(select_columns(data, domain).X[known]))
    return inputs, np.eye(len(domain.classes))[number[known]]


def _train(question: Question, inputs: Floats, wanted: Floats) -> Floats:
    """Return the weights after some epochs of scikit-learn's MLP, started at the averaged ones."""
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415 - an extra; the catalogue has checked it
    from sklearn.neural_network import MLPRegressor  # noqa: PLC0415

    parameters = question.parameters
    target: NDArray[Any] = wanted[:, 0] if wanted.shape[1] == 1 else wanted
    batch = min(parameters.batch_size, len(inputs))
    network = MLPRegressor(
        hidden_layer_sizes=parameters.hidden,
        alpha=parameters.l2,
        batch_size=batch,
        learning_rate_init=parameters.learning_rate,
        max_iter=parameters.epochs,
        n_iter_no_change=parameters.epochs + 1,  # a round is always whole
        random_state=question.number,  # of the rows' order: the same whenever the round is answered
        warm_start=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a round is not meant to converge
        network.partial_fit(inputs[:batch], target[:batch])  # which only makes the layers; their weights are replaced
        layers = question.shape.layers(question.weights.copy())
        network.coefs_ = [weights for weights, _ in layers]
        network.intercepts_ = [biases for _, biases in layers]
        try:
            network.fit(inputs, target)
        except ValueError as fault:
            raise TaskError(f"training failed ({fault}); a lower learning_rate helps") from fault
    return question.shape.vector(network.coefs_, network.intercepts_)
