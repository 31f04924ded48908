"""The model: predicting, explaining, words, size, document."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

from console.model.words import explanation_lines
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.fuzzy import fuzzify
from glassfleet.local import central
from glassfleet.schemes.frbc import SCHEME, FuzzyRuleClassifier, Parameters
from glassfleet.schemes.frbc.rulebase import RuleBase
from schemas.documents import document_digest
from schemas.errors import DocumentError

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


@pytest.mark.parametrize("association", ["strength", "strength*weight"])
def test_shares_add_up_to_the_lead_over_the_strongest_rival(association: Any) -> None:
    model, X = _learned(association)
    weighted = association != "strength"
    compared = 0
    for x in X[:60]:
        explanation = model.explain(x)
        rivals = [a for a in explanation.runners_up if a.rule.output != explanation.fired.rule.output]
        if not rivals:
            continue
        values = [a.strength * (a.rule.weight if weighted else 1.0) for a in (explanation.fired, rivals[0])]
        total = explanation.base + sum(explanation.shares.values())
        assert total == pytest.approx(math.log2(values[0] / values[1]), abs=1e-9)
        assert total >= -1e-9
        compared += 1
    assert compared > 20


def test_explanation_has_no_shares_and_says_why_when_no_other_class_fires() -> None:
    explanation = _model([((0, 0), 0, 0.6), ((2, 2), 1, 0.6)]).explain(np.array([10.0, -115.0]))

    assert explanation.shares == {}
    assert explanation.base == 0.0
    assert "no rule of another class fires" in explanation.notes[0]


def test_explanation_in_words_names_the_classes_of_the_runners_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "118")  # lines are wrapped to the terminal, whatever runs the tests
    model = _model([((0, 0), 0, 0.6), ((1, 0), 1, 0.7)])

    lines = explanation_lines(model.explain(np.array([20.0, -111.0])), DOMAIN)

    assert lines[0] == "QoE = Good"
    assert "  THEN QoE is Good" in lines
    said = " ".join(" ".join(lines).split())
    assert (
        "they add up to the log2 of the deciding rule's association over that of the strongest rule of another" in said
    )
    assert "  +0.5850  together" in lines
    assert lines[-1] == "  rule 1 (strength 0.280): IF speed is Medium AND signal is Low THEN QoE is Poor"


def test_rules_read_with_units_and_numbers() -> None:
    rule = _model([((1, 2), 1, 0.7)]).rules()[0]

    assert [(part.feature, part.term, part.low, part.peak, part.high, part.unit) for part in rule.conditions] == [
        ("speed", "Medium", 0.0, 50.0, 100.0, "km/h"),
        ("signal", "High", -90.0, -60.0, -60.0, "dBm"),
    ]
    assert (rule.weight, rule.confidence, rule.support) == (0.7, 0.7, 0.1)


def test_complexity_counts_rules_conditions_and_numbers() -> None:
    model = _model([((0, 0), 0, 0.6), ((1, 1), 1, 0.6), ((2, 1), 1, 0.6)])

    assert model.complexity() == {"rules": 3, "rule_length": 2, "parameters": 12}


def test_document_of_a_rule_without_conditions_is_read_again() -> None:
    base = RuleBase(np.zeros((1, 0), dtype=np.int8), np.array([1]), np.array([0.4]), np.array([0.4]))
    model = FuzzyRuleClassifier(Parameters(), DOMAIN, base)

    again = SCHEME.from_document(model.to_document())

    assert document_digest(again.to_document()) == document_digest(model.to_document())
    assert again.predict(np.zeros((2, 2))).tolist() == ["Poor", "Poor"]
    assert again.explain(np.zeros(2)) == model.explain(np.zeros(2))
    assert not again.explain(np.zeros(2)).fallback


def _set(path: Any, value: Any) -> Any:
    def change(document: Any) -> None:
        at = document
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


NUMBER = {"name": "a", "low": 0.0, "high": 1.0}

BROKEN = {
    "a set beyond the partition": (_set(["model", "rules", 0, "sets"], [0, 3]), "one of 3 sets"),
    "a set too few": (_set(["model", "rules", 1, "sets"], [0]), "each of 2 inputs"),
    "a class beyond the list": (_set(["model", "rules", 0, "class"], 2), "names class 2, there are 2"),
    "a weight above one": (_set(["model", "rules", 0, "weight"], 1.5), "weight"),
    "rules out of order": (lambda d: d["model"]["rules"].reverse(), "lexicographic order"),
    "an antecedent twice": (_set(["model", "rules", 1, "sets"], [0, 0]), "each antecedent once"),
    "no rules": (_set(["model", "rules"], []), "rules"),
    "a numeric target": (
        _set(["domain"], {"features": [NUMBER], "target": {**NUMBER, "name": "y"}}),
        "numeric target",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", BROKEN)
def test_damaged_document_is_refused_with_the_reason(fault: Any) -> None:
    change, reason = BROKEN[fault]
    document = copy.deepcopy(_model([((0, 0), 0, 0.6), ((1, 1), 1, 0.6)]).to_document())
    change(document)

    with pytest.raises(DocumentError, match=reason):
        SCHEME.from_document(document)
