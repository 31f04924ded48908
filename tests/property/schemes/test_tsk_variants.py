"""What TSK promises beside equality: pooled least squares given the antecedents, fewer rules, no order of answers."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from glassfleet.checks import Bench
from glassfleet.data.dataset import Dataset, pool
from glassfleet.local import central, federated
from glassfleet.scheme import Done, Next, promises_central
from glassfleet.schemes.tsk import SCHEME, Parameters
from schemas.documents import document_digest
from schemas.errors import RunFailedError
from tests.support.odd_fleets import OddFleet, odd_fleets

relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
RNG = np.random.default_rng(0)


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
@given(odd_fleets("tsk", 200))
def test_pooled_consequents_equal_those_of_pooled_rows_given_the_union_of_antecedents(fleet: OddFleet) -> None:
    local = fleet.parameters.model_copy(update={"antecedents": "local"})
    parts = list(fleet.parts.values())
    union = _answer(SCHEME.server.start(local, fleet.domain, 0), parts)
    assert isinstance(union, Next)

    spread, together = _finish(union, parts), _finish(union, [fleet.pooled()])

    assert _digest(spread.model) == _digest(together.model)
    assert spread.summary["sums_digest"] == together.summary["sums_digest"]


@relaxed
@given(odd_fleets("tsk", 200), st.sampled_from([0.5, 2.0, 1e6]), st.sampled_from([None, 0, 1, 2]))
def test_model_has_fewer_rules_and_slopes_when_it_is_simplified(
    fleet: OddFleet, prune: float, max_slopes: int | None
) -> None:
    def rules(**chosen: Any) -> Any:
        parameters = fleet.parameters.model_copy(update=chosen)
        try:
            model = federated(SCHEME, parameters, fleet.domain, fleet.parts).model
        except RunFailedError:  # no rule fires for any row
            assume(False)
        return model.to_document()["model"]["rules"]

    found = rules(prune=prune, max_slopes=max_slopes)

    assert len(found) <= len(rules(prune=0.0, max_slopes=None))
    if prune == 1e6:  # no rule saves that much: one is left, and OTHERWISE where there is one
        assert len(found) <= 1 + fleet.parameters.otherwise
    if max_slopes is not None:
        assert all(np.count_nonzero(rule["coefficients"]) <= max_slopes for rule in found)


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
@given(odd_fleets("tsk", 200), st.sampled_from(["averaged", "pooled"]), st.randoms(use_true_random=False))
def test_model_does_not_depend_on_the_order_of_answers(fleet: OddFleet, consequents: str, random: Any) -> None:
    whole = {"prune": 0.0, "max_slopes": None}  # averaging cannot simplify
    chosen = fleet.parameters.model_copy(update={"antecedents": "local", "consequents": consequents, **whole})
    agents = sorted(fleet.parts)
    one = _finish(SCHEME.server.start(chosen, fleet.domain, 0), [fleet.parts[agent] for agent in agents])
    random.shuffle(agents)
    other = _finish(SCHEME.server.start(chosen, fleet.domain, 0), [fleet.parts[agent] for agent in agents])

    assert _digest(one.model) == _digest(other.model)
