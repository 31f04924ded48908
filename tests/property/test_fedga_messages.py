"""Whatever a message holds, FedGA raises TaskError, ContributionError or DocumentError, and nothing else."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassfleet.data import Dataset
from glassfleet.domain import Domain, Variable
from glassfleet.scheme import Contribution, ContributionError, Done, Next, Task, TaskError
from glassfleet.schemes.dp_tree import SCHEME as DP_TREE
from glassfleet.schemes.dp_tree import Parameters as DpTreeParameters
from glassfleet.schemes.fedga import SCHEME as FEDGA
from glassfleet.schemes.fedga import Parameters as FedgaParameters
from schemas.codec import decode, encode
from schemas.errors import DocumentError

relaxed = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])

FEATURES = (
    Variable(name="a", low=0.0, high=1.0),
    Variable(name="b", low=0.0, high=1.0),
    Variable(name="c", low=0.0, high=2.0, categories=("x", "y", "z")),
)
CLASSES = Domain(features=FEATURES, label="kind", classes=("g", "h"))
NUMBER = Domain(features=FEATURES, target=Variable(name="kind", low=0.0, high=1.0))


def _data(domain: Domain) -> Dataset:
    rng = np.random.default_rng(4)
    X = np.column_stack([rng.random((60, 2)), rng.integers(0, 3, 60)])
    y: Any = rng.choice(["g", "h"], 60) if domain.classes else rng.random(60)
    return Dataset(domain.names, "kind", X, y, categories={"c": ("x", "y", "z")})


def _rounds(scheme: Any, parameters: Any, domain: Domain) -> Any:
    rounds, data = [], _data(domain)
    step: Next | Done = scheme.server.start(parameters, domain, 0)
    while isinstance(step, Next):
        answer = scheme.client.contribute(step.task, data, np.random.default_rng(0))
        rounds.append((scheme, domain, step, answer))
        step = scheme.server.reduce(step.state, [answer])
    return rounds, step.model


SMALL = FedgaParameters(generations=1, population=3, depth=3)
NO_NOISE = DpTreeParameters(noise="none", max_depth=2)
RUNS = [
    _rounds(FEDGA, SMALL, CLASSES),
    _rounds(FEDGA, SMALL, NUMBER),
    _rounds(DP_TREE, NO_NOISE, CLASSES),
    _rounds(DP_TREE, DpTreeParameters(max_depth=2), CLASSES),
]
ROUNDS = [one for rounds, _ in RUNS for one in rounds]
MODELS = [
    *((FEDGA, model) for _, model in RUNS[:2]),
    *((FEDGA, model.personalise(_data(model.domain))) for _, model in RUNS[:2]),
    (DP_TREE, RUNS[2][1]),
]

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5), st.binary(max_size=5),
)  # fmt: skip
arrays = st.builds(
    lambda dtype, shape, value: np.full(shape, value).astype(dtype),
    st.sampled_from(["i1", "u1", "i2", "u2", "i4", "i8", "u8", "f8", "?"]),
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
        place = draw(st.integers(0, at.size - 1))
        if at.dtype.kind == "f":
            at.flat[place] = draw(st.floats(allow_nan=False, allow_infinity=False))
        else:
            low, high = (0, 1) if at.dtype.kind == "b" else (np.iinfo(at.dtype).min, np.iinfo(at.dtype).max)
            near = st.integers(max(int(low), -1), min(int(high), 4))
            at.flat[place] = draw(st.one_of(near, st.integers(int(low), int(high))))
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
    scheme, domain, step, _ = data.draw(st.sampled_from(ROUNDS))
    damaged = _damage(data.draw, _writable(decode(encode(step.task.to_value()))))
    try:
        task = Task.from_value(damaged)
    except (KeyError, TypeError):
        return
    try:
        answer = scheme.client.contribute(task, _data(domain), np.random.default_rng(0))
    except TaskError:
        return
    scheme.server.check(task, answer)


@relaxed
@given(st.data())
def test_server_raises_contribution_error_alone_whatever_the_answer_holds(data: Any) -> None:
    scheme, _, step, answer = data.draw(st.sampled_from(ROUNDS))
    damaged = _damage(data.draw, _writable(decode(encode(answer.to_value()))))
    try:
        contribution = Contribution.from_value(damaged)
        scheme.server.check(step.task, contribution)
    except ContributionError:
        return
    # What was accepted can be reduced, beside a true answer.
    scheme.server.reduce(step.state, [contribution, answer])


@relaxed
@given(st.data())
def test_reader_raises_document_error_alone_whatever_the_document_holds(data: Any) -> None:
    scheme, model = data.draw(st.sampled_from(MODELS))
    damaged = _damage(data.draw, model.to_document())
    try:
        again = scheme.from_document(damaged)
    except DocumentError:
        return
    rows = _data(model.domain).X
    width = len(again.domain.features)
    if width == rows.shape[1]:
        assert again.predict(rows).shape == (len(rows),)
    assert all(str(rule) for rule in again.rules())
    again.complexity()
