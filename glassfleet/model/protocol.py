"""A finished model: what every one does, what kind of thing it is, and what of it can be read as rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.model.explanation import Explanation
from glassfleet.model.rules import Rule

Nature = Literal["rules", "network", "structures"]
"""``rules``: trees and rule bases. ``network``: nothing in it can be read. ``structures``: trees without thresholds and
leaves, for vehicles to make their own of."""

OWN_TREE = (
    "on the vehicle, `glassfleet forecast run --id VEHICLE --source SOURCE --data ROWS` forecasts with its personal "
    "tree, and `glassfleet forecast explain --at last --id VEHICLE` explains what that tree said"
)
"""Where the trees are that vehicles make of a population."""


@runtime_checkable
class Model(Protocol):
    """A finished model: it predicts, explains itself, and is a document.

    Inputs and outputs are in the data's own units; the model holds its domain and scales by itself. More members are
    optional: ``nature``, of models that are no rules (see :mod:`glassfleet.model.protocol`); ``clips_inputs``, False
    where values outside the domain are not taken to its nearest limit; ``deciding`` and ``forecasts``, with which
    forecasts have intervals (:class:`glassfleet.model.intervals.TellsRule`,
    :class:`glassfleet.model.intervals.TellsForecasts`).
    """

    @property
    def scheme(self) -> str:
        """Name of the scheme that learned the model."""

    @property
    def domain(self) -> Domain:
        """Features, target and their limits."""

    def predict(self, X: NDArray[np.float64]) -> NDArray[Any]:
        """Predict rows `X`, shape (n, F), raw units; returns shape (n,)."""

    def explain(self, x: NDArray[np.float64]) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,)."""

    def rules(self) -> Sequence[Rule]:
        """Return the rules in a fixed order."""

    def complexity(self) -> Mapping[str, int | float]:
        """Return size measures by name."""

    def to_document(self) -> dict[str, Any]:
        """Return ``{scheme, format, parameters, domain, model}`` as JSON values; its digest is the model's identity."""


def nature(model: Model) -> Nature:
    """Return what kind of thing a model is.

    A scheme whose models are no rules says so with an attribute ``nature`` of its model class; the others need none.
    """
    return getattr(model, "nature", "rules")


def readable_rules(model: Model) -> tuple[Rule, ...]:
    """Return what of a model can be read as rules, in its own order.

    All rules of trees and rule bases; the structures of a population, the fittest first; nothing of a network.
    ``model.rules()`` has for the latter two also a line that stands for the model's answer, and is no rule.
    """
    kind = nature(model)
    if kind == "network":
        return ()
    rules = tuple(model.rules())
    if kind == "rules":
        return rules
    fit = [(rule.fitness, rule) for rule in rules if rule.fitness is not None]
    return tuple(rule for _, rule in sorted(fit, key=lambda pair: (-pair[0], pair[1].index)))
