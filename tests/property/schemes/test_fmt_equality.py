"""Promise 1 for the model tree: any spread of rows, any order, any drop-out gives the central model of those rows."""

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
from glassfleet.schemes.fmt import SCHEME, Parameters
from schemas.codec import decode, encode
from schemas.documents import document_digest

relaxed = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


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
        n_sets=draw(st.integers(2, 8)),
        other_sets=draw(st.sampled_from([(), (3,)])),
        partition=draw(st.sampled_from(["uniform", "quantile", "union"])),
        max_rules=draw(st.sampled_from([1, 3, 12])),
        max_slopes=draw(st.sampled_from([0, 2, 64])),
        max_regressors=draw(st.sampled_from([2, 16])),
        max_split_features=draw(st.sampled_from([2, 16])),
        holdout=draw(st.sampled_from([0.0, 0.2])),
        min_rows=1,
    )
    return domain, parts, parameters, rng


def some_train(parts: list[Dataset], domain: Domain, parameters: Parameters) -> bool:
    """Whether any row trains: a lone row may be held out, and the run then ends by name."""
    step = SCHEME.server.start(parameters, domain, 0)
    answers = [SCHEME.client.contribute(step.task, part, np.random.default_rng(0)) for part in parts]
    return any(answer.sums["training"][0] for answer in answers)


@relaxed
@given(fleets())
def test_federated_model_equals_central_model_for_any_spread(fleet):
    domain, parts, parameters, rng = fleet
    rows = pool(list(parts.values()))
    if not some_train([rows], domain, parameters):
        return
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
    if rows.rows == 0 or not some_train([rows], domain, parameters):
        return

    model = _run(parameters, domain, [parts[a] for a in survivors], lambda: rng.random() < 0.5)

    reference = central(SCHEME, parameters, domain, rows).model
    assert document_digest(model.to_document()) == document_digest(reference.to_document())


@relaxed
@given(fleets(), st.integers(2, 6))
def test_vehicles_that_hide_small_groups_pass_the_check_and_end_in_a_model(fleet, least):
    domain, parts, parameters, rng = fleet
    private = parameters.model_copy(update={"min_rows": least})
    if not any(part.rows >= least for part in parts.values()):
        return
    if not any(_gram_of(part, domain, private) for part in parts.values()):
        return

    model = _run(private, domain, list(parts.values()), lambda: False)

    X = rng.normal(0.5, 0.5, (50, len(domain.features)))
    assert np.isfinite(model.predict(X)).all()


def _gram_of(part: Dataset, domain: Domain, parameters: Parameters) -> int:
    step = SCHEME.server.start(parameters, domain, 0)
    return int(SCHEME.client.contribute(step.task, part, np.random.default_rng(0)).sums["gram"][0])
