"""A sum of tables gives the union of items with how often they were found, or says that it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassfleet.private.union import LIMB_BITS, SIZES, fill, peel


@given(st.integers(0, 2**32 - 1), st.integers(0, 500), st.integers(1, 12), st.integers(1, 4))
def test_the_union_comes_out_of_the_sum(seed: int, items: int, vehicles: int, limbs: int) -> None:
    rng = np.random.default_rng(seed)
    keys = np.unique(rng.integers(0, 2 ** rng.integers(1, LIMB_BITS + 1), (items, limbs)), axis=0)
    total = fill(keys[:0], np.zeros(0, dtype=np.int64), SIZES[0])
    times = np.zeros(len(keys), dtype=np.int64)
    for _ in range(vehicles):
        own = np.flatnonzero(rng.random(len(keys)) < 0.4)
        count = rng.integers(1, 10**6, len(own))
        total += fill(keys[own], count, SIZES[0])
        times[own] += count
    union = peel(total)
    assert union is not None
    order = np.lexsort(union[0].T[::-1])
    assert np.array_equal(union[0][order], keys[times > 0])
    assert np.array_equal(union[1][order], times[times > 0])


@pytest.mark.parametrize(("items", "fits"), [(1000, True), (1500, False), (3000, False)])
def test_a_table_that_is_too_small_says_so_and_the_next_one_does(items: int, fits: bool) -> None:
    rng = np.random.default_rng(items)
    keys, ones = np.unique(rng.integers(0, 2**30, (items, 2)), axis=0), np.ones(items, dtype=np.int64)
    assert (peel(fill(keys, ones, SIZES[0])) is not None) == fits
    assert peel(fill(keys, ones, SIZES[1])) is not None


def test_noise_is_no_union() -> None:
    rng = np.random.default_rng(0)
    assert peel(rng.integers(-(2**62), 2**62, (SIZES[0], 5))) is None
    assert peel(rng.integers(0, 5, (SIZES[0], 5))) is None
