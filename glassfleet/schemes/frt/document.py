"""The model as a document: JSON values, complete and readable without this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.contract.tasks import check_numeric
from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.consequent import WEIGHTS, WeighedLine
from glassfleet.schemes.frt.params import FrtParameters
from glassfleet.schemes.frt.tree import MAX_NODES, FrtTree, Rules
from schemas.errors import DocumentError

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
