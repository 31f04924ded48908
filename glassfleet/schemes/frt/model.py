"""The finished tree: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.contract.tasks import check_numeric
from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.matching import WEIGHTS, MatchedRules, WeighedLine, outputs_at
from glassfleet.fuzzy.partition import Memberships
from glassfleet.model.tables import RuleTables, SetTree, lines
from glassfleet.numerics.statistics import blocks
from glassfleet.schemes.frt.params import FrtParameters
from glassfleet.schemes.frt.tree import MAX_NODES, FrtTree, Reached, Rules, reach_leaves
from schemas.errors import DocumentError

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
        """Return nodes (the root not counted), leaves, depth, and parameters (C_FRT, Eq. 31)."""
        leaves = len(self.base.node)
        nodes = self.tree.size - 1
        inner = nodes - leaves if nodes else 0
        coefficients = leaves * (len(self.domain.features) + 1 if self.parameters.order else 1)
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


# --- the model as a document: JSON values, complete and readable without this package ---------------------------------


SCHEME = "frt"
FORMAT = 1


class _Node(Strict):
    """A split (feature and one child per set, null where there is none) or a leaf (its rule)."""

    feature: int | None = Field(default=None, ge=0)
    children: tuple[int | None, ...] = ()
    rule: int | None = Field(default=None, ge=0)


class _FrtRule(WeighedLine):
    coefficients: tuple[float, ...]
    intercept: float
    mean_strength: float = Field(gt=0.0, le=1.0)


class _FrtBody(Strict):
    nodes: tuple[_Node, ...] = Field(min_length=1, max_length=MAX_NODES)
    rules: tuple[_FrtRule, ...] = Field(min_length=1, max_length=MAX_NODES)


def write_document(parameters: FrtParameters, domain: Domain, tree: FrtTree, rules: Rules) -> dict[str, Any]:
    """Return ``{scheme, format, parameters, domain, model}``.

    ``model.nodes`` is in depth-first order: ``{feature, children}`` for a split, ``{rule}`` for a leaf; numbers refer
    to positions in ``domain.features``, ``nodes`` and ``rules``. A rule's polynomial is over the scaled inputs and
    gives the scaled target; a constant consequent has no coefficients.
    """
    rule_of = {int(node): line for line, node in enumerate(rules.node)}
    nodes: list[dict[str, Any]] = []
    for node in range(tree.size):
        if node in rule_of:
            nodes.append({"rule": rule_of[node]})
        else:
            children = [int(c) if c >= 0 else None for c in tree.child[node]]
            nodes.append({"feature": int(tree.split[node]), "children": children})
    lines = [
        {
            "coefficients": rules.coefficients[line, :-1].tolist() if parameters.order else [],
            "intercept": float(rules.coefficients[line, -1]),
            "mean_strength": float(rules.mean_strength[line]),
            **{name: float(getattr(rules, name)[line]) for name in WEIGHTS},
        }
        for line in range(len(rules.node))
    ]
    return document_of(SCHEME, FORMAT, parameters, domain, {"nodes": nodes, "rules": lines})


def read_document(document: Mapping[str, Any]) -> tuple[FrtParameters, Domain, FrtTree, Rules]:
    """Read a document; raises :class:`DocumentError` with the reason, and nothing else, whatever it holds."""
    parameters, domain, model = read_document_head(document, SCHEME, FORMAT, FrtParameters)
    with document_errors():
        body = _FrtBody.model_validate(model)
        check_numeric(domain, SCHEME)
        tree, leaf_of = _read_tree(body, parameters.n_sets, len(domain.features))
    return parameters, domain, tree, _read_rules(body, leaf_of, parameters, len(domain.features))


def _read_tree(body: _FrtBody, n_sets: int, n_features: int) -> tuple[FrtTree, NDArray[np.intp]]:
    """Return the tree and each rule's leaf; raises ValueError."""
    size = len(body.nodes)
    table = np.full((3, size), -1, dtype=np.int32)
    leaf_of = np.full(len(body.rules), -1, dtype=np.intp)
    for number, node in enumerate(body.nodes):
        if node.rule is not None:
            if node.feature is not None or node.children:
                raise ValueError(f"node {number} is both a split and a leaf")
            if node.rule >= len(leaf_of) or leaf_of[node.rule] >= 0:
                raise ValueError(f"node {number}: rule {node.rule} is unknown or used twice")
            leaf_of[node.rule] = number
        else:
            _add_children(number, node, table, n_sets)
    if (table[0, 1:] < 0).any():
        raise ValueError("a node has no parent")
    if (leaf_of < 0).any():
        raise ValueError("a rule has no leaf")
    columns = dict(zip(("parent", "feature", "set"), table, strict=True))
    return FrtTree.from_value(columns, n_sets, n_features), leaf_of


def _add_children(number: int, node: _Node, table: NDArray[np.int32], n_sets: int) -> None:
    """Write a split's children into the table (parent, feature, set)."""
    if node.feature is None or len(node.children) != n_sets or all(child is None for child in node.children):
        raise ValueError(f"node {number} is neither a leaf nor a split into {n_sets} sets")
    for fuzzy_set, child in enumerate(node.children):
        if child is None:
            continue
        if not number < child < table.shape[1] or table[0, child] >= 0:
            raise ValueError(f"node {number}: child {child} is unknown, comes first, or has two parents")
        table[:, child] = number, node.feature, fuzzy_set


def _read_rules(body: _FrtBody, leaf_of: NDArray[np.intp], parameters: FrtParameters, n_features: int) -> Rules:
    width = n_features if parameters.order else 0
    coefficients = np.zeros((len(body.rules), n_features + 1))
    for line, rule in enumerate(body.rules):
        if len(rule.coefficients) != width:
            raise DocumentError(f"rule {line} has {len(rule.coefficients)} coefficients, expected {width}")
        coefficients[line, :width] = rule.coefficients
        coefficients[line, -1] = rule.intercept
    numbers = {
        name: np.array([getattr(rule, name) for rule in body.rules], dtype=np.float64)
        for name in ("mean_strength", *WEIGHTS)
    }
    return Rules(node=leaf_of, coefficients=coefficients, **numbers)
