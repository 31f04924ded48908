"""What travels: the four questions of FMT, and reading them without trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.errors import TaskError
from glassfleet.scheme import Task
from glassfleet.schemes.fmt.growth import GrowthQuestion, increasing
from glassfleet.schemes.fmt.params import MAX_INPUTS, MAX_ROWS, Parameters
from glassfleet.schemes.fmt.partition import check_knots
from glassfleet.schemes.fmt.tree import Tree
from glassfleet.untrusted import Remembered, read_task_head, task_errors
from schemas.codec import Value

NAME = "fmt"
Kind = Literal["scan", "grow", "sizes", "leaves"]
KINDS: tuple[Kind, ...] = ("scan", "grow", "sizes", "leaves")

MAX_VARIANTS = 32
"""Most ways to fit the nodes that one question compares."""


@dataclass(frozen=True)
class Question(GrowthQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.schemes.fmt.growth.GrowthQuestion`.

    Attributes
    ----------
    kind : {"scan", "grow", "sizes", "leaves"}
        Histograms and the root's sums over all inputs; sums of all cuts of some nodes; held-out errors of all sizes;
        sums of the final leaves over all rows.
    parameters : Parameters
        The run's parameters.
    coefficients : ndarray of float64, shape (V, nodes, R + 1)
        ``"sizes"``: of every node, in V variants: intercept, then slopes.
    """

    kind: Kind
    parameters: Parameters
    coefficients: NDArray[np.float64] | None = None

    @property
    def width(self) -> int:
        """Entries of a triangle of sums over ``[1, x, y]``."""
        k = len(self.columns) + 2
        return k * (k + 1) // 2

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body: dict[str, Value] = {
            "parameters": self.parameters.model_dump(mode="json"),
            "domain": self.domain.to_document(),
            "max_rows": MAX_ROWS,
        }
        if self.kind != "scan":
            body |= {
                "knots": [list(line) for line in self.knots],
                "regressors": list(self.regressors),
                "split_features": list(self.split_features),
                "tree": self.tree.to_value(),
            }
        if self.kind == "grow":
            body["nodes"] = list(self.nodes)
        if self.kind == "sizes":
            body["coefficients"] = self.coefficients
        return Task(NAME, self.kind, body)

    @classmethod
    def from_task(cls, task: Task) -> Question:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, NAME, KINDS, Parameters)
        with task_errors():
            return cls._read(kind, parameters, domain, task.body)

    @classmethod
    def _read(cls, kind: Kind, parameters: Parameters, domain: Domain, body: Mapping[str, Any]) -> Question:
        if body["max_rows"] != MAX_ROWS:
            raise TaskError(f"the run's grid is good for {body['max_rows']!r} rows, this agent's for {MAX_ROWS}")
        if domain.target is None:
            raise TaskError("a model tree needs a numeric target")
        if len(domain.features) > MAX_INPUTS:
            raise TaskError(f"{len(domain.features)} inputs; at most {MAX_INPUTS} are supported")
        if kind == "scan":
            return cls(kind, parameters, domain)
        f = len(domain.features)
        knots = check_knots(body["knots"], f, parameters.most_knots)
        regressors = increasing("regressors", body["regressors"], f)
        split_features = increasing("split_features", body["split_features"], f)
        tree = Tree.from_value(body["tree"], knots)
        if kind == "grow":
            nodes = increasing("nodes", body["nodes"], tree.size)
            if not nodes or any(node in tree.split_of for node in nodes):
                raise TaskError("a node asked about is split already, or there is none")
            return cls(kind, parameters, domain, knots, regressors, split_features, tree, nodes)
        if kind == "leaves":
            return cls(kind, parameters, domain, knots, regressors, split_features, tree)
        coefficients = body["coefficients"]
        _check_coefficients(coefficients, (tree.size, len(regressors) + 1))
        return cls(kind, parameters, domain, knots, regressors, split_features, tree, (), coefficients)


read_task = Remembered(Question.from_task)
"""``Question.from_task``, once for each task."""


def _check_coefficients(coefficients: object, shape: tuple[int, int]) -> None:
    if not isinstance(coefficients, np.ndarray) or coefficients.dtype != np.float64 or coefficients.ndim != 3:
        raise TaskError("coefficients must be float64 with three axes")
    if coefficients.shape[1:] != shape or not 1 <= coefficients.shape[0] <= MAX_VARIANTS:
        raise TaskError(f"coefficients must have the shape (variants, {shape[0]}, {shape[1]})")
    if not np.isfinite(coefficients).all():
        raise TaskError("coefficients must be finite")
