"""Without noise dp_tree is the pooled tree, bit for bit, however rows are spread; with noise it is repeatable."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import federated
from glassfleet.schemes.dp_tree import SCHEME, Parameters

DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0.0, high=1.0) for name in "ab"), label="y", classes=("k0", "k1", "k2")
)


def _part(X: Any, y: Any, rows: Any) -> Dataset:
    return Dataset(("a", "b"), "y", X[rows], y[rows])


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 200),
    vehicles=st.integers(1, 6),
    bins=st.integers(2, 7),
    depth=st.integers(1, 5),
    seed=st.integers(0, 2**32 - 1),
)
def test_fleet_grows_the_pooled_tree_when_there_is_no_noise(
    rows: int, vehicles: int, bins: int, depth: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(0.5, 0.4, (rows, 2))  # some rows are outside the limits
    y = np.array(DOMAIN.classes)[rng.integers(0, 3, rows)]
    part = rng.integers(0, vehicles, rows)
    fleet = {f"v{v}": _part(X, y, part == v) for v in range(vehicles)}
    parameters = Parameters(noise="none", n_bins=bins, max_depth=depth)
    together = federated(SCHEME, parameters, DOMAIN, fleet)
    pooled = federated(SCHEME, parameters, DOMAIN, {"all": _part(X, y, slice(None))})
    assert together.model.to_document() == pooled.model.to_document()
    assert together.summary["sums_digest"] == pooled.summary["sums_digest"]


@settings(max_examples=30, deadline=None)
@given(mode=st.sampled_from(["local", "aggregate", "paper"]), seed=st.integers(0, 2**32 - 1))
def test_fleet_grows_the_same_tree_when_noise_is_drawn_from_the_same_secrets(mode: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.random((300, 2)), np.array(DOMAIN.classes)[rng.integers(0, 3, 300)]
    fleet = {f"v{v}": _part(X, y, slice(v, None, 3)) for v in range(3)}
    documents = [
        federated(SCHEME, Parameters(noise=mode, epsilon=50.0), DOMAIN, fleet, seed).model.to_document()
        for _ in range(2)
    ]
    assert documents[0] == documents[1]
