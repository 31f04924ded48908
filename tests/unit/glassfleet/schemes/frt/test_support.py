"""Runs of the regression tree with support: what is counted of the leaves, and which columns their sums then have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.messages import SUPPORT, Contribution
from glassfleet.data.dataset import Dataset
from glassfleet.errors import TaskError
from glassfleet.fuzzy.partition import fuzzify
from glassfleet.numerics.statistics import gram_value, unpack_symmetric
from glassfleet.schemes.frt import SCHEME, FrtParameters
from glassfleet.schemes.frt.messages import FrtQuestion, read_task
from glassfleet.schemes.frt.server import answer_leaves
from glassfleet.schemes.frt.tree import FrtTree, reach_leaves
from tests.support.sample_models import unit_domain

NAMES = ("a", "b", "c")
DOMAIN = unit_domain(NAMES)
SUPPORTED = FrtParameters(min_rows=1, support=3, n_sets=3, max_depth=2)
COMMON = ((1, 0), (1, 255), (2, 128), (3, 0), (3, 255))
TREE = FrtTree.root(3).grown(np.zeros(3, dtype=np.intp), np.zeros(3, dtype=np.intp), np.arange(3))
LEAVES = np.arange(1, 4)


def rows(n: int = 400, seed: int = 1) -> Dataset:
    rng = np.random.default_rng(seed)
    X = rng.random((n, 3))
    X[:, 1] = np.where(rng.random(n) < 0.9, rng.integers(0, 2, n), X[:, 1])
    y = np.where(X[:, 0] > 0.5, X[:, 1], 0.3) + 0.2 * X[:, 2] + rng.normal(0, 0.03, n)
    return Dataset(NAMES, "y", X, np.clip(y, 0, 1))


def asked(kind: Any = SUPPORT, **changes: Any) -> FrtQuestion:
    return replace(FrtQuestion(kind, SUPPORTED, DOMAIN, TREE, LEAVES), **changes)


def answer(question: FrtQuestion, data: Dataset) -> dict[str, Any]:
    return dict(SCHEME.client.contribute(question.to_task(), data, np.random.default_rng(0)).sums)


def test_vehicle_counts_different_rows_of_each_leaf_by_weight_and_value() -> None:
    once = rows()
    data = Dataset(NAMES, "y", np.concatenate([once.X, once.X[:50]]), np.concatenate([once.y, once.y[:50]]))
    question = asked(common=COMMON)
    reached = reach_leaves(TREE, fuzzify(once.X, 3))
    cells = np.minimum((np.column_stack([once.X, once.y]) * 256).astype(int), 255)
    layers = [np.ones(len(once.y), bool), *(cells[:, column] != cell for column, cell in COMMON)]
    expected = np.array(
        [
            [
                [np.count_nonzero(layer[reached.row[(reached.node == leaf) & weighs]]) for layer in layers]
                for weighs in (reached.strength >= 1 / 64, reached.strength < 1 / 64)
            ]
            for leaf in LEAVES
        ]
    )
    assert expected[:, 1].any()
    counts = answer(question, data)["rows"].reshape(3, 6, 2)
    assert (counts == np.minimum(expected, [5, 3, 3, 3, 3, 3]).transpose(0, 2, 1)).all()


def test_columns_that_a_leaf_lacks_are_not_summed() -> None:
    data, columns = rows(), np.ones((3, 4), dtype=bool)
    every = answer(asked("leaves", columns=columns), data)
    columns = columns.copy()
    columns[0, 1], columns[2, -1] = False, False
    sums = answer(asked("leaves", columns=columns), data)
    whole, part = (
        unpack_symmetric(gram_value(one["gram_high"], one["gram_low"], bits=SUPPORTED.gram_bits), 5)
        for one in (every, sums)
    )
    left = np.array([0, 2, 3, 4])
    assert not part[0, 1].any()
    assert not part[0, :, 1].any()
    assert (part[0][np.ix_(left, left)] == whole[0][np.ix_(left, left)]).all()
    assert (part[1] == whole[1]).all()
    assert not part[2].any()
    assert sums["count"].tolist() == [*every["count"][:2], 0]


def decided(heavy: list[int], light: list[int] | None = None, *former: list[int]) -> list[bool]:
    """Return the columns of the first leaf where the others hold enough."""
    question = asked(common=COMMON)

    def given(line: list[int], beside: list[int]) -> Contribution:
        counts = np.full((3, 2, 6), 9)
        counts[0] = [line, beside]
        return Contribution(SUPPORT, 500, {"rows": counts.transpose(0, 2, 1).reshape(-1, 2)})

    nothing = [0] * 6
    present = given(heavy, light or nothing)
    before = tuple((question.to_task(), given(line, nothing)) for line in former)
    leaves, decision = answer_leaves(question, [replace(present, former=before)])
    assert leaves.columns is not None
    assert leaves.columns[1:].all()
    assert decision.shape == (3, 7)
    return [bool(one) for one in leaves.columns[0]]


@pytest.mark.parametrize(
    ("heavy", "light", "columns"),
    [
        ([5, 3, 3, 3, 3, 3], [0] * 6, [True] * 4),
        ([5, 0, 3, 0, 3, 3], [0] * 6, [True] * 4),
        ([5, 2, 3, 3, 3, 3], [0] * 6, [True, False, True, True]),
        ([5, 3, 1, 3, 3, 3], [3] * 6, [True, False, True, True]),
        ([5, 3, 3, 0, 3, 3], [3, 3, 3, 1, 3, 3], [True, True, False, True]),
        ([5, 3, 3, 3, 2, 3], [0] * 6, [False, False, False, True]),
        ([5, 3, 3, 3, 3, 1], [0] * 6, [False, False, False, True]),
        ([4, 3, 3, 3, 3, 3], [3] * 6, [False, False, False, True]),
        ([2, 2, 2, 2, 2, 2], [3] * 6, [False] * 4),
    ],
)
def test_few_rows_that_weigh_or_have_another_value_leave_columns_out(
    heavy: list[int], light: list[int], columns: list[bool]
) -> None:
    assert decided(heavy, light) == columns


def test_those_who_left_a_group_count_by_themselves() -> None:
    assert decided([9, 9, 9, 9, 9, 9], None, [14, 12, 9, 12, 12, 12]) == [True] * 4
    assert decided([9, 9, 9, 9, 9, 9], None, [14, 11, 9, 12, 12, 12]) == [True, False, True, True]


@pytest.mark.parametrize(("leaf", "columns"), [(1, [False, False, False, True]), (2, [True] * 4)])
def test_leaf_that_an_edition_before_had_split_has_no_columns(leaf: int, columns: list[bool]) -> None:
    split = TREE.grown(np.full(3, leaf), np.ones(3, dtype=np.intp), np.arange(3))
    before = asked(tree=split, nodes=np.flatnonzero(split.split < 0), common=COMMON)
    many = np.full((3 * 6, 2), 9)
    former = (before.to_task(), Contribution(SUPPORT, 500, {"rows": np.full((5 * 6, 2), 9)}))
    leaves, _ = answer_leaves(asked(common=COMMON), [Contribution(SUPPORT, 500, {"rows": many}, former=(former,))])
    assert leaves.columns is not None
    assert leaves.columns[0].tolist() == columns
    assert leaves.columns[2].tolist() == [True] * 4


def test_values_of_equal_rows_are_counted_once() -> None:
    once = rows()
    twice = Dataset(NAMES, "y", np.concatenate([once.X, once.X[:50]]), np.concatenate([once.y, once.y[:50]]))
    first = FrtQuestion("columns", SUPPORTED, DOMAIN, FrtTree.root(3), np.zeros(1, dtype=np.intp))
    counts = answer(first, twice)["rows"]
    assert (counts == answer(first, once)["rows"]).all()
    assert (counts.sum(axis=1) == 400).all()


@pytest.mark.parametrize(
    ("question", "changed"),
    [
        (asked(common=COMMON), {"common": [[4, 0]]}),
        (asked(common=COMMON), {"common": [[1, 256]]}),
        (asked(common=COMMON), {"common": [[1, 5], [1, 4]]}),
        (asked("leaves", columns=np.ones((3, 4), dtype=bool)), {"columns": np.ones((3, 3), dtype=bool)}),
        (asked("leaves", columns=np.ones((3, 4), dtype=bool)), {"columns": None}),
        (asked("leaves", columns=np.ones((3, 4), dtype=bool)), {"common": []}),
    ],
)
def test_task_that_no_run_asks_is_refused(question: FrtQuestion, changed: dict[str, Any]) -> None:
    task = question.to_task()
    read_task(task)
    with pytest.raises(TaskError):
        read_task(replace(task, body={**task.body, **changed}))
