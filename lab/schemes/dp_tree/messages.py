"""What travels: the questions of dp_tree, and reading them without trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Task
from glassfleet.contract.tasks import (
    Remembered,
    SchemeQuestion,
    check_array,
    check_classes,
    check_integer,
    read_task_head,
    task_errors,
    task_head,
)
from lab.schemes.dp_tree.params import DpTreeParameters
from schemas.codec import Value

NAME = "dp_tree"
Kind = Literal["hello", "edges", "level"]
KINDS: tuple[Kind, ...] = ("hello", "edges", "level")

MAX_CLASSES = 256
MAX_AGENTS = 1_000_000

GRID = 64
"""Bins of the histogram that finds the edges; a column of fewer categories has a bin for each."""


@dataclass(frozen=True)
class Growth:
    """The tree as far as it has grown, level by level; the right child of a node is the one after the left.

    Attributes
    ----------
    feature, cut, left : ndarray of int32, shape (n,)
        Input that a node splits on, the last bin that goes left, and the left child; -1 for leaves and open nodes.
    level : ndarray of int32, shape (n,)
        Depth of each node.
    """

    feature: NDArray[np.int32]
    cut: NDArray[np.int32]
    left: NDArray[np.int32]
    level: NDArray[np.int32]

    @property
    def size(self) -> int:
        """Number of nodes."""
        return len(self.feature)

    def to_value(self) -> dict[str, Value]:
        """Return the tree as codec values."""
        return {"feature": self.feature, "cut": self.cut, "left": self.left}

    @classmethod
    def root(cls) -> Growth:
        """Return the tree of one open node."""
        nothing = np.full(1, -1, dtype=np.int32)
        return cls(nothing, nothing, nothing, np.zeros(1, dtype=np.int32))

    @classmethod
    def from_value(cls, value: Any, n_features: int, n_bins: int, depth: int) -> Growth:
        """Read :meth:`to_value`; raises ValueError with the reason, whatever it holds."""
        if not isinstance(value, Mapping) or set(value) != {"feature", "cut", "left"}:
            raise ValueError("a tree is feature, cut and left, and nothing else")
        feature, cut, left = (check_array(name, value[name], np.int32, (None,)) for name in ("feature", "cut", "left"))
        size = len(feature)
        if not len(cut) == len(left) == size:
            raise ValueError("the parts of a tree must be of one length")
        if not 1 <= size < 2 << depth:
            raise ValueError(f"a tree of {size} nodes, expected 1 to {(2 << depth) - 1}")
        split = left >= 0
        if not bool(((feature >= 0) == split).all()) or not bool(((cut >= 0) == split).all()):
            raise ValueError("a node of the tree is neither a split nor a leaf")
        if bool((feature >= n_features).any()) or bool((cut >= n_bins - 1).any()):
            raise ValueError("a node of the tree names an unknown input or bin")
        # Children follow in the order of their parents: so the tree is one, and levels come one after the other.
        if not np.array_equal(left[split], 1 + 2 * np.arange(int(split.sum()))) or 2 * int(split.sum()) + 1 != size:
            raise ValueError("the children in the tree are not in the order of their parents")
        parents = np.flatnonzero(split)
        if bool((left[parents] <= parents).any()):
            raise ValueError("a child in the tree comes before its parent")
        level = np.zeros(size, dtype=np.int32)
        for parent in parents:
            level[left[parent] : left[parent] + 2] = level[parent] + 1
        if int(level.max()) > depth:
            raise ValueError(f"the tree is deeper than {depth}")
        return cls(feature, cut, left, level)


@dataclass(frozen=True)
class DpTreeQuestion(SchemeQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.contract.tasks.SchemeQuestion`.

    Attributes
    ----------
    kind : {"hello", "edges", "level"}
        Who is there; how are your inputs spread; what do the open nodes hold.
    agents : int
        t, from the first round; 0 in it.
    edges : ndarray of float64, shape (F, n_bins - 1), or None
        In the inputs' own units, increasing; a value of at most an edge is below it.
    growth : Growth or None
    nodes : ndarray of intp, shape (m,)
        The open nodes, all of one level.
    """

    kind: Kind
    parameters: DpTreeParameters
    agents: int = 0
    edges: NDArray[np.float64] | None = None
    growth: Growth | None = None
    nodes: NDArray[np.intp] | None = None

    @property
    def depth(self) -> int:
        """Level of the open nodes."""
        assert self.growth is not None
        assert self.nodes is not None
        return int(self.growth.level[self.nodes[0]])

    @property
    def last(self) -> bool:
        """Whether the open nodes are leaves because of their depth."""
        return self.depth == self.parameters.max_depth

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the sums of an answer, with their shapes."""
        if self.kind == "hello":
            return {}
        if self.kind == "edges":
            return {"histogram": (self.n_features, GRID)}
        assert self.nodes is not None
        m, k = len(self.nodes), self.n_classes
        shapes: dict[str, tuple[int, ...]] = {"nodes": (m, k)}
        if not self.last:
            shapes["cells"] = (m, self.n_features, self.parameters.n_bins, k)
        return shapes

    def epsilons(self) -> dict[str, float]:
        """Return the budget of each sum."""
        parameters, features = self.parameters, self.n_features
        if self.kind == "hello":
            return {}
        if self.kind == "edges":
            return {"histogram": parameters.edge_epsilon(features)}
        spent = {"nodes": parameters.node_epsilon(last=self.last)}
        return spent if self.last else spent | {"cells": parameters.cell_epsilon(features)}

    @property
    def cost(self) -> float:
        """What one answer spends of the budget: a row is in one cell of each sum, or of each input's part of it."""
        return sum(epsilon * (1 if name == "nodes" else self.n_features) for name, epsilon in self.epsilons().items())

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body = task_head(self.parameters, self.domain)
        if self.kind != "hello":
            body["agents"] = self.agents
        if self.growth is not None:
            assert self.nodes is not None
            body["edges"] = self.edges
            body["tree"] = self.growth.to_value()
            body["nodes"] = self.nodes.astype(np.int32)
        return Task(NAME, self.kind, body)

    @classmethod
    def from_task(cls, task: Task) -> DpTreeQuestion:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, NAME, KINDS, DpTreeParameters)
        body = task.body
        with task_errors():
            check_classes(domain, NAME, MAX_CLASSES)
            if kind == "hello":
                return cls(kind, parameters, domain)
            agents = check_integer("agents", body["agents"], 1, MAX_AGENTS)
            if kind == "edges":
                return cls(kind, parameters, domain, agents)
            growth = Growth.from_value(body["tree"], len(domain.features), parameters.n_bins, parameters.max_depth)
            edges = _read_edges(body["edges"], (len(domain.features), parameters.n_bins - 1))
            nodes = _read_nodes(body["nodes"], growth)
        return cls(kind, parameters, domain, agents, edges, growth, nodes)


read_task = Remembered(DpTreeQuestion.from_task)
"""``DpTreeQuestion.from_task``, once for each task."""


def _read_edges(edges: Any, shape: tuple[int, int]) -> NDArray[np.float64]:
    checked = check_array("edges", edges, np.float64, shape)
    if bool((checked[:, 1:] < checked[:, :-1]).any()):
        raise ValueError("edges must be increasing")
    return checked


def _read_nodes(value: Any, growth: Growth) -> NDArray[np.intp]:
    nodes: NDArray[np.int32] = check_array("nodes", value, np.int32, (None,))
    if not nodes.size or nodes[0] < 0 or nodes[-1] >= growth.size or bool((nodes[1:] <= nodes[:-1]).any()):
        raise ValueError("the open nodes are not increasing node numbers of the tree")
    if bool((growth.left[nodes] >= 0).any()) or bool((growth.level[nodes] != growth.level[nodes[0]]).any()):
        raise ValueError("an open node is split already, or on another level")
    return nodes.astype(np.intp)
