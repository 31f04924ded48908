"""Rules with a polynomial for a consequent: their numbers, their values, and their lines in a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import Strict
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.consequent import linear_consequent
from glassfleet.fuzzy.splits import SplitTree
from glassfleet.rules import Condition, Rule
from schemas.errors import DocumentError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LinearRules:
    """Consequents and weights of a tree's leaves, one line per rule, in the order of the leaves.

    Attributes
    ----------
    coefficients : ndarray of float64, shape (r, F + 1)
        Polynomial over the scaled inputs, intercept first; its value is the scaled target, or what adds up to it when
        weighted by the degrees of all rules.
    weight, support, confidence : ndarray of float64, shape (r,)
        All in [0, 1]. Support: the rule's share of the rows' weight. Confidence: one minus the root mean squared error
        of the rule alone on the scaled target. Weight: their harmonic mean.
    """

    coefficients: Array
    weight: Array
    support: Array
    confidence: Array


def outputs_of(coefficients: Array, inputs: Array) -> Array:
    """Return a polynomial's value, shape (n,), at scaled inputs, shape (R, n); element-wise, in one order."""
    output = np.full(inputs.shape[1], coefficients[0])
    for place in np.flatnonzero(coefficients[1:]):
        output += coefficients[1 + place] * inputs[place]
    return output


class RuleLine(Strict):
    """A rule in a document; coefficients by input name."""

    coefficients: dict[str, float]
    intercept: float
    weight: float = Field(ge=0.0, le=1.0)
    support: float = Field(ge=0.0, le=1.0)
    confidence: float = Field(ge=0.0, le=1.0)


def write_rules(rules: LinearRules, domain: Domain) -> list[dict[str, Any]]:
    """Return the rules as a document has them; coefficients of zero are left out."""
    return [
        {
            "coefficients": {
                name: float(value) for name, value in zip(domain.names, row[1:], strict=True) if value != 0.0
            },
            "intercept": float(row[0]),
            "weight": float(rules.weight[line]),
            "support": float(rules.support[line]),
            "confidence": float(rules.confidence[line]),
        }
        for line, row in enumerate(rules.coefficients)
    ]


def read_rules(lines: Sequence[RuleLine], leaves: int, domain: Domain) -> LinearRules:
    """Read a document's rules; raises DocumentError unless they are one for each of so many leaves of the domain."""
    if len(lines) != leaves:
        raise DocumentError(f"{len(lines)} rules for {leaves} leaves")
    place = {name: index for index, name in enumerate(domain.names)}
    coefficients = np.zeros((len(lines), len(place) + 1))
    for line, rule in enumerate(lines):
        coefficients[line, 0] = rule.intercept
        for name, value in rule.coefficients.items():
            if name not in place:
                raise DocumentError(f"rule {line} has a coefficient of {name!r}, which the domain lacks")
            coefficients[line, place[name] + 1] = value
    numbers = {
        name: np.array([getattr(rule, name) for rule in lines], dtype=np.float64)
        for name in ("weight", "support", "confidence")
    }
    return LinearRules(coefficients=coefficients, **numbers)


def readable_rules(rules: LinearRules, domain: Domain, conditions: Sequence[tuple[Condition, ...]]) -> tuple[Rule, ...]:
    """Return the rules in words; `conditions` has one line per rule."""
    return tuple(
        Rule(
            index=index,
            conditions=line,
            consequent=linear_consequent(domain, rules.coefficients[index, 0], rules.coefficients[index, 1:]),
            weight=float(rules.weight[index]),
            support=float(rules.support[index]),
            confidence=float(rules.confidence[index]),
        )
        for index, line in enumerate(conditions)
    )


def complexity_of(rules: LinearRules, tree: SplitTree[Any], conditions: int) -> Mapping[str, int | float]:
    """Return nodes (the root not counted), leaves, depth, conditions, and parameters.

    Parameters: splits below the root and all coefficients that are not zero, as C_FRT counts them (Eq. 31 of the FRT
    paper).
    """
    splits = len(tree.splits)
    used = int(np.count_nonzero(rules.coefficients[:, 1:])) + splits + 1
    return {
        "nodes": tree.size - 1,
        "leaves": splits + 1,
        "depth": tree.depth,
        "conditions": conditions,
        "parameters": max(splits - 1, 0) + used,
    }


def clipped_note(domain: Domain, said: float, prediction: float, *, alone: bool) -> str:
    """Say that the rules, or one `alone`, give `said`, beyond the limit of the target that the forecast is."""
    target = domain.target
    assert target is not None
    unit = f" {target.unit}" if target.unit else ""
    limit = "lower" if said < prediction else "upper"
    return (
        f"{'the rule says' if alone else 'the rules together say'} {said:.6g}{unit}; clipped to the target's "
        f"{limit} limit, {prediction:.6g}{unit}, and the difference is part of the base"
    )
