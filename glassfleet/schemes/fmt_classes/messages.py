"""What travels: the six questions of the classifier, and reading them without trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.errors import TaskError
from glassfleet.fuzzy.hinges import check_hinges
from glassfleet.fuzzy.levels import check_levels
from glassfleet.numerics.statistics import triangle
from glassfleet.scheme import Task
from glassfleet.schemes.fmt.growth import GrowthQuestion
from glassfleet.schemes.fmt.params import MAX_INPUTS, MAX_ROWS
from glassfleet.schemes.fmt.partition import check_knots
from glassfleet.schemes.fmt.tree import Tree
from glassfleet.schemes.fmt_classes.params import MAX_CLASSES, Parameters
from glassfleet.untrusted import (
    Remembered,
    check_classes,
    check_inputs,
    increasing,
    read_task_head,
    task_errors,
    task_head,
)
from schemas.codec import Value

NAME = "fmt_classes"
Kind = Literal["levels", "scan", "hinges", "grow", "sizes", "newton"]
KINDS: tuple[Kind, ...] = ("levels", "scan", "hinges", "grow", "sizes", "newton")

MAX_VARIANTS = 8
"""Most ways to fit the nodes that one question compares: coordinators of former versions ask about several."""

MAX_COEFFICIENT = 1e6
"""Larger ones are refused: scores must stay finite."""

Ints = NDArray[np.int64]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Question(GrowthQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.schemes.fmt.growth.GrowthQuestion`.

    Attributes
    ----------
    kind : {"levels", "scan", "hinges", "grow", "sizes", "newton"}
        Sums of each category of each input of text; histograms and the root's sums over all inputs; the root's sums
        over the regressors and all hinges that there could be; sums of all cuts of some nodes; held-out errors of all
        sizes; sums of a Newton round of all nodes of the final tree.
    parameters : Parameters
        The run's parameters.
    coefficients : ndarray of float64, shape (V, T, nodes, R + 1) or (nodes, S, R + 1)
        ``"sizes"``: of every node's indicators, in V variants. ``"newton"``: of every node's scores. Intercepts first.
    """

    kind: Kind
    parameters: Parameters
    coefficients: Array | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes, C >= 2."""
        return len(self.domain.classes)

    @property
    def n_scores(self) -> int:
        """Number of scores, S: of two classes the second's alone, the first one's is zero."""
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def squares(self) -> int:
        """Entries of a triangle of sums over ``[1, x]``."""
        k = len(self.columns) + 1
        return k * (k + 1) // 2

    @property
    def width(self) -> int:
        """Sums of a node: products of pairs of ``[1, x]``, and ``[1, x]`` of each class but the first."""
        return self.squares + (self.n_classes - 1) * (len(self.columns) + 1)

    def triangles(self, sums: Ints) -> list[Ints]:
        """Return the triangles over ``[1, x, y]`` of each class's indicator y, from a node's sums, shape (..., width).

        Of two classes the second's alone: the other's errors are the same. The first class's sums are the rest.
        """
        k = len(self.columns) + 1
        rest = sums[..., self.squares :].reshape(*sums.shape[:-1], self.n_classes - 1, k)
        classes = [rest[..., place, :] for place in range(self.n_classes - 1)]
        if self.n_classes > 2:
            classes.insert(0, sums[..., :k] - rest.sum(axis=-2))
        place = _indicator_places(k)
        return [np.concatenate([sums[..., : self.squares], own], axis=-1)[..., place] for own in classes]

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body: dict[str, Value] = task_head(self.parameters, self.domain, MAX_ROWS)
        if self.kind != "levels":
            body["levels"] = [list(line) for line in self.levels]
        if self.kind not in ("levels", "scan"):
            body |= {
                "knots": [list(line) for line in self.knots],
                "regressors": list(self.regressors),
                "split_features": list(self.split_features),
                "tree": self.tree.to_value(),
            }
            if self.hinges:
                body["hinges"] = [list(hinge) for hinge in self.hinges]
        if self.kind == "grow":
            body["nodes"] = list(self.nodes)
        if self.coefficients is not None:
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
        check_domain(domain)
        if kind == "levels":
            return cls(kind, parameters, domain)
        levels = check_levels(body["levels"], domain)
        if kind == "scan":
            return cls(kind, parameters, domain, levels=levels)
        f = len(domain.inputs)
        knots = check_knots(body["knots"], f, parameters.most_knots)
        hinges = check_hinges(body.get("hinges", ()), domain, knots)
        regressors = increasing("regressors", body["regressors"], f + len(hinges))
        split_features = increasing("split_features", body["split_features"], f)
        tree = Tree.from_value(body["tree"], knots)
        nodes: tuple[int, ...] = ()
        coefficients = None
        if kind == "grow":
            nodes = increasing("nodes", body["nodes"], tree.size)
            if not nodes or any(node in tree.split_of for node in nodes):
                raise TaskError("a node asked about is split already, or there is none")
        elif kind != "hinges":
            coefficients = body["coefficients"]
            wide, scores = len(regressors) + 1, 1 if len(domain.classes) == 2 else len(domain.classes)
            _check_coefficients(coefficients, (scores, tree.size, wide) if kind == "sizes" else (scores, wide), tree)
        return cls(
            kind, parameters, domain, knots, regressors, split_features, tree, nodes, levels, hinges, coefficients
        )


read_task = Remembered(Question.from_task)
"""``Question.from_task``, once for each task."""


@cache
def _indicator_places(k: int) -> NDArray[np.intp]:
    """Return where the triangle over ``[1, x, y]`` finds its entries: in that over ``[1, x]``, then ``[1, x] y``.

    An indicator is its own square.
    """
    first, second = triangle(k + 1)
    place = np.empty((k, k), dtype=np.intp)
    place[triangle(k)] = np.arange(k * (k + 1) // 2)
    own = k * (k + 1) // 2 + np.where(first == k, 0, first)
    return np.where(second == k, own, place[np.minimum(first, k - 1), np.minimum(second, k - 1)])


def check_domain(domain: Domain) -> None:
    """Raise ValueError, with the reason, unless the classifier can learn the domain's classes."""
    check_classes(domain, NAME, MAX_CLASSES)
    if len(domain.classes) < 2:
        raise ValueError(f"all rows have the class {domain.classes[0]!r}: there is nothing to tell apart")
    check_inputs(domain, NAME, MAX_INPUTS)


def _check_coefficients(coefficients: object, shape: tuple[int, ...], tree: Tree) -> None:
    """Check shape and size of coefficients; the first axis is variants, or the nodes of the tree."""
    if not isinstance(coefficients, np.ndarray) or coefficients.dtype != np.float64:
        raise TaskError("coefficients must be float64")
    most = MAX_VARIANTS if len(shape) == 3 else tree.size
    least = 1 if len(shape) == 3 else tree.size
    if coefficients.shape[1:] != shape or not least <= coefficients.shape[0] <= most:
        raise TaskError(f"coefficients have the shape {coefficients.shape}, expected (.., {str(shape)[1:-1]})")
    if not (np.abs(coefficients) <= MAX_COEFFICIENT).all():
        raise TaskError(f"a coefficient is not a number of at most {MAX_COEFFICIENT:g}")
