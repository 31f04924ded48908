"""Explanations, the same for every scheme: one forecast, the way to another outcome, the whole model.

Pure functions take a model, a domain to speak in (None: the model's own) and a row, and return frozen pydantic
models whose ``to_dict()`` is the documented JSON form (docs/reference/exports.md):

- :func:`explain_row`: the rule that answered in words, its rivals, and each input's share;
- :func:`counterfactual`: the smallest change of the inputs found that gives another outcome, checked by predicting;
- :func:`summary`: all rules with support and confidence, how inputs are used, partitions, complexity.

:func:`nature` says what kind of thing a model is (a network has no rules), :func:`readable_rules` what of it can be
read, and :func:`example_row` makes a row to begin with.

:mod:`.parts` holds what the schemes themselves return.
"""

from glassfleet.explain.counterfactual import Change, Counterfactual, counterfactual
from glassfleet.explain.example import example_row
from glassfleet.explain.goal import Goal
from glassfleet.explain.partitions import FuzzySet, Partition, partitions
from glassfleet.explain.row import RowExplanation, explain_row
from glassfleet.explain.summary import ModelSummary, summary
from glassfleet.explain.views import ActivationView, ConditionView, RuleView, as_row, in_terms_of, in_words_of
from glassfleet.nature import OWN_TREE, Nature, nature, readable_rules
from glassfleet.rules import Activation, Condition, Explanation, Rule, no_rule_fires

__all__ = [
    "OWN_TREE",
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
    "Nature",
    "Partition",
    "RowExplanation",
    "Rule",
    "RuleView",
    "as_row",
    "counterfactual",
    "example_row",
    "explain_row",
    "in_terms_of",
    "in_words_of",
    "nature",
    "no_rule_fires",
    "partitions",
    "readable_rules",
    "summary",
]
