"""Trees, from left to right: fuzzy, binary and crisp ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from glassfleet.explain.partitions import partitions
from glassfleet.export.canvas import FILL, INK, LINE, PALE, consequent, figure_of, inches, name_of, short
from glassfleet.export.tables import tables
from schemas.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from glassfleet.scheme import Model

MOST_LEAVES: Final = 40
"""Leaves that a picture of a tree shows; smaller branches are told by their number of rules."""

_NODE, _EDGE = 8.5, 7.5
"""Sizes of their texts, in points."""


@dataclass
class _Node:
    """A node as it is drawn."""

    text: str
    edge: str
    support: float
    children: list[_Node] = field(default_factory=list)
    rules: int = 1
    y: float = 0.0

    def __post_init__(self) -> None:
        self.edge = short(self.edge, 34)


def tree_figure(model: Model, title: str) -> Figure:
    """Draw a model's tree.

    Raises
    ------
    UsageError
        The model is no tree.
    """
    root = _pruned(_tree_of(model), MOST_LEAVES)
    leaves = _leaves(root)
    depth = _depth(root)
    for line, leaf in enumerate(leaves):
        leaf.y = -float(line)
    _centre(root)
    boxes = [node for node in _nodes(root) if node.children]
    box = max((inches(node.text, _NODE) for node in boxes), default=0.5) + 0.1
    step = box + 0.55 + max((inches(node.edge, _EDGE) for node in _nodes(root)), default=0.0)
    right = step * depth + max(inches(_leaf_text(leaf), _NODE) for leaf in leaves) + 0.2
    figure, axes = figure_of(max(4.0, right + 0.3), max(1.6, 0.36 * len(leaves) + 0.6), title)
    _draw(axes, root, 0.0, box, step)
    axes.set_xlim(-0.1, max(3.8, right))
    axes.set_ylim(-len(leaves) + 0.3, 0.7)
    axes.axis("off")
    return figure


def _tree_of(model: Model) -> _Node:
    engine, found = tables(model)
    if engine not in ("frt", "fmt", "tree"):
        raise UsageError("this model is a list of rules, not a tree; draw its rules")
    rules = list(model.rules())
    names = model.domain.names

    def leaf(number: int, edge: str) -> _Node:
        return _Node(short(consequent(rules[number].output, model), 56), edge, rules[number].support)

    def grown(text: str, edge: str, children: list[_Node]) -> _Node:
        support = sum(child.support for child in children)
        return _Node(name_of(text), edge, support, children, sum(child.rules for child in children))

    def frt(node: int, edge: str) -> _Node:
        if found["rule_of"][node] >= 0:
            return leaf(found["rule_of"][node], edge)
        feature = found["split"][node]
        sets = partitions(model)[feature].sets
        children = [
            frt(child, sets[j].term if sets else f"set {j}")
            for j, child in enumerate(found["child"][node])
            if child >= 0
        ]
        return grown(names[feature], edge, children)

    def fmt(node: int, edge: str) -> _Node:
        if node not in split_of:
            return leaf(found["leaves"].index(node), edge)
        index = split_of[node]
        _, feature, cut = found["splits"][index]
        sets = partitions(model)[feature].sets
        low, high = (
            (f"up to {sets[cut].term}", f"from {sets[cut + 1].term}")
            if sets and not sets[0].term.startswith("Level")
            else _around(model, feature, 0.5 * (sets[cut].peak + sets[cut + 1].peak) if sets else 0.0, "about ")
        )
        return grown(names[feature], edge, [fmt(2 * index + 1, low), fmt(2 * index + 2, high)])

    def crisp(node: int, edge: str) -> _Node:
        feature = found["feature"][node]
        if feature < 0:
            return leaf(found["rule_of"][node], edge)
        low, high = _around(model, feature, found["threshold"][node], "")
        return grown(names[feature], edge, [crisp(node + 1, low), crisp(found["right"][node], high)])

    split_of = {node: index for index, (node, _, _) in enumerate(found.get("splits", []))}
    return {"frt": frt, "fmt": fmt, "tree": crisp}[engine](0, "")


def _around(model: Model, feature: int, value: float, about: str) -> tuple[str, str]:
    """Return what the two sides of a threshold are called."""
    variable = model.domain.features[feature]
    if variable.categories:
        low = [text for code, text in enumerate(variable.categories) if code <= value]
        high = [text for code, text in enumerate(variable.categories) if code > value]
        return _some(low), _some(high)
    unit = f" {variable.unit}" if variable.unit else ""
    return f"≤ {about}{value:.4g}{unit}", f"> {about}{value:.4g}{unit}"


def _some(texts: list[str]) -> str:
    return ", ".join(texts[:2]) + (f" … ({len(texts)})" if len(texts) > 2 else "")


def _pruned(root: _Node, most: int) -> _Node:
    """Fold the branches with the least support until at most `most` leaves are left."""
    while len(_leaves(root)) > most:
        fold = min(
            (node for node in _nodes(root) if node.children and all(not child.children for child in node.children)),
            key=lambda node: node.support,
        )
        fold.text, fold.children = f"{fold.text}: {fold.rules} rules", []
    return root


def _nodes(node: _Node) -> list[_Node]:
    return [node, *(below for child in node.children for below in _nodes(child))]


def _leaves(node: _Node) -> list[_Node]:
    return [below for below in _nodes(node) if not below.children]


def _depth(node: _Node) -> int:
    return 1 + max(map(_depth, node.children)) if node.children else 0


def _centre(node: _Node) -> None:
    for child in node.children:
        _centre(child)
    if node.children:
        node.y = 0.5 * (node.children[0].y + node.children[-1].y)


def _leaf_text(leaf: _Node) -> str:
    return f"{leaf.text}   ({100 * leaf.support:.3g} %)"


def _draw(axes: Axes, node: _Node, x: float, box: float, step: float) -> None:
    """Draw a node from `x` on, in inches; its branches bend behind the widest box, so that no box hides a term."""
    for child in node.children:
        axes.plot(
            [x + 0.1, x + box, x + box + 0.25, x + step],
            [node.y, node.y, child.y, child.y],
            color=LINE,
            linewidth=0.6 + 3.0 * min(child.support, 1.0),
            solid_joinstyle="round",
            zorder=1,
        )
        at = x + box + 0.32
        axes.text(at, child.y + 0.06, child.edge, fontsize=_EDGE, color=PALE, va="bottom", ha="left", zorder=3)
        _draw(axes, child, x + step, box, step)
    frame = {"boxstyle": "round,pad=0.25", "facecolor": FILL if node.children else "white", "edgecolor": LINE}
    text = node.text if node.children else _leaf_text(node)
    axes.text(x, node.y, text, fontsize=_NODE, color=INK, va="center", ha="left", bbox=frame, zorder=4)
