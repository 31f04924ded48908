"""The blended model tree: its sums are those of the definition, and its fit that of least squares over rows."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.messages import Done, Next
from glassfleet.data.dataset import Dataset
from glassfleet.data.sampling import is_held_out
from glassfleet.numerics.grids import histogram
from glassfleet.schemes.tree import SCHEME, TreeParameters, messages
from glassfleet.schemes.tree import rows as prepared
from glassfleet.schemes.tree.bins import CELLS, find_edges
from glassfleet.schemes.tree.joint import TELLING, dense, fit_of, pull_of, ridge_of, sparse
from glassfleet.schemes.tree.messages import TreeQuestion
from glassfleet.schemes.tree.products import SELDOM, sum_by_cell, sum_columns, sum_pairs
from glassfleet.schemes.tree.rules import why_few
from glassfleet.schemes.tree.server import _regressors, taken_in
from glassfleet.schemes.tree.size import sums_of
from glassfleet.schemes.tree.tree import Split, Tree, degrees
from glassfleet.simulation import central
from tests.support.sample_models import step_and_slopes as rows
from tests.support.sample_models import unit_domain

NAMES = ("a", "b", "c")
DOMAIN = unit_domain(NAMES)
TREE = Tree((Split(0, 0, 0.25, 0.5), Split(2, 1, 0.0, 1.0), Split(1, 0, 0.1, 0.2), Split(4, 0, 0.6, 0.8)))
K = 4
EXACT = TreeParameters(min_rows=1, holdout=0.2)
EDGES = np.tile(np.linspace(0.0, 1.0, 65), (3, 1))


def answer(asked: TreeQuestion, data: Dataset) -> dict[str, np.ndarray[Any, Any]]:
    given = SCHEME.client.contribute(asked.to_task(), data, np.random.default_rng(0))
    SCHEME.server.check(asked.to_task(), given)
    return dict(given.sums)


def bins_question(tree: Tree, latest: int, leaves: tuple[int, ...] = ()) -> TreeQuestion:
    coefficients = np.full((len(tree.leaves), 1, K), 0.1)
    return TreeQuestion("bins", EXACT, DOMAIN, (0, 1, 2), tree, coefficients, latest, leaves, (0, 2), EDGES)


def columns(data: Dataset) -> np.ndarray[Any, Any]:
    return np.column_stack([np.ones(data.rows), data.X])


def split_rows(data: Dataset) -> tuple[Dataset, Dataset]:
    held = is_held_out(data.X.T, data.y, EXACT.holdout)
    return tuple(Dataset(NAMES, "y", data.X[part], data.y[part]) for part in (~held, held))  # type: ignore[return-value]


def known(data: Dataset, tree: Tree) -> dict[str, Any]:
    """What a coordinator knows of the joint fit after three steps of growth."""
    gram, target = [], []
    for part in split_rows(data):
        z, one = columns(part).T, np.ones((1, part.rows))
        gram.append(sum_pairs(one, z))
        target.append(sum_columns(one, np.vstack([z, part.y]) * part.y))
    memory: dict[str, Any] = {"pairs": np.zeros((1, 2), dtype=np.int64), "gram": np.stack(gram)}
    memory |= {"leaves": [0], "target": np.stack(target)[:, None]}
    for splits, latest in ((1, 1), (3, 2), (4, 1)):
        if splits <= len(tree.splits):
            asked = bins_question(tree.first(splits), latest)
            memory = taken_in(asked, memory, answer(asked, data))
    return memory


def fitted(data: Dataset, tree: Tree, n_splits: int, part: int = 0) -> Any:
    return fit_of(tree, n_splits, *sums_of(known(data, tree), part))


# --- the vehicle ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [None, np.arange(200) % 7 + 1.0])
def test_sums_by_cell_are_the_same_with_and_without_a_sparse_matrix(times: np.ndarray[Any, Any] | None) -> None:
    rng = np.random.default_rng(3)
    terms, cells = rng.random((4, 200)), rng.integers(0, 6, (3, 200))
    grid = np.rint(terms * 2.0**28) * (1.0 if times is None else times)
    expected = [[[t[own == cell].sum() for t in grid] for cell in range(8)] for own in cells]
    for many in (False, True):
        assert (sum_by_cell(terms, cells, 8, times, many=many) == np.array(expected)).all()


@pytest.mark.parametrize("times", [None, np.arange(200) % 7 + 1.0])
def test_a_column_that_is_seldom_more_than_zero_is_in_all_sums_of_pairs(times: np.ndarray[Any, Any] | None) -> None:
    rng = np.random.default_rng(2)
    weights, z = rng.random((3, 200)), rng.random((5, 200))
    for column, every in ((1, 3 * SELDOM), (4, 2 * SELDOM)):
        z[column, np.arange(200) % every > 0] = 0.0
    counted = np.ones(200) if times is None else times
    pairs = [(i, j) for i in range(5) for j in range(i, 5)]
    grid = [np.rint(z[i] * z[j] * 2.0**20) for i, j in pairs]
    assert (sum_pairs(weights, z, times) == np.rint(weights * 2.0**20) * counted @ np.transpose(grid)).all()


# --- the joint fit --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [0, 1, 3, 4])
def test_sums_of_pairs_give_those_of_every_pruned_tree(splits):
    data = rows(400)
    whole, direct = fitted(data, TREE, splits), fitted(data, TREE.first(splits), splits) if splits else None
    train = split_rows(data)[0]
    assert whole.rows == pytest.approx(train.rows, abs=1e-2)
    if direct is not None:
        assert whole.blocks == pytest.approx(direct.blocks, abs=1e-2)
        assert whole.right == pytest.approx(direct.right, abs=1e-2)


def test_fit_of_all_rules_is_that_of_least_squares_over_rows():
    data = rows(2000)
    train, held = split_rows(data)
    fit = fitted(data, TREE, 4)
    b = dense(fit, fit.with_pull(0.0, np.zeros((5 * K, 5 * K))))
    phi = [
        np.hstack([d[leaf][:, None] * columns(part) for leaf in TREE.leaves])
        for part, d in ((part, degrees(TREE, np.ascontiguousarray(part.X.T))) for part in (train, held))
    ]
    ridge = ridge_of(train.rows) * np.eye(5 * K)
    expected = np.linalg.solve(phi[0].T @ phi[0] + ridge, phi[0].T @ train.y)
    assert phi[0] @ b.ravel() == pytest.approx(phi[0] @ expected, abs=1e-4)
    for which, (part, matrix) in enumerate(zip((train, held), phi, strict=True)):
        error = ((part.y - matrix @ b.ravel()) ** 2).sum()
        assert fitted(data, TREE, 4, which).error(b) == pytest.approx(error, rel=1e-2)


def test_pull_draws_leaves_together_through_inner_nodes_without_data():
    fit = fitted(rows(400), TREE, 4)
    root = fit.blocks.sum(axis=(0, 1))
    pull = pull_of(fit, root)
    variances = np.diagonal(root) / root[0, 0] - (root[0] / root[0, 0]) ** 2
    # All nodes written out, the least over the inner ones found directly.
    n, size = len(TREE.leaves), TREE.size
    form = np.zeros((size * K, size * K))
    own = dict(zip(TREE.leaves, (fit.blocks[at, at] for at in range(n)), strict=True))
    for index in reversed(range(4)):
        own[TREE.splits[index].node] = own[2 * index + 1] + own[2 * index + 2]
    for node in range(1, size):
        weight = own[node][0, 0]
        measure = 0.9 * own[node] / weight + 0.1 * root / root[0, 0] + 0.3 * np.diag(variances)
        measure += ridge_of(fit.rows) / max(weight, 1.0) * np.eye(K)
        a, b = slice(node * K, node * K + K), slice(TREE.parent(node) * K, TREE.parent(node) * K + K)
        form[a, a] += measure
        form[b, b] += measure
        form[a, b] -= measure
        form[b, a] -= measure
    order = [node * K + i for node in TREE.leaves for i in range(K)]
    inner = [at for at in range(size * K) if at not in order]
    across = form[np.ix_(order, inner)]
    expected = form[np.ix_(order, order)] - across @ np.linalg.pinv(form[np.ix_(inner, inner)]) @ across.T
    assert pull == pytest.approx(expected, abs=1e-7)
    same = np.tile([1.0, 2.0, 3.0, 4.0], n)
    assert pull @ same == pytest.approx(0.0, abs=1e-6)


def test_slopes_are_dropped_until_few_are_left_and_the_others_refitted():
    fit = fitted(rows(400), TREE, 4)
    matrix = fit.with_pull(1.0, pull_of(fit, fit.blocks.sum(axis=(0, 1))))
    few, fewer = sparse(fit, matrix, 2, (2.0, 1e9), (0, 1, 2))
    assert (np.count_nonzero(few[:, 0, 1:], axis=1) <= 2).all()
    assert not fewer[..., 1:].any()
    left = np.flatnonzero(few.ravel())
    pulled = fit.right.ravel() + ridge_of(fit.rows) * np.linalg.solve(matrix, fit.right.ravel())
    alone = np.linalg.solve(matrix[np.ix_(left, left)], pulled[left])
    assert few.ravel()[left] == pytest.approx(alone, rel=1e-6)


# --- the bins -------------------------------------------------------------------------------------------------------


def test_edges_follow_the_rows_and_leave_no_stretch_without_bins():
    skewed = np.random.default_rng(0).random((1, 10_000)) ** 8
    (edges,) = find_edges(histogram(np.concatenate([skewed, np.zeros_like(skewed)]), CELLS), 64, ())[:1]
    assert (np.diff(edges) > 1e-6).all()
    assert (edges < 0.1).sum() > 20
    assert np.diff(edges).max() < 0.06
    flat = find_edges(np.zeros((1, CELLS), dtype=np.int64), 16, ())
    assert flat[0] == pytest.approx(np.linspace(0, 1, 17))


# --- whole runs -----------------------------------------------------------------------------------------------------


def run(parameters: TreeParameters, data: Dataset) -> tuple[Any, int, Any]:
    outcome = central(SCHEME, parameters, DOMAIN, data)
    return outcome.model, outcome.rounds, outcome.summary


def test_run_finds_the_split_and_stops_early():
    data = rows(3000)
    model, rounds, summary = run(EXACT, data)
    assert rounds <= 26
    assert float(np.std(model.predict(data.X) - data.y)) < 0.04
    assert model.tree.splits[0].feature == 0
    assert summary["leaves"] == len(model.rules())
    words = [str(part.term) for rule in model.rules() for part in rule.conditions]
    assert any(word.startswith("below") for word in words)


def test_run_keeps_the_largest_tree_when_no_rows_are_held_out():
    model, _, _ = run(TreeParameters(min_rows=1, holdout=0.0, max_rules=5), rows(3000))
    assert len(model.rules()) == 5


# --- what cannot be true --------------------------------------------------------------------------------------------


# --- growing ---------------------------------------------------------------------------------------------------------


def played(data: Dataset, **settings: Any) -> tuple[list[TreeQuestion], Any]:
    """Return the questions of a run of one vehicle, and what it came to."""
    step: Next | Done = SCHEME.server.start(TreeParameters(min_rows=1, **settings), DOMAIN, 0)
    asked: list[TreeQuestion] = []
    while isinstance(step, Next):
        asked.append(TreeQuestion.from_task(step.task))
        given = SCHEME.client.contribute(step.task, data, np.random.default_rng(0))
        step = SCHEME.server.reduce(step.state, [given])
    return asked, step


@pytest.mark.parametrize("way", [0, 1])
def test_both_ways_to_grow_are_tried_and_the_held_out_rows_choose(way, monkeypatch):
    # Where only one of the ways may split, the held-out rows choose it.
    monkeypatch.setattr(messages, "WAYS", (1e9, 0.0) if way else (0.0, 1e9))
    rng = np.random.default_rng(3)
    X = rng.random((2000, 3))
    y = 0.2 + 0.4 * (X[:, 0] > 0.3) + 0.3 * (X[:, 1] > 0.6) + rng.normal(0.0, 0.01, 2000)
    asked, done = played(Dataset(NAMES, "y", X, y), max_rules=12)
    begun = [question for question in asked if question.kind == "bins" and question.latest == len(question.tree.splits)]
    assert len(begun) == 3  # the root, and a first split in each way
    assert len(asked) <= 26
    assert done.summary["dear"] == 0.0


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (0.0, r"no split said more than a straight line: error \S+ on held-out rows"),
        (0.05, r"a straight line was as good on held-out rows: error 0\.05\d*, with \d+ rules 0\.05\d*"),
    ],
)
def test_straight_line_stays_one_rule_and_says_how_good_more_would_be(noise, words):
    data = rows(2000)
    drawn = np.random.default_rng(2).normal(0.0, noise, 2000)
    _, done = played(Dataset(NAMES, "y", data.X, 0.1 + data.X @ np.array([0.4, 0.2, 0.0]) + drawn))
    assert len(done.model.rules()) == 1
    assert done.summary["held_out_line"] == pytest.approx(noise, abs=3e-3)
    assert re.fullmatch(words, done.summary["why_few"])


@pytest.mark.parametrize(
    ("most", "rules", "errors", "words"),
    [
        (
            40,
            1,
            {1: 1.23, 2: 1.3, 8: 1.24},
            "a straight line was as good on held-out rows: error 1.23, with 8 rules 1.24",
        ),
        (40, 1, {1: 1.5, 8: 1.2}, "a straight line was near enough on held-out rows: error 1.5, with 8 rules 1.2"),
        (8, 2, {1: 9.0, 2: 1.0, 5: 1.0}, "2 rules were as good on held-out rows: error 1, with 5 rules 1"),
        (8, 2, {1: 9.0, 2: 1.0}, "no split said more than 2 rules: error 1 on held-out rows"),
        (7, 2, {1: 9.0, 2: 1.0, 5: 1.0}, ""),
        (40, 3, {1: 9.0, 3: 1.0, 5: 1.0}, ""),
        (1, 1, {1: 1.0}, ""),
        (40, 1, {}, ""),
    ],
)
def test_model_of_few_rules_says_what_more_would_have_brought(most, rules, errors, words):
    question = TreeQuestion("scan", EXACT.model_copy(update={"max_rules": most}), DOMAIN)
    assert why_few(question, rules, errors) == words


@pytest.mark.parametrize(("share", "kept"), [(0.0009, [0]), (0.0011, [0, 1])])
def test_excess_of_many_rows_is_kept_when_it_brings_a_thousandth_of_the_squared_error(share, kept):
    w = np.sqrt(
        share
    )  # y = x + w * excess + noise, all without correlation: what x leaves is 1, and excess's part w**2
    moments = 30_000 * np.array([[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, w], [0, 1, w, 2]])
    assert _regressors(np.stack([moments, moments]), 1, 24, 1, beyond=True) == kept


def test_slopes_that_move_no_forecast_by_a_thousandth_of_the_range_are_dropped():
    fit = fitted(rows(400), TREE, 4)
    matrix = fit.with_pull(1.0, pull_of(fit, fit.blocks.sum(axis=(0, 1))))
    (all_,) = sparse(fit, matrix, 3, (0.0,), (0, 1, 2))
    slopes = all_[:, 1:]
    assert (np.abs(slopes[slopes != 0.0]) >= TELLING).all()


def test_answers_by_blocks_of_rows_are_those_of_all_rows_at_once(monkeypatch):
    data = rows(400)
    question = bins_question(TREE, 1, (TREE.leaves[1],))
    whole = answer(question, data)
    monkeypatch.setattr(prepared, "BLOCK_ROWS", 77)
    again = answer(question, rows(400))
    assert all((again[name] == part).all() for name, part in whole.items())
