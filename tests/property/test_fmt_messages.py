"""Whatever a peer sends, the client raises TaskError and the server's check ContributionError, and nothing else."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.data import Dataset
from glassfleet.domain import Domain, Variable
from glassfleet.scheme import Contribution, ContributionError, Done, Next, Task, TaskError
from glassfleet.schemes.fmt import SCHEME, Parameters
from schemas.codec import decode, encode
from schemas.errors import DocumentError

NAMES = ("a", "b", "c")
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0, high=1) for name in NAMES), target=Variable(name="y", low=0, high=3)
)


def _fleet() -> Dataset:
    rng = np.random.default_rng(7)
    X = rng.random((300, 3))
    return Dataset(NAMES, "y", X, X[:, 0] ** 2 + X[:, 1] * X[:, 2] + rng.normal(0, 0.05, 300))


def _conversation() -> tuple[list[tuple[Task, Contribution]], Any]:
    """Return each round's task and answer, and the model."""
    data, rng = _fleet(), np.random.default_rng(0)
    pairs: list[tuple[Task, Contribution]] = []
    step: Next | Done = SCHEME.server.start(Parameters(max_rules=5, other_sets=(), min_rows=3), DOMAIN, 0)
    while not isinstance(step, Done):
        answer = SCHEME.client.contribute(step.task, data, rng)
        pairs.append((step.task, answer))
        step = SCHEME.server.reduce(step.state, [answer])
    return pairs, step.model


PAIRS, MODEL = _conversation()

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
            np.array(3),
            np.array([-1, 5, 7], dtype=np.int32),
            np.array([2**62, -(2**62)], dtype=np.int64),
            np.array([True, False]),
            np.arange(40, dtype=np.int64),
        ]
    ),
)


@st.composite
def spoiled(draw, value):
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
            edited.flat[place] = draw(st.sampled_from([-1, 0, 1, 2, 5, 2**20, 2**31 - 1]))
            at[key] = edited
        elif isinstance(at, dict) and draw(st.integers(0, 3)) == 0:
            del at[key]
        else:
            at[key] = draw(leaves)
        break
    return value


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_client_raises_only_task_error_for_any_task(data):
    task, _ = data.draw(st.sampled_from(PAIRS))
    body = data.draw(spoiled(decode(encode(dict(task.body)))))
    kind = data.draw(st.sampled_from([task.kind, task.kind, "scan", "grow", "sizes", "leaves", "other"]))
    with contextlib.suppress(TaskError):  # any other exception fails the test
        SCHEME.client.contribute(Task("fmt", kind, body), _fleet(), np.random.default_rng(0))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_check_raises_only_contribution_error_for_any_answer(data):
    task, answer = data.draw(st.sampled_from(PAIRS))
    value = data.draw(spoiled(decode(encode(answer.to_value()))))
    with contextlib.suppress(ContributionError):  # any other exception fails the test
        SCHEME.server.check(task, Contribution.from_value(value))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_document_reader_raises_only_document_error_for_any_document(data):
    document = data.draw(spoiled(MODEL.to_document()))
    with contextlib.suppress(DocumentError):  # any other exception fails the test
        model = SCHEME.from_document(document)
        assert np.isfinite(model.predict(np.full((2, 3), 0.4))).all()
