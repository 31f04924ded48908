"""The vehicle's half of the model tree: its sums are those of the definition, and small groups stay together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.scheme import Next
from glassfleet.schemes.fmt import SCHEME, Parameters
from glassfleet.schemes.fmt.messages import Question, read_task
from glassfleet.schemes.fmt.params import GRID_BITS
from glassfleet.schemes.fmt.partition import BINS, find_knots, histogram, positions, up_to
from glassfleet.schemes.fmt.tree import Split, Tree, degrees

NAMES = ("a", "b", "c")
DOMAIN = Domain(
    features=tuple(Variable(name=name, low=0, high=1) for name in NAMES), target=Variable(name="y", low=0, high=1)
)
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
    found = np.concatenate([sums["whole"], sums["lower"]]) / 2.0 ** (2 * GRID_BITS)
    assert np.allclose(found, [matrix[triangle] for matrix in expected], atol=data.rows * 2.0**-GRID_BITS)


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
    counts = histogram(scaled)
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
    knots = find_knots(histogram(np.vstack([even, skewed])), 7, "mixed")
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
