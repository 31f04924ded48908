"""fmt's sums: those of the definition at a vehicle, refused when no rows can have them, and what is chosen by them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from glassfleet import catalogue
from glassfleet.checks.bench import Bench
from glassfleet.data.dataset import Dataset
from glassfleet.errors import ContributionError, TaskError
from glassfleet.local import central
from glassfleet.numerics.edges import histogram
from glassfleet.numerics.statistics import triangle
from glassfleet.scheme import Next
from glassfleet.schemes.fmt import SCHEME, Parameters
from glassfleet.schemes.fmt.growth import RULE_COST, costs, simplest
from glassfleet.schemes.fmt.messages import Question, read_task
from glassfleet.schemes.fmt.params import GRID_BITS
from glassfleet.schemes.fmt.partition import BINS, find_knots, positions, up_to
from glassfleet.schemes.fmt.support import weights
from glassfleet.schemes.fmt.tree import Split, Tree, degrees
from tests.support.sample_models import unit_domain

NAMES = ("a", "b", "c")
DOMAIN = unit_domain(NAMES)
RNG = np.random.default_rng(0)


STUMP = Tree()


def rows(n: int = 500, seed: int = 1) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    return Dataset(NAMES, "y", X, np.clip(X[:, 0] * X[:, 1] + rng.normal(0, 0.05, n), 0, 1))


def question(kind: Any, parameters: Parameters, tree: Tree = STUMP, nodes: tuple[int, ...] = (0,)) -> Question:
    knots = find_knots(np.ones((3, BINS), dtype=np.int64), parameters.n_sets, "uniform")
    asked = nodes if kind == "grow" else ()
    return Question(kind, parameters, DOMAIN, knots, (0, 1, 2), (0, 1, 2), tree, asked)


def answer(asked: Question, data: Dataset) -> dict[str, np.ndarray[Any, Any]]:
    return dict(SCHEME.client.contribute(asked.to_task(), data, RNG).sums)


TREE = Tree((Split(0, 0, 2), Split(2, 1, 3), Split(1, 0, 0)))


@pytest.mark.parametrize("node", [3, 4, 5, 6])
def test_vehicle_sums_products_by_degree_as_defined(node):
    data, parameters = rows(), Parameters(min_rows=1, holdout=0.0)
    asked = question("grow", parameters, TREE, (node,))
    sums = answer(asked, data)
    position = data.X.T * 6
    weight = np.ones(data.rows)
    for split, upper in TREE.path(node):
        low = np.clip(split.cut + 1 - position[split.feature], 0, 1)
        weight *= 1 - low if upper else low
    Z = np.column_stack([np.ones(data.rows), data.X, data.y])
    triangle = np.triu_indices(5)
    expected = [(Z.T * weight) @ Z]
    for place in asked.cuts_of[node]:
        feature, cut = asked.cuts[place]
        expected.append((Z.T * (weight * np.clip(cut + 1 - position[feature], 0, 1))) @ Z)
    result = np.concatenate([sums["whole"], sums["lower"]]) / 2.0 ** (2 * GRID_BITS)
    assert np.allclose(result, [matrix[triangle] for matrix in expected], atol=data.rows * 2.0**-GRID_BITS)


def test_with_support_a_row_has_no_part_or_a_64th_in_each_band_of_a_node():
    position = rows(2000).X.T * 6
    features, cuts = np.repeat([0, 1, 2], 6), np.tile(np.arange(6.0), 3)[:, None]
    for upper_side in (2, 4, 6):
        parts = [
            weights(TREE, node, position, features, cuts) / 2.0 ** (GRID_BITS - 6)
            for node in (upper_side - 1, upper_side)
        ]
        for part in parts:
            bands = np.diff(part[1:].reshape(3, 6, -1), axis=1)
            assert np.array_equal(part, np.rint(part))
            assert bands.min() >= 0.0
            assert (part[1:] <= part[0]).all()
        whole = weights(TREE, TREE.splits[upper_side // 2 - 1].node, position, features, cuts) / 2.0 ** (GRID_BITS - 6)
        assert np.array_equal(parts[0] + parts[1], whole)


def test_degrees_of_leaves_add_up_to_one_and_reused_inputs_make_runs_of_sets():
    data = rows()
    position = np.ascontiguousarray(data.X.T * 6)
    reached = degrees(TREE, position, TREE.leaves)
    assert np.allclose(sum(reached.values()), 1.0, atol=1e-15)
    assert TREE.span(6, (7, 7, 7)) == {0: (1, 2)}
    run = up_to(2.0, position[0]) - up_to(0.0, position[0])  # the sum of the memberships in sets 1 and 2
    assert np.allclose(reached[6], run, atol=1e-15)


def test_histogram_counts_every_row_once_and_knots_follow_the_ranks():
    rng = np.random.default_rng(3)
    scaled = np.vstack([rng.random(8000), rng.random(8000) ** 3])
    counts = histogram(scaled, BINS)
    assert (counts.sum(axis=1) == 8000).all()
    knots = find_knots(counts, 5, "quantile")
    assert np.allclose(knots[0], [0, 0.25, 0.5, 0.75, 1], atol=0.02)
    assert np.allclose(knots[1][1:], np.array([0.5, 0.75, 1.0]) ** 3, atol=0.02)  # 0.25^3 is too near to 0
    assert set(find_knots(counts, 5, "uniform")[1]) <= set(find_knots(counts, 5, "union")[1])
    position = positions(scaled, knots)
    assert (position >= 0).all()
    assert np.allclose(np.interp(position[1], range(len(knots[1])), knots[1]), scaled[1])


def test_mixed_knots_are_at_equal_steps_of_half_the_range_and_half_the_rows():
    even, skewed = np.arange(8000) / 8000, (np.arange(8000) / 8000) ** 4
    knots = find_knots(histogram(np.vstack([even, skewed]), BINS), 7, "mixed")
    assert np.allclose(knots[0], np.arange(7) / 6, atol=1e-3)
    share = np.interp(knots[1], skewed, np.arange(8000) / 8000)  # of the rows, below each knot
    assert np.allclose((np.array(knots[1]) + share) / 2, np.arange(7) / 6, atol=0.01)
    assert knots[1][2] < 0.11 < 2 / 6, "most rows are in a small part of the range, and so are sets"


def test_server_derives_a_siblings_sums_in_integers():
    data, parameters = rows(2000), Parameters(min_rows=1, max_rules=6, other_sets=())
    step: Any = SCHEME.server.start(parameters, DOMAIN, 0)
    asked: list[tuple[int, ...]] = []
    while isinstance(step, Next) and step.task.kind in ("scan", "grow"):
        now = step
        asked.append(read_task(now.task).nodes)
        step = SCHEME.server.reduce(now.state, [SCHEME.client.contribute(now.task, data, RNG)])
    whole = now.state["whole"]
    tree = read_task(now.task).tree
    nodes = [node for line in asked for node in line if node]
    assert len(nodes) == len(tree.splits) == 5  # one child of each split
    assert len({(node - 1) // 2 for node in nodes}) == 5
    for index, split in enumerate(tree.splits):
        if 2 * index + 2 < len(whole):
            assert np.array_equal(whole[2 * index + 1] + whole[2 * index + 2], whole[split.node])


Ints = NDArray[np.int64]
FMT = catalogue.load("fmt")


def columns_of(width: int) -> int:
    """Return k of a triangle with ``k (k + 1) / 2`` entries."""
    return int((np.sqrt(8 * width + 1) - 1) / 2)


def not_semi_definite(gram: Ints) -> None:
    """Let x0 times the target be as large as both factors allow, which is more than Cauchy and Schwarz do."""
    k = columns_of(gram.shape[-1])
    first, second = triangle(k)
    (place,) = np.flatnonzero((first == 1) & (second == k - 1))
    gram[..., place] = np.minimum(gram[..., 1], gram[..., k - 1])


def too_heavy(gram: Ints) -> None:
    gram *= 3


def above_its_factor(gram: Ints) -> None:
    gram[..., -1] = gram[..., 0]


LIES: list[tuple[Callable[[Ints], None], str]] = [
    (not_semi_definite, "not positive semi-definite"),
    (too_heavy, "weight exceeds"),
    (above_its_factor, "exceeds the sum of one of its factors"),
]


@cache
def asked_first(kind: str) -> tuple[Any, Any]:
    bench = next(iter(Bench.all_of(FMT, Parameters())))
    step, answers = next(pair for pair in bench.steps(bench.parameters) if pair[0].task.kind == kind)
    return step.task, max(answers, key=lambda answer: answer.rows)


@pytest.mark.parametrize(("kind", "name"), [("scan", "gram"), ("grow", "whole"), ("leaves", "gram")])
@pytest.mark.parametrize(("lie", "reason"), LIES)
def test_server_refuses_products_that_no_rows_can_have(
    kind: str, name: str, lie: Callable[[Ints], None], reason: str
) -> None:
    task, true = asked_first(kind)
    FMT.server.check(task, true)
    sums = {key: array.copy() for key, array in true.sums.items()}
    lie(sums[name])
    with pytest.raises(ContributionError, match=reason):
        FMT.server.check(task, replace(true, sums=sums))


def test_server_refuses_a_lower_cut_that_holds_more_than_a_higher_one() -> None:
    task, true = asked_first("grow")
    sums = {key: array.copy() for key, array in true.sums.items()}
    rising = np.flatnonzero(sums["lower"][1:, 0] > sums["lower"][:-1, 0])
    place = int(rising[0])
    sums["lower"][[place, place + 1]] = sums["lower"][[place + 1, place]]
    with pytest.raises(ContributionError, match="a lower cut exceeds a higher one"):
        FMT.server.check(task, replace(true, sums=sums))


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
    domain = unit_domain(names, low=-1.0, high=inputs + 1.0)

    outcome = central(SCHEME, Parameters(max_rules=3), domain, Dataset(names, "y", X, y))

    assert outcome.summary["slopes"] == slopes
    (rule,) = outcome.model.to_document()["model"]["rules"]  # a plane needs no split
    assert set(rule["coefficients"]) >= set(names[:inputs])
    assert len(rule["coefficients"]) <= slopes


def test_rows_with_another_value_than_a_common_one_are_counted_by_band() -> None:
    data = rows(200)
    X, y = data.X.copy(), data.y.copy()
    X[:150, 1], y[:150] = 0.0, 1.0
    asked = replace(
        question("support", Parameters(support=200, min_rows=1, n_sets=3)),
        nodes=(0,),
        common=((1, 0), (3, 0), (3, BINS - 1)),
    )
    task = read_task(asked.to_task()).to_task()
    counts = SCHEME.client.contribute(task, Dataset(NAMES, "y", X, y), RNG).sums["rows"]
    every, others, *at_limits = counts.reshape(4, 4, -1)  # all, of another value, of targets off 0 and off 1
    training, held = int(every[0].sum()), int(every[-1, 0])
    assert training + held == 200
    assert int(others[0].sum()) + int(others[-1, 0]) == 50
    assert [int(part[0].sum()) + int(part[-1, 0]) for part in at_limits] == [
        int(np.count_nonzero(y != limit)) for limit in (0.0, 1.0)
    ]


@pytest.mark.parametrize(
    "common",
    [
        [[4, 0]],
        [[np.zeros(1, dtype=np.int8), 0]],
        [[1, -1]],
        [[1, BINS]],
        [[1, 0.5]],
        [[2, 0], [1, 0]],
        [[1, 0], [1, 0]],
    ],
)
def test_common_values_that_no_input_has_are_refused(common: Any) -> None:
    task = replace(question("support", Parameters(support=3)), nodes=(0,), common=((1, 0),)).to_task()
    with pytest.raises(TaskError, match="common"):
        read_task(replace(task, body={**task.body, "common": common}))
