"""Laws of the exact sums, the partitions and the solver."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=60, deadline=None)
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
