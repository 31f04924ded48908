"""Which of the sizes, ways to fit and partitions that were tried becomes the model."""

from __future__ import annotations

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import central
from glassfleet.schemes.fmt import SCHEME, Parameters
from glassfleet.schemes.fmt.growth import RULE_COST, costs, simplest
from glassfleet.schemes.fmt.tree import Split, Tree

ERRORS = [np.array([[100.0, 60.0, 51.0], [120.0, 58.0, 50.0]]), np.array([[90.0, 56.0], [90.0, 51.4]])]
COSTS = [np.array([[2, 6, 9], [3, 8, 12]]), np.array([[2, 7], [2, 8]])]
"""Two trees, of three and of two rules; two ways to fit each."""


@pytest.mark.parametrize(
    ("tolerance", "chosen"),
    [
        (0.0, (0, 2, 1)),  # the best, whatever it costs
        (0.02, (0, 2, 0)),
        (0.03, (1, 1, 1)),  # the other tree has a simpler one within reach, though its own best is no match
        (0.2, (0, 1, 0)),
        (1.0, (1, 0, 0)),  # of those that cost the same, the most accurate; of equals, the first
    ],
)
def test_simplest_of_all_trees_is_taken_when_it_is_accurate_enough(
    tolerance: float, chosen: tuple[int, int, int]
) -> None:
    assert simplest(ERRORS, COSTS, tolerance) == chosen


def test_tree_costs_its_leaves_slopes_and_something_for_each_further_rule() -> None:
    tree = Tree((Split(0, 0, 1), Split(2, 1, 0)))
    coefficients = np.zeros((1, 5, 4))
    coefficients[0, :, 0] = 1.0  # an intercept costs nothing
    for node, slopes in enumerate([3, 1, 2, 0, 3]):
        coefficients[0, node, 1 : 1 + slopes] = 0.5
    slopes = np.count_nonzero(coefficients[:, :, 1:], axis=2)
    assert costs(tree, slopes).tolist() == [[3, 1 + 2 + RULE_COST, 1 + 0 + 3 + 2 * RULE_COST]]


@pytest.mark.parametrize(("inputs", "slopes"), [(2, 2), (11, 12)])
def test_rules_have_as_many_slopes_as_the_target_hangs_on_when_it_is_left_to_the_held_out_rows(
    inputs: int, slopes: int
) -> None:
    rng = np.random.default_rng(6)
    X = rng.random((1500, 14))
    y = X[:, :inputs].sum(axis=1) + rng.normal(0, 0.01, 1500)
    names = tuple(f"x{i}" for i in range(14))
    domain = Domain(
        features=tuple(Variable(name=name, low=0.0, high=1.0) for name in names),
        target=Variable(name="y", low=-1.0, high=inputs + 1.0),
    )

    outcome = central(SCHEME, Parameters(max_rules=3), domain, Dataset(names, "y", X, y))

    assert outcome.summary["slopes"] == slopes
    (rule,) = outcome.model.to_document()["model"]["rules"]  # a plane needs no split
    assert set(rule["coefficients"]) >= set(names[:inputs])
    assert len(rule["coefficients"]) <= slopes
