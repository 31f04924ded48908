"""The coordinator's half and the finished model tree."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.fuzzy.spans import span_words
from glassfleet.local import central, federated
from glassfleet.numerics.ridge import ridge_objective, solve_ridge
from glassfleet.schemes.fmt import SCHEME, Parameters
from tests.support.sample_models import unit_domain

DOMAIN = Domain(
    features=(
        Variable(name="speed", low=0.0, high=120.0, unit="km/h"),
        Variable(name="signal", low=-120.0, high=-60.0, unit="dBm"),
        Variable(name="noise", low=0.0, high=1.0),
    ),
    target=Variable(name="frames", low=0.0, high=100.0, unit="%"),
)


def rows(n: int = 1500) -> Dataset:
    """Slow: the signal decides; fast: the speed does. A third input has no say."""
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.uniform(0, 120, n), rng.uniform(-120, -60, n), rng.random(n)])
    y = np.where(X[:, 0] < 50, (X[:, 1] + 120) * 1.5, 100 - 0.6 * X[:, 0]) + rng.normal(0, 1, n)
    return Dataset(("speed", "signal", "noise"), "frames", X, y)


@cache
def learn(**settings: Any) -> Any:
    return central(SCHEME, Parameters(**settings), DOMAIN, rows())


def test_coordinator_needs_few_rules_when_the_truth_has_two():
    outcome = learn()
    size = outcome.model.complexity()
    assert 2 <= size["leaves"] <= 12
    assert np.sqrt(np.mean((outcome.model.predict(rows().X) - rows().y) ** 2)) < 8.0
    assert outcome.model.rules()[0].conditions[0].feature == "speed"


def test_rules_read_as_sentences_in_own_units():
    texts = [str(rule) for rule in learn(max_rules=2, other_sets=(), max_slopes=1).model.rules()]
    assert texts[0].startswith("IF speed is at most ")
    assert texts[1].startswith("IF speed is at least ")
    assert texts[0].endswith(" signal) %")
    assert " AND " not in texts[0]


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ((0, 0), "ExtremelyLow"),
        ((0, 3), "at most Medium"),
        ((3, 6), "at least Medium"),
        ((2, 4), "between Low and High"),
        ((0, 6), "anything"),
    ],
)
def test_adjacent_sets_are_merged_into_words(sets, words):
    knots = tuple(j / 6 for j in range(7))
    assert span_words(DOMAIN.features[0], knots, *sets) == words


def test_sparse_rules_have_at_most_as_many_slopes_as_asked_and_drop_what_has_no_say():
    model = learn(max_slopes=2).model
    for rule in model.to_document()["model"]["rules"]:
        assert len(rule["coefficients"]) <= 2
        assert "noise" not in rule["coefficients"]
    constants = learn(max_slopes=0).model
    assert all(rule["coefficients"] == {} for rule in constants.to_document()["model"]["rules"])


def test_rules_are_short_without_being_asked_to():
    rng = np.random.default_rng(8)
    names = tuple(f"x{i}" for i in range(12))
    X = rng.random((2000, 12))
    y = np.where(X[:, 0] > 0.5, X[:, 1] - 0.5 * X[:, 2], 0.4 * X[:, 3]) + 0.02 * X[:, 4:].sum(axis=1)
    domain = unit_domain(names, low=-1, high=2)
    outcome = federated(SCHEME, Parameters(), domain, {"a": Dataset(names, "y", X, y + rng.normal(0, 0.1, 2000))})
    rules = outcome.model.to_document()["model"]["rules"]
    assert max(len(rule["coefficients"]) for rule in rules) <= 6
    assert outcome.summary["slopes"] <= 6
    dense = federated(SCHEME, Parameters(max_slopes=64, size_tolerance=0.0, max_rules=2), domain, {"a": pooled(X, y)})
    assert dense.summary["slopes"] in (2, 4, 6, 12)


def pooled(X: Any, y: Any) -> Dataset:
    return Dataset(tuple(f"x{i}" for i in range(X.shape[1])), "y", X, y)


def test_larger_tolerance_gives_a_simpler_tree_that_is_no_better_on_held_out_rows():
    sizes, errors = [], []
    for tolerance in (0.0, 0.05, 0.5):
        outcome = learn(size_tolerance=tolerance)
        size = outcome.model.complexity()
        sizes.append(size["parameters"])
        errors.append(outcome.summary["held_out_rmse"][size["leaves"] - 1])
    assert sizes == sorted(sizes, reverse=True)
    assert errors == sorted(errors)


def test_number_of_rules_keeps_to_the_most_and_without_held_out_rows_reaches_it():
    assert learn(max_rules=5).model.complexity()["leaves"] <= 5
    whole = learn(max_rules=9, holdout=0.0)
    assert whole.model.complexity()["leaves"] == 9
    assert whole.summary["held_out"] == 0


def test_one_rule_answers_with_the_value_of_the_rule_it_names():
    model = learn(inference="one_rule").model
    rules = model.to_document()["model"]["rules"]
    names = DOMAIN.names
    for row in rows().X[:60]:
        why = model.explain(row)
        scaled = DOMAIN.scale_inputs(row[None])[0]
        rule = rules[why.fired.rule.index]
        value = rule["intercept"] + sum(v * scaled[names.index(name)] for name, v in rule["coefficients"].items())
        assert why.prediction == pytest.approx(100.0 * min(max(value, 0.0), 1.0), abs=1e-9)
        assert all(degree >= 0.5 for degree in why.fired.memberships)


def test_averaged_inference_weighs_the_rules_by_degrees_that_add_up_to_one():
    model = learn(max_rules=4, holdout=0.0).model
    for row in rows().X[:60]:
        why = model.explain(row)
        strengths = [why.fired.strength, *(other.strength for other in why.runners_up)]
        assert sum(strengths) == pytest.approx(1.0)
        assert strengths == sorted(strengths, reverse=True)
        assert why.fired.strength == pytest.approx(np.prod(why.fired.memberships))


def test_federated_choice_of_sets_is_no_worse_on_held_out_rows_than_either():
    best = {
        settings: min(learn(n_sets=settings[0], other_sets=settings[1:], size_tolerance=0.0).summary["held_out_rmse"])
        for settings in ((3,), (7,), (3, 7))
    }
    assert best[3, 7] == min(best[3,], best[7,])


def test_ridge_solution_is_that_of_the_textbook():
    rng = np.random.default_rng(6)
    Z = np.column_stack([np.ones(200), rng.random((200, 4))])
    Z[:, 4] = 0.4  # collinear with the intercept
    y = Z @ [0.2, 0.5, -0.3, 0.1, 0.0] + rng.normal(0, 0.01, 200)
    full = np.column_stack([Z, y])
    matrix = (full.T @ full)[:, :, None]
    coefficients, objective = solve_ridge(matrix, 0.5)
    pull = np.diag([0.0, 0.5, 0.5, 0.5, 0.5])
    expected = np.linalg.solve(Z.T @ Z + pull, Z.T @ y)
    assert coefficients[:, 0] == pytest.approx(expected, abs=1e-9)
    error = np.sum((y - Z @ expected) ** 2) + 0.5 * np.sum(expected[1:] ** 2)
    assert objective[0] == pytest.approx(error, rel=1e-9)
    assert ridge_objective(matrix, 0.5)[0] == objective[0]
    alone = solve_ridge(np.concatenate([matrix, 3.0 * matrix], axis=2), 0.5)[0]
    assert np.array_equal(alone[:, 0], coefficients[:, 0])


def test_document_of_a_former_version_is_read_as_it_was():
    rules = [
        {"coefficients": {"x": -1.66}, "intercept": 0.93, "weight": 0.72, "support": 0.59, "confidence": 0.92},
        {"coefficients": {"x": 1.89}, "intercept": -0.92, "weight": 0.58, "support": 0.41, "confidence": 0.99},
    ]
    parameters = Parameters().model_dump(mode="json") | {"partition": "uniform"}  # the default of those versions
    document = {
        "scheme": "fmt",
        "format": 1,
        "parameters": parameters,
        "domain": {"features": [{"name": "x", "low": 0.0, "high": 10.0}], "target": {"name": "y", "low": 0, "high": 5}},
        "model": {
            "knots": [[j / 6 for j in range(7)]],
            "splits": [{"node": 0, "feature": 0, "cut": 3}],
            "rules": rules,
        },
    }
    model = SCHEME.from_document(document)
    assert model.predict(np.array([[2.0], [9.0]])) == pytest.approx([5 * (0.93 - 0.332), 5 * (1.701 - 0.92)])
    assert model.to_document() == document
