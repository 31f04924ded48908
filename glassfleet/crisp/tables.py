"""A crisp tree as plain tables, for exports."""

from __future__ import annotations

import numpy as np

from glassfleet.crisp.model import TreeModel
from glassfleet.tables import RuleTables, SplitTree


def tables_of(model: TreeModel) -> RuleTables:
    """Return the tables: one leaf fires, and its class or mean answers."""
    tree, classes = model.tree, model.domain.target is None
    value, rule = tree.value[tree.leaves], np.full(tree.size, -1)
    rule[tree.leaves] = np.arange(len(tree.leaves))
    return RuleTables(
        evaluator="class_vote" if classes else "maximum_matching",
        conditions=SplitTree(
            feature=tuple(tree.feature.tolist()),
            threshold=tuple(tree.threshold.tolist()),
            right=tuple(tree.right.tolist()),
            rule=tuple(rule.tolist()),
        ),
        weights=(1.0,) * len(value),
        constants=() if classes else tuple(value[:, 0].tolist()),
        slopes=((),) * len(value),
        votes=tuple(value.argmax(axis=1).tolist()) if classes else (),
    )
