"""Exact sums at the edges of their blocks and limits."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from glassfleet.numerics.statistics import gram_sums, sum_by_cell, to_grid


def test_sums_stay_exact_beyond_one_block():
    terms = to_grid(np.full(40_000, 1.0) - 2.0**-39, 40)
    total = sum_by_cell(np.zeros(40_000, dtype=np.intp), terms, 1, bits=40)
    assert int(total[0]) == 40_000 * ((1 << 40) - 2)


def test_gram_sums_stay_exact_beyond_one_carry():
    columns = to_grid(np.full((2, 20_000), 1.0) - 2.0**-29, 30)
    high, low = gram_sums(columns, bits=30)
    assert (int(high[0, 1]) << 30) + int(low[0, 1]) == 20_000 * ((1 << 30) - 2) ** 2


def test_vehicles_half_imports_no_heavy_package():
    program = (
        "import sys, glassfleet.catalogue as c; c.load('frt'); import glassfleet.local;"
        "print([m for m in ('scipy', 'sklearn', 'pandas', 'flint') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
