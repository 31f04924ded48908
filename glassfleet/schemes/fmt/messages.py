"""What travels: the questions of FMT, and reading them without trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.errors import TaskError
from glassfleet.fuzzy.levels import check_levels, has_categories, needs_levels
from glassfleet.scheme import SUPPORT, Task
from glassfleet.schemes.fmt.growth import GrowthQuestion, possible
from glassfleet.schemes.fmt.params import MAX_INPUTS, MAX_ROWS, Parameters
from glassfleet.schemes.fmt.partition import check_knots
from glassfleet.schemes.fmt.tree import Tree
from glassfleet.untrusted import (
    Remembered,
    check_array,
    check_numeric,
    increasing,
    read_task_head,
    task_errors,
    task_head,
)
from schemas.codec import Value

NAME = "fmt"
Kind = Literal["levels", "scan", "grow", "sizes", "leaves", "support"]
KINDS: tuple[Kind, ...] = ("levels", "scan", "grow", "sizes", "leaves", "support")

NO_PRIVATE_TEXTS = (
    "a private run of fmt takes numbers alone, as a category may have few rows: leave columns of text out, and fill "
    "empty cells"
)

MAX_VARIANTS = 32
"""Most ways to fit the nodes that one question compares."""


@dataclass(frozen=True)
class Question(GrowthQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.schemes.fmt.growth.GrowthQuestion`.

    Attributes
    ----------
    kind : {"levels", "scan", "grow", "sizes", "leaves", "support"}
        Rows, target and inputs of each category; histograms and the root's sums over all inputs; sums
        of all cuts of some nodes; held-out errors of all sizes; sums of the final leaves over all rows; on how many
        rows these would rest, of some nodes.
    parameters : Parameters
        The run's parameters.
    nodes : tuple of int
        ``"grow"``: leaves whose cuts are asked about, increasing. ``"support"``: lower sides of splits, each for its
        upper one, too; or the root. ``"leaves"`` of a run with `support`: those of which all rows may be summed.
    coefficients : ndarray of float64, shape (V, nodes, R + 1)
        ``"sizes"``: of every node, in V variants: intercept, then slopes.
    held : ndarray of bool, shape (m, cuts)
        ``"grow"`` of a run with `support`: cuts that are not asked about, as too few rows are between them.
    """

    kind: Kind
    parameters: Parameters
    coefficients: NDArray[np.float64] | None = None
    held: NDArray[np.bool_] | None = None

    @property
    def width(self) -> int:
        """Entries of a triangle of sums over ``[1, x, y]``."""
        k = len(self.columns) + 2
        return k * (k + 1) // 2

    @cached_property
    def cuts_of(self) -> dict[int, list[int]]:
        """For each node asked about, which of :attr:`cuts` are asked about."""
        return {
            node: [place for place in possible(self, node) if self.held is None or not self.held[line, place]]
            for line, node in enumerate(self.nodes)
        }

    @property
    def least_rows(self) -> int:
        """Fewest rows of a sum of products in a run with `support`: those of fewer rows than columns span the rows."""
        return max(self.parameters.support, len(self.regressors) + 2)

    @property
    def asked_leaves(self) -> list[int]:
        """``"leaves"``: those whose rows are summed."""
        return list(self.nodes) if self.parameters.support else self.tree.leaves

    @property
    def children(self) -> list[int]:
        """``"support"``: the nodes asked about, each lower side followed by its upper one."""
        return [child for node in self.nodes for child in ((node, node + 1) if node else (0,))]

    @property
    def n_cells(self) -> int:
        """``"support"``: disjoint parts of an input's sets, see :func:`glassfleet.schemes.fmt.support.count_rows`."""
        return 2 * max((self.n_sets[feature] for feature in self.split_features), default=2) - 1

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body: dict[str, Value] = task_head(self.parameters, self.domain, MAX_ROWS)
        if self.levels:
            body["levels"] = [list(line) for line in self.levels]
        if self.kind not in ("levels", "scan"):
            body |= {
                "knots": [list(line) for line in self.knots],
                "regressors": list(self.regressors),
                "split_features": list(self.split_features),
                "tree": self.tree.to_value(),
            }
        if self.kind in {"grow", SUPPORT} or (self.kind == "leaves" and self.parameters.support):
            body["nodes"] = list(self.nodes)
        if self.held is not None:
            body["held"] = self.held
        if self.kind == "sizes":
            body["coefficients"] = self.coefficients
        return Task(NAME, self.kind, body)

    @classmethod
    def from_task(cls, task: Task) -> Question:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, NAME, KINDS, Parameters, MAX_ROWS)
        with task_errors():
            return cls._read(kind, parameters, domain, task.body)

    @classmethod
    def _read(cls, kind: Kind, parameters: Parameters, domain: Domain, body: Mapping[str, Any]) -> Question:
        check_numeric(domain, NAME, MAX_INPUTS)
        if kind == "levels":
            if not has_categories(domain):
                raise TaskError("levels are asked for, and no input is text")
            return cls(kind, parameters, domain)
        levels = check_levels(body["levels"], domain) if needs_levels(domain) else ()
        if kind == "scan":
            return cls(kind, parameters, domain, levels=levels)
        f = len(domain.inputs)
        knots = check_knots(body["knots"], f, parameters.most_knots)
        regressors = increasing("regressors", body["regressors"], f)
        split_features = increasing("split_features", body["split_features"], f)
        tree = Tree.from_value(body["tree"], knots)
        asked = (kind, parameters, domain, knots, regressors, split_features, tree)
        if kind != "sizes":
            question = cls(*asked, _nodes(kind, parameters, body, tree), levels, held=body.get("held"))
            if (question.held is not None) != (kind == "grow" and parameters.support > 0):
                raise TaskError("what is held back belongs to growth in a run with support, and only there")
            if question.held is not None:
                check_array("held", question.held, np.bool_, (len(question.nodes), len(question.cuts)))
            return question
        coefficients = check_array(
            "coefficients", body["coefficients"], np.float64, (None, tree.size, len(regressors) + 1)
        )
        if not 1 <= len(coefficients) <= MAX_VARIANTS:
            raise TaskError(f"between 1 and {MAX_VARIANTS} variants can be asked about")
        return cls(*asked, levels=levels, coefficients=coefficients)


read_task = Remembered(Question.from_task)
"""``Question.from_task``, once for each task."""


def _nodes(kind: Kind, parameters: Parameters, body: Mapping[str, Any], tree: Tree) -> tuple[int, ...]:
    """Return the nodes asked about; none where all leaves are."""
    if kind == SUPPORT and not parameters.support:
        raise TaskError("a question of runs with support")
    if kind == "leaves" and not parameters.support:
        return ()
    nodes = increasing("nodes", body["nodes"], tree.size)
    if not nodes or any(node in tree.split_of for node in nodes):
        raise TaskError("a node asked about is split already, or there is none")
    if parameters.support and kind != "leaves" and any(node and node % 2 == 0 for node in nodes):
        raise TaskError("upper sides follow from lower ones")
    return nodes
