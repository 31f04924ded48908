"""The server half: what it refuses, how it grows, how it ends."""

from __future__ import annotations

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError
from glassfleet.local import federated
from glassfleet.scheme import Contribution, Done, Next
from glassfleet.schemes.frt import SCHEME, Parameters
from schemas.errors import RunFailedError, UsageError

NAMES = ("a", "b")
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0, high=1) for name in NAMES), target=Variable(name="y", low=0, high=1)
)
RNG = np.random.default_rng(0)


def _data(n: int = 200, seed: int = 1) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 2))
    return Dataset(NAMES, "y", X, np.clip(X[:, 0] ** 2 * X[:, 1], 0, 1))


def test_server_refuses_statistics_of_a_feature_on_the_path():
    step: Next | Done = SCHEME.server.start(Parameters(min_samples_fraction=0.01), DOMAIN, 0)
    assert isinstance(step, Next)
    step = SCHEME.server.reduce(step.state, [SCHEME.client.contribute(step.task, _data(), RNG)])
    assert isinstance(step, Next)
    assert step.task.kind == "level"
    answer = SCHEME.client.contribute(step.task, _data(), RNG)
    cells = answer.sums["cell_count"].copy()
    used = int(np.flatnonzero(~cells[0].any(axis=1))[0])
    cells[0, used, 0] = 1
    with pytest.raises(ContributionError, match="path uses already"):
        SCHEME.server.check(step.task, Contribution("level", answer.rows, {**answer.sums, "cell_count": cells}))


def test_server_names_the_end_when_there_are_too_many_rows():
    step = SCHEME.server.start(Parameters(), DOMAIN, 0)
    empty = SCHEME.client.contribute(step.task, _data(0), RNG)
    many = Contribution("level", Parameters().max_rows, empty.sums)
    with pytest.raises(RunFailedError, match="too-many-rows"):
        SCHEME.server.reduce(step.state, [many, many])
    with pytest.raises(ContributionError, match="the grid is good for"):
        SCHEME.server.check(step.task, Contribution("level", Parameters().max_rows + 1, empty.sums))


def test_server_refuses_more_inputs_than_linear_leaves_take():
    wide = Domain(features=tuple(Variable(name=f"x{i}", low=0, high=1) for i in range(257)), target=DOMAIN.target)
    with pytest.raises(UsageError, match="order=0"):
        SCHEME.server.start(Parameters(), wide, 0)
    assert SCHEME.server.start(Parameters(order=0), wide, 0).task.kind == "level"


def test_server_grows_no_deeper_than_told():
    for depth in (0, 1, 2):
        parameters = Parameters(max_depth=depth, min_samples_fraction=0.0, min_gain=0.0)
        outcome = federated(SCHEME, parameters, DOMAIN, {"a": _data()})
        assert outcome.model.complexity()["depth"] == depth


def test_client_nullifies_cells_of_one_or_two_rows_as_the_paper_does():
    step = SCHEME.server.start(Parameters(min_rows=1), DOMAIN, 0)
    two = SCHEME.client.contribute(step.task, _data(2), RNG)
    assert two.nullified > 0
    assert not any(array.any() for array in two.sums.values())
