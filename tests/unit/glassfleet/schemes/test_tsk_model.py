"""The TSK system in words and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.data.domain import Domain, Variable
from glassfleet.schemes.tsk import Parameters, TskSystem
from glassfleet.schemes.tsk.rules import RuleBase, antecedents_of, average

DOMAIN = Domain(
    features=(
        Variable(name="speed", low=0, high=100, unit="km/h"),
        Variable(name="signal", low=-110, high=-50, unit="dB", terms=("Poor", "Fair", "Good")),
    ),
    target=Variable(name="rate", low=0, high=50, unit="Mb/s"),
)


def _base(rules: list[Any]) -> RuleBase:
    """Make a base of (antecedent, coefficients and intercept, weight)."""
    weight = np.array([float(rule[2]) for rule in rules])
    return RuleBase(
        np.array([rule[0] for rule in rules], dtype=np.int8),
        np.array([rule[1] for rule in rules], dtype=np.float64),
        weight, weight, weight,
    )  # fmt: skip


RULES = [((0, 0), (0.0, 0.0, 0.2), 0.3), ((0, 1), (0.5, 0.1, 0.1), 0.6), ((1, 1), (0.0, -0.2, 0.8), 0.9)]


def _model(**parameters: Any) -> TskSystem:
    return TskSystem(Parameters(**parameters), DOMAIN, _base(RULES))


def test_strongest_rule_answers() -> None:
    # speed 10: Low 0.8, Medium 0.2; signal -80: Fair 1.
    assert _model().predict(np.array([[10.0, -80.0]]))[0] == pytest.approx(50 * (0.5 * 0.1 + 0.1 * 0.5 + 0.1))


def test_rule_weight_decides_when_rules_are_equally_strong() -> None:
    # speed 25: Low and Medium 0.5 each, signal -80: Fair 1. The third rule weighs more than the second.
    why = _model().explain(np.array([25.0, -80.0]))
    assert why.fired.rule.index == 2
    assert why.fired.strength == why.runners_up[0].strength == 0.5
    assert why.prediction == pytest.approx(50 * (0.8 - 0.2 * 0.5))


def test_weightiest_rule_answers_when_none_fires() -> None:
    why = _model().explain(np.array([100.0, -50.0]))
    assert why.fallback
    assert why.fired.rule.index == 2
    assert why.fired.strength == 0.0
    assert why.prediction == pytest.approx(50 * (0.8 - 0.2))


def test_weighted_average_is_by_strength() -> None:
    model = _model(inference="weighted_average")
    # speed 10: Low 0.8, Medium 0.2; signal -95: Poor 0.5, Fair 0.5 (scaled 0.25).
    strength = np.array([0.4, 0.4, 0.1])
    output = np.array([0.2, 0.5 * 0.1 + 0.1 * 0.25 + 0.1, 0.8 - 0.2 * 0.25])
    expected = 50 * (strength * output).sum() / strength.sum()
    assert model.predict(np.array([[10.0, -95.0]]))[0] == pytest.approx(expected)


def test_weighted_average_holds_for_strengths_near_nothing() -> None:
    names = tuple(f"x{i}" for i in range(300))
    domain = Domain(features=tuple(Variable(name=n, low=0, high=1) for n in names), target=DOMAIN.target)
    line = np.zeros((2, 300), dtype=np.int8)
    line[1, 0] = 1
    coefficients = np.zeros((2, 301))
    coefficients[:, -1] = 0.2, 0.6
    half = np.full(2, 0.5)
    model = TskSystem(Parameters(inference="weighted_average"), domain, RuleBase(line, coefficients, half, half, half))
    # Every degree is 0.08: both strengths are 0.08^299 times a degree, which float64 holds only below its normal range.
    x = np.full((1, 300), 0.46)
    x[0, 0] = 0.25
    predicted = model.predict(x)[0]
    assert 0.2 * 50 <= predicted <= 0.6 * 50
    why = model.explain(x[0])
    assert why.base + sum(why.shares.values()) == pytest.approx(predicted)


def test_antecedent_of_a_centre_takes_the_lower_set_on_a_tie() -> None:
    centres = np.array([[0.25, 0.75], [0.2500001, 0.7499999], [0.25, 0.75], [0.0, 1.0]])
    assert antecedents_of(centres, 3).tolist() == [[0, 1], [0, 2], [1, 1]]


def test_consequents_are_averaged_by_rule_weight_and_weights_plainly() -> None:
    one = _base([((0, 1), (1.0, 0.0, 0.0), 0.2), ((1, 1), (4.0, 0.0, 0.0), 0.5)])
    two = _base([((0, 0), (3.0, 1.0, 0.0), 0.1), ((0, 1), (3.0, 1.0, 0.5), 0.6)])
    merged = average([one, two])
    assert merged.antecedents.tolist() == [[0, 0], [0, 1], [1, 1]]
    assert merged.coefficients[1] == pytest.approx([(0.2 * 1 + 0.6 * 3) / 0.8, 0.6 / 0.8, 0.3 / 0.8])
    assert merged.coefficients[2].tolist() == [4.0, 0.0, 0.0]
    assert merged.weight == pytest.approx([0.1, 0.4, 0.5])


def test_rules_that_never_fired_anywhere_are_averaged_without_weights() -> None:
    parts = [_base([((0, 0), (1.0, 0.0, 0.0), 0.0)]), _base([((0, 0), (2.0, 0.0, 0.0), 0.0)])]
    merged = average(parts)
    assert merged.coefficients.tolist() == [[1.5, 0.0, 0.0]]
    assert merged.weight.tolist() == [0.0]
