"""The tree as plain tables, for exports."""

from __future__ import annotations

from glassfleet.schemes.frt.model import FuzzyRegressionTree
from glassfleet.tables import RuleTables, SetTree, lines


def tables_of(model: FuzzyRegressionTree) -> RuleTables:
    """Return the tables; the highest strength over its mean answers (Eq. 22), or the weighted mean does."""
    body = model.to_document()["model"]
    nodes, rules, n_sets = body["nodes"], body["rules"], model.parameters.n_sets
    averaged = model.parameters.inference == "weighted_average"
    leaf = [None] * n_sets
    return RuleTables(
        evaluator="weighted_mean" if averaged else "maximum_matching",
        conditions=SetTree(
            n_sets=n_sets,
            feature=tuple(node.get("feature", -1) for node in nodes),
            child=tuple(tuple(-1 if c is None else c for c in node.get("children", leaf)) for node in nodes),
            rule=tuple(node.get("rule", -1) for node in nodes),
        ),
        weights=tuple(rule["weight"] for rule in rules),
        constants=tuple(rule["intercept"] for rule in rules),
        slopes=lines([rule["coefficients"] for rule in rules]),
        divisors=() if averaged else tuple(rule["mean_strength"] for rule in rules),
    )
