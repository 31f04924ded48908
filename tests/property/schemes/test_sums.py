"""Sums and solvers of schemes are exact for any spread; FedGA under any participation ends and can be repeated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.contract.scheme import personal_model
from glassfleet.crisp import Forest
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.numerics.linear import minimum_norm
from glassfleet.numerics.statistics import (
    carry,
    gram_sums,
    gram_value,
    pack_symmetric,
    sum_by_cell,
    to_grid,
    unpack_symmetric,
)
from glassfleet.schemes.fedga import SCHEME, FedgaParameters
from glassfleet.schemes.tsk.clusters import ClusterRows, fuzzy_c_means, grid_bits
from glassfleet.simulation import federated
from schemas.codec import document_digest

seeds = st.integers(0, 2**32 - 1)


@settings(max_examples=50, deadline=None)
@given(seeds, st.integers(0, 500), st.integers(1, 9), st.sampled_from([16, 32, 40]))
def test_sums_by_cell_do_not_depend_on_order_or_spread(seed, n, cells, bits):
    rng = np.random.default_rng(seed)
    terms, cell = to_grid(rng.random(n), bits), rng.integers(0, cells, n)
    exact = [sum(int(t) for t, c in zip(terms, cell, strict=True) if c == k) for k in range(cells)]
    order, cut = rng.permutation(n), int(rng.integers(0, n + 1))

    whole = sum_by_cell(cell, terms, cells, bits=bits)
    parts = [sum_by_cell(cell[order][s], terms[order][s], cells, bits=bits) for s in (slice(cut), slice(cut, None))]

    assert whole.tolist() == exact
    assert np.array_equal(parts[0] + parts[1], whole)


@settings(max_examples=50, deadline=None)
@given(seeds, st.integers(0, 200), st.integers(1, 6), st.sampled_from([16, 20, 29, 30, 32]))
def test_gram_sums_are_the_exact_integers_for_any_spread(seed, n, k, bits):
    rng = np.random.default_rng(seed)
    columns = to_grid(np.clip(rng.normal(0.7, 0.5, (k, n)), 0.0, 1.0), bits)
    exact = [
        [sum(int(a) * int(b) for a, b in zip(columns[i], columns[j], strict=True)) for j in range(k)] for i in range(k)
    ]
    cut = int(rng.integers(0, n + 1))

    high, low = gram_sums(columns, bits=bits)
    parts = [gram_sums(part, bits=bits) for part in (columns[:, :cut], columns[:, cut:])]
    joined = carry(parts[0][0] + parts[1][0], parts[0][1] + parts[1][1], bits=bits)

    width = 2 * (bits // 2)
    assert [[(int(high[i, j]) << width) + int(low[i, j]) for j in range(k)] for i in range(k)] == exact
    assert np.array_equal(joined[0], high)
    assert np.array_equal(joined[1], low)
    assert np.allclose(gram_value(high, low, bits=bits), np.array(exact, dtype=np.float64), rtol=1e-15)
    assert np.array_equal(unpack_symmetric(pack_symmetric(high), k), high)


def _system(rng: np.random.Generator, n: int, k: int, bits: int = 30, *, deficient: bool = False) -> Any:
    Z = rng.random((n, k))
    Z[:, -1] = 1.0
    if deficient:
        Z[:, 0] = 0.3  # collinear with the ones, but only nearly so once rounded
        if k > 3:
            Z[:, 1] = 1.0 - Z[:, 2]
    rows = np.column_stack([Z, rng.random(n)]) * np.sqrt(rng.random(n))[:, None]
    gram = gram_value(*gram_sums(to_grid(rows.T.copy(), bits), bits=bits), bits=bits)
    return gram[:-1, :-1], gram[:-1, -1], rows


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(2, 22), st.booleans())
def test_solver_agrees_with_least_squares(seed, k, deficient):
    rng = np.random.default_rng(seed)
    gram, moment, rows = _system(rng, 12 * k, k, deficient=deficient)

    solution = minimum_norm(gram[None], moment[None], np.array([12 * k]))[0]

    expected = np.linalg.lstsq(rows[:, :-1], rows[:, -1], rcond=1e-7)[0]
    assert np.allclose(solution, expected, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(seeds, st.integers(2, 9))
def test_solver_gives_each_problem_the_same_bits_alone_as_in_a_batch(seed, k):
    rng = np.random.default_rng(seed)
    systems = [_system(rng, int(rng.integers(1, 60)), k, deficient=bool(i % 2)) for i in range(7)]
    gram, moment = np.array([s[0] for s in systems]), np.array([s[1] for s in systems])
    rows = np.array([len(s[2]) for s in systems])

    together = minimum_norm(gram, moment, rows)

    for i in range(len(systems)):
        assert np.array_equal(minimum_norm(gram[i : i + 1], moment[i : i + 1], rows[i : i + 1])[0], together[i])


def _rows(seed: int, n: int, d: int) -> Any:
    rng = np.random.default_rng(seed)
    middles = rng.random((4, d))
    return np.clip(middles[rng.integers(0, 4, n)] + rng.normal(0, 0.08, (n, d)), 0, 1).T.copy()


def _textbook(Z: Any, k: int, iterations: int) -> Any:
    """Fuzzy C-means as it is written, in floating point."""
    u = np.random.RandomState(0).rand(len(Z), k)
    u /= u.sum(axis=1, keepdims=True)
    for _ in range(iterations):
        centres = (u**2).T @ Z / (u**2).sum(axis=0)[:, None]
        distance = np.maximum(((Z[:, None] - centres) ** 2).sum(axis=2), 1e-30)
        u = 1 / distance / (1 / distance).sum(axis=1, keepdims=True)
    return centres


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(100, 300), st.integers(1, 6), st.integers(1, 5), st.integers(1, 12))
def test_centres_are_the_textbooks_up_to_the_grid(seed: int, n: int, d: int, k: int, iterations: int) -> None:
    rows = _rows(seed, n, d)
    centres = fuzzy_c_means(rows, k, seed=0, tolerance=0.0, max_iterations=iterations)
    # A grid of 2^-23 and twelve iterations, each of which may enlarge a difference. Rows outnumber clusters: where a
    # centre sits on a row its distance is zero, and the two differ in what they take instead.
    assert np.abs(centres - _textbook(rows.T, k, iterations)).max() < 1e-3


@pytest.mark.parametrize("d", [1, 2, 9, 16, 100, 4097])
def test_distances_are_exact_for_any_number_of_columns(d: int) -> None:
    bits = grid_bits(d)
    # The extremes: rows and centres in opposite corners, and one grid step apart.
    corner = np.ones((d, 1))
    table = ClusterRows.of(np.concatenate([corner, 0 * corner, corner - 2.0**-bits], axis=1))
    block, centre = table.blocks[0], np.full((1, d), float(1 << bits))
    left = np.column_stack([-2.0 * centre, (centre**2).sum(axis=1), [1.0]])
    expected = [sum((int(z) - int(v)) ** 2 for z, v in zip(row, centre[0], strict=True)) for row in block[:d].T]
    assert (left @ block).ravel().tolist() == expected
    assert expected[1] + expected[0] <= 2**53


FEATURES = tuple(Variable(name=name, low=0.0, high=1.0) for name in "abcd")


def _fleet(sizes: list[int], classes: int, seed: int) -> tuple[Domain, dict[str, Dataset]]:
    rng = np.random.default_rng(seed)
    labels = tuple(f"k{k}" for k in range(classes))
    domain = (
        Domain(features=FEATURES, label="y", classes=labels)
        if classes
        else Domain(features=FEATURES, target=Variable(name="y", low=0.0, high=1.0))
    )
    fleet = {}
    for number, rows in enumerate(sizes):
        X = np.round(rng.random((rows, 4)), 1)
        signal = (X[:, 0] + X[:, 1] * X[:, 2]) / 2
        y: Any = np.array(labels)[np.minimum((signal * classes).astype(int), classes - 1)] if classes else signal
        fleet[f"v{number}"] = Dataset(("a", "b", "c", "d"), "y", X, y)
    return domain, fleet


@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(any),
    classes=st.sampled_from([0, 2, 3]),
    depth=st.sampled_from([None, 1, 2, 5]),
    population=st.integers(2, 6),
    seed=st.integers(0, 2**40),
    data=st.data(),
)
def test_fleet_learns_valid_trees_and_the_same_ones_again_whoever_answers(
    *, sizes: list[int], classes: int, depth: int | None, population: int, seed: int, data: Any
) -> None:
    domain, fleet = _fleet(sizes, classes, seed)
    parameters = FedgaParameters(generations=4, population=population, depth=depth, max_depth=6)
    with_rows = [name for name, rows in fleet.items() if rows.rows]
    schedule = [
        sorted({*data.draw(st.sets(st.sampled_from(sorted(fleet)))), data.draw(st.sampled_from(with_rows))})
        for _ in range(2 + 1 + 4)
    ]
    models = [
        federated(SCHEME, parameters, domain, fleet, seed, present=lambda number, _: schedule[number - 1]).model
        for _ in range(2)
    ]
    assert document_digest(models[0].to_document()) == document_digest(models[1].to_document())
    forest: Forest = models[0].forest
    forest.check(models[0].depth)
    assert forest.size <= population
    assert list(models[0].fitness) == sorted(models[0].fitness, reverse=True)
    for name in with_rows:
        tree = personal_model(SCHEME, models[0], fleet[name])
        predicted = tree.predict(fleet[name].X)
        if classes:
            assert set(predicted.tolist()) <= set(domain.classes)
        else:
            assert float(predicted.min()) >= -1e-9
            assert float(predicted.max()) <= 1 + 1e-9
