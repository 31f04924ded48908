"""What travels: the questions of tree, and reading them without trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import COLUMNS, SUPPORT, Task
from glassfleet.contract.tasks import (
    Remembered,
    SchemeQuestion,
    check_array,
    increasing,
    read_task_head,
    task_errors,
    task_head,
)
from glassfleet.errors import TaskError
from glassfleet.fuzzy.levels import Levels, check_levels, has_categories, needs_levels
from glassfleet.fuzzy.partition import ramp_condition
from glassfleet.model.rules import Condition
from glassfleet.private.columns import Common, LayeredQuestion, fewest_rows, read_common
from glassfleet.schemes.tree.bins import CELLS
from glassfleet.schemes.tree.params import (
    CLASS_KAPPA,
    CLASS_RULES,
    CLASS_STEPS,
    CLASS_WAYS,
    KAPPA,
    MAX_REGRESSORS,
    MAX_ROWS,
    MAX_RULES,
    MAX_STEPS,
    NAME,
    WAYS,
    TreeParameters,
    check_domain,
)
from glassfleet.schemes.tree.tree import Ramp, Tree, read_candidates, read_closed, read_edges, read_way
from schemas.codec import Value

Kind = Literal["levels", "columns", "scan", "bins", "ramps", "newton", "support", "categories", "bands", "joint"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

BEFORE_SCAN = frozenset({"levels", COLUMNS})
"""Kinds of questions that come before a scan."""

AHEAD_OF_LEVELS = frozenset({COLUMNS, "scan", SUPPORT, "categories"})
"""Kinds of questions that a run with `support` may ask before categories have levels."""

MAX_COEFFICIENT = 1e6
"""Larger ones are refused: scores must stay finite."""


@dataclass(frozen=True)
class TreeQuestion(LayeredQuestion, SchemeQuestion):
    """A task of this scheme, read and checked; see :class:`~glassfleet.contract.tasks.SchemeQuestion`.

    Attributes
    ----------
    kind : {"levels", "columns", "scan", "bins", "ramps", "newton", "support", "categories", "bands", "joint"}
        Rows, target and inputs of each category; histograms and the root's sums over all inputs; the
        sums that the latest splits add to the joint fit, and sums by bin of some leaves; exact sums of some ramps. Of
        classes, sums of a Newton round of all leaves of some trees. In a run with `support`: the rows in each bin
        of some leaves, or, without leaves, those that each two leaves share, or, before categories have levels, those
        of each category. Also residuals of each category, sums by band of some leaves, and the sums of the joint fit.
    levels : tuple of tuple of float
        Of each input's categories; see :mod:`glassfleet.fuzzy.levels`. Empty where all inputs are numbers.
    varied : tuple of int or None
        ``"scan"`` of a run with `support`: inputs that may be columns of products, increasing. None: all may be.
    regressors : tuple of int
        Inputs of the polynomials, increasing. Empty for ``"scan"``, as all that follow.
    tree : Tree
        The splits so far.
    coefficients : ndarray of float64, shape (leaves, T, R + 1)
        Of the leaves, in the tree's order, intercepts first: residuals are those of this model. ``"newton"``: of the
        scores of the leaves of each tree.
    latest : int
        ``"bins"``: so many splits, the last ones, are new to the joint fit.
    leaves : tuple of int
        Leaves whose bins or bands are asked about, increasing.
    features : tuple of int
        Inputs whose bins or bands are asked about, increasing.
    edges : ndarray of float64, shape (F, bins + 1)
        Edges of all inputs' bins.
    counted : ndarray of bool, shape (leaves, features, bins - 1)
        ``"support"`` about leaves, and ``"bands"``: which inner edges lie between bands whose rows are counted.
    kept : ndarray of bool, shape (leaves, features, bins - 1)
        ``"bands"``: which of these lie between the bands that are asked about, of one such band or more.
    disclosed : ndarray of bool, shape (categories of all inputs,)
        ``"categories"``: which of them have enough rows.
    common : tuple of (int, int)
        ``"support"``, and what it is about: inputs of the polynomials, or the target (F), and cells of their histograms
        that many rows are in.
    closed : tuple of (int, int, int)
        ``"joint"``, and its ``"support"``: pairs of leaves, in the order in which rows are moved, that no row may
        share; or, with a number of a layer above 0, none that has another value than a common one.
    candidates : tuple of (int, Ramp)
        ``"ramps"``: leaf and ramp.
    sizes : tuple of int
        ``"newton"``: by how many splits each tree is made that is asked about, increasing; the first ones of `tree`.
    of_all : bool
        ``"newton"``: of all rows, not of training rows alone.
    way : int
        ``"bins"``, ``"ramps"``: which way to grow it is a step of: two may come to the same tree.
    """

    kind: Kind
    parameters: TreeParameters
    regressors: tuple[int, ...] = ()
    tree: Tree = Tree()  # noqa: RUF009 - frozen
    coefficients: Array | None = None
    latest: int = 0
    leaves: tuple[int, ...] = ()
    features: tuple[int, ...] = ()
    edges: Array | None = None
    counted: Bools = field(default_factory=lambda: np.zeros((0, 0, 0), np.bool_))
    kept: Bools = field(default_factory=lambda: np.zeros((0, 0, 0), np.bool_))
    disclosed: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    common: Common = ()
    closed: tuple[tuple[int, int, int], ...] = ()
    candidates: tuple[tuple[int, Ramp], ...] = ()
    sizes: tuple[int, ...] = ()
    of_all: bool = False
    way: int = 0
    levels: Levels = field(default=(), kw_only=True)
    varied: tuple[int, ...] | None = field(default=None, kw_only=True)

    @property
    def support(self) -> int:
        """Fewest rows on which a number rests that a private run opens; 0: any."""
        return self.parameters.support

    @property
    def scanned(self) -> tuple[int, ...]:
        """``"scan"``: inputs whose products are summed."""
        return tuple(range(self.n_inputs)) if self.varied is None else self.varied

    @property
    def n_inputs(self) -> int:
        """Number of inputs, F, indicators of empty cells and excess among them."""
        return len(self.domain.inputs)

    @property
    def n_plain(self) -> int:
        """Number of inputs that a tree may be split on: all but the excess, which comes last."""
        return self.n_inputs - len(self.domain.excess)

    @property
    def holdout(self) -> float:
        """Share of the rows that are held out: with `support` none, as few of them may be in a leaf."""
        return 0.0 if self.parameters.support else self.parameters.holdout

    @cached_property
    def least_rows(self) -> int:
        """Fewest rows of a sum in a run with `support`.

        Products of fewer rows than columns span the rows. Of the same rows there may be a sum for each input of a leaf,
        and for each leaf above a band, all with other draws: at most half as many as there are rows. Each has as many
        parts as there are targets, and one. Of a category products are not summed.
        """
        if self.is_of_categories:
            return max(fewest_rows(self.parameters.support), 2 + self.targets)
        above = max((len(self.tree.path(leaf)) for leaf in self.leaves), default=0)
        sums = 0 if self.is_of_pairs else max(len(self.features), 1 + above)
        return max(self.parameters.support, self.columns + self.targets, (1 + self.targets) * sums)

    @property
    def least_of(self) -> NDArray[np.int64]:
        """What is enough of all rows of a sum, and of the other layers: see :meth:`LayeredQuestion.least_of`.

        Of classes each has the layers again, of its rows alone.
        """
        of_all: NDArray[np.int64] = super().least_of
        others = np.full(len(of_all) * len(self.domain.classes), fewest_rows(self.parameters.support))
        return np.concatenate([of_all, [] if self.is_of_categories else others]).astype(np.int64)

    @property
    def free(self) -> int:
        """How many of the regressors are excess, which come last."""
        return sum(each >= self.n_plain for each in self.regressors)

    @property
    def columns(self) -> int:
        """Columns of a rule's polynomial, the intercept included: k."""
        return 1 + len(self.regressors)

    @property
    def targets(self) -> int:
        """Number of targets, T: 1 for a number and for two classes, of which the second's indicator is it."""
        return len(self.domain.classes) if len(self.domain.classes) > 2 else 1

    @property
    def kappa(self) -> float:
        """Pull while growing, in rows of the leaf."""
        return CLASS_KAPPA if self.domain.classes else KAPPA

    @property
    def ways(self) -> tuple[float, ...]:
        """How dear it is to search among many ramps, by :func:`prices`, in each way to grow that is tried."""
        return CLASS_WAYS if self.domain.classes else WAYS

    @property
    def most_steps(self) -> int:
        """Most steps of growth, of two questions each."""
        return CLASS_STEPS if self.domain.classes else MAX_STEPS

    @property
    def most_rules(self) -> int:
        """Most rules, see :func:`most_rules`."""
        return most_rules(self.parameters, self.columns, len(self.domain.classes))

    @property
    def scan_columns(self) -> int:
        """Columns ``[1, x, y]`` of a scan."""
        return len(self.scanned) + 1 + self.targets

    @property
    def width(self) -> int:
        """Entries of a triangle of sums over ``[1, x]``; of a scan over ``[1, x, y]``."""
        k = self.scan_columns if self.kind == "scan" else self.columns
        return k * (k + 1) // 2

    @property
    def scored(self) -> int:
        """Number of leaves that coefficients are of."""
        return sum(splits + 1 for splits in self.sizes) or len(self.tree.leaves)

    @property
    def each_size(self) -> Iterator[TreeQuestion]:
        """A Newton round's question about each of its trees alone."""
        assert self.coefficients is not None
        start = 0
        for splits in self.sizes:
            own = self.coefficients[start : start + splits + 1]
            start += splits + 1
            yield replace(self, tree=self.tree.first(splits), sizes=(splits,), coefficients=own)

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

    @cached_property
    def partners(self) -> dict[int, list[tuple[int, int]]]:
        """Of each new leaf, the places of the pairs that are summed over its rows, and the other leaf of each."""
        partners: dict[int, list[tuple[int, int]]] = {leaf: [] for leaf in self.new}
        for place, (i, j) in enumerate(self.pairs):
            leaf, other = (j, i) if j % 2 and j in partners else (i, j)
            partners[leaf].append((place, other))
        return partners

    def side(self, node: int) -> Condition:
        """Return between which ramps, or in which categories, of the input that was split on last the rows are."""
        feature = self.tree.splits[(node - 1) // 2].feature
        line = self.levels[feature] if self.levels else ()
        return ramp_condition(self.domain.inputs[feature], *self.tree.spans(node)[feature], line)

    @property
    def asked(self) -> set[int]:
        """Nodes of the tree that the vehicles are asked about: up to the scan it is the root."""
        about_all = self.kind in ("levels", COLUMNS, "scan")
        return {0} if about_all else {*self.leaves, *(leaf for leaf, _ in self.candidates)}

    @property
    def of_inputs(self) -> int:
        """How many of the common values are of inputs; those of the target come last."""
        return sum(column < self.n_inputs for column, _ in self.common)

    @property
    def is_of_pairs(self) -> bool:
        """Whether pairs of leaves are asked about, in a run with `support`."""
        return self.kind == "joint" or (self.kind == SUPPORT and not self.leaves and not self.is_of_categories)

    @property
    def is_of_categories(self) -> bool:
        """Whether categories are asked about, which have no levels yet, in a run with `support`."""
        return self.kind in (SUPPORT, "categories") and not self.levels and has_categories(self.domain)

    def to_task(self) -> Task:
        """Return the task that asks this."""
        body: dict[str, Value] = task_head(self.parameters, self.domain, MAX_ROWS)
        if self.levels:
            body["levels"] = [list(line) for line in self.levels]
        if self.kind == "scan" and self.varied is not None:
            body["varied"] = list(self.varied)
        return Task(NAME, self.kind, body if self.kind in BEFORE_SCAN | {"scan"} else body | self.body())

    @classmethod
    def from_task(cls, task: Task) -> TreeQuestion:
        """Read `task`; raises :class:`TaskError` with the reason, and nothing else, whatever it holds."""
        kind, parameters, domain = read_task_head(task, NAME, KINDS, TreeParameters, MAX_ROWS)
        with task_errors():
            check_domain(domain)
            known = cls(kind, parameters, domain)
            if kind == "levels":
                if not has_categories(domain) or known.support:
                    raise TaskError("levels are asked for, and no input is text, or in a run with support")
                return known
            later = kind in AHEAD_OF_LEVELS and known.support > 0 and has_categories(domain)
            if "levels" in task.body or (needs_levels(domain) and not later):
                known = replace(known, levels=check_levels(task.body["levels"], domain))
            if kind == COLUMNS and not known.support:
                raise TaskError("a question of runs with support")
            if kind == "scan" and known.support:
                return replace(known, varied=increasing("varied", task.body["varied"], known.n_inputs))
            return known if kind in BEFORE_SCAN | {"scan"} else known.with_body(task.body)

    def body(self) -> dict[str, Value]:
        """Return the tree with its coefficients, and what is asked about it."""
        body: dict[str, Value] = {"regressors": list(self.regressors), "tree": self.tree.to_value(), "way": self.way}
        if self.parameters.support:
            body["common"] = [list(one) for one in self.common]
        if self.is_of_pairs:
            return body | {"closed": np.array(self.closed, dtype=np.int32).reshape(-1, 3)}
        if self.is_of_categories:
            return body | (
                {"coefficients": self.coefficients, "disclosed": self.disclosed} if self.kind == "categories" else {}
            )
        asked = {"leaves": list(self.leaves), "features": list(self.features), "edges": self.edges}
        if self.kind == SUPPORT:
            return body | asked | {"counted": self.counted}
        body["coefficients"] = self.coefficients
        if self.kind == "newton":
            return body | {"sizes": list(self.sizes), "of_all": self.of_all}
        if self.kind == "bands":
            return body | asked | {"counted": self.counted, "kept": self.kept}
        if self.kind == "ramps":
            places = [(leaf, feature) for leaf, (feature, _, _) in self.candidates]
            body["places"] = np.array(places, dtype=np.int32).reshape(-1, 2)
            body["ramps"] = np.array([ramp[1:] for _, ramp in self.candidates]).reshape(-1, 2)
            return body
        return body | {"latest": self.latest} | asked

    def with_body(self, body: Mapping[str, Any]) -> TreeQuestion:
        """Return this question with what a task's `body` holds."""
        f, parameters = self.n_inputs, self.parameters
        regressors = increasing("regressors", body["regressors"], f)
        plain = sum(each < self.n_plain for each in regressors)
        if plain > parameters.max_regressors or len(regressors) > MAX_REGRESSORS:
            raise TaskError("there are more regressors than the parameters allow")
        if (self.kind in ("bands", "joint", SUPPORT, "categories")) != (parameters.support > 0):
            raise TaskError("a run with support asks other questions than one without")
        tree = Tree.from_value(body["tree"], self.n_plain)
        common = read_common(body["common"], (*regressors, f), CELLS) if parameters.support else ()
        way = read_way(body["way"], len(self.ways))
        known = replace(self, regressors=regressors, tree=tree, way=way, common=common)
        if self.kind == "joint" or (self.kind == SUPPORT and "closed" in body):
            return replace(known, closed=read_closed(body["closed"], tree, len(known.least_of)))
        if known.is_of_categories or self.kind == "categories":
            return known.with_categories(body)
        if self.kind == "newton":
            return known.with_scores(body)
        if self.kind != SUPPORT:
            known = known.with_coefficients(body)
        if self.kind == "ramps":
            return replace(known, candidates=read_candidates(body["places"], body["ramps"], tree, self.n_plain))
        return known.with_bins(body)

    def with_coefficients(self, body: Mapping[str, Any]) -> TreeQuestion:
        """Return this question with the coefficients that residuals or chances are by."""
        shape = (self.scored, self.targets, self.columns)
        return replace(self, coefficients=check_array("coefficients", body["coefficients"], np.float64, shape))

    def with_categories(self, body: Mapping[str, Any]) -> TreeQuestion:
        """Return this question with the categories that it is about."""
        if self.kind == SUPPORT:
            return self
        if not self.is_of_categories:
            raise TaskError("there are no categories that have no levels yet")
        shape = (sum(len(variable.categories) for variable in self.domain.features),)
        return replace(
            self.with_coefficients(body), disclosed=check_array("disclosed", body["disclosed"], np.bool_, shape)
        )

    def with_scores(self, body: Mapping[str, Any]) -> TreeQuestion:
        """Return this question with the trees and scores that a Newton round is about."""
        sizes, of_all = increasing("sizes", body["sizes"], len(self.tree.splits) + 1), body["of_all"]
        if not sizes or type(of_all) is not bool:
            raise TaskError("a Newton round is of some trees, and of training rows or all")
        known = replace(self, sizes=sizes, of_all=of_all).with_coefficients(body)
        assert known.coefficients is not None
        if not self.domain.classes or (np.abs(known.coefficients) > MAX_COEFFICIENT).any():
            raise TaskError(f"a Newton round is of classes, and no coefficient above {MAX_COEFFICIENT:g}")
        return known

    def with_bins(self, body: Mapping[str, Any]) -> TreeQuestion:
        """Return this question with the bins or bands that it is about."""
        tree, bins = self.tree, self.parameters.bins
        leaves = increasing("leaves", body["leaves"], tree.size)
        if any(leaf in tree.split_of for leaf in leaves):
            raise TaskError("a leaf asked about is split already")
        features = increasing("features", body["features"], self.n_plain)
        latest = body["latest"] if self.kind == "bins" else 0
        if type(latest) is not int or not 0 <= latest <= len(tree.splits):
            raise TaskError("more splits are the latest ones than there are")
        if not (latest or leaves) or (leaves and not features):
            raise TaskError("nothing is asked about")
        edges = read_edges(body["edges"], (self.n_inputs, bins + 1))
        known = replace(self, latest=latest, leaves=leaves, features=features, edges=edges)
        if self.kind == "bins":
            return known
        shape = (len(leaves), len(features), bins - 1)
        counted = check_array("counted", body["counted"], np.bool_, shape)
        if self.kind == SUPPORT:
            return replace(known, counted=counted)
        kept = check_array("kept", body["kept"], np.bool_, shape)
        if (kept & ~counted).any():
            raise TaskError("a band ends within one that was counted whole")
        return replace(known, counted=counted, kept=kept)


read_task = Remembered(TreeQuestion.from_task)
"""``TreeQuestion.from_task``, once for each task."""


def most_rules(parameters: TreeParameters, columns: int, classes: int) -> int:
    """Return how many rules of so many columns, the intercept included, there may be; 0 classes: of a number.

    Where they have many inputs, `compact` allows fewer, as sums of pairs grow with both squared.
    """
    most = min(parameters.max_rules, CLASS_RULES if classes else MAX_RULES)
    return min(most, 32) if parameters.compact and columns > 13 else most
