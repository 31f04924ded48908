"""With noise a run is repeatable."""

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


@settings(max_examples=30, deadline=None)
@given(mode=st.sampled_from(["local", "aggregate", "paper"]), seed=st.integers(0, 2**32 - 1))
def test_fleet_grows_the_same_tree_when_noise_is_drawn_from_the_same_secrets(mode: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = rng.random((300, 2)), np.array(DOMAIN.classes)[rng.integers(0, 3, 300)]
    fleet = {f"v{v}": Dataset(("a", "b"), "y", X[v::3], y[v::3]) for v in range(3)}
    documents = [
        federated(SCHEME, Parameters(noise=mode, epsilon=50.0), DOMAIN, fleet, seed).model.to_document()
        for _ in range(2)
    ]
    assert documents[0] == documents[1]
