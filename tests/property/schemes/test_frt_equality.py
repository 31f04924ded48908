"""Promise 1: any spread of rows, any order, any drop-out gives the central model of the rows that took part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import central, federated
from glassfleet.scheme import Contribution, Done, Next, Task
from glassfleet.schemes.frt import SCHEME, Parameters
from schemas.codec import decode, encode
from schemas.documents import document_digest

relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def fleets(draw):
    """Rows with ties, constants, collinear columns and values outside the domain, spread over some agents."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, f = draw(st.integers(1, 400)), draw(st.integers(1, 5))
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
        n_sets=draw(st.integers(2, 7)),
        order=draw(st.sampled_from([0, 1])),
        min_samples_fraction=draw(st.sampled_from([0.0, 0.05, 0.1])),
        max_depth=draw(st.sampled_from([None, 0, 1, 2])),
        nullify=False,
        min_rows=1,
        prune=draw(st.sampled_from([0.0, 0.5, 2.0])),
        max_slopes=draw(st.sampled_from([None, 0, 2])),
    )
    return domain, parts, parameters, rng


@relaxed
@given(fleets())
def test_federated_model_equals_central_model_for_any_spread(fleet):
    domain, parts, parameters, rng = fleet
    rows = pool(list(parts.values()))
    order = rng.permutation(rows.rows)
    shuffled = Dataset(rows.features, rows.target, rows.X[order], rows.y[order])

    one = federated(SCHEME, parameters, domain, parts)
    other = central(SCHEME, parameters, domain, shuffled)

    assert document_digest(one.model.to_document()) == document_digest(other.model.to_document())
    assert one.summary["sums_digest"] == other.summary["sums_digest"]


def _run(parameters: Parameters, domain: Domain, agents: list[Dataset], forget: Callable[[], bool]) -> Any:
    """Learn over the wire: every task, state and answer is encoded; agents may forget their memo in each round."""
    step: Next | Done = SCHEME.server.start(parameters, domain, 0)
    rng = np.random.default_rng(0)
    while not isinstance(step, Done):
        state, answers = decode(encode(step.state)), []
        for part in agents:
            task = Task.from_value(decode(encode(step.task.to_value())))
            if forget():
                part.memo.clear()
            answer = Contribution.from_value(decode(encode(SCHEME.client.contribute(task, part, rng).to_value())))
            SCHEME.server.check(task, answer)
            answers.append(answer)
        step = SCHEME.server.reduce(state, answers)
    return step.model


@relaxed
@given(fleets(), st.data())
def test_survivors_model_over_the_wire_equals_central_model_when_agents_drop_and_forget(fleet, data):
    domain, parts, parameters, rng = fleet
    survivors = data.draw(st.lists(st.sampled_from(sorted(parts)), min_size=1, unique=True))
    rows = pool([parts[agent] for agent in survivors])
    if rows.rows == 0:
        return

    model = _run(parameters, domain, [parts[a] for a in survivors], lambda: rng.random() < 0.5)

    reference = central(SCHEME, parameters, domain, rows).model
    assert document_digest(model.to_document()) == document_digest(reference.to_document())


@relaxed
@given(fleets())
def test_nullified_answers_pass_the_check_and_end_in_a_model(fleet):
    domain, parts, parameters, rng = fleet
    private = parameters.model_copy(update={"nullify": True, "min_rows": 1})

    model = _run(private, domain, list(parts.values()), lambda: False)

    X = rng.normal(0.5, 0.5, (50, len(domain.features)))
    assert np.isfinite(model.predict(X)).all()
