"""Whatever a peer sends, the client raises TaskError and the server's check ContributionError, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.data import Dataset
from glassfleet.domain import Domain, Variable
from glassfleet.scheme import Contribution, ContributionError, Done, Model, Next, Task, TaskError
from glassfleet.schemes.tsk import SCHEME, Parameters
from schemas.codec import decode, encode
from schemas.errors import DocumentError

NAMES = ("a", "b", "c")
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0, high=1) for name in NAMES), target=Variable(name="y", low=0, high=3)
)
VARIANTS: list[dict[str, Any]] = [{"consequents": "averaged"}, {"antecedents": "local"}, {"max_rounds": 3}]


def _fleet() -> Dataset:
    rng = np.random.default_rng(7)
    X = rng.random((120, 3))
    return Dataset(NAMES, "y", X, X[:, 0] ** 2 + X[:, 1] * X[:, 2] + rng.normal(0, 0.05, 120))


def _conversation(variant: dict[str, Any]) -> tuple[list[tuple[Task, Contribution]], Model]:
    """Return each round's task and answer, and the model."""
    data, rng, pairs = _fleet(), np.random.default_rng(0), []
    step: Next | Done = SCHEME.server.start(Parameters(n_clusters=6, **variant), DOMAIN, 0)
    while isinstance(step, Next):
        answer = SCHEME.client.contribute(step.task, data, rng)
        pairs.append((step.task, answer))
        step = SCHEME.server.reduce(step.state, [answer])
    return pairs, step.model


TALKS = [_conversation(variant) for variant in VARIANTS]
PAIRS = [pair for pairs, _ in TALKS for pair in pairs]

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.sampled_from(
        [
            np.zeros(0),
            np.zeros((2, 2)),
            np.zeros((1, 6, 4)),
            np.array(3),
            np.array([[0, 1, 2], [0, 1, 2]], dtype=np.int8),
            np.zeros((0, 3), dtype=np.int8),
            np.array([2**62, -(2**62)], dtype=np.int64),
            np.array([True, False]),
        ]
    ),
)


@st.composite
def spoiled(draw: Any, value: Any) -> Any:
    """Replace, remove or edit one thing somewhere in a nest of maps and lists."""
    value = copy.deepcopy(value)
    at = value
    for _ in range(6):
        keys = sorted(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        inner = at[key]
        if isinstance(inner, dict | list) and inner and draw(st.integers(0, 4)):
            at = inner
            continue
        if isinstance(inner, np.ndarray) and inner.size and draw(st.booleans()):
            edited = inner.copy()
            place = draw(st.integers(0, edited.size - 1))
            most = 2**31 - 1 if edited.dtype.itemsize > 1 else 127
            edited.flat[place] = draw(st.sampled_from([-1, 0, 1, 2, 5, most]))
            at[key] = edited
        elif isinstance(at, dict) and draw(st.integers(0, 3)) == 0:
            del at[key]
        else:
            at[key] = draw(leaves)
        break
    return value


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_client_raises_only_task_error_for_any_task(data: Any) -> None:
    task, _ = data.draw(st.sampled_from(PAIRS))
    body = data.draw(spoiled(decode(encode(dict(task.body)))))
    if isinstance(body.get("parameters"), dict):
        body["parameters"].update(n_clusters=6)  # a thousand clusters are legal, and slow
    kind = data.draw(st.sampled_from([task.kind, task.kind, "rules", "clusters", "sums", "weights", "other"]))
    reason = "answered"
    try:
        SCHEME.client.contribute(Task("tsk", kind, body), _fleet(), np.random.default_rng(0))
    except TaskError as fault:
        reason = str(fault)
    assert reason


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_check_raises_only_contribution_error_and_what_it_accepts_can_be_reduced(data: Any) -> None:
    task, answer = data.draw(st.sampled_from(PAIRS))
    value = data.draw(spoiled(decode(encode(answer.to_value()))))
    accepted, reason = None, "accepted"
    try:
        accepted = Contribution.from_value(value)
        SCHEME.server.check(task, accepted)
    except ContributionError as fault:
        accepted, reason = None, str(fault)
    assert reason
    if accepted is not None:
        memory = {"sums_digest": "", "iterations": 1, "still": 0, "change": 0.0}
        step = SCHEME.server.reduce({"kind": task.kind, "body": task.body, **memory}, [answer, accepted])
        assert isinstance(step, Next | Done)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_document_reader_raises_only_document_error_for_any_document(data: Any) -> None:
    model = data.draw(st.sampled_from([model for _, model in TALKS]))
    document = data.draw(spoiled(model.to_document()))
    reason = "read"
    try:
        predicted = SCHEME.from_document(document).predict(np.full((2, 3), 0.4))
    except DocumentError as fault:
        reason = str(fault)
    else:
        assert np.isfinite(predicted).all()
    assert reason
