"""What travels: the questions of BMT, and reading them without trust."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.errors import TaskError
from glassfleet.fuzzy.ramps import ramp_condition
from glassfleet.rules import Condition
from glassfleet.schemes.bmt.params import MAX_INPUTS, MAX_ROWS, Parameters
from glassfleet.schemes.bmt.tree import LEAST_RAMP, Ramp, Tree, check_ramp, overlapping
from glassfleet.training import TrainingQuestion
from glassfleet.untrusted import Remembered, check_array, check_numeric, increasing
from schemas.codec import Value

NAME = "bmt"
Kind = Literal["levels", "scan", "bins", "ramps"]
Array = NDArray[np.float64]

MAX_CANDIDATES = 4096
"""Most ramps that one question compares."""


@dataclass(frozen=True)
class Question(TrainingQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.training.TrainingQuestion`.

    Attributes
    ----------
    kind : {"levels", "scan", "bins", "ramps"}
        Rows, target and inputs of each category; histograms and the root's sums over all inputs; the
        sums that the latest splits add to the joint fit, and sums by bin of some leaves; exact sums of some ramps.
    regressors : tuple of int
        Inputs of the polynomials, increasing. Empty for ``"scan"``, as all that follow.
    tree : Tree
        The splits so far.
    coefficients : ndarray of float64, shape (leaves, R + 1)
        Of the leaves, in the tree's order, intercept first: residuals are those of this model.
    latest : int
        ``"bins"``: so many splits, the last ones, are new to the joint fit.
    leaves : tuple of int
        ``"bins"``: leaves whose bins are asked about, increasing.
    features : tuple of int
        ``"bins"``: inputs whose bins are asked about, increasing.
    edges : ndarray of float64, shape (F, bins + 1)
        ``"bins"``: edges of all inputs' bins.
    candidates : tuple of (int, Ramp)
        ``"ramps"``: leaf and ramp.
    """

    kind: Kind
    parameters: Parameters
    regressors: tuple[int, ...] = ()
    tree: Tree = Tree()  # noqa: RUF009 - frozen
    coefficients: Array | None = None
    latest: int = 0
    leaves: tuple[int, ...] = ()
    features: tuple[int, ...] = ()
    edges: Array | None = None
    candidates: tuple[tuple[int, Ramp], ...] = ()

    name = NAME
    kinds = get_args(Kind)
    ParametersType = Parameters
    max_rows = MAX_ROWS

    @classmethod
    def check_domain(cls, parameters: Parameters, domain: Domain) -> None:  # noqa: ARG003 - whatever they are
        """Raise ValueError, with the reason, unless there is a number to learn."""
        check_numeric(domain, NAME, MAX_INPUTS)

    @property
    def columns(self) -> int:
        """Columns of a rule's polynomial, the intercept included: k."""
        return 1 + len(self.regressors)

    @property
    def width(self) -> int:
        """Entries of a triangle of sums over ``[1, x]``; of a scan over ``[1, x, y]``."""
        k = self.n_inputs + 2 if self.kind == "scan" else self.columns
        return k * (k + 1) // 2

    @cached_property
    def new(self) -> list[int]:
        """Leaves that are new to the joint fit, increasing."""
        return [leaf for leaf in sorted(self.tree.leaves) if leaf >= self.tree.size - 2 * self.latest]

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Pairs of leaves that the joint fit must be told of: rows may reach both, and one is a new lower side.

        What upper sides add follows: a node's degree is the sum of its sides'.
        """
        lower = {leaf for leaf in self.new if leaf % 2}
        return [(i, j) for i, j in self.tree.overlaps if i in lower or j in lower]

    def side(self, node: int) -> Condition:
        """Return between which ramps, or in which categories, of the input that was split on last the rows are."""
        feature = self.tree.splits[(node - 1) // 2].feature
        line = self.levels[feature] if self.levels else ()
        return ramp_condition(self.domain.inputs[feature], *self.tree.spans(node)[feature], line)

    @property
    def asked(self) -> set[int]:
        """Nodes of the tree that the vehicles are asked about: the first two questions are about the root."""
        about_all = self.kind in ("levels", "scan")
        return {0} if about_all else {*self.leaves, *(leaf for leaf, _ in self.candidates)}

    def body(self) -> dict[str, Value]:
        """Return the tree with its coefficients, and what is asked about it."""
        body: dict[str, Value] = {
            "regressors": list(self.regressors),
            "tree": self.tree.to_value(),
            "coefficients": self.coefficients,
        }
        if self.kind == "ramps":
            places = [(leaf, feature) for leaf, (feature, _, _) in self.candidates]
            body["places"] = np.array(places, dtype=np.int32).reshape(-1, 2)
            body["ramps"] = np.array([ramp[1:] for _, ramp in self.candidates]).reshape(-1, 2)
            return body
        return body | {
            "latest": self.latest,
            "leaves": list(self.leaves),
            "features": list(self.features),
            "edges": self.edges,
        }

    def with_body(self, body: Mapping[str, Any]) -> Question:
        """Undo :meth:`body`."""
        f, parameters = self.n_inputs, self.parameters
        regressors = increasing("regressors", body["regressors"], f)
        if len(regressors) > parameters.max_regressors:
            raise TaskError("there are more regressors than the parameters allow")
        tree = Tree.from_value(body["tree"], f)
        shape = (len(tree.leaves), len(regressors) + 1)
        coefficients = check_array("coefficients", body["coefficients"], np.float64, shape)
        known = replace(self, regressors=regressors, tree=tree, coefficients=coefficients)
        if self.kind == "ramps":
            return replace(known, candidates=_candidates(body["places"], body["ramps"], tree, f))
        latest, leaves = body["latest"], increasing("leaves", body["leaves"], tree.size)
        if type(latest) is not int or not 0 <= latest <= len(tree.splits):
            raise TaskError("more splits are the latest ones than there are")
        if any(leaf in tree.split_of for leaf in leaves):
            raise TaskError("a leaf asked about is split already")
        features = increasing("features", body["features"], f)
        if not (latest or leaves) or (leaves and not features):
            raise TaskError("nothing is asked about")
        edges = _edges(body["edges"], (f, parameters.bins + 1))
        return replace(known, latest=latest, leaves=leaves, features=features, edges=edges)


read_task = Remembered(Question.from_task)
"""``Question.from_task``, once for each task."""


def _edges(value: object, shape: tuple[int, int]) -> Array:
    edges = check_array("edges", value, np.float64, shape)
    if (edges[:, 0] != 0.0).any() or (edges[:, -1] != 1.0).any() or not (np.diff(edges) > LEAST_RAMP).all():
        raise TaskError("the edges of an input's bins do not increase from 0 to 1")
    return edges


def _candidates(places: object, ramps: object, tree: Tree, n_inputs: int) -> tuple[tuple[int, Ramp], ...]:
    places = check_array("places", places, np.int32, (None, 2))
    if not 1 <= len(places) <= MAX_CANDIDATES:
        raise TaskError(f"between 1 and {MAX_CANDIDATES} ramps can be asked about")
    limits = check_array("ramps", ramps, np.float64, (len(places), 2)).tolist()
    candidates = []
    for (leaf, feature), (low, high) in zip(places.tolist(), limits, strict=True):
        if not 0 <= leaf < tree.size or leaf in tree.split_of or not 0 <= feature < n_inputs:
            raise TaskError("a ramp is of no leaf, or on an input that the domain lacks")
        check_ramp((feature, low, high))
        if overlapping(frozenset(split.ramp for split, _ in tree.path(leaf)), (feature, low, high)):
            raise TaskError("a ramp overlaps one above it")
        candidates.append((leaf, (feature, low, high)))
    return tuple(candidates)
