"""frbc: how rules match and answer; weights, conflicts, nullification, reduction, unions, unusual fleets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.messages import Contribution, Next
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError, TaskError
from glassfleet.fuzzy import fuzzify
from glassfleet.private.union import fill
from glassfleet.schemes.frbc import SCHEME, FrbcParameters, FuzzyRuleClassifier
from glassfleet.schemes.frbc import SCHEME as FRBC
from glassfleet.schemes.frbc.matching import AntecedentTree, strongest_sets
from glassfleet.schemes.frbc.model import RuleBase
from glassfleet.simulation import central, federated
from schemas.codec import document_digest
from schemas.errors import RunFailedError
from tests.support.sample_models import class_domain

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
    return FuzzyRuleClassifier(FrbcParameters(n_sets=3, association=association, **changed), DOMAIN, base)


def _learned(association: Any = "strength", seed: Any = 0, n: Any = 400) -> Any:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-10, 110, n), rng.uniform(-125, -55, n)])
    y = np.where((X[:, 0] < 50) ^ (X[:, 1] < -95) ^ (rng.random(n) < 0.2), "Good", "Poor")
    data = Dataset(DOMAIN.names, "QoE", X, y)
    return central(FRBC, FrbcParameters(n_sets=5, association=association), DOMAIN, data).model, X


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
    model = FuzzyRuleClassifier(FrbcParameters(), DOMAIN, base)

    again = FRBC.from_document(model.to_document())

    assert document_digest(again.to_document()) == document_digest(model.to_document())
    assert again.predict(np.zeros((2, 2))).tolist() == ["Poor", "Poor"]
    assert again.explain(np.zeros(2)) == model.explain(np.zeros(2))
    assert not again.explain(np.zeros(2)).fallback


def _unique(antecedents: Any) -> Any:
    return np.unique(antecedents, axis=0)


def _dense(antecedents: Any, members: Any) -> Any:
    """Every row against every rule, one number at a time."""
    n, f = members.rows, antecedents.shape[1]
    strength = np.ones((n, len(antecedents)))
    for row in range(n):
        for rule, sets in enumerate(antecedents):
            for feature in range(f):
                strength[row, rule] *= members.degree(feature, row, int(sets[feature]))
    return strength


@pytest.mark.parametrize(("n_features", "n_sets"), [(1, 2), (3, 3), (5, 5), (8, 2)])
def test_tree_finds_what_a_search_of_all_pairs_finds(n_features: Any, n_sets: Any) -> None:
    rng = np.random.default_rng(n_features)
    X = rng.uniform(0, 1, (80, n_features))
    X[:20] = np.round(X[:20] * (n_sets - 1)) / (n_sets - 1)  # on the peaks: one set alone fires
    members = fuzzify(X, n_sets)
    antecedents = _unique(strongest_sets(fuzzify(rng.uniform(0, 1, (60, n_features)), n_sets)))

    result = np.zeros((80, len(antecedents)))
    for part in AntecedentTree(antecedents, n_sets).match(members, 32):
        assert (part.strength > 0).all()
        result[part.row, part.antecedent] = part.strength

    assert np.array_equal(result, _dense(antecedents, members))


def fleet(inputs: int, rows: int) -> tuple[Domain, dict[str, Dataset]]:
    rng = np.random.default_rng(0)
    names = tuple(f"x{i}" for i in range(inputs))
    domain = class_domain(names, "y", "a", "b", "c")
    parts = {
        f"v{i}": Dataset(names, "y", rng.random((rows, inputs)), rng.choice(["a", "b", "c"], rows)) for i in range(3)
    }
    return domain, parts


@pytest.mark.parametrize(("inputs", "rows", "rounds"), [(3, 200, 2), (30, 100, 2), (8, 900, 3)])
def test_rules_and_model_are_those_of_the_union_that_is_told(inputs: int, rows: int, rounds: int) -> None:
    domain, parts = fleet(inputs, rows)
    exact = FRBC.exact(FrbcParameters())
    by_sum = FRBC.private(FrbcParameters())
    result, summed = (federated(FRBC, each, domain, parts) for each in (exact, by_sum))
    assert summed.rounds == rounds, "more than about a thousand rules need a larger table"
    assert summed.model.to_document()["model"] == result.model.to_document()["model"]
    assert summed.summary["sums_digest"] == result.summary["sums_digest"]
    alone = central(FRBC, by_sum, domain, pool(list(parts.values())))
    assert alone.model.to_document() == summed.model.to_document()
    assert alone.rounds == rounds


def first() -> tuple[Next, Contribution]:
    domain, parts = fleet(3, 50)
    begin = FRBC.server.start(FRBC.private(FrbcParameters()), domain, 0)
    return begin, FRBC.client.contribute(begin.task, parts["v0"], np.random.default_rng(0))


@pytest.mark.parametrize("name", ["class_rows", "unknown_rows", "table"])
@pytest.mark.parametrize("change", [-1, 1, 2**40])
def test_tables_that_cannot_be_true_are_refused(name: str, change: int) -> None:
    begin, answer = first()
    FRBC.server.check(begin.task, answer)
    sums = {key: array.copy() for key, array in answer.sums.items()}
    sums[name].flat[0] += change
    with pytest.raises(ContributionError):
        FRBC.server.check(begin.task, Contribution(answer.kind, answer.rows, sums))


def test_a_table_with_what_is_no_rule_ends_the_run_by_name() -> None:
    begin, answer = first()
    table = answer.sums["table"]
    keys = np.full((1, table.shape[1] - 2), 2**29)
    odd = fill(keys, np.array([50]), len(table))
    with pytest.raises(RunFailedError, match="no rule"):
        FRBC.server.reduce(begin.state, [Contribution("union", 50, {**answer.sums, "table": odd})])


NAMES = ("a", "b")
UNITS = class_domain(NAMES, "kind", "g", "h", "k")
OPEN = FrbcParameters(n_sets=3, nullify=False, min_rows=1)
RNG = np.random.default_rng(0)


def _data(rows: Any, labels: Any) -> Any:
    X = np.array(rows, dtype=np.float64).reshape(len(labels), 2)
    return Dataset(NAMES, "kind", X, np.array(list(labels), dtype=np.str_))


def _random(n: Any, seed: Any, classes: Any = "ghk") -> Any:
    rng = np.random.default_rng(seed)
    return _data(rng.random((n, 2)), rng.choice(list(classes), n))


# --- weights and conflicts ------------------------------------------------------------------------------------------


def test_run_weighs_rules_as_the_formula_says() -> None:
    # Both inputs on the middle set's peak: strength 1. Half way to it: 0.5 per input.
    data = _data([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5], [0.25, 0.5]], "gghk")

    model = central(SCHEME, OPEN, UNITS, data).model

    rules = {tuple(sets): (int(c), w) for sets, c, w in zip(
        model.base.antecedents.tolist(), model.base.classes, model.base.weight, strict=True
    )}  # fmt: skip
    assert rules == {(1, 1): (0, 2.0 / 3.5), (0, 1): (2, 1.0)}
    assert model.base.support.tolist() == [0.25, 0.5]


def test_owners_count_their_own_rows_only_and_pooled_all_rows() -> None:
    fleet = {"v1": _data([[0.5, 0.5]], "g"), "v2": _data([[0.3, 0.5], [1.0, 1.0]], "hg")}

    owners = federated(SCHEME, OPEN.model_copy(update={"weights": "owners"}), UNITS, fleet)
    pooled = federated(SCHEME, OPEN, UNITS, fleet)

    # v1 alone found (1, 1) -> g; v2's rows at 0.3 found (1, 1) -> h. Each is pure at its owner; the larger Num stays.
    assert owners.rounds == 1
    assert pooled.rounds == 2
    assert owners.model.base.weight.tolist() == [1.0, 1.0]
    assert pooled.model.base.weight.tolist() == [1.0 / 1.6, 1.0]


# --- nullification --------------------------------------------------------------------------------------------------


def test_agent_leaves_out_classes_that_are_too_few_to_condense() -> None:
    rows = [[0.1 * i, 0.07 * i * i % 1] for i in range(9)]
    data = _data(rows, "gggghhkkk")  # two inputs: a class needs three different rows
    step: Any = SCHEME.server.start(FrbcParameters(n_sets=3), UNITS, 0)

    answer = SCHEME.client.contribute(step.task, data, RNG)

    SCHEME.server.check(step.task, answer)
    assert set(answer.values["classes"].tolist()) == {0, 2}
    assert answer.sums["class_rows"].tolist() == [4, 0, 3]
    assert answer.rows == 7


# --- reduction ------------------------------------------------------------------------------------------------------


def test_reduced_model_is_what_the_run_would_have_made() -> None:
    data = _random(300, 1)
    whole = central(SCHEME, OPEN, UNITS, data).model

    for size in (1, 3, 5):
        small = central(SCHEME, OPEN.model_copy(update={"max_rules": size}), UNITS, data)
        assert small.model.to_document() == whole.reduced(size).to_document()
        assert small.summary["reduced"] == whole.base.size - size
        assert small.model.base.support.min() >= np.sort(whole.base.support)[-size]
    with pytest.raises(ValueError, match="at least 1"):
        whole.reduced(0)


# --- unusual fleets -------------------------------------------------------------------------------------------------


def test_run_with_more_sums_than_an_agent_can_hold_ends_by_name() -> None:
    classes = tuple(f"{i:05d}" for i in range(30_000))
    domain = Domain(features=UNITS.features, label="kind", classes=classes)
    data = Dataset(NAMES, "kind", RNG.random((4000, 2)), RNG.choice(classes[:2], 4000))

    with pytest.raises(RunFailedError, match="antecedents of 30000 classes"):
        federated(SCHEME, OPEN.model_copy(update={"n_sets": 20}), domain, {"v1": data})
    with pytest.raises(TaskError, match="antecedents of 30000 classes"):
        federated(SCHEME, OPEN.model_copy(update={"n_sets": 20, "weights": "owners"}), domain, {"v1": data})
