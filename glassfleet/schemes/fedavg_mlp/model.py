"""The finished network: it predicts, says what can be said about an answer, and is a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.model.explanation import Activation, Explanation
from glassfleet.model.protocol import Nature
from glassfleet.model.rules import Consequent, Rule
from glassfleet.numerics.statistics import blocks
from glassfleet.schemes.fedavg_mlp.network import BOUND, Shape, centred, outputs, slopes
from glassfleet.schemes.fedavg_mlp.params import MAX_WEIGHTS, Parameters
from schemas.errors import DocumentError

FORMAT = 1

_ROW_BLOCK = 1 << 13


class Perceptron:
    """A multilayer perceptron. It has no rules; what it has is one statement that says so.

    Parameters
    ----------
    parameters : Parameters
    domain : Domain
    weights : ndarray of float64, shape (size,)
        As :meth:`~glassfleet.schemes.fedavg_mlp.network.Shape.vector` joins them.
    """

    scheme = "fedavg_mlp"
    nature: Nature = "network"

    def __init__(self, parameters: Parameters, domain: Domain, weights: NDArray[np.float64]) -> None:
        self.parameters = parameters
        self.domain = domain
        self.weights = weights
        self.shape = Shape.of(parameters, domain)
        self._layers = self.shape.layers(weights)

    def predict(self, X: NDArray[np.float64]) -> NDArray[Any]:
        """Predict rows `X`, shape (n, F), in the inputs' own units; returns numbers or labels, shape (n,)."""
        X = self.domain.check_rows(X)
        answers = np.empty((X.shape[0], self.shape.units[-1]))
        for block in blocks(X.shape[0], _ROW_BLOCK):
            answers[block] = outputs(self._layers, centred(self.domain.scale_inputs(X[block])))[-1]
        if self.domain.target is not None:
            return self.domain.unscale_target(answers[:, 0])
        labels: NDArray[Any] = np.array(self.domain.classes)[answers.argmax(axis=1)]
        return labels

    def explain(self, x: NDArray[np.float64]) -> Explanation:
        """Say what can be said about the one row `x`, shape (F,).

        The network is linear around the row: the shares are those of that linear function. They tell nothing about
        rows elsewhere. Classes have no shares.
        """
        row = np.asarray(x, dtype=np.float64).reshape(1, -1)
        answer = self.predict(row)[0]
        fired = Activation(self.rules()[0], 1.0, ())
        target = self.domain.target
        if target is None:
            return Explanation(str(answer), fired, notes=("for classes not even shares of the inputs can be told",))
        scaled = centred(self.domain.scale_inputs(row))
        shares = slopes(self._layers, scaled) * scaled[0] * (target.high - target.low)
        named = {name: float(share) for name, share in zip(self.domain.names, shares, strict=True)}
        note = (
            "the shares are those of the linear function that the network is around this row; they say nothing about "
            "other rows"
        )
        return Explanation(float(answer), fired, shares=named, base=float(answer) - sum(named.values()), notes=(note,))

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
        return document_of(self.scheme, FORMAT, self.parameters, self.domain, body)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Perceptron:
        """Rebuild a model; raises ``DocumentError`` when the document is malformed."""
        parameters, domain, model = read_document_head(document, cls.scheme, FORMAT, Parameters)
        with document_errors():
            body, shape = _Body.model_validate(model), Shape.of(parameters, domain)
        if body.units != shape.units or len(body.weights) != shape.size:
            raise DocumentError(f"the network does not have the {shape.size} weights of {shape.units} units")
        return cls(parameters, domain, np.array(body.weights, dtype=np.float64))


class _Body(Strict):
    units: tuple[int, ...]
    weights: tuple[Annotated[float, Field(ge=-BOUND, le=BOUND)], ...] = Field(max_length=MAX_WEIGHTS)
