"""A crisp tree as JSON values, and reading it without trust."""

from __future__ import annotations

from typing import Any

import numpy as np
from pydantic import Field

from glassfleet.crisp.tree import CrispTree
from glassfleet.data.documents import Strict
from glassfleet.data.domain import Domain

MAX_NODES = 1 << 20
"""Most nodes of a tree in a document."""


class _Node(Strict):
    """A split (feature, threshold and right child; the left child is the next node) or a leaf."""

    feature: int | None = Field(default=None, ge=0, lt=1 << 20)
    threshold: float | None = None
    right: int | None = Field(default=None, ge=0, lt=MAX_NODES)
    value: tuple[float, ...]
    rows: float = Field(ge=0.0)
    impurity: float = Field(ge=0.0)


class TreeBody(Strict):
    """``model`` of a tree's document."""

    nodes: tuple[_Node, ...] = Field(min_length=1, max_length=MAX_NODES)


def write_tree(tree: CrispTree) -> dict[str, Any]:
    """Return ``{"nodes": [...]}`` in pre-order: ``value`` (shares of classes, or the scaled mean), ``rows`` and
    ``impurity`` of every node; splits also have ``feature``, ``threshold`` (in the input's unit; at most that goes
    left, to the next node) and ``right``.
    """  # noqa: D205 - one sentence
    nodes: list[dict[str, Any]] = []
    for node in range(tree.size):
        line: dict[str, Any] = {
            "value": tree.value[node].tolist(),
            "rows": float(tree.rows[node]),
            "impurity": float(tree.impurity[node]),
        }
        if tree.feature[node] >= 0:
            line |= {
                "feature": int(tree.feature[node]),
                "threshold": float(tree.threshold[node]),
                "right": int(tree.right[node]),
            }
        nodes.append(line)
    return {"nodes": nodes}


def read_tree(body: TreeBody, domain: Domain) -> CrispTree:
    """Return the tree; raises ValueError with the reason when it is none."""
    size = len(body.nodes)
    feature = np.full(size, -1, dtype=np.int32)
    threshold, right = np.zeros(size), np.full(size, -1, dtype=np.intp)
    width = len(domain.classes) or 1
    # In pre-order a node that is not some left child must be the right child that comes next on the stack.
    waiting: list[int] = []
    for number, node in enumerate(body.nodes):
        if number and body.nodes[number - 1].feature is None and (not waiting or waiting.pop() != number):
            raise ValueError(f"node {number} is the child of no node")
        if len(node.value) != width:
            raise ValueError(f"node {number} has {len(node.value)} values, expected {width}")
        if domain.classes and not all(0.0 <= share <= 1.0 for share in node.value):
            raise ValueError(f"node {number}: a share of a class is not in [0, 1]")
        if domain.target is not None and not -1e6 <= node.value[0] <= 1e6:
            raise ValueError(f"node {number}: the scaled mean is far outside the target's range")
        if (node.feature is None) != (node.threshold is None) or (node.feature is None) != (node.right is None):
            raise ValueError(f"node {number} is neither a split nor a leaf")
        if node.feature is not None:
            assert node.threshold is not None
            assert node.right is not None
            if node.feature >= len(domain.features) or not number + 1 < node.right < size:
                raise ValueError(f"node {number} names an unknown feature or child")
            feature[number], threshold[number], right[number] = node.feature, node.threshold, node.right
            waiting.append(node.right)
    if waiting or body.nodes[-1].feature is not None:
        raise ValueError("the last node is not a leaf, or a child is missing")
    return CrispTree(
        feature,
        threshold,
        right,
        np.array([node.value for node in body.nodes], dtype=np.float64),
        np.array([node.rows for node in body.nodes], dtype=np.float64),
        np.array([node.impurity for node in body.nodes], dtype=np.float64),
    )
