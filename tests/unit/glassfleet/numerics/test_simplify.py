"""Fewer rules and slopes from sums: what is kept is what carries something, and nothing depends on the fleet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import central
from glassfleet.numerics.simplify import rules_worth_keeping
from glassfleet.numerics.sparse import forward, select
from glassfleet.schemes.frt import SCHEME as FRT
from glassfleet.schemes.frt import Parameters

Array = NDArray[np.float64]

NAMES = tuple(f"x{i}" for i in range(6))
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0.0, high=1.0) for name in NAMES),
    target=Variable(name="y", low=-1.0, high=2.0, unit="V"),
)


def rows(n: int = 3000) -> Dataset:
    """x0 decides which of two lines holds; x3 to x5 have no say."""
    rng = np.random.default_rng(3)
    X = rng.random((n, 6))
    y = np.where(X[:, 0] > 0.5, X[:, 1], -0.5 * X[:, 2]) + rng.normal(0, 0.05, n)
    return Dataset(NAMES, "y", X, y)


def moment_matrix(Z: Array, y: Array, ridge: float) -> Array:
    full = np.column_stack([np.ones(len(y)), Z, y])
    matrix = full.T @ full
    inner = np.arange(1, Z.shape[1] + 1)
    matrix[inner, inner] += ridge
    return matrix


def test_selection_keeps_the_columns_that_carry_something_and_fits_them() -> None:
    rng = np.random.default_rng(1)
    Z = rng.random((500, 7))
    y = 0.3 + 0.8 * Z[:, 2] - 0.4 * Z[:, 5] + rng.normal(0, 0.01, 500)
    found = select(moment_matrix(Z, y, 1e-6), 4, 1e-4, 1e-6)
    assert {2, 5} <= set(np.flatnonzero(found[1:]).tolist())
    assert found[[0, 3, 6]] == pytest.approx([0.3, 0.8, -0.4], abs=0.02)
    assert np.count_nonzero(found[1:]) <= 4
    assert np.flatnonzero(select(moment_matrix(Z, y, 1e-6), 1, 1e-4, 1e-6)[1:]).tolist() == [2]
    assert not select(moment_matrix(Z, y, 1e-6), 0, 1e-4, 1e-6)[1:].any()
    assert forward(moment_matrix(Z, y, 1e-6), 2) == [3, 6]


def test_selection_drops_a_column_that_a_pair_of_others_has_made_idle() -> None:
    rng = np.random.default_rng(2)
    Z = rng.random((800, 3))
    Z[:, 0] = Z[:, 1] + Z[:, 2] + rng.normal(0, 0.05, 800)
    y = Z[:, 1] + Z[:, 2] + rng.normal(0, 0.01, 800)
    found = select(moment_matrix(Z, y, 1e-6), 3, 1e-3, 1e-6)  # a cautious variance: chance adds nothing
    assert np.flatnonzero(found[1:]).tolist() == [1, 2]


@pytest.mark.parametrize("settings", [{"prune": 2.0}, {"prune": 2.0, "max_slopes": 3}])
def test_pruned_tree_is_much_smaller_and_no_worse(settings: dict[str, Any]) -> None:
    data, test = rows(), rows(6000)
    published = central(FRT, Parameters(), DOMAIN, data).model
    smaller = central(FRT, Parameters(**settings), DOMAIN, data).model
    errors = [np.sqrt(np.mean((model.predict(test.X) - test.y) ** 2)) for model in (published, smaller)]
    assert smaller.complexity()["leaves"] < 0.7 * published.complexity()["leaves"]
    assert errors[1] < 1.05 * errors[0]
    for rule in smaller.to_document()["model"]["rules"]:
        assert np.count_nonzero(rule["coefficients"]) <= settings.get("max_slopes", 6)


def test_rule_that_its_neighbour_can_stand_in_for_is_not_worth_keeping() -> None:
    rng = np.random.default_rng(5)
    x = rng.random((3, 400))
    line = [lambda v: 0.2 + 0.5 * v, lambda v: 0.2 + 0.5 * v, lambda v: 0.9 - 0.6 * v]
    noise = rng.normal(0, 0.02, (3, 400))
    matrix = np.stack(
        [moment_matrix(x[i][:, None], line[i](x[i]) + noise[i], 0.0) for i in range(3)], axis=2
    )  # fmt: skip
    antecedents = np.array([[0], [1], [2]], dtype=np.int8)
    kept = rules_worth_keeping(matrix, np.full(3, 400), antecedents, 5.0, last=False)
    assert kept.sum() == 2
    assert kept[2]
    assert rules_worth_keeping(matrix, np.full(3, 400), antecedents, 0.0, last=False).all()
    assert rules_worth_keeping(matrix, np.full(3, 400), antecedents, 1e9, last=False).sum() == 1
    otherwise = rules_worth_keeping(matrix, np.full(3, 400), antecedents, 1e9, last=True)
    assert otherwise.sum() == 2
    assert otherwise[2]
