"""The model in words and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.fuzzy import condition, linguistic_terms
from glassfleet.local import federated
from glassfleet.schemes.frt import SCHEME, Parameters

DOMAIN = Domain(
    features=(
        Variable(name="speed", low=0, high=120, unit="km/h"),
        Variable(name="signal", low=-110, high=-50, unit="dB", terms=("Poor", "Fair", "Good")),
    ),
    target=Variable(name="rate", low=0, high=50, unit="Mb/s"),
)


def _model(**parameters: Any) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.uniform(0, 120, 600), rng.uniform(-110, -50, 600)])
    y = np.clip(25 + 0.4 * (X[:, 1] + 80) - 0.1 * X[:, 0] * (X[:, 1] > -90), 0, 50)
    data = Dataset(("speed", "signal"), "rate", X, y)
    return federated(SCHEME, Parameters(n_sets=3, **parameters), DOMAIN, {"a": data}).model, X, y


def test_consequent_gives_the_numbers_of_the_rule():
    model, _, _ = _model(max_depth=0)
    said, at = model.rules()[0].consequent, {"speed": 60.0, "signal": -80.0}
    total = said.value + sum(slope.per_unit * at[slope.feature] for slope in said.slopes)
    assert total == pytest.approx(model.predict(np.array([[60.0, -80.0]]))[0])
    for slope, variable in zip(said.slopes, model.domain.features, strict=True):
        assert slope.over_region == pytest.approx(slope.per_unit * (variable.high - variable.low))


def test_explanation_ranks_rules_by_what_the_choice_was_made_on():
    model, X, _ = _model()
    by_strength_alone = 0
    for row in X[:50]:
        why = model.explain(row)
        ranked = [why.fired, *why.runners_up]
        normalised = [item.normalised_strength for item in ranked]
        assert normalised == sorted(normalised, reverse=True)
        assert all(item.normalised_strength >= item.strength for item in ranked), "a mean strength is at most 1"
        by_strength_alone += why.fired.strength == max(item.strength for item in ranked)
    assert by_strength_alone < 50, "some row is answered by a rule that is not the strongest; the explanation says why"
    averaged, X, _ = _model(inference="weighted_average")
    assert averaged.explain(X[0]).fired.normalised_strength is None


def test_rule_of_highest_weight_answers_when_none_fires():
    document = _model(max_depth=1, min_samples_fraction=0.0)[0].to_document()
    nodes = document["model"]["nodes"]
    split = nodes[0]["feature"]
    gone = nodes[0]["children"][2]  # cut off the highest set
    rule = nodes[gone]["rule"]
    nodes[0]["children"][2] = None
    del nodes[gone], document["model"]["rules"][rule]
    model = SCHEME.from_document(document)
    row = np.array([60.0, -80.0])
    row[split] = DOMAIN.features[split].high
    why = model.explain(row)
    assert why.fallback
    assert why.fired.strength == 0.0
    assert why.fired.rule.weight == max(rule.weight for rule in model.rules())


def test_weighted_average_lies_between_the_rules_that_fire():
    model, X, _ = _model(inference="weighted_average", order=0)
    outputs = [float(rule.output.split(" = ")[1].split()[0]) for rule in model.rules()]
    predicted = model.predict(X)
    assert predicted.min() >= min(outputs) - 0.01
    assert predicted.max() <= max(outputs) + 0.01


def test_terms_are_the_variables_own_or_the_standard_ones():
    assert linguistic_terms(5)[0] == "VeryLow"
    assert linguistic_terms(3, DOMAIN.features[1]) == ("Poor", "Fair", "Good")
    assert linguistic_terms(5, DOMAIN.features[1])[4] == "VeryHigh"
    assert len(linguistic_terms(9)) == 9
    middle = condition(DOMAIN.features[0], 1, 3)
    assert (middle.low, middle.peak, middle.high, middle.unit) == (0.0, 60.0, 120.0, "km/h")
