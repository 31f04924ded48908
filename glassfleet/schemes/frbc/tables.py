"""The rules as plain tables, for exports."""

from __future__ import annotations

from glassfleet.schemes.frbc.model import FuzzyRuleClassifier
from glassfleet.tables import RuleList, RuleTables


def tables_of(model: FuzzyRuleClassifier) -> RuleTables:
    """Return the tables; the class of the strongest rule answers, strengths times weights where these count."""
    rules, parameters = model.to_document()["model"]["rules"], model.parameters
    weights = tuple(rule["weight"] for rule in rules)
    return RuleTables(
        evaluator="class_vote",
        conditions=RuleList(parameters.n_sets, tuple(tuple(rule["sets"]) for rule in rules)),
        weights=weights,
        votes=tuple(rule["class"] for rule in rules),
        factors=() if parameters.association == "strength" else weights,
    )
