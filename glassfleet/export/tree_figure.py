"""Trees, from left to right: fuzzy, binary and crisp ones, and structures that vehicles make trees of."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from glassfleet.crisp.words import interval_condition
from glassfleet.explain.partitions import partitions
from glassfleet.explain.summary import slopes_of
from glassfleet.export.canvas import (
    FILL,
    INK,
    LINE,
    MOVES_MOST,
    PALE,
    consequents,
    figure_of,
    inches,
    name_of,
    plain,
    short,
)
from glassfleet.export.tables import conditions_of
from glassfleet.fuzzy.spans import span_words
from glassfleet.nature import nature, readable_rules
from glassfleet.tables import CutTree, RuleList, SetTree, SplitTree
from schemas.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from glassfleet.data.domain import Variable
    from glassfleet.scheme import Model

MOST_LEAVES: Final = 40
"""Leaves that a picture of a tree shows; smaller branches are told by their number of rules."""

_NODE, _EDGE = 8.5, 7.5
"""Sizes of their texts, in points."""


_LONGEST_EDGE = 34

_Limits = dict[int, tuple[float, float]]
_ANY = (-math.inf, math.inf)

NETWORK: Final = (
    "this model is a network: it has neither rules nor a tree to draw. The shares of one row can be drawn "
    "where its forecast is a number: --picture shares --data FILE"
)


@dataclass
class _Node:
    """A node as it is drawn.

    Attributes
    ----------
    text, edge : str
        What it says, and what stands on the line to it.
    support : float
        Share of the training rows; in a structure, which has none, what is folded last.
    rules : int
        Leaves at and below it.
    """

    text: str
    edge: str
    support: float
    children: list[_Node] = field(default_factory=list)
    rules: int = 1
    depth: int = 0
    y: float = 0.0

    def __post_init__(self) -> None:
        self.edge = short(self.edge, _LONGEST_EDGE)


def tree_figure(model: Model, title: str, structure: int = 1) -> Figure:
    """Draw a model's tree; of a population the structure of a number, 1 being the fittest.

    Raises
    ------
    UsageError
        The model is no tree, or has no such structure.
    """
    kind = nature(model)
    if kind == "network":
        raise UsageError(NETWORK)
    if structure != 1 and kind != "structures":
        raise UsageError("there are no structures to choose from: only a population has them")
    if kind == "structures":
        root, what = _structure(model, structure)
        title = f"{title}: {what}" if title else what
        leaf_text, even = _structure_leaf, True
        legend = "low, high: the sides of a threshold that each vehicle finds by itself; …: its own answer"
    else:
        root, leaf_text, even = _tree_of(model), _leaf_text, False
        legend = "per cent: the share of the training rows"
        if slopes_of(model) is not None:
            legend = f"leaves: {MOVES_MOST}; {legend}"
    _place(_pruned(root, MOST_LEAVES, "leaves" if even else "rules"))
    nodes, leaves = list(_nodes(root)), list(_leaves(root))
    x = [0.0]
    bends = []
    for depth in range(max(node.depth for node in nodes)):
        box = max(inches(node.text, _NODE) for node in nodes if node.depth == depth and node.children) + 0.1
        edge = max(inches(node.edge, _EDGE) for node in nodes if node.depth == depth + 1)
        bends.append(x[-1] + box)
        x.append(x[-1] + box + 0.55 + edge)
    right = max(x[leaf.depth] + inches(leaf_text(leaf), _NODE) for leaf in leaves) + 0.2
    figure, axes = figure_of(max(4.0, right + 0.3), max(1.6, 0.36 * (len(leaves) + 1) + 0.7), title)
    for node in nodes:
        at = x[node.depth]
        for child in node.children:
            # Branches bend behind the widest box, so that no box hides a term.
            bend = bends[node.depth]
            axes.plot(
                [at + 0.1, bend, bend + 0.25, x[child.depth]],
                [node.y, node.y, child.y, child.y],
                color=LINE,
                linewidth=1.0 if even else 0.6 + 3.0 * min(child.support, 1.0),
                solid_joinstyle="round",
                zorder=1,
            )
            at_edge = (bend + 0.32, child.y + 0.06)
            axes.text(*at_edge, child.edge, fontsize=_EDGE, color=PALE, va="bottom", ha="left", zorder=3)
        frame = {"boxstyle": "round,pad=0.25", "facecolor": FILL if node.children else "white", "edgecolor": LINE}
        text = node.text if node.children else leaf_text(node)
        axes.text(at, node.y, text, fontsize=_NODE, color=INK, va="center", ha="left", bbox=frame, zorder=4)
    told = textwrap.fill(legend, max(40, int(right / inches("m", _EDGE))))
    axes.text(0.0, 0.1 - len(leaves), told, fontsize=_EDGE, color=PALE, va="top", ha="left")
    axes.set_xlim(-0.1, max(3.8, right))
    axes.set_ylim(-0.5 * told.count("\n") - len(leaves) - 0.4, 0.7)
    axes.axis("off")
    return figure


def _tree_of(model: Model) -> _Node:
    tree = conditions_of(model)
    if isinstance(tree, RuleList):
        raise UsageError("this model is a list of rules, not a tree; draw its rules")
    rules, says = list(model.rules()), consequents(model)

    def drawn(node: int, edge: str, limits: _Limits) -> _Node:
        rule = _rule_at(tree, node)
        if rule >= 0:
            return _Node(short(says[rule], 56), edge, rules[rule].support)
        feature, branches = _branches(model, tree, node, limits)
        children = [drawn(*branch) for branch in branches]
        support = sum(child.support for child in children)
        name = name_of(model.domain.names[feature])
        return _Node(name, edge, support, children, sum(child.rules for child in children))

    return drawn(0, "", {})


def _rule_at(tree: SetTree | CutTree | SplitTree, node: int) -> int:
    """Return the rule of a leaf; -1 for a split."""
    if isinstance(tree, CutTree):
        return tree.leaves.index(node) if node in tree.leaves else -1
    return tree.rule[node]


def _branches(
    model: Model, tree: SetTree | CutTree | SplitTree, node: int, limits: _Limits
) -> tuple[int, list[tuple[int, str, _Limits]]]:
    """Return the input that a node splits on; and its children, with what leads to each and the limits there."""
    if isinstance(tree, SetTree):
        feature = tree.feature[node]
        sets = partitions(model)[feature].sets
        children = [(child, j) for j, child in enumerate(tree.child[node]) if child >= 0]
        return feature, [(child, sets[j].term if sets else f"set {j}", limits) for child, j in children]
    if isinstance(tree, CutTree):
        index = next(number for number, split in enumerate(tree.splits) if split[0] == node)
        _, feature, cut = tree.splits[index]
        knots = tree.knots[feature]
        spans = ((0, cut), (cut + 1, len(knots) - 1))
        words = [plain(span_words(model.domain.features[feature], knots, *span)) for span in spans]
        return feature, [(2 * index + 1 + side, text, limits) for side, text in enumerate(words)]
    feature, threshold = tree.feature[node], tree.threshold[node]
    variable = model.domain.features[feature]
    # Categories are those that the splits above have left; of a number only this split is told.
    low, high = limits.get(feature, _ANY) if variable.categories else _ANY
    sides = ((node + 1, low, min(high, threshold)), (tree.right[node], max(low, threshold), high))
    return feature, [
        (child, _side(variable, begin, end), {**limits, feature: (begin, end)}) for child, begin, end in sides
    ]


def _side(variable: Variable, low: float, high: float) -> str:
    """Return a side of a split in the words of the rules, or, where many categories are on it, the first two."""
    words = interval_condition(variable, low, high).term
    if not variable.categories or len(words) <= _LONGEST_EDGE:
        return plain(words)
    inside = [text for code, text in enumerate(variable.categories) if low < code <= high]
    return f"{short(inside[0], 12)} or {short(inside[1], 12)} … ({len(inside)})"


def _structure(model: Model, number: int) -> tuple[_Node, str]:
    """Return the structure of a number among those of a population, the fittest first, and what it is."""
    ranked = readable_rules(model)
    if not 1 <= number <= len(ranked):
        raise UsageError(f"no structure {number}: there are {len(ranked)}, from 1, the fittest, on")
    chosen = ranked[number - 1]
    genes = model.to_document()["model"]["structures"][chosen.index - 1]
    at = iter(range(len(genes)))

    def grown(edge: str, share: float) -> _Node:
        gene = genes[next(at)]
        if gene < 0:
            return _Node("", edge, share)
        children = [grown("low", share / 2), grown("high", share / 2)]
        text = name_of(model.domain.names[gene])
        return _Node(text, edge, share, children, sum(child.rules for child in children))

    return grown("", 1.0), f"structure {number} of {len(ranked)}, fitness {chosen.fitness:.4g}"


def _pruned(root: _Node, most: int, what: str) -> _Node:
    """Fold the branches with the least support until at most `most` leaves are left."""
    while len(list(_leaves(root))) > most:
        fold = min(
            (node for node in _nodes(root) if node.children and all(not child.children for child in node.children)),
            key=lambda node: node.support,
        )
        fold.text, fold.children = f"{fold.text}: {fold.rules} {what}", []
    return root


def _nodes(node: _Node) -> Iterator[_Node]:
    yield node
    for child in node.children:
        yield from _nodes(child)


def _leaves(node: _Node) -> Iterator[_Node]:
    return (below for below in _nodes(node) if not below.children)


def _place(root: _Node) -> None:
    """Give each node its depth and its line: leaves below each other, others at the middle of their children."""
    for line, leaf in enumerate(_leaves(root)):
        leaf.y = -float(line)
    for node in _nodes(root):
        for child in node.children:
            child.depth = node.depth + 1
    _centre(root)


def _centre(node: _Node) -> None:
    for child in node.children:
        _centre(child)
    if node.children:
        node.y = 0.5 * (node.children[0].y + node.children[-1].y)


def _leaf_text(leaf: _Node) -> str:
    return f"{leaf.text}   ({100 * leaf.support:.3g} %)"


def _structure_leaf(leaf: _Node) -> str:
    return leaf.text or "…"
