"""The network: its parameters, its weights as one vector, its training, and the finished model as a document."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import RunParameters, Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.errors import TaskError
from glassfleet.model.explanation import Activation, Explanation
from glassfleet.model.protocol import Nature
from glassfleet.model.rules import Consequent, Rule
from glassfleet.numerics.statistics import blocks
from schemas.errors import DocumentError

Floats = NDArray[np.float64]
Layers = list[tuple[Floats, Floats]]

MAX_WEIGHTS = 1 << 20
"""Most weights of a network: they travel, at 8 bytes each, in every round."""

BOUND = 64.0
"""A weight beyond it is cut to it: a bound is what lets sums of weights be checked and never overflow."""

_ROW_BLOCK = 1 << 13


class PerceptronParameters(RunParameters):
    """Parameters of a run of federated averaging.

    Attributes
    ----------
    hidden : tuple of int
        Units of each hidden layer (ReLU); at least one layer.
    rounds : int
        Times that the agents' networks are averaged.
    epochs : int
        Passes over an agent's rows in a round.
    batch_size : int
        Rows of a step of the optimiser (Adam).
    learning_rate : float
        Of the optimiser, in (0, 1].
    l2 : float
        Penalty on the squared weights.
    """

    hidden: tuple[Annotated[int, Field(ge=1, le=1024)], ...] = Field(default=(32, 16), min_length=1, max_length=8)
    rounds: int = Field(default=20, ge=1, le=10_000)
    epochs: int = Field(default=2, ge=1, le=1000)
    batch_size: int = Field(default=32, ge=1, le=1 << 16)
    learning_rate: float = Field(default=0.003, gt=0.0, le=1.0)
    l2: float = Field(default=1e-4, ge=0.0)


@dataclass(frozen=True)
class NetworkShape:
    """Units per layer, inputs first; at least an input, a hidden and an output layer."""

    units: tuple[int, ...]

    @classmethod
    def of(cls, parameters: PerceptronParameters, domain: Domain) -> NetworkShape:
        """Return the shape that a run's network has; raises ValueError when it would be too large."""
        shape = cls((len(domain.features), *parameters.hidden, len(domain.classes) or 1))
        if shape.size > MAX_WEIGHTS:
            raise ValueError(f"the network would have {shape.size} weights, at most {MAX_WEIGHTS}; use fewer units")
        return shape

    @property
    def size(self) -> int:
        """Number of weights, biases included."""
        return sum((above + 1) * below for above, below in pairwise(self.units))

    def layers(self, vector: Floats) -> Layers:
        """Cut a vector, shape (size,), into each layer's weights, shape (inputs, outputs), and biases."""
        result, at = [], 0
        for above, below in pairwise(self.units):
            end = at + above * below
            result.append((vector[at:end].reshape(above, below), vector[end : end + below]))
            at = end + below
        return result

    def start(self, seed: int) -> Floats:
        """Return weights to start with: uniform in +-sqrt(6 / (inputs + outputs)), as Glorot and Bengio propose."""
        rng, parts = np.random.default_rng(seed), []
        for above, below in pairwise(self.units):
            limit = math.sqrt(6.0 / (above + below))
            parts += [rng.uniform(-limit, limit, above * below), np.zeros(below)]
        return np.concatenate(parts)


def centred(domain: Domain, X: Floats) -> Floats:
    """Return rows `X`, shape (n, F), in raw units, scaled to [-1, 1], where networks learn faster."""
    return 2.0 * domain.scale_inputs(X) - 1.0


def train(parameters: PerceptronParameters, layers: Layers, number: int, inputs: Floats, wanted: Floats) -> Floats:
    """Return the weights, shape (size,), after a round of scikit-learn's MLP from `layers` on; may raise TaskError."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    target: NDArray[Any] = wanted[:, 0] if wanted.shape[1] == 1 else wanted
    batch = min(parameters.batch_size, len(inputs))
    network = MLPRegressor(
        hidden_layer_sizes=parameters.hidden,
        alpha=parameters.l2,
        batch_size=batch,
        learning_rate_init=parameters.learning_rate,
        max_iter=parameters.epochs,
        n_iter_no_change=parameters.epochs + 1,  # a round is always whole
        random_state=number,  # of the rows' order: the same whenever the round is answered
        warm_start=True,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a round is not meant to converge
        network.partial_fit(inputs[:batch], target[:batch])  # which only makes the layers; their weights are replaced
        network.coefs_, network.intercepts_ = (list(each) for each in zip(*layers, strict=True))
        try:
            network.fit(inputs, target)
        except ValueError as fault:
            raise TaskError(f"training failed ({fault}); a lower learning_rate helps") from fault
    return np.concatenate([np.append(w.ravel(), b) for w, b in zip(network.coefs_, network.intercepts_, strict=True)])


class Perceptron:
    """A multilayer perceptron with weights as its shape cuts them. It has no rules, but one statement that says so."""

    scheme = "fedavg_mlp"
    nature: Nature = "network"

    def __init__(self, parameters: PerceptronParameters, domain: Domain, weights: Floats) -> None:
        self.parameters, self.domain, self.weights = parameters, domain, weights
        self.shape = NetworkShape.of(parameters, domain)

    def predict(self, X: Floats) -> NDArray[Any]:
        """Predict rows `X`, shape (n, F), in the inputs' own units; returns numbers or labels, shape (n,)."""
        X = self.domain.check_rows(X)
        answers = np.empty((X.shape[0], self.shape.units[-1]))
        for block in blocks(X.shape[0], _ROW_BLOCK):
            answers[block] = self._outputs(centred(self.domain, X[block]))
        if self.domain.target is not None:
            return self.domain.unscale_target(answers[:, 0])
        labels: NDArray[Any] = np.array(self.domain.classes)[answers.argmax(axis=1)]
        return labels

    def _outputs(self, given: Floats) -> Floats:
        """Sum over the inputs of a unit in one order: with a matrix product an answer would depend on its batch."""
        layers = self.shape.layers(self.weights)
        for number, (weights, biases) in enumerate(layers):
            total = np.broadcast_to(biases, (len(given), len(biases)))
            for unit in range(len(weights)):
                total = total + given[:, unit, None] * weights[unit]
            given = np.maximum(total, 0.0) if number < len(layers) - 1 else total
        return given

    def explain(self, x: Floats) -> Explanation:
        """Say what can be said about the one row `x`, shape (F,): the answer."""
        answer = self.predict(np.asarray(x, dtype=np.float64).reshape(1, -1))[0]
        value = str(answer) if self.domain.target is None else float(answer)
        notes = ("a network does not say what each input adds: there are no shares",)
        return Explanation(value, Activation(self.rules()[0], 1.0, ()), notes=notes)

    def rules(self) -> Sequence[Rule]:
        """Return one statement, which is no rule: this is a network, and how large."""
        units = "-".join(map(str, self.shape.units))
        words = f"{self.domain.target_name} = a network of {units} units with {self.shape.size} weights (black box)"
        return [Rule(0, (), Consequent("", words), 0.0, 0.0, 0.0, measured=False)]

    def complexity(self) -> Mapping[str, int | float]:
        """Return the numbers of hidden layers, hidden units and parameters."""
        hidden = self.parameters.hidden
        return {"layers": len(hidden), "units": sum(hidden), "parameters": self.shape.size}

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values: ``model.weights`` is layer after layer, weights by input, then biases."""
        body = {"units": list(self.shape.units), "weights": self.weights.tolist()}
        return document_of(self.scheme, 1, self.parameters, self.domain, body)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Perceptron:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        parameters, domain, model = read_document_head(document, cls.scheme, 1, PerceptronParameters)
        with document_errors():
            body, shape = _Body.model_validate(model), NetworkShape.of(parameters, domain)
        if body.units != shape.units or len(body.weights) != shape.size:
            raise DocumentError(f"the network does not have the {shape.size} weights of {shape.units} units")
        return cls(parameters, domain, np.array(body.weights, dtype=np.float64))


class _Body(Strict):
    units: tuple[int, ...]
    weights: tuple[Annotated[float, Field(ge=-BOUND, le=BOUND)], ...] = Field(max_length=MAX_WEIGHTS)
