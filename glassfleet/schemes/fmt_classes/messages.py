"""What travels: the six questions of the classifier, and reading them without trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.errors import TaskError
from glassfleet.fuzzy.levels import plain_levels
from glassfleet.numerics.statistics import triangle
from glassfleet.schemes.fmt.growth import GrowthQuestion
from glassfleet.schemes.fmt.params import MAX_INPUTS, MAX_ROWS
from glassfleet.schemes.fmt_classes.params import MAX_CLASSES, Parameters
from glassfleet.untrusted import Remembered, check_array, check_classes, check_inputs
from schemas.codec import Value

NAME = "fmt_classes"
Kind = Literal["levels", "scan", "hinges", "grow", "sizes", "newton"]

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
        over the regressors and all hinges that there could be. Then sums of all cuts of some nodes; held-out errors of
        all sizes; sums of a Newton round of all nodes of the final tree.
    coefficients : ndarray of float64, shape (V, T, nodes, R + 1) or (nodes, S, R + 1)
        ``"sizes"``: of every node's indicators, in V variants. ``"newton"``: of every node's scores. Intercepts first.
    """

    kind: Kind
    parameters: Parameters
    coefficients: Array | None = None

    name = NAME
    kinds = get_args(Kind)
    ParametersType = Parameters
    max_rows = MAX_ROWS
    first_levels = staticmethod(plain_levels)

    @classmethod
    def check_domain(cls, parameters: Parameters, domain: Domain) -> None:  # noqa: ARG003 - whatever they are
        """Raise ValueError, with the reason, unless the classifier can learn the domain's classes."""
        check_domain(domain)

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

    def body(self) -> dict[str, Value]:
        """Return the tree with its hinges, and what is asked about it."""
        body = super().body()
        if self.hinges:
            body["hinges"] = [list(hinge) for hinge in self.hinges]
        if self.kind == "grow":
            body["nodes"] = list(self.nodes)
        if self.coefficients is not None:
            body["coefficients"] = self.coefficients
        return body

    def with_body(self, body: Mapping[str, Any]) -> Question:
        """Undo :meth:`body`."""
        known = self.with_tree(body, body.get("hinges", ()))
        if self.kind == "hinges":
            return known
        if self.kind == "grow":
            return replace(known, nodes=known.read_nodes(body))
        nodes, scores, wide = known.tree.size, self.n_scores, len(known.regressors) + 1
        shape = (None, scores, nodes, wide) if self.kind == "sizes" else (nodes, scores, wide)
        coefficients = check_array("coefficients", body["coefficients"], np.float64, shape)
        if self.kind == "sizes" and not 1 <= len(coefficients) <= MAX_VARIANTS:
            raise TaskError(f"between 1 and {MAX_VARIANTS} variants can be asked about")
        if (np.abs(coefficients) > MAX_COEFFICIENT).any():
            raise TaskError(f"a coefficient is above {MAX_COEFFICIENT:g}")
        return replace(known, coefficients=coefficients)


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
        raise ValueError(f"all rows are of one class, {domain.classes[0]!r}: there is nothing to tell apart")
    check_inputs(domain, NAME, MAX_INPUTS)
