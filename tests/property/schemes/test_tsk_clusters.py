"""Fuzzy C-means with exact sums: independent of blocks, spread and order, and the same as the textbook's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.schemes.tsk.clusters import Moments, Table, change, first_centres, fuzzy_c_means, grid_bits, moments


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


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_sums_of_agents_add_up_to_those_of_pooled_rows(data: Any) -> None:
    n, d, k = (data.draw(st.integers(1, most)) for most in (200, 5, 6))
    rows = _rows(data.draw(st.integers(0, 10**6)), n, d)
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    before, after = rng.random((2, k, d))
    owner = rng.integers(0, 3, n)

    def sums(part: Any) -> tuple[Moments, int]:
        table = Table.of(part)
        first, second = list(table.memberships(before)), list(table.memberships(after))
        start = moments(table, table.memberships(first_centres(k, d, 5)), k)
        both = moments(table, second, k)
        return Moments(both.high + start.high, both.low + start.low), change(first, second)

    whole, moved = sums(rows[:, rng.permutation(n)])
    parts = [sums(rows[:, owner == agent]) for agent in range(3)]

    assert np.array_equal(whole.high, sum(part.high for part, _ in parts))
    assert np.array_equal(whole.low, sum(part.low for part, _ in parts))
    assert moved == sum(part for _, part in parts)


@pytest.mark.parametrize("d", [1, 2, 9, 16, 100, 4097])
def test_distances_are_exact_for_any_number_of_columns(d: int) -> None:
    bits = grid_bits(d)
    # The extremes: rows and centres in opposite corners, and one grid step apart.
    corner = np.ones((d, 1))
    table = Table.of(np.concatenate([corner, 0 * corner, corner - 2.0**-bits], axis=1))
    block, centre = table.blocks[0], np.full((1, d), float(1 << bits))
    left = np.column_stack([-2.0 * centre, (centre**2).sum(axis=1), [1.0]])
    expected = [sum((int(z) - int(v)) ** 2 for z, v in zip(row, centre[0], strict=True)) for row in block[:d].T]
    assert (left @ block).ravel().tolist() == expected
    assert expected[1] + expected[0] <= 2**53


def test_first_centres_are_spread_and_on_the_grid_and_go_by_the_seed() -> None:
    centres = first_centres(400, 3, 1)
    assert np.array_equal(centres * 2.0 ** grid_bits(3), np.rint(centres * 2.0 ** grid_bits(3)))
    assert centres.min() >= 0.0
    assert centres.max() <= 1.0
    assert np.abs(centres.mean(axis=0) - 0.5).max() < 0.1
    assert np.abs(centres.std(axis=0) - 12**-0.5).max() < 0.05
    assert np.array_equal(centres, first_centres(400, 3, 1))
    assert not np.array_equal(centres, first_centres(400, 3, 2))
