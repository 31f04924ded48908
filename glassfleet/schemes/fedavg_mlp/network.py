"""A network's weights as one vector, and what it answers: ReLU layers, then a linear one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.schemes.fedavg_mlp.params import MAX_WEIGHTS, Parameters

Floats = NDArray[np.float64]

BOUND = 64.0
"""A weight beyond it is cut to it: a bound is what lets sums of weights be checked and never overflow."""


@dataclass(frozen=True)
class Shape:
    """Units per layer, inputs first.

    Attributes
    ----------
    units : tuple of int
        At least an input, a hidden and an output layer.
    """

    units: tuple[int, ...]

    @classmethod
    def of(cls, parameters: Parameters, domain: Domain) -> Shape:
        """Return the shape that a run's network has; raises ValueError when it would be too large."""
        outputs = 1 if domain.target is not None else len(domain.classes)
        shape = cls((len(domain.features), *parameters.hidden, outputs))
        if shape.size > MAX_WEIGHTS:
            raise ValueError(f"the network would have {shape.size} weights, at most {MAX_WEIGHTS}; use fewer units")
        return shape

    @property
    def size(self) -> int:
        """Number of weights, biases included."""
        return sum((above + 1) * below for above, below in zip(self.units, self.units[1:], strict=False))

    def layers(self, vector: Floats) -> list[tuple[Floats, Floats]]:
        """Cut a vector, shape (size,), into each layer's weights, shape (inputs, outputs), and biases."""
        result, at = [], 0
        for above, below in zip(self.units, self.units[1:], strict=False):
            weights = vector[at : at + above * below].reshape(above, below)
            at += above * below
            result.append((weights, vector[at : at + below]))
            at += below
        return result

    def vector(self, weights: Sequence[Floats], biases: Sequence[Floats]) -> Floats:
        """Join each layer's weights and biases; the inverse of :meth:`layers`."""
        return np.concatenate([np.append(w.ravel(), b) for w, b in zip(weights, biases, strict=True)])

    def start(self, seed: int) -> Floats:
        """Return weights to start with: uniform in +-sqrt(6 / (inputs + outputs)), as Glorot and Bengio propose."""
        rng = np.random.default_rng(seed)
        parts = []
        for above, below in zip(self.units, self.units[1:], strict=False):
            limit = math.sqrt(6.0 / (above + below))
            parts += [rng.uniform(-limit, limit, above * below), np.zeros(below)]
        return np.concatenate(parts)


def centred(scaled: Floats) -> Floats:
    """Map inputs from [0, 1] to [-1, 1], where networks learn faster."""
    return 2.0 * scaled - 1.0


def outputs(layers: Sequence[tuple[Floats, Floats]], inputs: Floats) -> list[Floats]:
    """Return what each layer gives for rows `inputs`, shape (n, F); the last is the answer, shape (n, outputs).

    Sums run over the inputs of a unit in one order, element by element: a row's answer does not depend on its batch,
    as it would with a matrix product.
    """
    given, result = inputs, []
    for number, (weights, biases) in enumerate(layers):
        total = np.broadcast_to(biases, (len(given), len(biases)))
        for unit in range(len(weights)):
            total = total + given[:, unit, None] * weights[unit]
        given = np.maximum(total, 0.0) if number < len(layers) - 1 else total
        result.append(given)
    return result


def slopes(layers: Sequence[tuple[Floats, Floats]], inputs: Floats) -> Floats:
    """Return the slopes of the first output in each input, shape (F,), at one row, shape (1, F).

    A network of ReLU units is linear around almost every row: with the constant that is left, they are the answer.
    """
    by_layer = outputs(layers, inputs)
    weights, _ = layers[-1]
    back = weights[:, 0]
    for (above, _), given in zip(reversed(layers[:-1]), reversed(by_layer[:-1]), strict=True):
        back = above @ (back * (given[0] > 0.0))
    return back
