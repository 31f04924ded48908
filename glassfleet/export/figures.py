"""Pictures of models: trees, rule bases, partitions with a row's memberships, shares. PNG or SVG as bytes.

Drawn with matplotlib (the extra ``operator`` or ``experiments``), which is imported when a picture is asked for. The
same model gives the same bytes with the same version of matplotlib.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from glassfleet.explain.partitions import Partition, partitions
from glassfleet.explain.row import Contribution, RowExplanation, explain_row
from glassfleet.explain.summary import slopes_of, summary
from glassfleet.export.canvas import (
    INK,
    LINE,
    MARK,
    MOVES_MOST,
    PALE,
    Kind,
    colours,
    consequents,
    figure_bytes,
    figure_of,
    inches,
    name_of,
    plain,
    short,
    wrapped,
)
from glassfleet.export.tables import conditions_of
from glassfleet.export.tree_figure import MOST_LEAVES, NETWORK, tree_figure
from glassfleet.nature import nature
from glassfleet.tables import RuleList
from schemas.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from glassfleet.explain.views import Row
    from glassfleet.scheme import Model

PICTURES: Final = ("tree", "rules", "partitions", "shares")
"""What can be drawn: the tree, or the rules as a table of coloured terms; the inputs' sets; the shares of one row."""


def picture(
    model: Model, what: str, kind: Kind = "svg", *, row: Row | None = None, title: str = "", structure: int = 1
) -> bytes:
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
    structure : int
        Of a population of tree structures: which one the tree is, 1 being the fittest.

    Raises
    ------
    UsageError
        There is no such picture of this model.
    DataError
        The row lacks an input.
    """
    if what == "tree":
        figure = tree_figure(model, title, structure)
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
    return figure_bytes(figure, kind)


def main_picture(model: Model) -> str | None:
    """Return the picture that shows a model best: its tree where it has one, else its rules; None for a network."""
    kind = nature(model)
    if kind != "rules":
        return "tree" if kind == "structures" else None
    try:
        return "rules" if isinstance(conditions_of(model), RuleList) else "tree"
    except UsageError:
        return "rules"


# --- rules -----------------------------------------------------------------------------------------------------------


def _rules_figure(model: Model, title: str) -> Figure:
    """Draw the most used rules as a table: one line per rule, one column per input, terms as colours and words."""
    kind = nature(model)
    if kind == "network":
        raise UsageError(NETWORK)
    if kind == "structures":
        raise UsageError("these are tree structures, not rules; draw one as a tree")
    told = summary(model)
    shown = told.rules[:MOST_LEAVES]
    says = consequents(model)
    columns = [use.feature for use in told.features if use.rules][:16]
    terms = {part.feature: [item.term for item in part.sets] for part in told.partitions}
    then = [("otherwise: " if rule.otherwise else "") + short(says[rule.index], 56) for rule in shown]
    room = max(inches(text, 8) for text in then) + 0.3
    figure, axes = figure_of(1.6 + 0.95 * len(columns) + room, 1.3 + 0.3 * len(shown), title)
    scale = colours()
    for line, rule in enumerate(shown):
        given = {part.feature: part.term for part in rule.conditions}
        for place, feature in enumerate(columns):
            term = given.get(feature)
            if term is None:
                continue
            names = terms.get(feature) or []
            level = names.index(term) / max(len(names) - 1, 1) if term in names else 0.5
            axes.add_patch(_cell(place, line, scale(level)))
            ink = "white" if level < 0.55 else INK
            small = len(term) > 11
            words, size = (wrapped(_between(term), 17, 2), 5.5) if small else (term, 7)
            axes.text(place, line, words, fontsize=size, ha="center", va="center", color=ink, linespacing=1.1)
        axes.text(len(columns) - 0.3, line, then[line], fontsize=8, va="center", color=INK)
    axes.set_xlim(-0.6, len(columns) - 0.3 + room / 0.95)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xticks(range(len(columns)), [name_of(name) for name in columns], fontsize=8, rotation=30, ha="left")
    axes.xaxis.tick_top()
    labels = [f"rule {rule.index}  ({100 * (rule.support or 0.0):.3g} %)" for rule in shown]
    axes.set_yticks(range(len(shown)), labels, fontsize=8)
    axes.tick_params(length=0, colors=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    left = told.rule_count - len(shown)
    below = [f"and {left} {'rule' if left == 1 else 'rules'} with less support"] * (left > 0)
    below += [f"at the right: {MOVES_MOST}"] * (slopes_of(model) is not None)
    axes.set_xlabel("\n".join(below), fontsize=8, color=PALE, loc="left")
    return figure


def _between(term: str) -> str:
    """Return a crisp interval in fewer words: "above 2 m and at most 5 m" is "2 to 5 m"."""
    return re.sub(r"^above (\S+)(?: .+)? and at most (.+)$", r"\1 to \2", plain(term))


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
    terms = {part.feature: _labels(part) for part in places}
    high = max((label.count("\n") + 1 for labels in terms.values() for label in labels), default=0)
    size = (3.9 * columns, (1.7 + 0.12 * high) * lines + (0.4 if title else 0.0))
    figure = Canvas(figsize=size, layout="constrained")
    grid = np.atleast_1d(figure.subplots(lines, columns, squeeze=False)).ravel()
    for axes, part in zip(grid, places, strict=False):
        at = next(item for item in told.inputs if item.feature == part.feature) if told is not None else None
        _draw_partition(axes, part, terms[part.feature], at)
    for axes in grid[len(places) :]:
        axes.axis("off")
    if title:
        figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    return figure


def _draw_partition(axes: Axes, part: Partition, labels: list[str], at: Contribution | None) -> None:
    """Draw the sets or thresholds of one input, and where a row lies."""
    scale = colours()
    for number, item in enumerate(part.sets):
        colour = scale(0.9 * number / max(len(part.sets) - 1, 1))
        x = sorted({part.low, item.low, item.peak, item.high, part.high})
        axes.plot(x, [item.degree(value) for value in x], color=colour, linewidth=1.6)
    for number, (item, words) in enumerate(zip(part.sets, labels, strict=False)):
        ha = "left" if number == 0 else "right" if number == len(part.sets) - 1 else "center"
        axes.text(item.peak, 1.04, words, fontsize=6.5, ha=ha, va="bottom", color=INK, linespacing=1.1)
    for threshold in part.thresholds:
        axes.axvline(threshold, color=scale(0.3), linewidth=0.9)
    if at is not None:
        axes.axvline(at.value, color=MARK, linewidth=1.4, linestyle="--")
        words = ", ".join(f"{degree.term} {degree.degree:.2f}" for degree in at.memberships)
        axes.set_xlabel(short(f"{at.text}{f': {words}' if words else ''}", 60), fontsize=7, color=MARK)
    unit = f" ({part.unit})" if part.unit else ""
    rows = max((label.count("\n") + 1 for label in labels), default=0)
    axes.set_title(f"{name_of(part.feature, 44)}{unit}", fontsize=8.5, color=INK, loc="left", pad=6 + 8 * rows)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(part.low, part.high if part.high > part.low else part.low + 1.0)
    axes.tick_params(labelsize=6.5, colors=PALE)
    if part.categories:
        _name_categories(axes, part.categories)
    elif max(abs(part.low), abs(part.high)) < 1e7:
        axes.ticklabel_format(axis="x", style="plain", useOffset=False)
    axes.set_yticks([0, 0.5, 1] if part.sets else [])
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _name_categories(axes: Axes, categories: tuple[str, ...], most: int = 12) -> None:
    """Write categories below an axis, aslant where they are many; of very many some."""
    step = -(-len(categories) // most)
    axes.set_xlim(-0.5, len(categories) - 0.5)
    few = len(categories) <= 3
    axes.set_xticks(
        range(0, len(categories), step),
        [short(text, 22) for text in categories[::step]],
        rotation=0 if few else 35,
        ha="center" if few else "right",
        rotation_mode="anchor",
    )


def _labels(part: Partition) -> list[str]:
    """Return what stands above the sets: terms in lines as narrow as their distance asks; none where sets are many."""
    count = len(part.sets)
    return [wrapped(item.term, max(9, 56 // count)) for item in part.sets] if 0 < count <= 7 else []


# --- shares ----------------------------------------------------------------------------------------------------------


def _shares_figure(told: RowExplanation, title: str, most: int = 12) -> Figure:
    """Draw how base and shares add up, as a waterfall from the base to the answer."""
    if told.total is None:
        raise UsageError("this forecast has no shares to draw: " + "; ".join(told.notes or ("the model has none",)))
    parts = [(part.feature, part.text, part.share or 0.0) for part in told.inputs if part.share]
    rest = sum(share for _, _, share in parts[most:])
    parts = parts[:most] + ([("the others", "", rest)] if rest else [])
    figure, axes = figure_of(7.2, 1.4 + 0.34 * (len(parts) + 2), title)
    unit = f" {told.unit}" if told.unit and not told.measure else ""
    at = told.base
    axes.barh(0, at, color=LINE, height=0.6)
    labels = ["base"]
    for line, (name, text, share) in enumerate(parts, start=1):
        axes.barh(line, share, left=at, color="#0f766e" if share >= 0 else MARK, height=0.6)
        at += share
        labels.append(f"{name_of(name)}{f' = {text}' if text else ''}")
    axes.barh(len(parts) + 1, told.total, color=INK, height=0.6)
    labels.append(told.target if not told.measure else f"{told.target}: {told.prediction}")
    values = [told.base, *(share for _, _, share in parts), told.total]
    low, high = axes.get_xlim()
    marks = [f"{value:+.4g}" if 0 < line <= len(parts) else f"{value:.4g}{unit}" for line, value in enumerate(values)]
    # The marks stand at the right, beside the bars: a share of the plot's width that they need is kept free.
    free = min(0.4, 0.03 + max(inches(mark, 8) for mark in marks) / 3.6)
    axes.set_xlim(low - 0.02 * (high - low), low + (high - low) / (1.0 - free))
    for line, mark in enumerate(marks):
        axes.text(1.0, line, mark, transform=axes.get_yaxis_transform(), fontsize=8, va="center", ha="right", color=INK)
    axes.set_yticks(range(len(labels)), [textwrap.fill(label, 44) for label in labels], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(0, color=PALE, linewidth=0.6)
    what = told.measure or f"{told.target}{f' ({told.unit})' if told.unit else ''}"
    axes.set_xlabel(textwrap.fill(what, 60), fontsize=8, color=PALE)
    axes.tick_params(labelsize=8, colors=INK)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure
