"""Pictures of models: trees, rule bases, partitions with a row's memberships, shares. PNG or SVG as bytes.

Drawn with matplotlib (the extra ``operator`` or ``experiments``), which is imported when a picture is asked for. The
same model gives the same bytes with the same version of matplotlib.
"""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from glassfleet.explain.partitions import Partition, partitions
from glassfleet.explain.row import RowExplanation, explain_row
from glassfleet.explain.summary import summary
from glassfleet.export.canvas import (
    INK,
    LINE,
    MARK,
    PALE,
    colours,
    consequent,
    figure_of,
    inches,
    name_of,
    short,
    wrapped,
)
from glassfleet.export.tables import tables
from glassfleet.export.tree_figure import MOST_LEAVES, tree_figure
from schemas.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from glassfleet.explain.views import Row
    from glassfleet.scheme import Model

Kind = Literal["png", "svg"]
PICTURES: Final = ("tree", "rules", "partitions", "shares")
"""What can be drawn: the tree, or the rules as a table of coloured terms; the inputs' sets; the shares of one row."""


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
        figure = tree_figure(model, title)
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


# --- rules -----------------------------------------------------------------------------------------------------------


def _rules_figure(model: Model, title: str) -> Figure:
    """Draw the most used rules as a table: one line per rule, one column per input, terms as colours and words."""
    told = summary(model)
    shown = [rule for rule in told.rules if rule.conditions][:MOST_LEAVES] or list(told.rules[:MOST_LEAVES])
    columns = [use.feature for use in told.features if use.rules][:16]
    terms = {part.feature: [item.term for item in part.sets] for part in told.partitions}
    then = [short(consequent(rule.output, model), 56) for rule in shown]
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
            words, size = (wrapped(term, 15, 2), 5.5) if small else (term, 7)
            axes.text(place, line, words, fontsize=size, ha="center", va="center", color=ink, linespacing=1.1)
        axes.text(len(columns) - 0.3, line, then[line], fontsize=8, va="center", color=INK)
    axes.set_xlim(-0.6, len(columns) - 0.3 + room / 0.95)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xticks(range(len(columns)), [name_of(name) for name in columns], fontsize=8, rotation=30, ha="left")
    axes.xaxis.tick_top()
    labels = [f"rule {rule.index}  ({100 * rule.support:.3g} %)" for rule in shown]
    axes.set_yticks(range(len(shown)), labels, fontsize=8)
    axes.tick_params(length=0, colors=INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    left = told.rule_count - len(shown)
    if left > 0:
        axes.set_xlabel(
            f"and {left} {'rule' if left == 1 else 'rules'} with less support", fontsize=8, color=PALE, loc="left"
        )
    return figure


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
    scale = colours()
    for axes, part in zip(grid, places, strict=False):
        for number, item in enumerate(part.sets):
            colour = scale(0.9 * number / max(len(part.sets) - 1, 1))
            x = sorted({part.low, item.low, item.peak, item.high, part.high})
            axes.plot(x, [item.degree(value) for value in x], color=colour, linewidth=1.6)
        for number, (item, words) in enumerate(zip(part.sets, terms[part.feature], strict=False)):
            ha = "left" if number == 0 else "right" if number == len(part.sets) - 1 else "center"
            axes.text(item.peak, 1.04, words, fontsize=6.5, ha=ha, va="bottom", color=INK, linespacing=1.1)
        for threshold in part.thresholds:
            axes.axvline(threshold, color=scale(0.3), linewidth=0.9)
        if told is not None:
            at = next(item for item in told.inputs if item.feature == part.feature)
            axes.axvline(at.value, color=MARK, linewidth=1.4, linestyle="--")
            words = ", ".join(f"{degree.term} {degree.degree:.2f}" for degree in at.memberships)
            axes.set_xlabel(f"{at.text}{f': {words}' if words else ''}", fontsize=7, color=MARK)
        unit = f" ({part.unit})" if part.unit else ""
        rows = max((label.count("\n") + 1 for label in terms[part.feature]), default=0)
        axes.set_title(f"{name_of(part.feature, 44)}{unit}", fontsize=8.5, color=INK, loc="left", pad=6 + 8 * rows)
        axes.set_ylim(0, 1.02)
        axes.set_xlim(part.low, part.high if part.high > part.low else part.low + 1.0)
        axes.tick_params(labelsize=6.5, colors=PALE)
        axes.set_yticks([0, 0.5, 1] if part.sets else [])
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    for axes in grid[len(places) :]:
        axes.axis("off")
    if title:
        figure.suptitle(title, fontsize=11, color=INK, x=0.01, ha="left")
    return figure


def _labels(part: Partition) -> list[str]:
    """Return what stands above the sets: terms in lines as narrow as their distance asks; none where sets are many."""
    count = len(part.sets)
    return [wrapped(item.term, max(9, 56 // count)) for item in part.sets] if 0 < count <= 7 else []


# --- shares ----------------------------------------------------------------------------------------------------------


def _shares_figure(told: RowExplanation, title: str, most: int = 12) -> Figure:
    """Draw how base and shares add up, as a waterfall from the base to the answer."""
    if told.total is None:
        raise UsageError("this model can tell no shares: " + "; ".join(told.notes or ("it has none",)))
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
