"""What the TSK scheme promises: pooled least squares given the antecedents, central equality with federated ones."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from glassfleet.checks import Bench
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import central, federated
from glassfleet.scheme import Contribution, Done, Next, Task, promises_central
from glassfleet.schemes.tsk import SCHEME, Parameters
from schemas.codec import decode, encode
from schemas.documents import document_digest
from schemas.errors import RunFailedError

relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
RNG = np.random.default_rng(0)


@st.composite
def fleets(draw: Any) -> Any:
    """Rows with ties, constants, collinear columns and values outside the domain, spread over some agents."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, f = draw(st.integers(1, 200)), draw(st.integers(1, 4))
    X = rng.normal(0.5, 0.4, (n, f))
    if draw(st.booleans()):
        X = np.round(X * 4) / 4
    if draw(st.booleans()):
        X[:, 0] = 0.3
    if f > 1 and draw(st.booleans()):
        X[:, -1] = 1.0 - X[:, 0]
    y = np.sin(3 * X[:, 0]) + X.sum(axis=1) ** 2 + rng.normal(0, 0.1, n)
    agents = draw(st.integers(1, 5))
    owner = rng.integers(0, agents, n) if draw(st.booleans()) else np.sort(rng.integers(0, agents, n))
    names = tuple(f"x{i}" for i in range(f))
    domain = Domain(
        features=tuple(Variable(name=name, low=0.0, high=1.0) for name in names),
        target=Variable(name="y", low=-1.0, high=5.0),
    )
    parts = {f"a{i}": Dataset(names, "y", X[owner == i], y[owner == i]) for i in range(agents)}
    parameters = Parameters(
        n_sets=draw(st.integers(2, 4)),
        n_clusters=draw(st.integers(1, 12)),
        max_iterations=draw(st.integers(1, 25)),
        patience=draw(st.integers(1, 8)),
        max_rounds=draw(st.integers(1, 25)),
        antecedents="local",
        otherwise=draw(st.booleans()),
        cluster_seed=draw(st.integers(0, 3)),
        nullify=False,
        min_rows=1,
    )
    return domain, parts, parameters, rng


def _shuffled(parts: dict[str, Dataset], rng: np.random.Generator) -> Dataset:
    rows = pool(list(parts.values()))
    order = rng.permutation(rows.rows)
    return Dataset(rows.features, rows.target, rows.X[order], rows.y[order])


def _both(parameters: Parameters, domain: Domain, parts: dict[str, Dataset], rng: np.random.Generator) -> Any:
    """Return what the fleet and one machine learn; where no rule fires for any row, both end by that name."""
    together = _shuffled(parts, rng)
    try:
        return federated(SCHEME, parameters, domain, parts), central(SCHEME, parameters, domain, together)
    except RunFailedError as fault:
        with pytest.raises(RunFailedError, match=re.escape(str(fault))):
            central(SCHEME, parameters, domain, together)
        assume(False)


def _answer(step: Next, parts: list[Dataset]) -> Next | Done:
    answers = [SCHEME.client.contribute(step.task, part, RNG) for part in parts]
    for answer in answers:
        SCHEME.server.check(step.task, answer)
    return SCHEME.server.reduce(step.state, answers)


def _finish(step: Next | Done, parts: list[Dataset]) -> Done:
    while isinstance(step, Next):
        step = _answer(step, parts)
    return step


def _digest(model: Any) -> str:
    return document_digest(model.to_document())


@relaxed
@given(fleets())
def test_pooled_consequents_equal_those_of_pooled_rows_given_the_union_of_antecedents(fleet: Any) -> None:
    domain, parts, parameters, rng = fleet
    union = _answer(SCHEME.server.start(parameters, domain, 0), list(parts.values()))
    assert isinstance(union, Next)

    spread = _finish(union, list(parts.values()))
    together = _finish(union, [_shuffled(parts, rng)])

    assert _digest(spread.model) == _digest(together.model)
    assert spread.summary["sums_digest"] == together.summary["sums_digest"]


@relaxed
@given(fleets())
def test_federated_antecedents_give_the_central_model_for_any_spread(fleet: Any) -> None:
    domain, parts, parameters, rng = fleet
    chosen = parameters.model_copy(update={"antecedents": "federated"})

    one, other = _both(chosen, domain, parts, rng)

    assert _digest(one.model) == _digest(other.model)
    assert one.summary["sums_digest"] == other.summary["sums_digest"]
    assert one.rounds == other.rounds


@relaxed
@given(fleets(), st.sampled_from([0.5, 2.0, 1e6]), st.sampled_from([None, 0, 1, 2]))
def test_simplified_model_is_the_central_one_for_any_spread_when_rules_and_slopes_are_dropped(
    fleet: Any, prune: float, max_slopes: int | None
) -> None:
    domain, parts, parameters, rng = fleet
    plain = parameters.model_copy(update={"antecedents": "federated"})
    chosen = plain.model_copy(update={"prune": prune, "max_slopes": max_slopes})

    one, other = _both(chosen, domain, parts, rng)

    assert _digest(one.model) == _digest(other.model)
    assert one.summary["sums_digest"] == other.summary["sums_digest"]
    rules = one.model.to_document()["model"]["rules"]
    assert len(rules) <= len(federated(SCHEME, plain, domain, parts).model.to_document()["model"]["rules"])
    if prune == 1e6:  # no rule saves that much: one is left, and OTHERWISE where there is one
        assert len(rules) <= 1 + parameters.otherwise
    if max_slopes is not None:
        assert all(np.count_nonzero(rule["coefficients"]) <= max_slopes for rule in rules)


@relaxed
@given(fleets(), st.data())
def test_survivors_model_over_the_wire_equals_central_model_when_agents_drop_and_forget(fleet: Any, data: Any) -> None:
    domain, parts, parameters, rng = fleet
    chosen = parameters.model_copy(update={"antecedents": "federated"})
    survivors = data.draw(st.lists(st.sampled_from(sorted(parts)), min_size=1, unique=True))
    rows = pool([parts[agent] for agent in survivors])
    assume(rows.rows)

    step: Next | Done = SCHEME.server.start(chosen, domain, 0)
    while isinstance(step, Next):
        state, answers = decode(encode(step.state)), []
        for agent in survivors:
            task = Task.from_value(decode(encode(step.task.to_value())))
            if rng.random() < 0.5:
                parts[agent].memo.clear()
            answer = SCHEME.client.contribute(task, parts[agent], rng)
            answers.append(Contribution.from_value(decode(encode(answer.to_value()))))
            SCHEME.server.check(task, answers[-1])
        step = SCHEME.server.reduce(state, answers)

    assert _digest(step.model) == _digest(central(SCHEME, chosen, domain, rows).model)


def test_scheme_promises_the_central_model_only_where_all_agents_cluster_together() -> None:
    assert promises_central(SCHEME, Parameters())
    assert promises_central(SCHEME, Parameters(otherwise=False, inference="weighted_average", nullify=True))
    assert not promises_central(SCHEME, Parameters(antecedents="local"))
    assert not promises_central(SCHEME, Parameters(consequents="averaged"))


def test_local_antecedents_are_those_that_do_not_give_the_central_model() -> None:
    bench = Bench.of(SCHEME, Parameters(antecedents="local", n_clusters=6), "regression")
    exact = SCHEME.exact(bench.parameters)
    fleet = {agent: rows for agent, rows in bench.fleet.items() if rows.rows}
    one = federated(SCHEME, exact, bench.domain, fleet).model
    assert _digest(one) != _digest(central(SCHEME, exact, bench.domain, pool(list(fleet.values()))).model)


@relaxed
@given(fleets(), st.sampled_from([("averaged", "local"), ("pooled", "local"), ("pooled", "federated")]))
def test_nullified_answers_pass_the_check_and_end_by_name(fleet: Any, variant: tuple[str, str]) -> None:
    domain, parts, parameters, rng = fleet
    private = parameters.model_copy(
        update={"nullify": True, "min_rows": 3, "consequents": variant[0], "antecedents": variant[1]}
    )
    try:
        model = _finish(SCHEME.server.start(private, domain, 0), list(parts.values())).model
    except RunFailedError as fault:
        end = str(fault)
    else:
        end = "a model that says min_rows"
        assert model.to_document()["parameters"]["min_rows"] == 3
        assert np.isfinite(model.predict(rng.normal(0.5, 0.5, (50, len(domain.features))))).all()
    assert "min_rows" in end
