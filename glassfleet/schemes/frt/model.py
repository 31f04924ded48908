"""The finished tree: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy import condition, fuzzify
from glassfleet.fuzzy.consequent import ReadsRules, linear_rule, outputs_at
from glassfleet.numerics.statistics import blocks
from glassfleet.rules import RUNNERS_UP, Activation, Condition, Explanation, Rule, no_rule_fires
from glassfleet.schemes.frt.document import write_document
from glassfleet.schemes.frt.params import Parameters
from glassfleet.schemes.frt.rules import Rules
from glassfleet.schemes.frt.tree import Reached, Tree, reach_leaves
from glassfleet.tables import RuleTables, SetTree, lines

_ROW_BLOCK = 1 << 13


class FuzzyRegressionTree(ReadsRules):
    """A multi-way fuzzy regression tree with linear leaves.

    Made by :meth:`build` (from a run) or a document; not changed afterwards.
    """

    scheme = "frt"

    def __init__(self, parameters: Parameters, domain: Domain, tree: Tree, rules: Rules) -> None:
        self.parameters = parameters
        self.domain = domain
        self.tree = tree
        self._rules = rules
        self._rule_of = np.full(tree.size, -1, dtype=np.intp)
        self._rule_of[rules.node] = np.arange(len(rules.node))
        # Ties go to the highest rule weight, then to the first rule; the first in this order is also the default.
        order = np.lexsort((np.arange(len(rules.node)), -rules.weight))
        self._rank = np.empty(len(order), dtype=np.intp)
        self._rank[order] = np.arange(len(order))
        self._order = order

    @classmethod
    def build(cls, parameters: Parameters, domain: Domain, tree: Tree, rules: Rules) -> FuzzyRegressionTree:
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
            return cls(parameters, domain, Tree.root(tree.n_sets), lone)
        order = [node for node in tree.depth_first() if node in keep]
        new = {node: index for index, node in enumerate(order)}
        parent = [new[int(tree.parent[node])] if node else -1 for node in order]
        shape = Tree(
            tree.n_sets, np.array(parent, dtype=np.int32), tree.feature[order].copy(), tree.fuzzy_set[order].copy()
        )
        chosen = rules.take([known[node] for node in order if node in known])
        at = np.array([new[node] for node in order if node in known], dtype=np.intp)
        lines = Rules(at, chosen.coefficients, chosen.mean_strength, chosen.weight, chosen.support, chosen.confidence)
        return cls(parameters, domain, shape, lines)

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(self, X: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predict rows `X`, shape (n, F), in the inputs' own units; returns shape (n,) in the target's unit."""
        X = self.domain.check_rows(X)
        result = np.empty(X.shape[0])
        for block in blocks(X.shape[0], _ROW_BLOCK):
            result[block] = self._predict_scaled(self.domain.scale_inputs(X[block]))
        return self.domain.unscale_target(result)

    def _predict_scaled(self, scaled: NDArray[np.float64]) -> NDArray[np.float64]:
        reached = reach_leaves(self.tree, fuzzify(scaled, self.parameters.n_sets))
        rule = self._rule_of[reached.node]
        n = scaled.shape[0]
        default = self._order[0]
        if self.parameters.inference == "maximum_matching":
            return outputs_at(self._rules.coefficients, scaled, self._winners(reached, self._measure(reached), n))
        terms = reached.strength * outputs_at(self._rules.coefficients, scaled[reached.row], rule)
        strength = np.bincount(reached.row, weights=reached.strength, minlength=n)
        fired = strength > 0
        mean = np.bincount(reached.row, weights=terms, minlength=n) / np.where(fired, strength, 1.0)
        return np.where(fired, mean, outputs_at(self._rules.coefficients, scaled, np.full(n, default)))

    def deciding(self, X: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the rule that answers each of the rows `X`, or the strongest of those averaged, shape (n,)."""
        X = self.domain.check_rows(X)
        result = np.empty(X.shape[0], dtype=np.intp)
        for block in blocks(X.shape[0], _ROW_BLOCK):
            scaled = self.domain.scale_inputs(X[block])
            reached = reach_leaves(self.tree, fuzzify(scaled, self.parameters.n_sets))
            result[block] = self._winners(reached, self._measure(reached), len(scaled))
        return result

    def _measure(self, reached: Reached) -> NDArray[np.float64]:
        """Return by what rules are compared: strength, normalised where one rule answers alone (Eq. 22)."""
        if self.parameters.inference == "weighted_average":
            return reached.strength
        return reached.strength / self._rules.mean_strength[self._rule_of[reached.node]]

    def _winners(self, reached: Reached, measure: NDArray[np.float64], n: int) -> NDArray[np.intp]:
        """Return the rule with the highest measure for each row, ties by rule weight."""
        rule = self._rule_of[reached.node]
        best = np.zeros(n)
        np.maximum.at(best, reached.row, measure)
        top = measure == best[reached.row]
        rank = np.full(n, len(self._order), dtype=np.intp)
        np.minimum.at(rank, reached.row[top], self._rank[rule[top]])
        return self._order[np.where(rank == len(self._order), 0, rank)]

    # --- explaining -------------------------------------------------------------------------------------------------

    def explain(self, x: NDArray[np.float64]) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,)."""
        row = np.asarray(x, dtype=np.float64).reshape(1, -1)
        prediction = float(self.predict(row)[0])
        scaled = self.domain.scale_inputs(row)
        members = fuzzify(scaled, self.parameters.n_sets)
        reached = reach_leaves(self.tree, members)
        fired = self._rule_of[reached.node]
        averaged = self.parameters.inference == "weighted_average" and reached.size > 0
        order = np.lexsort((self._rank[fired], -self._measure(reached)))
        ranked = [(int(fired[i]), float(reached.strength[i])) for i in order] or [(int(self._order[0]), 0.0)]
        mean = self._rules.mean_strength
        total = sum(strength for _, strength in ranked)
        parts = [(rule, strength / total) for rule, strength in ranked] if averaged else [(ranked[0][0], 1.0)]
        target = self.domain.target
        assert target is not None
        width = target.high - target.low
        shares, base = np.zeros(scaled.shape[1]), 0.0
        for rule, part in parts:
            shares += part * width * self._rules.coefficients[rule, :-1] * scaled[0]
            base += part * width * float(self._rules.coefficients[rule, -1])
        activations = [
            Activation(
                self.rules()[rule],
                strength,
                tuple(members.degree(feature, 0, j) for feature, j in self._paths[rule]),
                None if averaged else strength / float(mean[rule]),
            )
            for rule, strength in ranked[: RUNNERS_UP + 1]
        ]
        return Explanation(
            prediction=prediction,
            fired=activations[0],
            runners_up=tuple(activations[1:]),
            shares={name: float(share) for name, share in zip(self.domain.names, shares, strict=True)},
            base=target.low + base,
            fallback=reached.size == 0,
            notes=() if reached.size else (no_rule_fires(ranked[0][0]),),
        )

    @cached_property
    def _paths(self) -> list[list[tuple[int, int]]]:
        return [self.tree.path(int(node)) for node in self._rules.node]

    def _size(self) -> int:
        return len(self._paths)

    def _rule(self, index: int) -> Rule:
        conditions = tuple(self._condition(feature, j) for feature, j in self._paths[index])
        line = self._rules.coefficients[index]
        return linear_rule(self.domain, index, self._rules, conditions, line[-1], line[:-1], self.forecasts.get(index))

    def _condition(self, feature: int, fuzzy_set: int) -> Condition:
        return condition(self.domain.features[feature], fuzzy_set, self.parameters.n_sets)

    def complexity(self) -> Mapping[str, int | float]:
        """Return nodes (the root not counted), leaves, depth, and parameters (C_FRT, Eq. 31).

        With `max_slopes`, slopes that are zero are not counted.
        """
        leaves = len(self._rules.node)
        nodes = self.tree.size - 1
        inner = nodes - leaves if nodes else 0
        coefficients = leaves * (len(self.domain.features) + 1 if self.parameters.order else 1)
        if self.parameters.max_slopes is not None:
            coefficients = leaves + int(np.count_nonzero(self._rules.coefficients[:, :-1]))
        return {
            "nodes": nodes,
            "leaves": leaves,
            "depth": int(self.tree.depth.max()),
            "parameters": inner + coefficients,
        }

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports; the highest strength over its mean answers, or the mean."""
        tree, rules, parameters = self.tree, self._rules, self.parameters
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
        return write_document(self.parameters, self.domain, self.tree, self._rules)
