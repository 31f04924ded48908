"""Runs of the blended model tree with support: what is counted, what weights rows have, and what is asked then."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.messages import SUPPORT, Contribution, Task
from glassfleet.data.dataset import Dataset
from glassfleet.errors import TaskError
from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.private.columns import Common
from glassfleet.private.layout import DRAWN, DRAWS, draws
from glassfleet.schemes.tree import SCHEME, TreeParameters
from glassfleet.schemes.tree.joint import SCALE
from glassfleet.schemes.tree.messages import TreeQuestion
from glassfleet.schemes.tree.params import SCORE_BITS
from glassfleet.schemes.tree.rows import TrainingRows, training_rows
from glassfleet.schemes.tree.support import (
    about_bands,
    about_counts,
    about_pairs,
    decide_bands,
    decide_pairs,
    limits_of,
    reached_by,
    shares,
    slices_of,
)
from glassfleet.schemes.tree.tree import Split, Tree
from tests.support.sample_models import step_and_slopes as rows
from tests.support.sample_models import unit_domain

NAMES = ("a", "b", "c")
DOMAIN = unit_domain(NAMES)
TREE = Tree((Split(0, 0, 0.25, 0.5), Split(2, 1, 0.0, 1.0), Split(1, 2, 0.1, 0.2)))
SUPPORTED = TreeParameters(min_rows=1, support=3)
EDGES = np.tile(np.linspace(0.0, 1.0, 65), (3, 1))
K, LEAST = 4, 5
TARGET: Common = ((3, 0), (3, 511))
"""Its limits are common values."""


def prepared(data: Dataset) -> TrainingRows:
    return training_rows(data, DOMAIN, 1, 0.0)


def of_bins(tree: Tree = TREE, leaves: tuple[int, ...] = (3, 4), features: tuple[int, ...] = (0, 2)) -> TreeQuestion:
    """Return a question about the rows in each bin."""
    asked = TreeQuestion(SUPPORT, SUPPORTED, DOMAIN, (0, 1, 2), tree, leaves=leaves, features=features, edges=EDGES)
    return replace(asked, counted=np.ones((len(leaves), len(features), 63), dtype=bool))


def of_bands() -> TreeQuestion:
    kept = np.zeros((2, 2, 63), dtype=bool)
    kept[0, 0, [9, 19]] = kept[1, 1, 31] = True
    return replace(of_bins(), kind="bands", coefficients=np.full((4, 1, K), 0.1), kept=kept)


def of_pairs(kind: Any = "joint", closed: tuple[tuple[int, int, int], ...] = (), common: Common = ()) -> TreeQuestion:
    return TreeQuestion(kind, SUPPORTED, DOMAIN, (0, 1, 2), TREE, closed=closed, common=(*common, *TARGET))


def answer(asked: TreeQuestion, data: Dataset) -> dict[str, np.ndarray[Any, Any]]:
    given = SCHEME.client.contribute(asked.to_task(), data, np.random.default_rng(0))
    SCHEME.server.check(asked.to_task(), given)
    assert {name: array.shape for name, array in given.sums.items()} == SCHEME.layout(asked.to_task())
    return dict(given.sums)


# --- weights --------------------------------------------------------------------------------------------------------


def test_degrees_are_eighths_and_sides_add_up() -> None:
    reached = reached_by(of_bins(), prepared(rows(2000)))
    for number, split in enumerate(TREE.splits):
        assert (reached[2 * number + 1] + reached[2 * number + 2] == reached[split.node]).all()
    assert {float(one) for degree in reached for one in degree} == {number / 8 for number in range(9)}


def test_draws_are_the_rows_own_and_of_what_is_asked() -> None:
    data, half = rows(4000), rows(4000)
    half = Dataset(NAMES, "y", half.X[2000:], half.y[2000:])
    mine, theirs = draws(prepared(data).hashes, ["a"]), draws(prepared(data).hashes, ["b"])
    assert (draws(prepared(half).hashes, ["a"]) == mine[2000:]).all()
    assert set(mine.tolist()) == set(DRAWS)
    assert mine.mean() == pytest.approx(DRAWN, abs=0.01)
    assert np.corrcoef(mine, theirs)[0, 1] == pytest.approx(0.0, abs=0.05)


def test_what_is_asked_of_other_leaves_inputs_bands_and_pairs_has_other_draws() -> None:
    asked = of_bands()
    about = [
        *(about_counts(asked, line, 0) for line in (0, 1)),
        *(about_bands(asked, line, place) for line in (0, 1) for place in (0, 1)),
        *(about_bands(replace(asked, kept=~asked.kept), line, place) for line in (0, 1) for place in (0, 1)),
        about_pairs(of_pairs()), about_pairs(of_pairs(closed=((3, 5, 0),))),
    ]  # fmt: skip
    assert all(one != other for at, one in enumerate(about) for other in about[:at])


def test_rows_of_a_closed_pair_move_to_the_leaf_that_has_more_of_them() -> None:
    data = prepared(rows(2000))
    before, after = shares(of_pairs(), data), shares(of_pairs(closed=((4, 6, 0),)), data)
    i, j = (TREE.leaves.index(leaf) for leaf in (4, 6))
    both = (before[i] > 0) & (before[j] > 0)
    assert both.any()
    assert not ((after[i] > 0) & (after[j] > 0)).any()
    assert (after.sum(axis=0) == 1.0).all()
    assert (after[:, ~both] == before[:, ~both]).all()
    assert (np.maximum(after[i], after[j])[both] == (before[i] + before[j])[both]).all()


def test_rows_of_a_closed_leaf_are_in_no_sum() -> None:
    data = prepared(rows(2000))
    before, after = shares(of_pairs(), data), shares(of_pairs(closed=((4, 4, 0),)), data)
    own = before[TREE.leaves.index(4)] > 0
    assert not after[:, own].any()
    assert (after[:, ~own] == before[:, ~own]).all()


def test_rows_of_another_value_in_a_closed_layer_of_a_leaf_are_in_no_sum() -> None:
    data = prepared(rows(2000))
    common = ((0, 200),)  # of 512 cells
    before, after = (shares(of_pairs(closed=closed, common=(*common, *TARGET)), data) for closed in ((), ((4, 4, 1),)))
    gone = (before[TREE.leaves.index(4)] > 0) & (np.floor(data.X[:, 0] * 512) != 200)
    assert gone.any()
    assert not gone.all()
    assert not after[:, gone].any()
    assert (after[:, ~gone] == before[:, ~gone]).all()


# --- sums -----------------------------------------------------------------------------------------------------------


def test_vehicle_sums_leaves_and_bands_with_the_draws_of_each() -> None:
    data = rows()
    asked, known = of_bands(), prepared(data)
    sums, spans, reached = answer(asked, data), slices_of(asked.kept), reached_by(asked, known)
    z = np.column_stack([np.ones(data.rows), data.X])
    residual = data.y - z @ np.full(K, 0.1)
    for line, leaf in enumerate(asked.leaves):
        w, drawn = reached[leaf], draws(known.hashes, about_counts(asked, line, 0))
        expected = (z * (w * w * drawn)[:, None]).T @ z
        assert unpack_symmetric(sums["own"][line][None] * SCALE, K)[0] == pytest.approx(expected, abs=2e-3)
        for place, feature in enumerate(asked.features):
            edges, drawn = (
                EDGES[0][limits_of(asked.kept[line, place])],
                draws(known.hashes, about_bands(asked, line, place)),
            )
            band = np.searchsorted(edges[1:-1], data.X[:, feature], side="right")
            for number in range(len(edges) - 1):
                here = w * drawn * (band == number)
                at = spans[line, place].start + number
                assert sums["scores"][at, 0] / 2**SCORE_BITS == pytest.approx(here.sum(), abs=1e-5)
                assert sums["scores"][at, 1:] / 2**SCORE_BITS == pytest.approx(z.T @ (here * residual), abs=1e-5)
                assert sums["means"][at] / 2**SCORE_BITS == pytest.approx(z.T @ (here * w), abs=1e-5)


def test_vehicle_sums_the_joint_fit_with_one_draw_for_each_row() -> None:
    data = rows()
    asked, known = of_pairs(closed=((4, 6, 0),)), prepared(data)
    sums, share, drawn = answer(asked, data), shares(asked, known), draws(known.hashes, about_pairs(asked))
    place, z = {leaf: at for at, leaf in enumerate(TREE.leaves)}, np.column_stack([np.ones(data.rows), data.X])
    for (i, j), line in zip(TREE.overlaps, sums["gram"], strict=True):
        expected = (z * (share[place[i]] * share[place[j]] * drawn)[:, None]).T @ z
        assert unpack_symmetric(line[None] * SCALE, K)[0] == pytest.approx(expected, abs=2e-3)
    for at, line in enumerate(sums["target"]):
        weight = share[at] * drawn * data.y
        assert line * SCALE == pytest.approx(np.append(z.T @ weight, (weight * data.y).sum()), abs=2e-3)


# --- what is decided ------------------------------------------------------------------------------------------------


def counted(asked: TreeQuestion, counts: Any, *former: tuple[TreeQuestion, Any]) -> Contribution:
    def given(numbers: Any) -> Contribution:
        return Contribution(SUPPORT, 500, {"rows": np.array(numbers, dtype=np.int64)})

    return replace(given(counts), former=tuple((other.to_task(), given(numbers)) for other, numbers in former))


def bins(*filled: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return counts of some bins: the bin's number, all rows, and those of another value."""
    counts = np.zeros((64, len(filled[0]) - 1 if filled else 1), dtype=np.int64)
    for place, *of_layers in filled:
        counts[place] = of_layers
    return counts


ONE = of_bins(leaves=(3,), features=(0,))


def filled_bands(counts: np.ndarray[Any, Any], *given: Contribution, asked: TreeQuestion = ONE) -> list[int]:
    """Decide, and return how many of the counted rows are in each band that has some."""
    enough, kept = decide_bands(asked, given)
    assert enough.all()
    bands = np.split(counts[:, 0], 1 + np.flatnonzero(kept[0, 0]))
    return [int(band.sum()) for band in bands if band.any()]


@pytest.mark.parametrize(
    ("filled", "bands"),
    [
        (((3, 6), (20, 5), (40, 6)), [6, 11]),  # the five are joined to the next ones
        (((3, 6), (20, 6), (40, 5)), [6, 11]),  # to the former, where none come next
        (((3, 2), (20, 2), (40, 2)), [6]),
    ],
)
def test_bins_are_joined_until_a_band_holds_no_rows_or_enough(
    filled: tuple[tuple[int, int], ...], bands: list[int]
) -> None:
    assert filled_bands(bins(*filled), counted(ONE, bins(*filled))) == bands


def test_leaf_of_few_rows_or_none_is_not_asked_about() -> None:
    for line in (bins((3, 4)), bins()):
        enough, kept = decide_bands(ONE, [counted(ONE, line)])
        assert not enough.any()
        assert not kept.any()


def test_each_group_and_each_difference_of_editions_must_hold_enough() -> None:
    many, few = bins((3, 50), (40, 50)), bins((3, 50), (40, 4))
    assert filled_bands(many, counted(ONE, many)) == [50, 50]
    assert filled_bands(many, counted(ONE, many), counted(ONE, few)) == [100]
    after = bins((3, 46), (40, 46))
    assert filled_bands(after, counted(ONE, after, (ONE, many))) == [92]
    other = replace(ONE, edges=np.tile(np.linspace(0.0, 1.0, 65) ** 1.01, (3, 1)))
    assert filled_bands(after, counted(ONE, after, (other, many))) == [46, 46]  # the draws of the other are others

    asked = of_pairs(SUPPORT)
    n = len(TREE.overlaps)
    every = [[9, 9, 9]] * (n - 4)
    assert decide_pairs(asked, [counted(asked, [[9, 9, 9]] * n)]).all()
    some = decide_pairs(asked, [counted(asked, [[0, 0, 0], [9, 2, 9], [4, 3, 4], [5, 5, 1], *every])])
    assert some.tolist()[:4] == [[True] * 3, [True, False, True], [False, True, True], [True, True, False]]
    assert not decide_pairs(asked, [counted(asked, [[8, 8, 8]] * n, (asked, [[9, 9, 9]] * n))]).any()


def test_rows_of_other_values_are_counted_by_band_and_by_pair() -> None:
    data, common = rows(2000), ((0, 200), (1, 3), *TARGET)
    inputs, known = np.column_stack([data.X, data.y]), prepared(data)
    is_other = np.array([np.minimum((inputs[:, one] * 512).astype(int), 511) != cell for one, cell in common])
    support = SUPPORTED.model_copy(update={"support": 10**6})
    leaves = replace(of_bins(), parameters=support, common=common)
    leaves.counted[1, 0] = np.arange(63) % 5 == 0
    counts = iter(answer(leaves, data)["rows"].tolist())
    for (line, leaf), (place, feature) in product(enumerate(leaves.leaves), enumerate(leaves.features)):
        inside = reached_by(leaves, known)[leaf] > 0
        for low, high in pairwise(EDGES[feature][limits_of(leaves.counted[line, place])]):
            here = inside & (data.X[:, feature] >= low) & (data.X[:, feature] < high)
            assert next(counts) == [np.count_nonzero(here), *(np.count_nonzero(here & one) for one in is_other)]
    assert not list(counts)
    pairs = replace(of_pairs(SUPPORT), parameters=support, common=common)
    share = dict(zip(TREE.leaves, shares(pairs, known) > 0, strict=True))
    for (i, j), line in zip(TREE.overlaps, answer(pairs, data)["rows"], strict=True):
        both = share[i] & share[j]
        expected = [np.count_nonzero(both), *(np.count_nonzero(both & one) for one in is_other)]
        assert line.tolist() == (expected if i == j else [*expected[:3], 0, 0])


@pytest.mark.parametrize("asked", [of_bins(), of_pairs(SUPPORT)])
def test_equal_rows_of_a_vehicle_count_once(asked: TreeQuestion) -> None:
    data, asked = rows(200), replace(asked, parameters=SUPPORTED.model_copy(update={"support": 10**6}))
    twice = Dataset(NAMES, "y", np.concatenate([data.X, data.X[:50]]), np.concatenate([data.y, data.y[:50]]))
    assert (answer(asked, twice)["rows"] == answer(asked, data)["rows"]).all()


def test_sums_of_other_common_values_have_other_draws() -> None:
    one, two = (replace(of_bands(), common=common) for common in (((0, 1), *TARGET), TARGET))
    assert about_counts(one, 0, 0) != about_counts(two, 0, 0)
    assert about_bands(one, 0, 0) != about_bands(two, 0, 0)
    assert about_pairs(of_pairs(common=((0, 1),))) != about_pairs(of_pairs())


@pytest.mark.parametrize(("others", "is_enough"), [(0, True), (2, False), (3, True)])
def test_leaf_with_few_rows_of_another_value_is_not_split_off(others: int, is_enough: bool) -> None:
    asked = replace(ONE, common=((1, 0),))
    line = bins((3, 50, others), (40, 50, 0))
    assert decide_bands(asked, [counted(asked, line)])[0].tolist() == [is_enough]


@pytest.mark.parametrize(
    ("others", "bands"), [((3, 0, 4), [50, 50, 50]), ((3, 2, 4), [50, 100]), ((3, 3, 2), [50, 100]), ((1, 3, 2), [150])]
)
def test_bins_are_joined_until_a_band_holds_none_of_another_value_or_enough(
    others: tuple[int, int, int], bands: list[int]
) -> None:
    line = bins(*((place, 50, other) for place, other in zip((3, 20, 40), others, strict=True)))
    asked = replace(ONE, common=((1, 0),))
    assert filled_bands(line, counted(asked, line), asked=asked) == bands


def test_bands_have_the_draws_that_their_counts_were_about() -> None:
    asked = of_bands()
    for line, place in product((0, 1), (0, 1)):
        about = about_counts(of_bins(), line, place)
        assert about_bands(asked, line, place)[: len(about)] == about


def test_leaves_and_bands_hold_twice_as_many_rows_as_they_have_sums_with_other_draws() -> None:
    assert ONE.least_rows == 6  # a sum for the band of each of three leaves on the path
    assert replace(of_bins(leaves=(3,), features=(0, 1, 2)), parameters=SUPPORTED).least_rows == 6
    assert of_bins(Tree(), (0,), (0, 1, 2)).least_rows == 6  # a sum for each input
    assert of_bins(Tree(), (0,), (0,)).least_rows == LEAST  # as many as columns and target
    assert of_pairs(SUPPORT).least_rows == LEAST


def test_leaf_must_hold_enough_by_each_input() -> None:
    asked = of_bins(leaves=(3,), features=(0, 2))
    for few in (0, 1):
        counts = [bins((3, 50), (40, 50)), bins((3, 50), (40, 50))]
        counts[few] = bins((3, 2))
        assert not decide_bands(asked, [counted(asked, np.concatenate(counts))])[0].any()


def test_editions_whose_counts_were_of_other_bands_are_not_compared() -> None:
    coarse = replace(ONE, counted=np.arange(63)[None, None] % 2 == 0)
    assert about_counts(coarse, 0, 0) != about_counts(ONE, 0, 0)
    after = bins((3, 46), (40, 46))
    before = np.full((coarse.counted.sum() + 1, 1), 47)
    assert filled_bands(after, counted(ONE, after, (coarse, before))) == [46, 46]


def test_editions_whose_counts_end_at_other_numbers_are_not_compared() -> None:
    beside = of_bins(leaves=(3, 5), features=(0,))  # the same leaf, beside one that is less deep
    deep = replace(ONE, parameters=SUPPORTED.model_copy(update={"support": 30}))
    assert about_counts(beside, 0, 0)[:-1] == about_counts(ONE, 0, 0)[:-1] == about_counts(deep, 0, 0)[:-1]
    assert about_counts(deep, 0, 0) != about_counts(ONE, 0, 0)
    after, before = bins((3, 6), (40, 6)), bins((3, 30), (40, 30))
    assert filled_bands(after, counted(ONE, after, (deep, before))) == [6, 6]
    assert filled_bands(after, counted(ONE, after, (ONE, before))) == [6, 6]
    assert filled_bands(after, counted(ONE, after, (ONE, bins((3, 9), (40, 9))))) == [12]


# --- what cannot be true --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "changed"),
    [
        (of_pairs(), {"closed": np.array([[3, 4, 0], [3, 4, 0]], dtype=np.int32)}),
        (of_pairs(), {"closed": np.array([[0, 1, 0]], dtype=np.int32)}),
        (of_pairs(), {"closed": np.array([[3, 4, 3]], dtype=np.int32)}),
        (of_pairs(), {"common": [[4, 0]]}),
        (of_pairs(), {"common": [[0, 512]]}),
        (of_pairs(), {"closed": None}),
        (of_bands(), {"kept": np.zeros((2, 2, 64), dtype=bool)}),
        (of_bands(), {"kept": np.zeros((1, 2, 63), dtype=bool)}),
        (of_bands(), {"counted": np.zeros((2, 2, 63), dtype=bool)}),
        (of_bins(), {"counted": np.ones((2, 2, 64), dtype=bool)}),
        (of_bins(), {"leaves": [0]}),
        (of_bins(), {"leaves": []}),
        (of_bins(), {"edges": EDGES[:, ::-1].copy()}),
    ],
)
def test_malformed_questions_are_refused(asked: TreeQuestion, changed: dict[str, Any]) -> None:
    task = asked.to_task()
    with pytest.raises(TaskError):
        SCHEME.client.contribute(
            Task(task.scheme, task.kind, {**task.body, **changed}), rows(), np.random.default_rng()
        )


def test_questions_of_one_course_are_not_asked_in_the_other() -> None:
    for asked in (of_bands(), of_bins(), of_pairs()):
        with pytest.raises(TaskError, match="a run with support asks other questions"):
            TreeQuestion.from_task(replace(asked, parameters=TreeParameters(min_rows=1)).to_task())
    with pytest.raises(TaskError, match="a run with support asks other questions"):
        TreeQuestion.from_task(replace(of_bands(), kind="ramps", candidates=((3, (0, 0.5, 0.75)),)).to_task())
