"""The rules as plain tables, for exports."""

from __future__ import annotations

from glassfleet.schemes.tsk.model import TskSystem
from glassfleet.tables import RuleList, RuleTables, lines


def tables_of(model: TskSystem) -> RuleTables:
    """Return the tables; the strongest rule answers, or the weighted mean does. OTHERWISE answers when none fires."""
    rules, n_sets = model.to_document()["model"]["rules"], model.parameters.n_sets
    nothing = [n_sets] * len(model.domain.features)
    return RuleTables(
        evaluator="weighted_mean" if model.parameters.inference == "weighted_average" else "maximum_matching",
        conditions=RuleList(n_sets, tuple(tuple(rule["antecedent"] or nothing) for rule in rules)),
        weights=tuple(rule["weight"] for rule in rules),
        constants=tuple(rule["intercept"] for rule in rules),
        slopes=lines([rule["coefficients"] for rule in rules]),
        relative=True,
        default=None if rules[-1]["antecedent"] else len(rules) - 1,
    )
