"""A finished binary tree as arrays, in words, and as a document."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import Strict
from glassfleet.data.domain import Domain, Variable
from glassfleet.model.rules import Condition


@dataclass(frozen=True)
class CrispTree:
    """Nodes in pre-order; the left child of node i is i + 1.

    Attributes
    ----------
    feature : ndarray of int32, shape (n,)
        What a node splits on; -1 for a leaf.
    threshold : ndarray of float64, shape (n,)
        Rows with a value of at most this go left; 0 for a leaf. In the input's own unit.
    right : ndarray of intp, shape (n,)
        Right child; -1 for a leaf.
    value : ndarray of float64, shape (n, K)
        Shares of the K classes among a node's rows, or (K = 1) their mean target, for inner nodes too.
    rows : ndarray of float64, shape (n,)
        Training rows of each node, >= 0 (noisy counts need not be whole).
    impurity : ndarray of float64, shape (n,)
        Gini index, or variance of the target, >= 0.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float64]
    right: NDArray[np.intp]
    value: NDArray[np.float64]
    rows: NDArray[np.float64]
    impurity: NDArray[np.float64]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.feature)

    @cached_property
    def leaves(self) -> NDArray[np.intp]:
        """The leaves, left to right."""
        return np.flatnonzero(self.feature < 0)

    @cached_property
    def parent(self) -> NDArray[np.intp]:
        """Parent of each node, -1 for the root."""
        parent = np.full(self.size, -1, dtype=np.intp)
        inner = np.flatnonzero(self.feature >= 0)
        parent[inner + 1] = inner
        parent[self.right[inner]] = inner
        return parent

    @cached_property
    def depth(self) -> NDArray[np.intp]:
        """Splits above each node."""
        depth = np.zeros(self.size, dtype=np.intp)
        for node in range(1, self.size):  # a parent comes before its children
            depth[node] = depth[self.parent[node]] + 1
        return depth

    def path(self, node: int) -> list[int]:
        """Return the nodes from the root to `node`, both included."""
        steps = [node]
        while steps[-1]:
            steps.append(int(self.parent[steps[-1]]))
        return steps[::-1]

    def reach(self, X: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the leaf of each row of `X`, shape (n, F), by comparisons alone."""
        node = np.zeros(X.shape[0], dtype=np.intp)
        moving = np.arange(X.shape[0])
        while True:
            feature = self.feature[node[moving]]
            moving = moving[feature >= 0]
            if not moving.size:
                return node
            at = node[moving]
            left = X[moving, self.feature[at]] <= self.threshold[at]
            node[moving] = np.where(left, at + 1, self.right[at])


# --- splits in words --------------------------------------------------------------------------------------------------


MOST_CATEGORIES = 6
"""Categories that are named one by one; more are named from the first to the last."""


def interval_condition(variable: Variable, low: float, high: float) -> Condition:
    """Return the condition that an input is above `low` and at most `high`; either may be infinite."""
    short = ""
    if variable.categories:
        term = _categories(variable, low, high)
    else:
        unit = f" {variable.unit}" if variable.unit else ""
        words = []
        if math.isfinite(low) and math.isfinite(high):
            short = f"{low:.6g} to {high:.6g}{unit}"
        if math.isfinite(low):
            words.append(f"above {low:.6g}{unit}")
        if math.isfinite(high):
            words.append(f"at most {high:.6g}{unit}")
        term = " and ".join(words) or "anything"
    ends = (
        low if math.isfinite(low) else min(variable.low, high),
        high if math.isfinite(high) else max(variable.high, low),
    )
    peak = 0.5 * ends[0] + 0.5 * ends[1]
    return Condition(variable.name, term, *ends, peak, variable.unit, crisp=True, short=short)


def _categories(variable: Variable, low: float, high: float) -> str:
    inside = [text for code, text in enumerate(variable.categories) if low < code <= high]
    if not inside:
        return "none of its categories"
    if len(inside) > MOST_CATEGORIES:
        return f"from {inside[0]} to {inside[-1]} ({len(inside)} categories)"
    return " or ".join(inside)


# --- A crisp tree as JSON values, and reading it without trust --------------------------------------------------------


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
