"""The tree as plain tables, for exports."""

from __future__ import annotations

from glassfleet.schemes.fmt_classes.model import FuzzyClassTree
from glassfleet.tables import CutTree, RuleTables, lines


def tables_of(model: FuzzyClassTree) -> RuleTables:
    """Return the tables; the leaves' strengths add up to one, and of the blended scores the highest answers."""
    rules = model.rule_numbers
    return RuleTables(
        evaluator="highest_score",
        conditions=CutTree(
            knots=model.inputs.knots,
            splits=tuple((split.node, split.feature, split.cut) for split in model.tree.splits),
            leaves=tuple(model.tree.leaves),
            crisp=False,
        ),
        # Of two leaves that fire alike, the first is named.
        weights=(1.0,) * len(model.tree.leaves),
        constants=tuple(float(value) for value in rules.coefficients[:, :, 0].ravel()),
        slopes=lines(rules.coefficients[:, :, 1:].reshape(rules.coefficients[:, :, 0].size, -1).tolist()),
        hinges=model.inputs.hinges,
        votes=tuple(int(number) for number in rules.classes),
        partition=True,
        levels=model.inputs.levels if any(model.inputs.levels) else (),
    )
