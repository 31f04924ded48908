"""What kind of thing a model is, and what of it can be read as rules."""

from __future__ import annotations

from typing import Literal

from glassfleet.rules import Rule
from glassfleet.scheme import Model

Nature = Literal["rules", "network", "structures"]
"""``rules``: trees and rule bases. ``network``: nothing in it can be read. ``structures``: trees without thresholds and
leaves, for vehicles to make their own of."""

OWN_TREE = (
    "on the vehicle, `glassfleet forecast run --id VEHICLE --source SOURCE --data ROWS` forecasts with its personal "
    "tree, and `glassfleet forecast explain --at last --id VEHICLE` explains what that tree said"
)
"""Where the trees are that vehicles make of a population."""


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
