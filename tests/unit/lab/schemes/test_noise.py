"""dp_tree: noise, budget, growing, and what each mode promises."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.messages import Next
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.simulation import federated
from lab.schemes.dp_tree import SCHEME, DpTreeParameters
from lab.schemes.dp_tree.params import draw, true_epsilon
from schemas.errors import RunFailedError

DOMAIN = Domain(
    features=(
        Variable(name="a", low=0.0, high=1.0),
        Variable(name="b", low=0.0, high=1.0),
        Variable(name="c", low=0.0, high=2.0, categories=("x", "y", "z")),
    ),
    label="kind",
    classes=("no", "yes"),
)


def _fleet(agents: int = 4, rows: int = 500) -> dict[str, Dataset]:
    fleet = {}
    for number in range(agents):
        rng = np.random.default_rng(number)
        X = np.column_stack([rng.random((rows, 2)), rng.integers(0, 3, rows)])
        y = np.where((X[:, 0] > 0.5) ^ (X[:, 2] == 2), "yes", "no")
        fleet[f"v{number}"] = Dataset(("a", "b", "c"), "kind", X, y, categories={"c": ("x", "y", "z")})
    return fleet


# --- noise -----------------------------------------------------------------------------------------------------------


def test_local_noise_falls_by_exp_epsilon_per_step() -> None:
    drawn = draw(np.random.default_rng(0), (400_000,), 0.7, "local", 20)
    counts = {z: int((drawn == z).sum()) for z in range(-3, 4)}
    for z in (0, 1, 2):
        assert counts[z] / counts[z + 1] == pytest.approx(math.exp(0.7), rel=0.03)
        assert counts[-z] / counts[-z - 1] == pytest.approx(math.exp(0.7), rel=0.03)


@pytest.mark.parametrize("agents", [3, 8, 20])
def test_shares_of_all_but_one_agent_add_up_to_the_noise_of_one(agents: int) -> None:
    rng, epsilon = np.random.default_rng(1), 0.5
    total = np.sum([draw(rng, (100_000,), epsilon, "aggregate", agents) for _ in range(agents - 1)], axis=0)
    whole = draw(rng, (100_000,), epsilon, "local", agents)
    # The whole distribution, not its deviation alone: Kolmogorov and Smirnov's distance at these sizes is below 0.0073
    # in 99 of 100 draws.
    values = np.arange(-30, 31)
    first, second = (np.searchsorted(np.sort(part), values, side="right") / 100_000 for part in (total, whole))
    assert float(np.abs(first - second).max()) < 0.0073


def test_nothing_is_called_private_that_is_not() -> None:
    assert true_epsilon("local", 1.0, 20) == 1.0
    assert true_epsilon("aggregate", 1.0, 20) == 1.0
    assert true_epsilon("paper", 1.0, 20) is None
    assert true_epsilon("none", 1.0, 20) is None


# --- the budget ----------------------------------------------------------------------------------------------------


def test_a_row_is_once_in_every_histogram_so_that_its_budget_is_what_it_costs() -> None:
    data = _fleet(1)["v0"]
    more = Dataset(
        data.features,
        "kind",
        np.vstack([data.X, [[0.3, 0.6, 1.0]]]),
        np.append(data.y, "yes"),
        categories=data.categories,
    )
    step: Any = SCHEME.server.start(DpTreeParameters(noise="none", max_depth=3), DOMAIN, 0)
    changes: list[tuple[str, int]] = []
    while isinstance(step, Next):
        without, with_row = (
            SCHEME.client.contribute(step.task, rows, np.random.default_rng(0)) for rows in (data, more)
        )
        for name, counts in without.sums.items():
            change = np.abs(with_row.sums[name] - counts)
            changes.append((name, int(change.sum())))
        step = SCHEME.server.reduce(step.state, [without])
    assert ("histogram", 3) in changes
    assert {change for name, change in changes if name == "cells"} <= {0, 3}
    assert {change for name, change in changes if name == "nodes"} <= {0, 1}


# --- growing -------------------------------------------------------------------------------------------------------


def test_tree_is_useful_when_the_budget_is_large() -> None:
    fleet = _fleet()
    outcome = federated(SCHEME, DpTreeParameters(epsilon=200.0, max_depth=3), DOMAIN, fleet)
    data = pool(list(fleet.values()))
    assert float((outcome.model.predict(data.X) == data.y).mean()) > 0.8
    assert outcome.summary["private"] is True


def test_run_says_that_papers_noise_is_not_private() -> None:
    outcome = federated(SCHEME, DpTreeParameters(noise="paper"), DOMAIN, _fleet())
    assert outcome.summary["private"] is False
    assert outcome.summary["epsilon_sum"] is None
    assert outcome.summary["epsilon_answer"] is None


def test_sum_is_not_used_when_too_many_shares_of_noise_are_missing() -> None:
    fleet = _fleet(5)
    step: Any = SCHEME.server.start(DpTreeParameters(noise="aggregate"), DOMAIN, 0)
    rng = np.random.default_rng(0)
    step = SCHEME.server.reduce(step.state, [SCHEME.client.contribute(step.task, data, rng) for data in fleet.values()])
    answers = [SCHEME.client.contribute(step.task, data, rng) for data in fleet.values()]
    assert isinstance(SCHEME.server.reduce(step.state, answers[:4]), Next)
    with pytest.raises(RunFailedError, match="too-few-shares"):
        SCHEME.server.reduce(step.state, answers[:3])
