"""Pictures of models as SVG files of their own: the tree, the shares of one row, the effect of one input."""

from __future__ import annotations

from glassfleet.explain.branches import rule_tree
from glassfleet.explain.effects import Effect
from glassfleet.explain.row import RowExplanation
from glassfleet.explain.rule_summary import rule_summaries
from glassfleet.explain.structures import structures
from glassfleet.export.svg.charts import REPORT, waterfall
from glassfleet.export.svg.effects import Scale, effect_curve
from glassfleet.export.svg.shapes import file_of
from glassfleet.export.svg.trees import MOST_LEAVES, RuleTree, StructureTree
from glassfleet.model.protocol import Model, nature
from schemas.errors import UsageError

MOST_SHARES = 12
"""Inputs that have a line of their own; the others are added up."""


def tree_picture(model: Model, title: str = "") -> str:
    """Draw a model's rules as a tree, or the fittest structure of a population.

    Parameters
    ----------
    title : str
        Printed above.

    Raises
    ------
    UsageError
        The model is a network.
    """
    kind = nature(model)
    if kind == "network":
        raise UsageError("this model is a network: it has neither rules nor a tree to draw")
    if kind == "structures":
        best = structures(model)[0]
        which = f"the fittest structure, number {best.number}"
        return file_of(StructureTree([best.root], most=MOST_LEAVES).picture(), f"{title}: {which}" if title else which)
    rules = model.rules()
    labels = [each.label for each in rule_summaries(rules)]
    note = "per cent: the share of the training rows"
    if any(rule.forecast for rule in rules):
        note += "; the mean of a rule's forecasts for its rows, and where about 8 of 10 of them are"
    elif rules and rules[0].consequent.slopes is not None:
        note += "; at the end: the input that moves the forecast most, and by how much within the rule's region"
    tree = RuleTree([rule_tree(model)], labels=labels, classes=model.domain.classes, most=MOST_LEAVES)
    return file_of(tree.picture(), title, note)


def shares_picture(explained: RowExplanation) -> str:
    """Draw how base and shares of one row add up to its forecast; raises ``UsageError`` where it has no shares."""
    if explained.total is None:
        why = "; ".join(explained.notes or ("the model has none",))
        raise UsageError(f"this forecast has no shares to draw: {why}")
    called = f"{explained.target}: {explained.prediction}" if explained.measure else explained.target
    unit = "" if explained.measure else explained.unit
    return file_of(waterfall(REPORT, explained.base, explained.parts(MOST_SHARES), explained.total, unit, called))


def effect_picture(model: Model, curve: Effect, others: str) -> str:
    """Draw how the answer moves with one input; `others` says what the other inputs are."""
    domain = model.domain
    svg = effect_curve(curve, Scale.of([curve], domain.classes), domain.classes, domain.target_unit)
    return file_of(
        svg, f"{domain.target_name} as {curve.feature.name} goes over its range", f"the others are those of {others}"
    )
