"""The model: predicting, explaining, words, size, document."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.fuzzy import fuzzify
from glassfleet.local import central
from glassfleet.schemes.frbc import SCHEME, FuzzyRuleClassifier, Parameters
from glassfleet.schemes.frbc.rulebase import RuleBase
from schemas.documents import document_digest

DOMAIN = Domain(
    features=(
        Variable(name="speed", low=0.0, high=100.0, unit="km/h"),
        Variable(name="signal", low=-120.0, high=-60.0, unit="dBm"),
    ),
    label="QoE",
    classes=("Good", "Poor"),
)


def _model(rules: Any, association: Any = "strength", **changed: Any) -> Any:
    sets, classes, weights = zip(*rules, strict=True)
    base = RuleBase(
        np.array(sets, dtype=np.int8),
        np.array(classes, dtype=np.intp),
        np.array(weights, dtype=np.float64),
        np.full(len(rules), 0.1),
    )
    return FuzzyRuleClassifier(Parameters(n_sets=3, association=association, **changed), DOMAIN, base)


def _learned(association: Any = "strength", seed: Any = 0, n: Any = 400) -> Any:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-10, 110, n), rng.uniform(-125, -55, n)])
    y = np.where((X[:, 0] < 50) ^ (X[:, 1] < -95) ^ (rng.random(n) < 0.2), "Good", "Poor")
    data = Dataset(DOMAIN.names, "QoE", X, y)
    return central(SCHEME, Parameters(n_sets=5, association=association), DOMAIN, data).model, X


@pytest.mark.parametrize("association", ["strength", "strength*weight"])
def test_model_predicts_as_a_search_of_all_rules_does(association: Any) -> None:
    model, X = _learned(association)
    members = fuzzify(DOMAIN.scale_inputs(X), 5)

    expected = []
    for row in range(len(X)):
        best = (0.0, 0.0, 0)
        for rule, sets in enumerate(model.base.antecedents):
            strength = members.degree(0, row, int(sets[0])) * members.degree(1, row, int(sets[1]))
            value = strength if association == "strength" else strength * model.base.weight[rule]
            best = max(best, (value, model.base.weight[rule], -rule))
        expected.append(DOMAIN.classes[model.base.classes[-best[2]]])

    assert model.predict(X).tolist() == expected


def test_ties_go_to_the_heavier_rule() -> None:
    model = _model([((0, 0), 0, 0.6), ((1, 0), 1, 0.7)])

    assert model.predict(np.array([[25.0, -120.0]])).tolist() == ["Poor"]


def test_association_with_weight_prefers_the_heavier_rule_to_the_stronger() -> None:
    rules = [((0, 0), 0, 0.3), ((1, 0), 1, 0.9)]
    row = np.array([[20.0, -120.0]])  # strengths 0.6 and 0.4

    assert _model(rules).predict(row).tolist() == ["Good"]
    assert _model(rules, "strength*weight").predict(row).tolist() == ["Poor"]


def test_heaviest_rule_answers_and_explanation_says_so_when_none_fires() -> None:
    model = _model([((0, 0), 0, 0.6), ((0, 1), 1, 0.7)])

    explanation = model.explain(np.array([100.0, -60.0]))

    assert explanation.prediction == "Poor"
    assert explanation.fallback
    assert explanation.fired.rule.index == 1
    assert explanation.fired.strength == 0.0
    assert explanation.fired.memberships == (0.0, 0.0)


def test_explanation_names_rule_degrees_and_runners_up() -> None:
    model = _model([((0, 0), 0, 0.6), ((0, 1), 0, 0.5), ((1, 0), 1, 0.7), ((2, 2), 1, 0.7)])

    explanation = model.explain(np.array([20.0, -111.0]))  # 0.6 and 0.4; 0.7 and 0.3

    assert explanation.prediction == "Good"
    assert not explanation.fallback
    assert str(explanation.fired.rule) == "IF speed is Low AND signal is Low THEN QoE is Good"
    assert explanation.fired.memberships == pytest.approx((0.6, 0.7))
    assert explanation.fired.strength == pytest.approx(0.42)
    assert [activation.rule.index for activation in explanation.runners_up] == [2, 1]
    # Against rule 2, the strongest of the other class: the inputs' memberships are 0.6 to 0.4 and equal.
    assert explanation.shares == pytest.approx({"speed": math.log2(0.6 / 0.4), "signal": 0.0})


def test_document_of_a_rule_without_conditions_is_read_again() -> None:
    base = RuleBase(np.zeros((1, 0), dtype=np.int8), np.array([1]), np.array([0.4]), np.array([0.4]))
    model = FuzzyRuleClassifier(Parameters(), DOMAIN, base)

    again = SCHEME.from_document(model.to_document())

    assert document_digest(again.to_document()) == document_digest(model.to_document())
    assert again.predict(np.zeros((2, 2))).tolist() == ["Poor", "Poor"]
    assert again.explain(np.zeros(2)) == model.explain(np.zeros(2))
    assert not again.explain(np.zeros(2)).fallback
