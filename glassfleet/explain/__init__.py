"""Explanations, the same for every scheme: one forecast, the way to another outcome, the whole model.

Pure functions take a model and a row, and return frozen pydantic models whose ``to_dict()`` is the documented JSON form
(docs/reference/exports.md). A model speaks in its own terms and units; :func:`in_words_of` gives it others.

- :func:`explain_row`: the rule that answered in words, the runners-up, and each input's share;
- :func:`explained`: the same as a scheme returns it, compared with a reference row;
- :func:`counterfactual`: the smallest change of the inputs found that gives another outcome, checked by predicting;
- :func:`summary`: all rules with support and confidence, how inputs are used, partitions, complexity;
- :func:`effect`: how the answer moves with one input; :func:`importance`: how much it moves with each over
  the fleet's rows, :func:`reach` over its range;
- :func:`difference`: what differs between two models;
- :class:`ModelView`: all that pages, reports and commands tell of a model, computed once.

:func:`example_row` makes a row to begin with. :mod:`glassfleet.model.rules` holds what the schemes themselves return,
and
:mod:`glassfleet.model.protocol` says what kind of thing a model is (a network has no rules).
"""

from glassfleet.explain.counterfactual import Counterfactual, InputChange, counterfactual
from glassfleet.explain.difference import Difference, difference
from glassfleet.explain.effects import Effect, effect, example_row, importance, main_effects, reach, starting_row
from glassfleet.explain.model_view import ModelView
from glassfleet.explain.partitions import FuzzySet, Partition, in_words_of, partitions
from glassfleet.explain.row import RowExplanation, explain_row
from glassfleet.explain.summary import ModelSummary, summary
from glassfleet.explain.views import ActivationView, Goal, RuleView, as_row
from glassfleet.model.baseline import explained

__all__ = [
    "ActivationView",
    "Counterfactual",
    "Difference",
    "Effect",
    "FuzzySet",
    "Goal",
    "InputChange",
    "ModelSummary",
    "ModelView",
    "Partition",
    "RowExplanation",
    "RuleView",
    "as_row",
    "counterfactual",
    "difference",
    "effect",
    "example_row",
    "explain_row",
    "explained",
    "importance",
    "in_words_of",
    "main_effects",
    "partitions",
    "reach",
    "starting_row",
    "summary",
]
