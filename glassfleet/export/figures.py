"""Pictures of models: trees, rule bases, partitions with a row's memberships, shares. PNG or SVG as bytes.

Drawn with matplotlib (the extra ``operator`` or ``experiments``), which is imported when a picture is asked for. The
same model gives the same bytes with the same version of matplotlib.
"""

from __future__ import annotations

import io
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from glassfleet.explain.partitions import partitions
from glassfleet.explain.row import RowExplanation, explain_row
from glassfleet.explain.summary import summary
from glassfleet.export.tables import tables
from schemas.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from glassfleet.explain.views import Row
    from glassfleet.scheme import Model

Kind = Literal["png", "svg"]
PICTURES: Final = ("tree", "rules", "partitions", "shares")
"""What can be drawn: the tree, or the rules as a table of coloured terms; the inputs' sets; the shares of one row."""

MOST_LEAVES: Final = 40
"""Leaves that a picture of a tree shows; smaller branches are told by their number of rules."""

_INK, _PALE, _LINE, _FILL = "#1b2733", "#5b6b7a", "#9aa8b5", "#eef3f7"
_TERMS = "viridis"


@dataclass
class _Node:
    """A node as it is drawn."""

    text: str
    edge: str
    support: float
    children: list[_Node] = field(default_factory=list)
    rules: int = 1
    y: float = 0.0


def picture(model: Model, what: str, kind: Kind = "svg", *, row: Row | None = None, title: str = "") -> bytes:
    """Draw one picture of a model.

    Parameters
    ----------
    model : Model
    what : {"tree", "rules", "partitions", "shares"}
    kind : {"png", "svg"}
    row : mapping of column to value, or numbers; None
        For the shares; on partitions it marks where the row lies and to which degree.
    title : str
        Printed above.

    Raises
    ------
    UsageError
        There is no such picture of this model.
    DataError
        The row lacks an input.
    """
    if what == "tree":
        figure = _tree_figure(model, title)
    elif what == "rules":
        figure = _rules_figure(model, title)
    elif what == "partitions":
        figure = _partitions_figure(model, row, title)
    elif what == "shares":
        if row is None:
            raise UsageError("the shares are those of one row: name it")
        figure = _shares_figure(explain_row(model, None, row), title)
    else:
        raise UsageError(f"no picture {what!r}; there are: {', '.join(PICTURES)}")
    return _bytes(figure, kind)


def main_picture(model: Model) -> str:
    """Return the picture that shows a model best: its tree where it has one, else its rules."""
    try:
        return "tree" if tables(model)[0] in ("frt", "fmt", "tree") else "rules"
    except UsageError:
        return "rules"


def _bytes(figure: Figure, kind: Kind) -> bytes:
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    buffer = io.BytesIO()
    # Text stays text in SVG: it can be searched and read aloud. Ids and dates that change would change the bytes.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "glassfleet"}):
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(buffer, format=kind, dpi=144, metadata=metadata, facecolor="white")
    return buffer.getvalue()


def _figure(width: float, height: float, title: str) -> tuple[Figure, Axes]:
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an extra

    figure = Canvas(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    if title:
        axes.set_title(title, fontsize=11, color=_INK, loc="left")
    return figure, axes


# --- trees -----------------------------------------------------------------------------------------------------------


def _tree_figure(model: Model, title: str) -> Figure:
    root = _pruned(_tree_of(model), MOST_LEAVES)
    leaves = _leaves(root)
    depth = _depth(root)
    for line, leaf in enumerate(leaves):
        leaf.y = -float(line)
    _centre(root)
    step = 2.6
    figure, axes = _figure(max(6.0, step * depth + 4.2), max(2.4, 0.36 * len(leaves) + 0.9), title)
    _draw(axes, root, 0, step)
    axes.set_xlim(-0.9, step * depth + 3.4)
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
        return _Node(_consequent(rules[number].output, model), edge, rules[number].support)

    def grown(text: str, edge: str, children: list[_Node]) -> _Node:
        support = sum(child.support for child in children)
        return _Node(text, edge, support, children, sum(child.rules for child in children))

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


def _consequent(output: str, model: Model) -> str:
    """Return a consequent in few words: a class, a number, or a polynomial's constant and strongest slope."""
    _, equals, right = output.partition(" = ")
    if not equals:
        return output.partition(" is ")[2] or output
    parts = right.replace(" - ", " + -").split(" + ")
    if len(parts) == 1:
        return right
    width = {variable.name: variable.high - variable.low for variable in model.domain.features}

    def strength(part: str) -> float:
        number, _, name = part.partition(" ")
        return abs(float(number)) * max((w for n, w in width.items() if name.startswith(n)), default=0.0)

    slopes = sorted(parts[1:], key=strength, reverse=True)
    shown = " ".join(f"{'-' if part.startswith('-') else '+'} {part.lstrip('-')}" for part in slopes[:1])
    return f"{parts[0]} {shown}{' …' if len(slopes) > 1 else ''}"


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


def _draw(axes: Axes, node: _Node, depth: int, step: float) -> None:
    x = step * depth
    for child in node.children:
        axes.plot(
            [x, x + 0.42 * step, x + 0.5 * step, x + step],
            [node.y, child.y, child.y, child.y],
            color=_LINE,
            linewidth=0.6 + 3.0 * min(child.support, 1.0),
            solid_joinstyle="round",
            zorder=1,
        )
        axes.text(
            x + 0.5 * step,
            child.y + 0.06,
            _short(child.edge, 22),
            fontsize=7.5,
            color=_PALE,
            va="bottom",
            ha="left",
            zorder=3,
        )
        _draw(axes, child, depth + 1, step)
    box = {"boxstyle": "round,pad=0.25", "facecolor": _FILL if node.children else "white", "edgecolor": _LINE}
    text = _short(node.text, 16 if node.children else 44)
    if not node.children:
        text += f"   ({100 * node.support:.3g} %)"
    axes.text(
        x,
        node.y,
        text,
        fontsize=8.5,
        color=_INK,
        va="center",
        ha="center" if node.children else "left",
        bbox=box,
        zorder=4,
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


# --- rules -----------------------------------------------------------------------------------------------------------


def _rules_figure(model: Model, title: str) -> Figure:
    """Draw the most used rules as a table: one line per rule, one column per input, terms as colours and words."""
    told = summary(model)
    shown = [rule for rule in told.rules if rule.conditions][:MOST_LEAVES] or list(told.rules[:MOST_LEAVES])
    columns = [use.feature for use in told.features if use.rules][:16]
    terms = {part.feature: [item.term for item in part.sets] for part in told.partitions}
    figure, axes = _figure(2.6 + 0.95 * len(columns) + 3.0, 1.3 + 0.3 * len(shown), title)
    colours = _colours()
    for line, rule in enumerate(shown):
        given = {part.feature: part.term for part in rule.conditions}
        for place, feature in enumerate(columns):
            term = given.get(feature)
            if term is None:
                continue
            names = terms.get(feature) or []
            level = names.index(term) / max(len(names) - 1, 1) if term in names else 0.5
            axes.add_patch(_cell(place, line, colours(level)))
            ink = "white" if level < 0.55 else _INK
            axes.text(place, line, _short(term, 11), fontsize=7, ha="center", va="center", color=ink)
        axes.text(
            len(columns) - 0.3, line, _short(_consequent(rule.output, model), 44), fontsize=8, va="center", color=_INK
        )
    axes.set_xlim(-0.6, len(columns) + 3.0)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xticks(range(len(columns)), [_short(name, 24) for name in columns], fontsize=8, rotation=30, ha="left")
    axes.xaxis.tick_top()
    labels = [f"rule {rule.index}  ({100 * rule.support:.3g} %)" for rule in shown]
    axes.set_yticks(range(len(shown)), labels, fontsize=8)
    axes.tick_params(length=0, colors=_INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    left = told.rule_count - len(shown)
    if left > 0:
        axes.set_xlabel(f"and {left} rules with less support", fontsize=8, color=_PALE, loc="left")
    return figure


def _colours() -> Any:
    import matplotlib as mpl  # noqa: PLC0415 - an extra

    return mpl.colormaps[_TERMS]


def _cell(x: int, y: int, colour: Any) -> Any:
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - an extra

    return Rectangle((x - 0.47, y - 0.42), 0.94, 0.84, facecolor=colour, edgecolor="none")


# --- partitions ------------------------------------------------------------------------------------------------------


def _partitions_figure(model: Model, row: Row | None, title: str, most: int = 12) -> Figure:
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415 - an extra

    used = [use.feature for use in summary(model, top=1).features]
    places = sorted(
        (part for part in partitions(model) if part.sets or part.thresholds), key=lambda part: used.index(part.feature)
    )[:most]
    if not places:
        raise UsageError("this model has no fuzzy sets and no thresholds to draw")
    told = explain_row(model, None, row) if row is not None else None
    columns = min(3, len(places))
    lines = -(-len(places) // columns)
    figure = Canvas(figsize=(3.9 * columns, 1.9 * lines + (0.4 if title else 0.0)), layout="constrained")
    grid = np.atleast_1d(figure.subplots(lines, columns, squeeze=False)).ravel()
    colours = _colours()
    for axes, part in zip(grid, places, strict=False):
        for number, item in enumerate(part.sets):
            colour = colours(0.9 * number / max(len(part.sets) - 1, 1))
            x = sorted({part.low, item.low, item.peak, item.high, part.high})
            axes.plot(x, [item.degree(value) for value in x], color=colour, linewidth=1.6)
            if len(part.sets) <= 7:
                end = number in (0, len(part.sets) - 1)
                ha = "center" if not end else "left" if number == 0 else "right"
                words = textwrap.fill(item.term, 9, break_long_words=False)
                axes.text(item.peak, 1.04, words, fontsize=6.5, ha=ha, va="bottom", color=_INK)
        for threshold in part.thresholds:
            axes.axvline(threshold, color=colours(0.3), linewidth=0.9)
        if told is not None:
            at = next(item for item in told.inputs if item.feature == part.feature)
            axes.axvline(at.value, color="#c2410c", linewidth=1.4, linestyle="--")
            words = ", ".join(f"{degree.term} {degree.degree:.2f}" for degree in at.memberships)
            axes.set_xlabel(f"{at.text}{f': {words}' if words else ''}", fontsize=7, color="#c2410c")
        unit = f" ({part.unit})" if part.unit else ""
        axes.set_title(f"{part.feature}{unit}", fontsize=8.5, color=_INK, loc="left", pad=18 if part.sets else 4)
        axes.set_ylim(0, 1.02)
        axes.set_xlim(part.low, part.high if part.high > part.low else part.low + 1.0)
        axes.tick_params(labelsize=6.5, colors=_PALE)
        axes.set_yticks([0, 0.5, 1] if part.sets else [])
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    for axes in grid[len(places) :]:
        axes.axis("off")
    if title:
        figure.suptitle(title, fontsize=11, color=_INK, x=0.01, ha="left")
    return figure


# --- shares ----------------------------------------------------------------------------------------------------------


def _shares_figure(told: RowExplanation, title: str, most: int = 12) -> Figure:
    """Draw how base and shares add up, as a waterfall from the base to the answer."""
    if told.total is None:
        raise UsageError("this model can tell no shares: " + "; ".join(told.notes or ("it has none",)))
    parts = [(part.feature, part.text, part.share or 0.0) for part in told.inputs if part.share]
    rest = sum(share for _, _, share in parts[most:])
    parts = parts[:most] + ([("the others", "", rest)] if rest else [])
    figure, axes = _figure(7.2, 1.4 + 0.34 * (len(parts) + 2), title)
    unit = f" {told.unit}" if told.unit and not told.measure else ""
    at = told.base
    axes.barh(0, at, color=_LINE, height=0.6)
    labels = ["base"]
    for line, (name, text, share) in enumerate(parts, start=1):
        axes.barh(line, share, left=at, color="#0f766e" if share >= 0 else "#c2410c", height=0.6)
        at += share
        labels.append(f"{_short(name, 28)}{f' = {text}' if text else ''}")
    axes.barh(len(parts) + 1, told.total, color=_INK, height=0.6)
    labels.append(told.target if not told.measure else f"{told.target}: {told.prediction}")
    values = [told.base, *(share for _, _, share in parts), told.total]
    low, high = axes.get_xlim()
    axes.set_xlim(low - 0.02 * (high - low), high + 0.16 * (high - low))
    for line, value in enumerate(values):
        mark = f"{value:+.4g}" if 0 < line <= len(parts) else f"{value:.4g}{unit}"
        axes.text(
            1.0, line, mark, transform=axes.get_yaxis_transform(), fontsize=8, va="center", ha="right", color=_INK
        )
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0, color=_PALE, linewidth=0.6)
    axes.set_xlabel(told.measure or f"{told.target}{f' ({told.unit})' if told.unit else ''}", fontsize=8, color=_PALE)
    axes.tick_params(labelsize=8, colors=_INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
