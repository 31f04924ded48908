"""Growing a tree from sums: what is kept of the nodes, their fits and gains, and which leaves are split next.

The same for a number and for classes: there are one or more targets, and the gain of a cut is the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassfleet.aggregate import Sums
from glassfleet.errors import TaskError
from glassfleet.rules import Condition
from glassfleet.schemes.fmt.grow import choose_features, gains, growth_order, refine
from glassfleet.schemes.fmt.partition import Knots, check_knots
from glassfleet.schemes.fmt.tree import Cut, Inputs, Split, Tree
from glassfleet.training import BEFORE_SCAN, TrainingQuestion
from glassfleet.untrusted import increasing
from schemas.codec import Value

Ints = NDArray[np.int64]
Choice = tuple[int, int, int]
"""Which tree of those tried, its number of splits, and which way to fit the nodes."""

RULE_COST = 2
"""A rule is worth so many coefficients when the simplest of the trees that are accurate enough is chosen."""

TOGETHER = 0.5
"""All leaves whose best gain is at least this share of the highest are split in one round."""


class GrowthParameters(Protocol):
    """What growing can be told; see :class:`~glassfleet.schemes.fmt.params.Parameters`."""

    @property
    def max_rules(self) -> int:
        """Most leaves."""

    @property
    def max_split_features(self) -> int:
        """Inputs that are split on after the root."""

    @property
    def min_weight_fraction(self) -> float:
        """Least share of the training rows' weight on either side of a split."""

    @property
    def ridge(self) -> float:
        """Pull of a side's coefficients towards its parent's, in rows."""

    @property
    def most_knots(self) -> int:
        """Most knots of an input."""


@dataclass(frozen=True)
class GrowthQuestion(TrainingQuestion):
    """What the questions about a growing tree have in common.

    Attributes
    ----------
    knots : tuple of tuple of float
        Each input's partition. Empty for ``"scan"``.
    regressors : tuple of int
        Inputs of the polynomials, increasing. Empty for ``"scan"``.
    split_features : tuple of int
        Inputs that may be split on, increasing. Empty for ``"scan"``.
    tree : Tree
        The splits so far (``"grow"``), in the order of growth (``"sizes"``), or of the final tree.
    nodes : tuple of int
        ``"grow"``: leaves whose cuts are asked about, increasing.
    """

    parameters: GrowthParameters
    knots: Knots = ()
    regressors: tuple[int, ...] = ()
    split_features: tuple[int, ...] = ()
    tree: Tree = Tree()  # noqa: RUF009 - frozen
    nodes: tuple[int, ...] = ()

    def body(self) -> dict[str, Value]:
        """Return the tree and what it is made of; the learner adds what it asks about it."""
        return {
            "knots": [list(line) for line in self.knots],
            "regressors": list(self.regressors),
            "split_features": list(self.split_features),
            "tree": self.tree.to_value(),
        }

    def with_tree(self, body: Mapping[str, Any]) -> Self:
        """Return this question with what `body` says of the tree; raises as :meth:`with_body`."""
        knots = check_knots(body["knots"], self.n_inputs, self.parameters.most_knots)
        return replace(
            self,
            knots=knots,
            regressors=increasing("regressors", body["regressors"], self.n_inputs),
            split_features=increasing("split_features", body["split_features"], self.n_inputs),
            tree=Tree.from_value(body["tree"], knots),
        )

    def read_nodes(self, body: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the leaves that a task asks about; raises TaskError."""
        nodes = increasing("nodes", body["nodes"], self.tree.size)
        if not nodes or any(node in self.tree.split_of for node in nodes):
            raise TaskError("a node asked about is split already, or there is none")
        return nodes

    @property
    def columns(self) -> tuple[int, ...]:
        """Inputs whose products are summed: in a scan all, or those that vary, else the regressors."""
        return self.scanned if self.kind == "scan" else self.regressors

    @cached_property
    def n_sets(self) -> tuple[int, ...]:
        """Sets of each input."""
        return tuple(len(line) for line in self.knots)

    @cached_property
    def cuts(self) -> list[Cut]:
        """All cuts of the inputs that may be split on."""
        return [(feature, cut) for feature in self.split_features for cut in range(self.n_sets[feature] - 1)]

    @cached_property
    def cuts_of(self) -> dict[int, list[int]]:
        """For each node asked about, which of :attr:`cuts` would cut it."""
        return {node: possible(self, node) for node in self.nodes}

    def side(self, node: int) -> Condition:
        """Return in which sets, or categories, of the input that was cut last the rows of a node are."""
        feature = self.tree.splits[(node - 1) // 2].feature
        sets = self.tree.span(node, self.n_sets)[feature]
        return Inputs(self.domain, self.levels, self.knots).condition(feature, *sets)

    @property
    def asked(self) -> Sequence[int]:
        """Nodes of the tree that the vehicles are asked about: up to the scan it is the root."""
        return (0,) if self.kind in BEFORE_SCAN | {"scan"} else self.nodes

    def triangles(self, sums: Ints) -> list[Ints]:
        """Return the triangles over ``[1, x, target]`` of every target, each shape (..., p), from a node's sums."""
        return [sums]


Q = TypeVar("Q", bound=GrowthQuestion)


def possible(question: GrowthQuestion, node: int) -> list[int]:
    """Return which of the question's cuts would cut `node`."""
    span = question.tree.span(node, question.n_sets)
    return [
        place
        for place, (feature, cut) in enumerate(question.cuts)
        if feature not in span or span[feature][0] <= cut < span[feature][1]
    ]


def started(memory: dict[str, Any]) -> dict[str, Any]:
    """Return what is kept of a tree: as yet nothing.

    ``whole``: sums of each node. ``lower``: sums of the cuts of each leaf that could still be split, by node.
    ``coefficients``: of each node, shape (targets, R + 1). ``best``: gain and place of each node's best cut.
    In a run with `support`, ``cuts``: which cuts of a leaf rest on enough rows; ``full``: of which nodes all rows may
    be summed.
    """
    return {**memory, "whole": [], "lower": {}, "coefficients": [], "best": {}}


def taken_in(question: Q, memory: dict[str, Any], sums: Sums) -> tuple[Q, dict[str, Any]]:
    """Take in the sums of the nodes asked about, derive their siblings', fit them and find their best cuts.

    Returns the question with the inputs that may be split on, which the root decides, and what is kept.
    """
    whole: list[Ints] = list(memory["whole"])
    lower: dict[str, Ints] = dict(memory["lower"])
    start, asked = 0, {}
    for line, node in enumerate(question.nodes):
        places = question.cuts_of[node]
        part = sums["lower"][start : start + len(places)]
        start += len(places)
        asked[node] = (sums["whole"][line], _filled(question, node, sums["whole"][line], places, part))
    # With support some lower sides are not asked about: their cuts are not, and they themselves are known.
    for node in range(len(whole), question.tree.size, 2) if "cuts" in memory and whole else ():
        if node not in asked:
            made = question.tree.splits[node // 2]
            cuts = lower[str(made.node)]
            asked[node] = cuts[question.cuts.index((made.feature, made.cut))], np.zeros_like(cuts)
    whole += [np.zeros(0, dtype=np.int64)] * (question.tree.size - len(whole))
    parents = []
    for node, (total, cuts) in asked.items():
        whole[node], lower[str(node)] = total, cuts
        if node:
            parent, sibling = question.tree.parent(node), node + 1 if node % 2 else node - 1
            whole[sibling] = whole[parent] - total
            lower[str(sibling)] = lower[str(parent)] - cuts
            parents.append(parent)
    for parent in parents:
        del lower[str(parent)]
    memory = {**memory, "whole": whole, "lower": lower}
    new = [node for node in range(question.tree.size) if node >= len(memory["coefficients"])]
    return _appraised(question, memory, new)


def _filled(question: GrowthQuestion, node: int, total: Ints, places: Sequence[int], part: Ints) -> Ints:
    """Return the sums of all cuts: beyond the node's sets on one input, all or nothing is on a cut's lower side."""
    span = question.tree.span(node, question.n_sets)
    full = np.zeros((len(question.cuts), len(total)), dtype=np.int64)
    for place, (feature, cut) in enumerate(question.cuts):
        if feature in span and cut >= span[feature][1]:
            full[place] = total
    full[list(places)] = part
    return full


def _appraised(question: Q, memory: dict[str, Any], new: Sequence[int]) -> tuple[Q, dict[str, Any]]:
    """Fit the new nodes and find their best splits; after the root, choose the inputs to split on."""
    parameters, tree = question.parameters, question.tree
    coefficients, best, lower = list(memory["coefficients"]), dict(memory["best"]), dict(memory["lower"])
    least = parameters.min_weight_fraction * float(memory["training"])
    k = len(question.regressors) + 2
    for node in new:
        if "cuts" in memory:  # what was not asked about cannot be split at
            lower[str(node)] = lower[str(node)] * memory["cuts"][str(node)][:, None]
        gain, fits = np.zeros(len(question.cuts)), []
        sides = zip(question.triangles(memory["whole"][node]), question.triangles(lower[str(node)]), strict=True)
        for target, (whole, part) in enumerate(sides):
            above = coefficients[tree.parent(node)][target] if node else np.zeros(k - 1)
            fitted, error = refine(whole, above, parameters.ridge, k)
            fits.append(fitted)
            gain += gains(whole, part, fitted, error, ridge=parameters.ridge, least=least)
        coefficients.append(np.stack(fits))
        inside = set(possible(question, node))
        gain[[place for place in range(len(gain)) if place not in inside]] = 0.0
        if node == 0:
            chosen = choose_features(gain, question.cuts, parameters.max_split_features)
            kept = [place for place, (feature, _) in enumerate(question.cuts) if feature in chosen]
            question = replace(question, split_features=tuple(chosen))
            gain, lower["0"] = gain[kept], lower["0"][kept]
            if "cuts" in memory:
                memory = {**memory, "cuts": {"0": memory["cuts"]["0"][kept]}}
        place = int(np.argmax(gain)) if len(gain) else 0  # the first of the highest
        if len(gain) and gain[place] > 0.0:
            best[str(node)] = [float(gain[place]), place]
        else:
            del lower[str(node)]
    return question, {**memory, "coefficients": coefficients, "best": best, "lower": lower}


def split(question: Q, memory: dict[str, Any]) -> Q | None:
    """Split the leaves with the highest gains and ask for one child of each, the lighter one; None: growth ends."""
    tree = question.tree
    room = question.parameters.max_rules - 1 - len(tree.splits)
    open_leaves = sorted(
        (int(node) for node in memory["lower"]), key=lambda node: (-memory["best"][str(node)][0], node)
    )
    if room <= 0 or not open_leaves:
        return None
    highest = memory["best"][str(open_leaves[0])][0]
    chosen = [node for node in open_leaves if memory["best"][str(node)][0] >= TOGETHER * highest][:room]
    splits = [Split(node, *question.cuts[memory["best"][str(node)][1]]) for node in chosen]
    nodes = []
    for number, node in enumerate(chosen):
        low = int(memory["lower"][str(node)][memory["best"][str(node)][1]][0])
        lighter_is_upper = 2 * low > int(memory["whole"][node][0])
        # With support it is the lower one, so that rounding is the same whichever is lighter (`support.weights`).
        is_upper = lighter_is_upper and "cuts" not in memory
        nodes.append(2 * (len(tree.splits) + number) + 1 + is_upper)
    return replace(question, tree=tree.grown(splits), nodes=tuple(nodes))


_OF_GROWTH = ("whole", "lower", "coefficients", "best", "cuts", "full")


def best_first(question: GrowthQuestion, memory: dict[str, Any]) -> tuple[Tree, Ints, dict[str, Any]]:
    """Return the tree with its splits in best-first order, its nodes' sums, and what is kept beyond growth."""
    gain_of = {int(node): float(value[0]) for node, value in memory["best"].items()}
    tree, old_of = question.tree.reordered(growth_order(question.tree, gain_of))
    whole = np.stack([memory["whole"][old] for old in old_of])
    kept = {key: value for key, value in memory.items() if key not in _OF_GROWTH}
    if "full" in memory:
        kept["full"] = [memory["full"][old] for old in old_of]
    return tree, whole, kept


def costs(tree: Tree, slopes: NDArray[np.intp]) -> Ints:
    """Return what the tree of each number of splits costs, shape (V, splits + 1).

    Parameters
    ----------
    tree : Tree
        The splits, in the order of growth.
    slopes : ndarray of int, shape (V, nodes)
        How many of each node are not zero, by variant.

    Notes
    -----
    Slopes, and :data:`RULE_COST` for each rule after the first.
    """
    cost = np.empty((len(slopes), len(tree.splits) + 1), dtype=np.int64)
    cost[:, 0] = slopes[:, 0]
    for index, split in enumerate(tree.splits):
        more = slopes[:, 2 * index + 1] + slopes[:, 2 * index + 2] - slopes[:, split.node]
        cost[:, index + 1] = cost[:, index] + more
    return cost + RULE_COST * np.arange(cost.shape[1])


def simplest(errors: Sequence[NDArray[np.float64]], costs: Sequence[Ints], tolerance: float) -> Choice:
    """Return the simplest of all sizes and ways to fit, of all trees, that is accurate enough.

    Parameters
    ----------
    errors : sequence of ndarray of float64, shape (V, splits + 1)
        Held-out squared error by variant and number of splits, of each tree.
    costs : sequence of ndarray of int64, shape (V, splits + 1)
        From :func:`costs`, of each tree.
    tolerance : float
        Accurate enough is what is within this fraction of the least error of all.

    Notes
    -----
    Of those that cost the same, the most accurate; of equals, the earlier tree, the fewer splits, the earlier variant.
    """
    limit = min(float(error.min()) for error in errors) * (1.0 + tolerance)
    enough = [
        (int(cost[variant, splits]), float(error[variant, splits]), tree, splits, variant)
        for tree, (error, cost) in enumerate(zip(errors, costs, strict=True))
        for variant, splits in np.argwhere(error <= limit).tolist()
    ]
    return min(enough)[2:]
