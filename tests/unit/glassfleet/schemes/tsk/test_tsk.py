"""tsk: its model and its server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from glassfleet.contract.messages import Contribution, Next, Task
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError
from glassfleet.schemes.tsk import SCHEME, TskParameters, TskSystem
from glassfleet.schemes.tsk import server as server_module
from glassfleet.schemes.tsk.rules import TskRuleBase, average
from glassfleet.simulation import federated
from schemas.errors import RunFailedError
from tests.support.sample_models import curve, unit_domain

DOMAIN = Domain(
    features=(
        Variable(name="speed", low=0, high=100, unit="km/h"),
        Variable(name="signal", low=-110, high=-50, unit="dB", terms=("Poor", "Fair", "Good")),
    ),
    target=Variable(name="rate", low=0, high=50, unit="Mb/s"),
)


def _base(rules: list[Any]) -> TskRuleBase:
    """Make a base of (antecedent, coefficients and intercept, weight)."""
    weight = np.array([float(rule[2]) for rule in rules])
    return TskRuleBase(
        np.array([rule[0] for rule in rules], dtype=np.int8),
        np.array([rule[1] for rule in rules], dtype=np.float64),
        weight, weight, weight,
    )  # fmt: skip


RULES = [((0, 0), (0.0, 0.0, 0.2), 0.3), ((0, 1), (0.5, 0.1, 0.1), 0.6), ((1, 1), (0.0, -0.2, 0.8), 0.9)]


def _model(**parameters: Any) -> TskSystem:
    return TskSystem(TskParameters(**parameters), DOMAIN, _base(RULES))


def test_weightiest_rule_answers_when_none_fires() -> None:
    why = _model().explain(np.array([100.0, -50.0]))
    assert why.fallback
    assert why.fired.rule.index == 2
    assert why.fired.strength == 0.0
    assert why.prediction == pytest.approx(50 * (0.8 - 0.2))


def test_weighted_average_holds_for_strengths_near_nothing() -> None:
    names = tuple(f"x{i}" for i in range(300))
    domain = Domain(features=tuple(Variable(name=n, low=0, high=1) for n in names), target=DOMAIN.target)
    line = np.zeros((2, 300), dtype=np.int8)
    line[1, 0] = 1
    coefficients = np.zeros((2, 301))
    coefficients[:, -1] = 0.2, 0.6
    half = np.full(2, 0.5)
    model = TskSystem(
        TskParameters(inference="weighted_average"), domain, TskRuleBase(line, coefficients, half, half, half)
    )
    # Every degree is 0.08: both strengths are 0.08^299 times a degree, which float64 holds only below its normal range.
    x = np.full((1, 300), 0.46)
    x[0, 0] = 0.25
    predicted = model.predict(x)[0]
    assert 0.2 * 50 <= predicted <= 0.6 * 50
    why = model.explain(x[0])
    assert why.base + sum(why.shares.values()) == pytest.approx(predicted)


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


NAMES = ("a", "b")
UNIT = unit_domain(NAMES)
RNG = np.random.default_rng(0)
AVERAGED = TskParameters(n_clusters=8, consequents="averaged")
POOLED = TskParameters(n_clusters=8, antecedents="local")
FEDERATED = TskParameters(n_clusters=8, max_rounds=4)


def _question(parameters: TskParameters, kind: str, skip: int = 0) -> Next:
    step: Any = SCHEME.server.start(parameters, UNIT, 0)
    while step.task.kind != kind or skip:
        skip -= step.task.kind == kind
        step = SCHEME.server.reduce(step.state, [SCHEME.client.contribute(step.task, curve(), RNG)])
    assert isinstance(step, Next)
    return step


def _tampered(parameters: TskParameters, kind: str, name: str, change: Any) -> tuple[Task, Contribution]:
    task = _question(parameters, kind, skip=kind == "clusters").task
    answer = SCHEME.client.contribute(task, curve(), RNG)
    sums, values = ({key: array.copy() for key, array in part.items()} for part in (answer.sums, answer.values))
    part = sums if name in sums else values
    part[name] = change(part[name])
    return task, Contribution(kind, answer.rows, sums, values, answer.nullified)


def _first(value: Any) -> Any:
    def change(array: Any) -> Any:
        array.flat[0] = value
        return array

    return change


@pytest.mark.parametrize(
    ("parameters", "kind", "name", "change", "reason"),
    [
        (POOLED, "rules", "antecedents", lambda a: a[::-1], "lexicographic"),
        (POOLED, "rules", "antecedents", _first(3), "fuzzy set"),
        (POOLED, "rules", "antecedents", lambda a: a[:, :1], "shape"),
        (POOLED, "rules", "antecedents", lambda a: a.astype(np.int64), "int8"),
        (POOLED, "rules", "antecedents", lambda _: np.zeros((9, 2), dtype=np.int8), "at most 8"),
        (AVERAGED, "rules", "coefficients", _first(1e30), "larger than any"),
        (AVERAGED, "rules", "coefficients", lambda a: a[:-1], "shape"),
        (AVERAGED, "rules", "weight", _first(1.1), "weight is not in"),
        (AVERAGED, "rules", "confidence", lambda a: a[:-1], "confidence must have"),
        (POOLED, "sums", "count", lambda a: a + 10**6, "count exceeds the agent's rows"),
        (POOLED, "sums", "ws", lambda a: a + (1 << 60), "WS exceeds its count"),
        (POOLED, "sums", "ws", lambda a: a // 2, "contradicts its WS"),
        (POOLED, "sums", "gram_low", lambda a: a | (1 << 31), "low limb"),
        (POOLED, "sums", "gram_high", lambda a: a * 2, "Gram"),
        (POOLED, "sums", "gram_high", lambda a: -a, "negative"),
        (POOLED, "sums", "gram_high", lambda a: a[:, :-1], "shape"),
        (POOLED, "weights", "ws", lambda a: a + (1 << 60), "WS exceeds the agent's rows"),
        (POOLED, "weights", "wq", lambda a: a + (1 << 45), "quality sum exceeds"),
        (FEDERATED, "clusters", "moment_high", lambda a: a * 10**4, "exceeds the agent's rows"),
        (FEDERATED, "clusters", "moment_low", _first(2**50), "exceeds its mass"),
        (FEDERATED, "clusters", "moment_high", lambda a: a * 10, "add up to more"),
        (FEDERATED, "clusters", "change", lambda a: a + 2**50, "change of memberships"),
        (FEDERATED, "clusters", "change", lambda a: -a - 1, "negative"),
    ],
)
def test_server_refuses_impossible_answers_with_the_reason(
    parameters: TskParameters, kind: str, name: str, change: Any, reason: str
) -> None:
    task, wrong = _tampered(parameters, kind, name, change)
    with pytest.raises(ContributionError, match=reason):
        SCHEME.server.check(task, wrong)


def test_server_refuses_nullified_answers_when_the_run_nullifies_none() -> None:
    step = SCHEME.server.start(SCHEME.exact(POOLED), UNIT, 0)
    answer = SCHEME.client.contribute(step.task, curve(), RNG)
    with pytest.raises(ContributionError, match="nullifies none"):
        SCHEME.server.check(step.task, Contribution("rules", answer.rows, {}, answer.values, nullified=1))


@pytest.mark.parametrize("parameters", [AVERAGED, POOLED, FEDERATED])
def test_fleet_whose_rows_are_too_few_to_condense_fails_by_name(parameters: TskParameters) -> None:
    with pytest.raises(RunFailedError, match=r"^no-rows: no agent that answered has any rows to use"):
        federated(SCHEME, parameters, UNIT, {"a": curve(1), "b": curve(2, seed=2)})


def test_run_ends_by_name_when_the_union_is_too_large_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_ANSWER_BYTES", 500)
    with pytest.raises(RunFailedError, match="n_clusters"):
        federated(SCHEME, POOLED, UNIT, {"a": curve()})


def test_too_many_rows_for_the_grid_fail_by_name() -> None:
    step = _question(POOLED, "sums")
    answer = SCHEME.client.contribute(step.task, curve(), RNG)
    many = [Contribution("sums", POOLED.max_rows // 2 + 1, answer.sums)] * 2
    with pytest.raises(RunFailedError, match="too-many-rows"):
        SCHEME.server.reduce(step.state, many)


def test_federated_antecedents_go_with_pooled_consequents_only() -> None:
    with pytest.raises(ValidationError, match="pooled"):
        TskParameters(antecedents="federated", consequents="averaged")
