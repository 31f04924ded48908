"""What travels: the questions of FRT, and reading them without trust."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import COUNTS, SUPPORT, Task
from glassfleet.contract.tasks import (
    Remembered,
    SchemeQuestion,
    check_array,
    check_numeric,
    read_task_head,
    task_errors,
    task_head,
)
from glassfleet.errors import TaskError
from glassfleet.private.columns import CELLS, Common, LayeredQuestion, read_common
from glassfleet.schemes.frt.params import MAX_LINEAR_FEATURES, FrtParameters
from glassfleet.schemes.frt.tree import FrtTree

NAME = "frt"
Kind = Literal["columns", "level", "leaves", "weights", "support"]
KINDS: tuple[Kind, ...] = ("columns", "level", "leaves", "weights", "support")

CELL_SUMS = ("count", "strong", "ws", "wls", "wss")
"""Sums per node, feature and set: rows with strength > 0, rows with strength >= 0.5^depth, and the three of Eq. 14."""

NODE_SUMS = ("count", "ws", "wls", "wss")
"""Sums per node of the frontier, before the split."""


@dataclass(frozen=True)
class FrtQuestion(LayeredQuestion, SchemeQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.contract.tasks.SchemeQuestion`.

    Attributes
    ----------
    kind : {"columns", "level", "leaves", "weights", "support"}
        Values of the inputs, in a run with `support`; split statistics of the frontier; Gram sums of the leaves;
        quality sums of the leaves; on how many rows split statistics, or the Gram sums of the leaves, would rest.
    tree : Tree
        The tree as far as it has grown.
    nodes : ndarray of intp, shape (m,)
        The nodes asked about, increasing: the frontier, or all leaves; for ``"support"`` every child that the parents
        of the frontier could have.
    coefficients : ndarray of float64, shape (m, F + 1)
        Only for ``"weights"``: each leaf's polynomial over the scaled inputs, intercept last.
    held : ndarray of bool, shape (m, F)
        Only for ``"level"`` of a run with `support`: features that are not asked about, as too few rows are in a set.
    common : tuple of (int, int) or None
        ``"support"`` about leaves: inputs, or the target (F), and cells of their histograms that many rows are in.
    columns : ndarray of bool, shape (m, F + 1)
        Only for ``"leaves"`` of a run with `support`: the inputs that are columns of a leaf's Gram sums, and whether
        the leaf has any.
    """

    kind: Kind
    parameters: FrtParameters
    tree: FrtTree
    nodes: NDArray[np.intp]
    coefficients: NDArray[np.float64] | None = None
    held: NDArray[np.bool_] | None = None
    common: Common | None = None
    columns: NDArray[np.bool_] | None = None

    @property
    def gram_columns(self) -> int:
        """Columns of the leaf regressions: the inputs (first order only), the intercept and the target."""
        return (self.n_features if self.parameters.order else 0) + 2

    @cached_property
    def position(self) -> NDArray[np.intp]:
        """Where each node of the tree stands in `nodes`, shape (tree.size,); -1 for the others."""
        position = np.full(self.tree.size, -1, dtype=np.intp)
        position[self.nodes] = np.arange(len(self.nodes))
        return position

    @cached_property
    def free(self) -> NDArray[np.bool_]:
        """Which features each node may split on, shape (m, F)."""
        unused = ~self.tree.used(self.nodes, self.n_features)
        return unused if self.held is None else unused & ~self.held

    @property
    def least_rows(self) -> int:
        """Fewest rows of a node and of a leaf in a run with `support`: its regression's sums span fewer rows."""
        return max(self.parameters.support, self.gram_columns)

    @property
    def has_columns(self) -> bool:
        """Whether values of the inputs are counted: in a run with `support` whose leaves have slopes."""
        return bool(self.parameters.support and self.parameters.order)

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body = {
            **task_head(self.parameters, self.domain, self.parameters.max_rows),
            "tree": self.tree.to_value(),
            "nodes": self.nodes.astype(np.int32),
        }
        if self.coefficients is not None:
            body["coefficients"] = self.coefficients
        if self.held is not None:
            body["held"] = self.held
        if self.common is not None:
            body["common"] = [list(one) for one in self.common]
        if self.columns is not None:
            body["columns"] = self.columns
        return Task(NAME, self.kind, body)

    @classmethod
    def from_task(cls, task: Task) -> FrtQuestion:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, NAME, KINDS, FrtParameters)
        body = task.body
        with task_errors():
            check_numeric(domain, NAME)
            tree = FrtTree.from_value(body["tree"], parameters.n_sets, len(domain.features))
            nodes, coefficients, held = body["nodes"], body.get("coefficients"), body.get("held")
            columns, features = body.get("columns"), range(len(domain.features) + 1)
            common = read_common(body["common"], features, CELLS) if "common" in body else None
        if parameters.order and len(domain.features) > MAX_LINEAR_FEATURES:
            raise TaskError(f"{len(domain.features)} inputs; first-order leaves take at most {MAX_LINEAR_FEATURES}")
        _check_nodes(nodes, tree)
        if common is None and kind in {"level", SUPPORT} and (tree.depth[nodes] != tree.depth[nodes[0]]).any():
            raise TaskError("the nodes of a level have different depths")
        if (kind == "weights") != (coefficients is not None):
            raise TaskError("coefficients belong to the question for weights, and only there")
        if coefficients is not None:
            check_array("coefficients", coefficients, np.float64, (len(nodes), len(domain.features) + 1))
        has_support = parameters.support > 0
        if kind in COUNTS and not has_support:
            raise TaskError("a question of runs with support")
        if (held is not None) != (has_support and kind == "level"):
            raise TaskError("what is held back belongs to levels of a run with support, and only there")
        if (common is not None and kind != SUPPORT) or (columns is not None) != (
            kind == "leaves" and has_support and bool(parameters.order)
        ):
            raise TaskError("columns belong to the leaves of a run with support, and common values to their counts")
        if columns is not None:
            check_array("columns", columns, np.bool_, (len(nodes), len(domain.features) + 1))
        if held is not None:
            check_array("held", held, np.bool_, (len(nodes), len(domain.features)))
        return cls(kind, parameters, domain, tree, nodes.astype(np.intp), coefficients, held, common, columns)


read_task = Remembered(FrtQuestion.from_task)
"""``FrtQuestion.from_task``, once for each task."""


def _check_nodes(nodes: object, tree: FrtTree) -> None:
    if not isinstance(nodes, np.ndarray) or nodes.ndim != 1 or nodes.dtype.kind not in "iu" or nodes.size == 0:
        raise TaskError("the nodes asked about are not a list of integers")
    if nodes[0] < 0 or nodes[-1] >= tree.size or (nodes[1:] <= nodes[:-1]).any():
        raise TaskError("the nodes asked about are not increasing node numbers of the tree")
    if (tree.split[nodes] >= 0).any():
        raise TaskError("a node asked about is split already")
