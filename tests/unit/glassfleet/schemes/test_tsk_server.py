"""The TSK server half: what it refuses, how it ends, what it tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError
from glassfleet.local import federated
from glassfleet.scheme import Contribution, Next, Task
from glassfleet.schemes.tsk import SCHEME, Parameters
from glassfleet.schemes.tsk import server as server_module
from schemas.codec import digest_of
from schemas.errors import RunFailedError

NAMES = ("a", "b")
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0, high=1) for name in NAMES), target=Variable(name="y", low=0, high=1)
)
RNG = np.random.default_rng(0)
AVERAGED = Parameters(n_clusters=8, consequents="averaged")
POOLED = Parameters(n_clusters=8, antecedents="local")
FEDERATED = Parameters(n_clusters=8, max_rounds=4)


def _data(n: int = 200, seed: int = 1) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return Dataset(NAMES, "y", X, np.clip(X[:, 0] ** 2 * X[:, 1], 0, 1))


def _question(parameters: Parameters, kind: str, skip: int = 0) -> Next:
    step: Any = SCHEME.server.start(parameters, DOMAIN, 0)
    while step.task.kind != kind or skip:
        skip -= step.task.kind == kind
        step = SCHEME.server.reduce(step.state, [SCHEME.client.contribute(step.task, _data(), RNG)])
    assert isinstance(step, Next)
    return step


def _tampered(parameters: Parameters, kind: str, name: str, change: Any) -> tuple[Task, Contribution]:
    task = _question(parameters, kind, skip=kind == "clusters").task
    answer = SCHEME.client.contribute(task, _data(), RNG)
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
        (POOLED, "rules", "antecedents", lambda a: a[:, :1], "inputs"),
        (POOLED, "rules", "antecedents", lambda a: a.astype(np.int64), "int8"),
        (POOLED, "rules", "antecedents", lambda _: np.zeros((9, 2), dtype=np.int8), "at most 8"),
        (AVERAGED, "rules", "coefficients", _first(1e30), "larger than any"),
        (AVERAGED, "rules", "coefficients", lambda a: a[:-1], "shape"),
        (AVERAGED, "rules", "weight", _first(1.1), "weight is not in"),
        (AVERAGED, "rules", "confidence", lambda a: a[:-1], "confidence must be"),
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
    parameters: Parameters, kind: str, name: str, change: Any, reason: str
) -> None:
    task, wrong = _tampered(parameters, kind, name, change)
    with pytest.raises(ContributionError, match=reason):
        SCHEME.server.check(task, wrong)


def test_server_refuses_a_gram_matrix_that_no_rows_have() -> None:
    task, wrong = _tampered(POOLED, "sums", "gram_high", lambda high: high)
    for name in ("gram_high", "gram_low"):
        limb = wrong.sums[name]
        # The triangle is [aa, ab, a1, ay, bb, b1, by, 11, 1y, yy]: two large inputs, and nothing of them together.
        limb[:, [0, 2, 4, 5]] = limb[:, [7]]
        limb[:, 1] = 0
    with pytest.raises(ContributionError, match="positive semi-definite"):
        SCHEME.server.check(task, wrong)


def test_server_refuses_nullified_answers_when_the_run_nullifies_none() -> None:
    step = SCHEME.server.start(SCHEME.exact(POOLED), DOMAIN, 0)
    answer = SCHEME.client.contribute(step.task, _data(), RNG)
    with pytest.raises(ContributionError, match="nullifies none"):
        SCHEME.server.check(step.task, Contribution("rules", answer.rows, {}, answer.values, nullified=1))


@pytest.mark.parametrize("parameters", [AVERAGED, POOLED, FEDERATED])
def test_fleet_whose_rows_are_too_few_to_condense_fails_by_name(parameters: Parameters) -> None:
    with pytest.raises(RunFailedError, match=r"^no-rows: no agent that answered has any rows to use"):
        federated(SCHEME, parameters, DOMAIN, {"a": _data(1), "b": _data(2, seed=2)})


@pytest.mark.parametrize("parameters", [AVERAGED, POOLED, FEDERATED])
def test_one_row_gives_one_rule_when_nothing_is_kept_back(parameters: Parameters) -> None:
    data = _data(1)
    exact = SCHEME.exact(parameters).model_copy(update={"otherwise": False})
    model = federated(SCHEME, exact, DOMAIN, {"a": data}).model
    assert model.complexity()["rules"] == 1
    assert model.predict(data.X) == pytest.approx(data.y)


def test_run_ends_by_name_when_the_union_is_too_large_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_ANSWER_BYTES", 500)
    with pytest.raises(RunFailedError, match="n_clusters"):
        federated(SCHEME, POOLED, DOMAIN, {"a": _data()})


def test_too_many_rows_for_the_grid_fail_by_name() -> None:
    step = _question(POOLED, "sums")
    answer = SCHEME.client.contribute(step.task, _data(), RNG)
    many = [Contribution("sums", POOLED.max_rows // 2 + 1, answer.sums)] * 2
    with pytest.raises(RunFailedError, match="too-many-rows"):
        SCHEME.server.reduce(step.state, many)


def test_clustering_ends_after_max_rounds_or_when_settled_or_when_antecedents_stay() -> None:
    short = federated(SCHEME, FEDERATED, DOMAIN, {"a": _data()})
    assert short.rounds == FEDERATED.max_rounds + 2
    assert short.summary["iterations"] == FEDERATED.max_rounds
    long = Parameters(n_clusters=8, patience=5000, max_rounds=1000, nullify=False)
    settled = federated(SCHEME, long, DOMAIN, {"a": _data()})
    assert FEDERATED.max_rounds < settled.summary["iterations"] < 1000
    assert settled.rounds == settled.summary["iterations"] + 3
    patient = federated(SCHEME, long.model_copy(update={"patience": 3}), DOMAIN, {"a": _data()})
    assert FEDERATED.max_rounds <= patient.summary["iterations"] < settled.summary["iterations"]
    assert patient.rounds == patient.summary["iterations"] + 2


def test_federated_antecedents_go_with_pooled_consequents_only() -> None:
    with pytest.raises(ValidationError, match="pooled"):
        Parameters(antecedents="federated", consequents="averaged")


def test_local_clustering_is_remembered_between_tasks_and_forgotten_for_others() -> None:
    data = _data()
    first = SCHEME.client.contribute(SCHEME.server.start(POOLED, DOMAIN, 0).task, data, RNG)
    other = Parameters(n_clusters=8, antecedents="local", cluster_seed=1)
    SCHEME.client.contribute(SCHEME.server.start(other, DOMAIN, 0).task, data, RNG)
    again = SCHEME.client.contribute(SCHEME.server.start(POOLED, DOMAIN, 0).task, data, RNG)
    fresh = SCHEME.client.contribute(SCHEME.server.start(POOLED, DOMAIN, 0).task, _data(), RNG)
    assert digest_of(first.to_value()) == digest_of(again.to_value()) == digest_of(fresh.to_value())
    assert len(data.memo["tsk"][1].found) == 1
