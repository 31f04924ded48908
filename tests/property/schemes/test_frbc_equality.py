"""Promise 1 for the rule-based classifier: any spread of rows, any order, any drop-out."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import central, federated
from glassfleet.scheme import Contribution, Done, Task
from glassfleet.schemes.frbc import SCHEME, Parameters
from schemas.codec import decode, encode
from schemas.documents import document_digest

relaxed = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def fleets(draw: Any) -> Any:
    """Rows with ties, constants and values outside the domain, in some classes, spread over some agents."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, f, c = draw(st.integers(1, 300)), draw(st.integers(1, 7)), draw(st.integers(1, 4))
    X = rng.normal(0.5, 0.4, (n, f))
    if draw(st.booleans()):
        X = np.round(X * 4) / 4
    if draw(st.booleans()):
        X[:, 0] = 0.3
    number = rng.integers(0, c, n) if draw(st.booleans()) else np.clip(np.floor(X[:, -1] * c), 0, c - 1).astype(int)
    y = np.array([f"class {i}" for i in range(c)], dtype="U11")[number]
    if draw(st.booleans()):
        y[rng.random(n) < 0.1] = "of no class"
    agents = draw(st.integers(1, 5))
    # Sorted by class: agents with one class only, and rows that an agent alone has.
    owner = (
        rng.integers(0, agents, n) if draw(st.booleans()) else np.argsort(np.argsort(y, kind="stable")) * agents // n
    )
    names = tuple(f"x{i}" for i in range(f))
    domain = Domain(
        features=tuple(Variable(name=name, low=0.0, high=1.0) for name in names),
        label="y",
        classes=tuple(f"class {i}" for i in range(c)),
    )
    parts = {f"a{i}": Dataset(names, "y", X[owner == i], y[owner == i]) for i in range(agents)}
    parts = {agent: part for agent, part in parts.items() if not part.rows or (part.y != "of no class").any()}
    parts["empty"] = Dataset(names, "y", X[:0], y[:0])
    parameters = Parameters(
        n_sets=draw(st.integers(2, 7)),
        association=draw(st.sampled_from(["strength", "strength*weight"])),
        max_rules=draw(st.sampled_from([None, 1, 5])),
        min_support=draw(st.sampled_from([0.0, 0.02])),
        fraction_bits=draw(st.sampled_from([48, 64, 80])),
        nullify=False,
        min_rows=1,
    )
    return domain, parts, parameters, rng


def _has_rows(parts: Any) -> Any:
    return any(part.rows for part in parts.values())


def _shuffled(parts: Any, rng: Any) -> Any:
    rows = pool(list(parts.values()))
    order = rng.permutation(rows.rows)
    return Dataset(rows.features, rows.target, rows.X[order], rows.y[order])


@relaxed
@given(fleets())
def test_pooled_federated_model_equals_central_model_for_any_spread(fleet: Any) -> None:
    domain, parts, parameters, rng = fleet
    if not _has_rows(parts):
        return

    one = federated(SCHEME, parameters, domain, parts)
    other = central(SCHEME, parameters, domain, _shuffled(parts, rng))

    assert document_digest(one.model.to_document()) == document_digest(other.model.to_document())
    assert one.summary == other.summary
    assert one.nullified == 0


def _run(parameters: Any, domain: Any, agents: Any, forget: Any, rng: Any) -> Any:
    """Learn over the wire: tasks, states and answers are encoded; memos may be lost; answers come in any order."""
    step: Any = SCHEME.server.start(parameters, domain, 0)
    while not isinstance(step, Done):
        task = Task.from_value(decode(encode(step.task.to_value())))
        state = decode(encode(dict(step.state)))
        answers = []
        for agent in rng.permutation(sorted(agents)).tolist():
            if forget:
                agents[agent].memo.clear()
            answer = SCHEME.client.contribute(task, agents[agent], rng)
            answer = Contribution.from_value(decode(encode(answer.to_value())))
            SCHEME.server.check(task, answer)
            answers.append(answer)
        step = SCHEME.server.reduce(state, answers)
    return step


@relaxed
@given(fleets(), st.booleans(), st.randoms(use_true_random=False))
def test_survivors_model_equals_their_central_model_when_agents_drop(fleet: Any, forget: Any, random: Any) -> None:
    domain, parts, parameters, rng = fleet
    survivors = {agent: part for agent, part in parts.items() if random.random() < 0.6}
    if not _has_rows(survivors):
        return

    done = _run(parameters, domain, survivors, forget, rng)
    other = central(SCHEME, parameters, domain, _shuffled(survivors, rng))

    assert document_digest(done.model.to_document()) == document_digest(other.model.to_document())
    assert done.summary["sums_digest"] == other.summary["sums_digest"]


@relaxed
@given(fleets())
def test_owners_find_the_central_rules_with_other_weights_at_most(fleet: Any) -> None:
    domain, parts, parameters, _ = fleet
    if not _has_rows(parts):
        return
    everything = parameters.model_copy(update={"max_rules": None, "min_support": 0.0})
    owners = everything.model_copy(update={"weights": "owners"})

    one = federated(SCHEME, owners, domain, parts)
    other = federated(SCHEME, everything, domain, parts)

    assert one.rounds == 1
    assert np.array_equal(one.model.base.antecedents, other.model.base.antecedents)
    assert one.summary["conflicts"] == other.summary["conflicts"]
