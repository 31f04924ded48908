"""A smaller tree from the leaves' sums. An option; the published tree is not pruned.

The memberships of a split's sets add up to one, so the Gram sums of a node's children add up to its own (as far as its
children were kept). What a node would lose by being a leaf is known without asking anybody.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.linear import ridge_objective
from glassfleet.numerics.simplify import RIDGE, moments, variance
from glassfleet.schemes.frt.messages import FrtQuestion
from glassfleet.schemes.frt.tree import FrtTree

Array = NDArray[np.float64]
Sums = Mapping[str, NDArray[np.int64]]


def pruned(question: FrtQuestion, sums: Sums) -> FrtTree:
    """Return the tree without the splits that are not worth their parameters.

    Minimal cost-complexity pruning (Breiman et al., 1984, section 3.3) of a model tree: the cost of a leaf is its
    squared error and ``prune`` times the noise's variance for each of its parameters. The variance is that of all
    leaves' residuals.
    """
    parameters, tree = question.parameters, question.tree
    matrix, k = moments(sums, question.gram_columns, parameters.gram_bits), question.gram_columns
    slopes = k - 2 if parameters.max_slopes is None else min(k - 2, parameters.max_slopes)
    error = ridge_objective(matrix, RIDGE)
    price = parameters.prune * variance(matrix, error) * (slopes + 1)

    known: dict[int, Array] = {int(node): matrix[:, :, line] for line, node in enumerate(question.nodes)}
    cost = {int(node): float(error[line]) + price for line, node in enumerate(question.nodes)}
    collapsed = np.zeros(tree.size, dtype=bool)
    for node in range(tree.size - 1, -1, -1):  # children come after their parent
        children = [int(child) for child in tree.child[node] if child >= 0]
        if not children:
            continue
        below, own = 0.0, np.zeros((k, k))
        for child in children:
            below, own = below + cost[child], own + known[child]
        alone = float(ridge_objective(own[:, :, None], RIDGE)[0]) + price
        collapsed[node] = alone <= below
        known[node], cost[node] = own, min(alone, below)
    return _without(tree, collapsed)


def _without(tree: FrtTree, collapsed: NDArray[np.bool_]) -> FrtTree:
    """Return `tree` without all that is below the collapsed nodes."""
    kept: list[int] = []
    place = np.full(tree.size, -1, dtype=np.int32)
    for node in range(tree.size):
        above = int(tree.parent[node])
        if above >= 0 and (place[above] < 0 or collapsed[above]):
            continue
        place[node] = len(kept)
        kept.append(node)
    parent = tree.parent[kept]
    return FrtTree(
        tree.n_sets,
        np.where(parent >= 0, place[np.maximum(parent, 0)], -1).astype(np.int32),
        tree.feature[kept],
        tree.fuzzy_set[kept],
    )
