"""The tree as plain tables, for exports."""

from __future__ import annotations

from glassfleet.schemes.fmt.model import FuzzyModelTree
from glassfleet.tables import CutTree, RuleTables, lines


def tables_of(model: FuzzyModelTree) -> RuleTables:
    """Return the tables; the leaves' strengths add up to one, or a row is at one leaf."""
    body = model.to_document()["model"]
    averaged = model.parameters.inference == "averaged"
    return RuleTables(
        evaluator="weighted_mean" if averaged else "maximum_matching",
        conditions=CutTree(
            knots=model.inputs.knots,
            splits=tuple((split["node"], split["feature"], split["cut"]) for split in body["splits"]),
            leaves=tuple(model.tree.leaves),
            crisp=not averaged,
        ),
        # Of two leaves that fire alike, the first is named.
        weights=(1.0,) * len(body["rules"]),
        constants=tuple(rule["intercept"] for rule in body["rules"]),
        slopes=lines(
            [[rule["coefficients"].get(name, 0.0) for name in model.domain.input_names] for rule in body["rules"]]
        ),
        partition=True,
        clipped=True,
        levels=model.inputs.levels,
    )
