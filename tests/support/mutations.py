"""Tasks, answers and documents of a scheme, and ways to spoil them; for the property tests of what peers send."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.scheme import Contribution, Done, Next
from schemas.codec import decode, encode

NAMES = ("a", "b", "c")
REGRESSION = Domain(
    features=tuple(Variable(name=name, low=0, high=1) for name in NAMES), target=Variable(name="y", low=0, high=3)
)
"""The domain of `numbers`."""

_SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5)
_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
_ARRAYS = (
    np.zeros(0),
    np.zeros((2, 2)),
    np.array(3),
    np.array([-1, 5, 7], dtype=np.int32),
    np.array([2**62, -(2**62)], dtype=np.int64),
    np.array([True, False]),
    np.arange(40, dtype=np.int64),
)


def numbers(rows: int) -> Dataset:
    """Return rows with a numeric target; always the same."""
    rng = np.random.default_rng(7)
    X = rng.random((rows, 3))
    return Dataset(NAMES, "y", X, X[:, 0] ** 2 + X[:, 1] * X[:, 2] + rng.normal(0, 0.05, rows))


def talk(scheme: Any, parameters: Any, domain: Domain, data: Dataset) -> tuple[list[tuple[Next, Contribution]], Any]:
    """Return each round's step and the answer of one vehicle, and the model."""
    rounds: list[tuple[Next, Contribution]] = []
    step: Next | Done = scheme.server.start(parameters, domain, 0)
    while isinstance(step, Next):
        answer = scheme.client.contribute(step.task, data, np.random.default_rng(0))
        rounds.append((step, answer))
        step = scheme.server.reduce(step.state, [answer])
    return rounds, step.model


def travelled(value: Any) -> Any:
    """Return the value as it comes out of the codec, with arrays that can be changed."""
    return _writable(decode(encode(value)))


def _writable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _writable(item) for key, item in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else value


@st.composite
def spoiled(draw: Any, value: Any, arrays: Sequence[NDArray[Any]] = _ARRAYS) -> Any:
    """Replace, remove or edit one thing somewhere in a nest of maps and lists; small numbers go into arrays."""
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
            large = [2**20, 2**31 - 1] if edited.dtype.itemsize > 2 else [127]
            edited.flat[place] = draw(st.sampled_from([-1, 0, 1, 2, 5, *large]))
            at[key] = edited
        elif isinstance(at, dict) and draw(st.integers(0, 3)) == 0:
            del at[key]
        else:
            others = st.sampled_from(list(arrays)).map(np.copy)
            at[key] = draw(_SCALARS | _FLOATS | st.builds(list) | st.builds(dict) | others)
        break
    return value


@st.composite
def damaged(draw: Any, value: Any) -> Any:
    """Replace, remove or alter one place, each place as likely as another; any number goes into arrays."""
    value = copy.deepcopy(value)
    path = draw(st.sampled_from(sorted(set(_places(value)) - {()}, key=str)))
    at = value
    for key in path[:-1]:
        at = at[key]
    if isinstance(at, np.ndarray):
        at.flat[draw(st.integers(0, at.size - 1))] = draw(_number_of(at.dtype))
    elif isinstance(at, dict) and draw(st.booleans()):
        del at[path[-1]]
    else:
        at[path[-1]] = draw(_ANYTHING)
    return value


def _number_of(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    if dtype.kind == "f":
        return _FLOATS
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return st.integers(max(low, -1), min(high, 4)) | st.integers(low, high)


def _places(value: Any, path: Any = ()) -> Iterator[Any]:
    yield path
    if isinstance(value, dict):
        for key in sorted(value):
            yield from _places(value[key], (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:3]):
            yield from _places(item, (*path, index))
    elif isinstance(value, np.ndarray) and value.size:
        yield (*path, 0)


_MADE = st.builds(
    lambda dtype, shape, value: np.full(shape, value).astype(dtype),
    st.sampled_from(["i1", "u1", "i2", "u2", "i4", "i8", "u8", "f8", "?"]),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.integers(-3, 120),
)
_SIMPLE = _SCALARS | _FLOATS | st.binary(max_size=5)
_ANYTHING = st.one_of(_SIMPLE, _MADE, st.lists(_SIMPLE, max_size=3), st.dictionaries(st.text(max_size=3), _SIMPLE))
