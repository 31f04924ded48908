"""What travels: the questions of FMT, and reading them without trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.errors import TaskError
from glassfleet.fuzzy.levels import needs_levels
from glassfleet.private.columns import Common, LayeredQuestion, read_common
from glassfleet.private.support import no_texts
from glassfleet.scheme import SUPPORT
from glassfleet.schemes.fmt.growth import GrowthQuestion, possible
from glassfleet.schemes.fmt.params import MAX_INPUTS, MAX_ROWS, Parameters
from glassfleet.schemes.fmt.partition import BINS
from glassfleet.untrusted import Remembered, check_array, check_numeric
from schemas.codec import Value

NAME = "fmt"
Kind = Literal["levels", "columns", "scan", "grow", "sizes", "leaves", "support"]

MAX_VARIANTS = 32
"""Most ways to fit the nodes that one question compares."""


@dataclass(frozen=True)
class Question(LayeredQuestion, GrowthQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.schemes.fmt.growth.GrowthQuestion`.

    Attributes
    ----------
    kind : {"levels", "columns", "scan", "grow", "sizes", "leaves", "support"}
        Rows, target and inputs of each category; histograms and the root's sums over all inputs; sums of all cuts of
        some nodes. Then held-out errors of all sizes; sums of the final leaves over all rows; on how many rows these
        would rest, of some nodes.
    nodes : tuple of int
        ``"grow"``: leaves whose cuts are asked about, increasing. ``"support"``: lower sides of splits, each for its
        upper one, too; or the root. ``"leaves"`` of a run with `support`: those of which all rows may be summed.
    coefficients : ndarray of float64, shape (V, nodes, R + 1)
        ``"sizes"``: of every node, in V variants: intercept, then slopes.
    held : ndarray of bool, shape (m, cuts)
        ``"grow"`` of a run with `support`: cuts that are not asked about, as too few rows are between them.
    common : tuple of (int, int)
        ``"support"``: inputs of the polynomials, or the target (F), and cells of their histograms that many rows are
        in.
    """

    kind: Kind
    parameters: Parameters
    coefficients: NDArray[np.float64] | None = None
    held: NDArray[np.bool_] | None = None
    common: Common = ()

    name = NAME
    kinds = get_args(Kind)
    ParametersType = Parameters
    max_rows = MAX_ROWS
    cells = BINS

    @classmethod
    def check_domain(cls, parameters: Parameters, domain: Domain) -> None:
        """Raise ValueError, with the reason, unless there is a number to learn, and `support` can be kept."""
        check_numeric(domain, NAME, MAX_INPUTS)
        if parameters.support and needs_levels(domain):
            raise ValueError(no_texts(NAME))

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
        """Fewest rows of a sum of products in a run with `support`.

        Products of fewer rows than columns span the rows. With fewer rows in a band than inputs that are cut, a node
        would open more sums than it has rows.
        """
        return max(self.parameters.support, len(self.regressors) + 2, 2 * len(self.split_features))

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

    def body(self) -> dict[str, Value]:
        """Return the tree, and what is asked about it."""
        body = super().body()
        if self.kind in {"grow", SUPPORT} or (self.kind == "leaves" and self.parameters.support):
            body["nodes"] = list(self.nodes)
        if self.kind == SUPPORT:
            body["common"] = [list(one) for one in self.common]
        if self.held is not None:
            body["held"] = self.held
        if self.kind == "sizes":
            body["coefficients"] = self.coefficients
        return body

    def with_body(self, body: Mapping[str, Any]) -> Question:
        """Undo :meth:`body`."""
        known, support = self.with_tree(body), self.parameters.support
        if self.kind == "sizes":
            shape = (None, known.tree.size, len(known.regressors) + 1)
            coefficients = check_array("coefficients", body["coefficients"], np.float64, shape)
            if not 1 <= len(coefficients) <= MAX_VARIANTS:
                raise TaskError(f"between 1 and {MAX_VARIANTS} variants can be asked about")
            return replace(known, coefficients=coefficients)
        if self.kind == SUPPORT and not support:
            raise TaskError("a question of runs with support")
        if self.kind != "leaves" or support:
            known = replace(known, nodes=known.read_nodes(body))
        if support and self.kind != "leaves" and any(node and node % 2 == 0 for node in known.nodes):
            raise TaskError("upper sides follow from lower ones")
        if self.kind == SUPPORT:
            known = replace(known, common=read_common(body["common"], (*known.regressors, known.n_inputs), BINS))
        held = body.get("held")
        if (held is not None) != (self.kind == "grow" and support > 0):
            raise TaskError("what is held back belongs to growth in a run with support, and only there")
        if held is None:
            return known
        return replace(known, held=check_array("held", held, np.bool_, (len(known.nodes), len(known.cuts))))


read_task = Remembered(Question.from_task)
"""``Question.from_task``, once for each task."""
