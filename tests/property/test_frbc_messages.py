"""Whatever a message holds, FRBC raises TaskError, ContributionError or DocumentError, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassfleet.data import Dataset
from glassfleet.domain import Domain, Variable
from glassfleet.scheme import Contribution, ContributionError, Done, Next, Task, TaskError
from glassfleet.schemes.frbc import SCHEME, Parameters
from schemas.codec import decode, encode
from schemas.errors import DocumentError

relaxed = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])

DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0.0, high=1.0) for name in ("a", "b", "c")),
    label="kind",
    classes=("g", "h"),
)


def _data() -> Any:
    rng = np.random.default_rng(4)
    return Dataset(DOMAIN.names, "kind", rng.random((60, 3)), rng.choice(["g", "h"], 60))


def _rounds(weights: Any) -> Any:
    rounds, data = [], _data()
    step: Next | Done = SCHEME.server.start(Parameters(n_sets=3, weights=weights), DOMAIN, 0)
    while isinstance(step, Next):
        answer = SCHEME.client.contribute(step.task, data, np.random.default_rng(0))
        rounds.append((step, answer))
        step = SCHEME.server.reduce(step.state, [answer])
    return rounds, step.model


(OWNERS,), _ = _rounds("owners")
(FIRST, SECOND), MODEL = _rounds("pooled")
DOCUMENT = MODEL.to_document()

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5), st.binary(max_size=5),
)  # fmt: skip
arrays = st.builds(
    lambda dtype, shape, value: np.full(shape, value).astype(dtype),
    st.sampled_from(["i1", "i2", "i4", "i8", "u8", "f8", "?"]),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.integers(-3, 120),
)
values = st.one_of(scalars, arrays, st.lists(scalars, max_size=3), st.dictionaries(st.text(max_size=3), scalars))


def _places(value: Any, path: Any = ()) -> Any:
    yield path
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _places(value[key], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:3]):
            yield from _places(item, (*path, index))
    elif isinstance(value, np.ndarray) and value.size:
        yield (*path, 0)


def _damage(draw: Any, value: Any) -> Any:
    """Replace, remove or alter one place."""
    value = copy.deepcopy(value)
    path = draw(st.sampled_from(sorted(set(_places(value)) - {()}, key=str)))
    at = value
    for key in path[:-1]:
        at = at[key]
    if isinstance(at, np.ndarray):
        at.flat[draw(st.integers(0, at.size - 1))] = draw(
            st.integers(-(2**15), 2**15 - 1) | st.sampled_from([0, 1, -1]) if at.dtype == np.int16
            else st.integers(-(2**63), 2**63 - 1)
        )  # fmt: skip
    elif isinstance(at, dict) and draw(st.booleans()):
        del at[path[-1]]
    else:
        at[path[-1]] = draw(values)
    return value


def _writable(value: Any) -> Any:
    """Encoded and decoded, with arrays that can be changed."""
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value


@relaxed
@given(st.data())
def test_client_raises_task_error_alone_whatever_the_task_holds(data: Any) -> None:
    step, _ = data.draw(st.sampled_from([OWNERS, FIRST, SECOND]))
    damaged = _damage(data.draw, _writable(decode(encode(step.task.to_value()))))
    try:
        task = Task.from_value(damaged)
    except (KeyError, TypeError):
        return
    try:
        answer = SCHEME.client.contribute(task, _data(), np.random.default_rng(0))
    except TaskError:
        return
    SCHEME.server.check(task, answer)


@relaxed
@given(st.data())
def test_server_raises_contribution_error_alone_whatever_the_answer_holds(data: Any) -> None:
    step, answer = data.draw(st.sampled_from([OWNERS, FIRST, SECOND]))
    damaged = _damage(data.draw, _writable(decode(encode(answer.to_value()))))
    try:
        contribution = Contribution.from_value(damaged)
        SCHEME.server.check(step.task, contribution)
    except ContributionError:
        return
    # What was accepted can be reduced, beside a true answer.
    SCHEME.server.reduce(step.state, [contribution, answer])


@relaxed
@given(st.data())
def test_reader_raises_document_error_alone_whatever_the_document_holds(data: Any) -> None:
    damaged = _damage(data.draw, DOCUMENT)
    try:
        model = SCHEME.from_document(damaged)
    except DocumentError:
        return
    assert set(model.predict(_data().X)) <= set(model.domain.classes)
