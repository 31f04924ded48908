"""What travels: the questions of FRT, reading them without trust, and whether an answer can be true."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.checks import at_most, check_qualities, check_regressions, check_told
from glassfleet.contract.messages import COLUMNS, COUNTS, SUPPORT, Contribution, Task
from glassfleet.contract.tasks import (
    Remembered,
    SchemeQuestion,
    check_array,
    check_numeric,
    read_task_head,
    task_errors,
    task_head,
)
from glassfleet.errors import ContributionError, TaskError
from glassfleet.private.columns import CELLS, Common, LayeredQuestion, check_values, read_common
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


# --- can an answer be true? What sums of rows in [0, 1] always obey, checked before they are added to others' ---------
#
# The bounds are exact where rounding is monotone (a smaller term is never rounded to a larger integer) and have a small
# tolerance elsewhere. They find broken agents and crude lies; they cannot find a plausible lie.


def check_sums(question: FrtQuestion, contribution: Contribution) -> None:
    """Raise :class:`ContributionError` unless the sums can answer `question`."""
    checks = {
        COLUMNS: _check_columns,
        "level": _check_level,
        "leaves": _check_leaves,
        "weights": _check_weights,
        SUPPORT: _check_support,
    }
    checks[question.kind](question, contribution)


def shapes_of(question: FrtQuestion) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `question`."""
    m, f, t = len(question.nodes), question.n_features, question.parameters.n_sets
    k = question.gram_columns
    if question.kind == COLUMNS:
        return {"rows": (f + 1, CELLS)}
    if question.kind == SUPPORT:
        return {"rows": (m, f, t) if question.common is None else (m * len(question.least_of), 2)}
    if question.kind == "level":
        return {f"cell_{name}": (m, f, t) for name in CELL_SUMS} | {f"node_{name}": (m,) for name in NODE_SUMS}
    if question.kind == "leaves":
        return {"gram_high": (m, k * (k + 1) // 2), "gram_low": (m, k * (k + 1) // 2), "ws": (m,), "count": (m,)}
    return {"ws": (m,), "wq": (m,)}


def _check_columns(_: FrtQuestion, contribution: Contribution) -> None:
    check_values(contribution.sums["rows"], contribution.rows)


_CHAIN = ("count exceeds the agent's rows", "WS exceeds its count", "WLS exceeds its WS", "WSS exceeds its WLS")
"""What bounds each of `NODE_SUMS`."""


def _check_level(question: FrtQuestion, contribution: Contribution) -> None:
    sums, rows = contribution.sums, contribution.rows
    bits = question.parameters.fraction_bits
    # Cells and nodes together: most of the time for a small answer is spent on calls, not on numbers.
    cells, nodes = (np.array([sums[f"{part}_{name}"] for name in NODE_SUMS]) for part in ("cell", "node"))
    statistics = np.concatenate([cells.reshape(len(NODE_SUMS), -1), nodes], axis=1)
    count, ws, wls, wss = statistics
    shape, names = cells.shape[1:], question.domain.names

    def where(place: Sequence[int]) -> str:
        if place[-1] >= cells[0].size:
            spot = f"node {place[-1] - cells[0].size}"
        else:
            node, feature, fuzzy_set = np.unravel_index(place[-1], shape)
            spot = f"node {node}, input {names[feature]!r}, set {fuzzy_set}"
        return f"{spot}: its {_CHAIN[place[0]]}"

    most = np.concatenate([np.full_like(statistics[:1], rows), count[None] << bits, statistics[1:3]])
    at_most(statistics, most, "a statistic of a cell or node is too large", where)
    # Cauchy and Schwarz: WLS^2 <= WS WSS, up to half a grid unit per row.
    low = np.maximum(wls - count, 0).astype(np.float64)
    if np.count_nonzero(low * low > (ws + count).astype(np.float64) * (wss + count) * (1.0 + 1e-9)):
        raise ContributionError("a cell's or node's WLS, WS and WSS contradict each other")
    at_most(sums["cell_strong"], cells[0], "a cell's strong count exceeds its count")
    at_most(cells, nodes[:, :, None, None], "a cell's count, WS, WLS or WSS exceeds its node's")
    # A row belongs to one set of a feature or shares itself between two; half a grid unit a row and set is rounding.
    sets, twice = cells.sum(axis=3), 2 * nodes[0]
    at_most(sets[0], twice[:, None], "a feature's sets count a row more than twice")
    at_most(sets[1:], (nodes[1:] + twice)[:, :, None], "the WS, WLS or WSS of a feature's sets exceed their node's")
    if np.count_nonzero(cells[:2, ~question.free]):  # count and WS
        raise ContributionError("statistics of a feature that the path uses already")


def _check_leaves(question: FrtQuestion, contribution: Contribution) -> None:
    parameters = question.parameters
    check_regressions("leaf", contribution, question.gram_columns, parameters.fraction_bits, parameters.gram_bits)


def _check_support(question: FrtQuestion, contribution: Contribution) -> None:
    check_told(contribution, question.most_told)
    if question.common is None and contribution.sums["rows"][~question.free].any():
        raise ContributionError("rows of a feature that the path uses already")


def _check_weights(question: FrtQuestion, contribution: Contribution) -> None:
    check_qualities("leaf", contribution, question.parameters.fraction_bits)
