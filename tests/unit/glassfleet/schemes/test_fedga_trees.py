"""Crisp trees: growing, fitting structures, depths, words, documents."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from glassfleet.crisp import Columns, Forest, prepare
from glassfleet.crisp.fit import fit_tree, score_forest
from glassfleet.crisp.grow import best_depth, depth_scores, grow_tree, kfold_parts, stratified_parts
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import TaskError


def _columns(rows: int = 200, classes: int = 2, seed: int = 0, features: int = 5) -> Columns:
    rng = np.random.default_rng(seed)
    X = np.round(rng.random((rows, features)), 2)  # repeated values
    signal = X[:, 0] * 2 + (X[:, 1] > 0.5) - X[:, 2] + rng.normal(0, 0.2, rows)
    if classes:
        y = np.clip(np.floor((signal - signal.min()) / np.ptp(signal) * classes), 0, classes - 1).astype(np.int64)
    else:
        y = np.rint((signal - signal.min()) / np.ptp(signal) * 2**30).astype(np.int64)
    return Columns.of(X, y, classes)


def _impurity(columns: Columns, rows: Any) -> float:
    y = columns.y[rows]
    if columns.classes:
        share = np.bincount(y, minlength=columns.classes) / max(len(y), 1)
        return len(y) * (1 - float((share**2).sum()))
    return float(((y - y.mean()) ** 2).sum()) / 4.0**30 if len(y) else 0.0


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_tree_takes_the_best_cut_of_all_when_it_splits(classes: int) -> None:
    columns = _columns(60, classes)
    tree = grow_tree(columns, np.arange(60), 1)
    tried = {
        (feature, float(low + high) / 2): _impurity(columns, np.flatnonzero(column <= low))
        + _impurity(columns, np.flatnonzero(column > low))
        for feature, column in enumerate(columns.X.T)
        for values in [np.unique(column)]
        for low, high in pairwise(values)
    }
    left = columns.X[:, tree.feature[0]] <= tree.threshold[0]
    got = _impurity(columns, np.flatnonzero(left)) + _impurity(columns, np.flatnonzero(~left))
    assert got == pytest.approx(min(tried.values()), rel=1e-9)
    assert any(
        feature == tree.feature[0] and threshold == pytest.approx(tree.threshold[0]) for feature, threshold in tried
    )


@pytest.mark.parametrize("classes", [0, 2, 4])
def test_tree_is_as_good_as_scikit_learns_when_fully_grown(classes: int) -> None:
    trees = pytest.importorskip("sklearn.tree", reason="pip install glassfleet[experiments]")
    columns = _columns(300, classes, seed=3)
    kind = trees.DecisionTreeClassifier if classes else trees.DecisionTreeRegressor
    reference = kind(max_depth=4, random_state=0).fit(columns.X, columns.y / (1 if classes else 2.0**30))
    tree = grow_tree(columns, np.arange(300), 4)
    assert tree.size == reference.tree_.node_count
    assert float((tree.rows * tree.impurity)[tree.leaves].sum()) == pytest.approx(
        float((reference.tree_.n_node_samples * reference.tree_.impurity)[reference.tree_.children_left < 0].sum()),
        rel=1e-6,
    )


@pytest.mark.parametrize("classes", [0, 2, 3])
def test_structure_of_a_tree_becomes_that_tree_when_it_is_fitted_to_the_same_rows(classes: int) -> None:
    columns, train = _columns(classes=classes), np.arange(150)
    tree = grow_tree(columns, train, 5)
    again = fit_tree(columns, Forest.of([tree.feature]), train)
    for part in ("feature", "threshold", "right", "value", "rows", "impurity"):
        assert np.array_equal(getattr(tree, part), getattr(again, part)), part


def _structures(features: int, count: int, depth: int, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)

    def draw(level: int) -> list[int]:
        if level == depth or (level and rng.random() < 0.3):
            return [-1]
        return [int(rng.integers(0, features)), *draw(level + 1), *draw(level + 1)]

    return [np.array(draw(0), dtype=np.int32) for _ in range(count)]


@pytest.mark.parametrize(("classes", "positive"), [(0, None), (2, 1), (3, None)])
def test_score_is_that_of_the_fitted_tree_whatever_else_is_scored_with_it(classes: int, positive: int | None) -> None:
    columns = _columns(classes=classes, seed=5)
    train, test = np.arange(0, 200, 2), np.arange(1, 200, 2)
    structures = _structures(5, 12, 5)
    together = score_forest(columns, Forest.of(structures), train, test, positive=positive)
    for genes, score in zip(structures, together, strict=True):
        assert score_forest(columns, Forest.of([genes]), train, test, positive=positive)[0] == score
        tree = fit_tree(columns, Forest.of([genes]), train)
        value = tree.value[tree.reach(columns.X[test])]
        true = columns.y[test]
        if not classes:
            assert score == pytest.approx(-float(np.mean((value[:, 0] - true / 2.0**30) ** 2)))
            continue
        said = value.argmax(axis=1)
        each = [
            2 * ((said == k) & (true == k)).sum() / max(1, (said == k).sum() + (true == k).sum())
            for k in range(classes)
        ]
        there = [((said == k) | (true == k)).any() for k in range(classes)]
        expected = each[positive] if positive is not None else sum(each) / max(1, sum(there))
        assert score == pytest.approx(expected)


def test_scores_by_depth_are_those_of_trees_grown_to_each_depth() -> None:
    columns = _columns(150, 2, seed=9)
    folds = kfold_parts(stratified_parts(columns, 5, np.random.default_rng(0)), 5)
    scores = depth_scores(columns, folds, 6, positive=1)
    for line, (train, test) in enumerate(folds):
        for depth in range(7):
            tree = grow_tree(columns, train, depth)
            said, true = tree.value[tree.reach(columns.X[test])].argmax(axis=1), columns.y[test]
            right = int(((said == 1) & (true == 1)).sum())
            total = int((said == 1).sum() + (true == 1).sum())
            assert scores[line, depth] == pytest.approx(2 * right / total if total else 0.0)
    assert best_depth(np.array([[0.9, 0.9, 0.5, 0.6, 0.6]])) == 3


@pytest.mark.parametrize(
    ("genes", "reason"),
    [
        ([-1], "does not split at its root"),
        ([0, -1], "incomplete"),
        ([0, -1, -1, -1], "incomplete|followed"),
        ([0, 1, 2, -1, -1, -1, -1], "deeper than 2"),
        ([], "incomplete|structures"),
    ],
)
def test_forest_is_refused_when_a_structure_is_malformed(genes: list[int], reason: str) -> None:
    value = {"genes": np.array(genes).astype(np.int8).view(np.uint8), "starts": np.zeros(1, dtype=np.int32)}
    with pytest.raises(ValueError, match=reason):
        Forest.from_value(value, 5, 2, 10)


CITY = Domain(
    features=(
        Variable(name="speed", low=0, high=100, unit="km/h"),
        Variable(name="fuel", low=0, high=2, categories=("diesel", "electric", "petrol")),
    ),
    label="use",
    classes=("car", "van"),
)


def _vehicle(fuels: tuple[str, ...], rows: int = 90, seed: int = 0) -> Dataset:
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(0, 100, rows), rng.integers(0, len(fuels), rows)])
    van = (X[:, 0] < 60) & (np.array(fuels)[X[:, 1].astype(int)] == "diesel")
    return Dataset(("speed", "fuel"), "use", X, np.where(van, "van", "car"), categories={"fuel": fuels})


def test_vehicle_maps_its_categories_to_the_domains_when_it_has_others() -> None:
    data = _vehicle(("diesel", "gas", "petrol"))
    X = prepare(data, CITY).X[:, 1]
    codes = {text: float(X[data.X[:, 1] == place][0]) for place, text in enumerate(("diesel", "gas", "petrol"))}
    assert codes == {"diesel": 0.0, "gas": 1.5, "petrol": 2.0}  # gas: between electric and petrol


@pytest.mark.parametrize("own", [{}, {"speed": ("fast", "slow"), "fuel": ("diesel",)}])
def test_vehicle_refuses_when_a_column_is_text_here_and_numbers_there(own: Any) -> None:
    data = _vehicle(("diesel", "electric", "petrol"))
    X = data.X if own else data.X + 7.3
    wrong = Dataset(data.features, data.target, np.zeros_like(X) if own else X, data.y, categories=own)
    with pytest.raises(TaskError, match="categories"):
        prepare(wrong, CITY)


def test_pooled_rows_keep_their_texts_when_vehicles_have_different_categories() -> None:
    parts = [_vehicle(("diesel", "petrol")), _vehicle(("gas", "petrol"), seed=1)]
    both = pool(parts)
    assert both.categories == {"fuel": ("diesel", "gas", "petrol")}
    for part, rows in zip(parts, (slice(0, 90), slice(90, 180)), strict=True):
        own = [part.categories["fuel"][int(code)] for code in part.X[:, 1]]
        assert [both.categories["fuel"][int(code)] for code in both.X[rows, 1]] == own
