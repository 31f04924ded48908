"""The finished tree: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy.consequent import outputs_at
from glassfleet.fuzzy.matching import MatchedRules
from glassfleet.fuzzy.partition import Memberships
from glassfleet.model.tables import RuleTables, SetTree, lines
from glassfleet.numerics.statistics import blocks
from glassfleet.schemes.frt.document import write_document
from glassfleet.schemes.frt.params import FrtParameters
from glassfleet.schemes.frt.tree import FrtTree, Reached, Rules, reach_leaves

_ROW_BLOCK = 1 << 11


class FrtModel(MatchedRules[Rules]):
    """A multi-way fuzzy regression tree with linear leaves.

    Made by :meth:`build` (from a run) or a document; not changed afterwards.
    """

    scheme = "frt"

    def __init__(self, parameters: FrtParameters, domain: Domain, tree: FrtTree, rules: Rules) -> None:
        super().__init__(parameters, domain, rules)
        self.tree = tree
        self._rule_of = np.full(tree.size, -1, dtype=np.intp)
        self._rule_of[rules.node] = np.arange(len(rules.node))

    @classmethod
    def build(cls, parameters: FrtParameters, domain: Domain, tree: FrtTree, rules: Rules) -> FrtModel:
        """Put the nodes in depth-first order and leave out leaves that no row reaches.

        That happens in elastic runs: others grew the tree. If no row reaches any leaf, the tree is one rule that
        answers the middle of the target's range with weight 0.
        """
        known = {int(node): line for line, node in enumerate(rules.node) if rules.mean_strength[line] > 0}
        keep: set[int] = set()
        for node in known:
            step = node
            while step >= 0 and step not in keep:
                keep.add(step)
                step = int(tree.parent[step])
        if not known:
            width = len(domain.features) + 1
            middle = np.zeros((1, width))
            middle[0, -1] = 0.5
            zero = np.zeros(1)
            lone = Rules(np.zeros(1, dtype=np.intp), middle, np.ones(1), zero, zero, zero)
            return cls(parameters, domain, FrtTree.root(tree.n_sets), lone)
        order = [node for node in tree.depth_first() if node in keep]
        new = {node: index for index, node in enumerate(order)}
        parent = [new[int(tree.parent[node])] if node else -1 for node in order]
        shape = FrtTree(
            tree.n_sets, np.array(parent, dtype=np.int32), tree.feature[order].copy(), tree.fuzzy_set[order].copy()
        )
        chosen = rules.take([known[node] for node in order if node in known])
        at = np.array([new[node] for node in order if node in known], dtype=np.intp)
        lines = Rules(at, chosen.coefficients, chosen.mean_strength, chosen.weight, chosen.support, chosen.confidence)
        return cls(parameters, domain, shape, lines)

    # --- matching ---------------------------------------------------------------------------------------------------

    def _blocks(self, rows: int) -> Iterator[slice]:
        return blocks(rows, _ROW_BLOCK)

    def _answers(self, scaled: NDArray[np.float64], members: Memberships) -> NDArray[np.float64]:
        coefficients = self.base.coefficients
        if self.parameters.inference == "maximum_matching":
            return outputs_at(coefficients, scaled, self._deciding(members))
        reached, n = reach_leaves(self.tree, members), len(scaled)
        terms = reached.strength * outputs_at(coefficients, scaled[reached.row], self._rule_of[reached.node])
        strength = np.bincount(reached.row, weights=reached.strength, minlength=n)
        fired = strength > 0
        mean = np.bincount(reached.row, weights=terms, minlength=n) / np.where(fired, strength, 1.0)
        return np.where(fired, mean, outputs_at(coefficients, scaled, np.full(n, self.order[0])))

    def _measure(self, reached: Reached) -> NDArray[np.float64]:
        """Return by what rules are compared: strength, normalised where one rule answers alone (Eq. 22)."""
        if self.parameters.inference == "weighted_average":
            return reached.strength
        return reached.strength / self.base.mean_strength[self._rule_of[reached.node]]

    def _deciding(self, members: Memberships) -> NDArray[np.intp]:
        reached = reach_leaves(self.tree, members)
        measure, best = self._measure(reached), np.zeros(members.rows)
        np.maximum.at(best, reached.row, measure)
        top = measure == best[reached.row]
        rank = np.full(members.rows, len(self.order), dtype=np.intp)
        np.minimum.at(rank, reached.row[top], self.rank[self._rule_of[reached.node[top]]])
        return self.order[np.where(rank == len(self.order), 0, rank)]

    def _fired(self, members: Memberships) -> list[tuple[int, float]]:
        reached = reach_leaves(self.tree, members)
        fired = self._rule_of[reached.node]
        order = np.lexsort((self.rank[fired], -self._measure(reached)))
        return [(int(fired[i]), float(reached.strength[i])) for i in order]

    def _normalised(self, index: int, strength: float) -> float | None:
        averaged = self.parameters.inference == "weighted_average" and strength > 0.0
        return None if averaged else strength / float(self.base.mean_strength[index])

    def _path(self, index: int) -> list[tuple[int, int]]:
        return self._paths[index]

    @cached_property
    def _paths(self) -> list[list[tuple[int, int]]]:
        return [self.tree.path(int(node)) for node in self.base.node]

    # --- reading ----------------------------------------------------------------------------------------------------

    def complexity(self) -> Mapping[str, int | float]:
        """Return nodes (the root not counted), leaves, depth, and parameters (C_FRT, Eq. 31).

        With `max_slopes`, slopes that are zero are not counted.
        """
        leaves = len(self.base.node)
        nodes = self.tree.size - 1
        inner = nodes - leaves if nodes else 0
        coefficients = leaves * (len(self.domain.features) + 1 if self.parameters.order else 1)
        if self.parameters.max_slopes is not None:
            coefficients = leaves + int(np.count_nonzero(self.base.coefficients[:, :-1]))
        return {
            "nodes": nodes,
            "leaves": leaves,
            "depth": int(self.tree.depth.max()),
            "parameters": inner + coefficients,
        }

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports; the highest strength over its mean answers, or the mean."""
        tree, rules, parameters = self.tree, self.base, self.parameters
        averaged = parameters.inference == "weighted_average"
        slopes = rules.coefficients[:, :-1] if parameters.order else rules.coefficients[:, :0]
        return RuleTables(
            evaluator="weighted_mean" if averaged else "maximum_matching",
            conditions=SetTree(
                n_sets=tree.n_sets,
                feature=tuple(tree.split.tolist()),
                child=tuple(map(tuple, tree.child.tolist())),
                rule=tuple(self._rule_of.tolist()),
            ),
            weights=tuple(rules.weight.tolist()),
            constants=tuple(rules.coefficients[:, -1].tolist()),
            slopes=lines(slopes.tolist()),
            divisors=() if averaged else tuple(rules.mean_strength.tolist()),
        )

    # --- the document -----------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values; its digest is the model's identity."""
        return write_document(self.parameters, self.domain, self.tree, self.base)
