"""The tree as plain tables, for exports."""

from __future__ import annotations

from glassfleet.schemes.bmt.model import BlendedModelTree
from glassfleet.tables import RampTree, RuleTables, lines


def tables_of(model: BlendedModelTree) -> RuleTables:
    """Return the tables; the leaves' strengths add up to one."""
    rules = model.to_document()["model"]["rules"]
    return RuleTables(
        evaluator="weighted_mean",
        conditions=RampTree(
            splits=tuple((split.node, split.feature) for split in model.tree.splits),
            ramps=tuple((split.low, split.high) for split in model.tree.splits),
            leaves=tuple(model.tree.leaves),
        ),
        # Of two leaves that fire alike, the first is named.
        weights=(1.0,) * len(rules),
        constants=tuple(rule["intercept"] for rule in rules),
        slopes=lines([[rule["coefficients"].get(name, 0.0) for name in model.domain.input_names] for rule in rules]),
        partition=True,
        clipped=True,
        levels=model.levels,
    )
