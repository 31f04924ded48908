"""Pictures of models: trees, rule bases, partitions with a row's memberships, shares. SVG, or PNG as bytes.

SVG needs nothing else; PNG is painted with matplotlib (the extra ``operator`` or ``experiments``).
"""

from __future__ import annotations

from typing import Final, Literal

from glassfleet.explain.effects import importance, main_effects, starting_row
from glassfleet.explain.partitions import partitions
from glassfleet.explain.row import explain_row
from glassfleet.explain.summary import slopes_of, summary
from glassfleet.explain.views import Row, as_row
from glassfleet.export.svg.branches import is_tree, rule_tree
from glassfleet.export.svg.charts import REPORT, waterfall
from glassfleet.export.svg.effects import Scale, effect_curve
from glassfleet.export.svg.png import to_png
from glassfleet.export.svg.rule_summary import rule_summaries
from glassfleet.export.svg.rule_table import rule_table
from glassfleet.export.svg.sets import cuts, degrees, memberships, value_of
from glassfleet.export.svg.shapes import Svg, beside, file_of
from glassfleet.export.svg.structures import StructureTree, structures
from glassfleet.export.svg.trees import MOST_LEAVES, RuleTree
from glassfleet.model.baseline import ReferenceRow
from glassfleet.model.protocol import Model, nature
from glassfleet.model.rules import most_used
from schemas.errors import UsageError

Kind = Literal["png", "svg"]

PICTURES: Final = ("tree", "rules", "partitions", "effects", "shares")
"""What can be drawn: the tree, or the rules as a table of coloured terms; the inputs' sets; how the answer moves with
each of the inputs that count most; the shares of one row."""

MOST_PARTITIONS: Final = 12
MOST_SHARES: Final = 12
"""Inputs that have a picture, or a line, of their own."""
MOST_INPUTS: Final = 100
"""Inputs among which those are looked for that count most."""

MOVES_MOST: Final = (
    "; at the end: the input that moves the forecast most, and by how much within the rule's region (…: others, too)"
)
"""What the consequents of polynomials are in pictures, where nobody knows what they forecast."""

FORECASTS: Final = "; the mean of a rule's forecasts for its rows, and where about 8 of 10 of them are"

NETWORK: Final = (
    "this model is a network: it has neither rules nor a tree to draw. The shares of one row can be drawn "
    "where its forecast is a number: --picture shares --data FILE"
)


def picture(
    model: Model,
    what: str,
    kind: Kind = "svg",
    *,
    row: Row | None = None,
    reference: ReferenceRow | None = None,
    title: str = "",
    structure: int = 1,
) -> bytes:
    """Return one picture of a model as the bytes of a file; see `drawing`.

    Parameters
    ----------
    title : str
        Printed above.
    """
    if structure != 1 and nature(model) != "structures":
        raise UsageError("there are no structures to choose from: only a population has them")
    svg = drawing(model, what, row=row, reference=reference, structure=structure)
    if what == "tree" and nature(model) == "structures":
        which = structure_title(model, structure)
        title = f"{title}: {which}" if title else which
    text = file_of(svg, title, note_of(model, what))
    return to_png(text) if kind == "png" else text.encode("utf-8")


def note_of(model: Model, what: str) -> str:
    """Return what is to be said below a picture of rules."""
    if what not in ("tree", "rules") or nature(model) != "rules":
        return ""
    measured = any(rule.forecast for rule in model.rules())
    moves = MOVES_MOST if slopes_of(model) is not None else ""
    return "per cent: the share of the training rows" + (FORECASTS if measured else moves)


def drawing(
    model: Model, what: str, *, row: Row | None = None, reference: ReferenceRow | None = None, structure: int = 1
) -> Svg:
    """Draw one picture of a model.

    Parameters
    ----------
    model : Model
    what : {"tree", "rules", "partitions", "effects", "shares"}
    row : mapping of column to value, or numbers; None
        For the shares; on partitions it marks where the row lies and to which degree, of effects it gives the inputs
        that stay.
    reference : Reference or None
        What the shares compare the row with; the row of the effects where none is given.
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
        return _tree(model, structure)
    if what == "rules":
        return _rules(model)
    if what == "partitions":
        return _partitions(model, row)
    if what == "effects":
        return _effects(model, row, reference)
    if what != "shares":
        raise UsageError(f"no picture {what!r}; there are: {', '.join(PICTURES)}")
    if row is None:
        raise UsageError("the shares are those of one row: name it")
    return _shares(model, row, reference)


def main_picture(model: Model) -> str | None:
    """Return the picture that shows a model best: its tree where it has one, else its rules; None for a network."""
    kind = nature(model)
    if kind == "network":
        return None
    return "tree" if kind == "structures" or is_tree(model) else "rules"


def structure_title(model: Model, number: int) -> str:
    """Return what the structure of a rank is."""
    ranked = structures(model)
    return f"structure {number} of {len(ranked)}, fitness {ranked[number - 1].fitness:.4g}"


def _tree(model: Model, structure: int) -> Svg:
    kind = nature(model)
    if kind == "network":
        raise UsageError(NETWORK)
    if kind == "structures":
        ranked = structures(model)
        if not 1 <= structure <= len(ranked):
            raise UsageError(f"no structure {structure}: there are {len(ranked)}, from 1, the fittest, on")
        root = ranked[structure - 1].root
        return StructureTree([root], most=MOST_LEAVES).picture()
    if not is_tree(model):
        raise UsageError("this model is a list of rules, not a tree; draw its rules")
    root = rule_tree(model)
    labels = [each.label for each in rule_summaries(model.rules())]
    return RuleTree([root], labels=labels, classes=model.domain.classes, most=MOST_LEAVES).picture()


def _rules(model: Model) -> Svg:
    """Draw the most used rules."""
    kind = nature(model)
    if kind == "network":
        raise UsageError(NETWORK)
    if kind == "structures":
        raise UsageError("these are tree structures, not rules; draw one as a tree")
    rules = tuple(model.rules())
    shown = sorted(rules, key=most_used)[:MOST_LEAVES]
    columns = [use.feature for use in summary(model, top=0).features if use.rules]
    terms = {part.feature: [item.term for item in part.sets] for part in partitions(model)}
    labels = [each.label for each in rule_summaries(rules)]
    return rule_table(shown, labels, columns, terms, len(rules) - len(shown))


def _partitions(model: Model, row: Row | None) -> Svg:
    used = [use.feature for use in summary(model, top=1).features]
    places = sorted(
        (part for part in partitions(model) if part.sets or part.thresholds), key=lambda part: used.index(part.feature)
    )[:MOST_PARTITIONS]
    if not places:
        raise UsageError("this model has no fuzzy sets and no thresholds to draw")
    values = {part.feature: part.value for part in explain_row(model, row).inputs} if row is not None else {}
    drawn = []
    for part in places:
        value = values.get(part.feature)
        name = f"{part.feature} ({part.unit})" if part.unit else part.feature
        if value is not None:
            name = f"{part.feature} = {value_of(part, value)}{f': {degrees(part, value)}' if part.sets else ''}"
        drawn.append((name, memberships(part, value) if part.sets else cuts(part, value)))
    return beside(drawn)


def _effects(model: Model, row: Row | None, reference: ReferenceRow | None) -> Svg:
    names = [use.feature for use in summary(model, top=0).features] or model.domain.names
    counts = importance(model, reference, names[:MOST_INPUTS])
    start = starting_row(model, reference).row if row is None else as_row(model.domain, row)
    main = main_effects(model, start, counts)
    if not main:
        raise UsageError("no input alone changes what this model answers")
    scale, domain = Scale.of(main, model.domain.classes), model.domain
    return beside([(each.feature.name, effect_curve(each, scale, domain.classes, domain.target_unit)) for each in main])


def _shares(model: Model, row: Row, reference: ReferenceRow | None) -> Svg:
    """Draw how base and shares add up, from the base to the answer."""
    view = explain_row(model, row, reference)
    if view.total is None:
        raise UsageError("this forecast has no shares to draw: " + "; ".join(view.notes or ("the model has none",)))
    called = f"{view.target}: {view.prediction}" if view.measure else view.target
    return waterfall(REPORT, view.base, view.parts(MOST_SHARES), view.total, "" if view.measure else view.unit, called)
