"""Explanations, the same for every scheme: one forecast, the way to another outcome, the whole model.

Three pure functions take a model, a domain to speak in (None: the model's own) and a row, and return frozen pydantic
models whose ``to_dict()`` is the documented JSON form (docs/reference/exports.md):

- :func:`explain_row`: the rule that answered in words, its rivals, and each input's share;
- :func:`counterfactual`: the smallest change of the inputs found that gives another outcome, checked by predicting;
- :func:`summary`: all rules with support and confidence, how inputs are used, partitions, complexity.

:mod:`.parts` holds what the schemes themselves return.
"""

from glassfleet.explain.counterfactual import Change, Counterfactual, counterfactual
from glassfleet.explain.goal import Goal
from glassfleet.explain.partitions import FuzzySet, Partition, partitions
from glassfleet.explain.parts import Activation, Condition, Explanation, Rule
from glassfleet.explain.row import RowExplanation, explain_row
from glassfleet.explain.summary import ModelSummary, summary
from glassfleet.explain.views import ActivationView, ConditionView, RuleView, as_row, in_terms_of, in_words_of

__all__ = [
    "Activation",
    "ActivationView",
    "Change",
    "Condition",
    "ConditionView",
    "Counterfactual",
    "Explanation",
    "FuzzySet",
    "Goal",
    "ModelSummary",
    "Partition",
    "RowExplanation",
    "Rule",
    "RuleView",
    "as_row",
    "counterfactual",
    "explain_row",
    "in_terms_of",
    "in_words_of",
    "partitions",
    "summary",
]
