"""Exact sums of numbers in [0, 1] on a grid finer than one int64 holds: two int64 limbs.

A rule's strength is a product of one membership per input. With 30 inputs the rule that a row founds may have a
strength of 0.5^30 only, and 2^-32, the grid of other schemes, would keep two bits of it. Here a term s is rounded to a
multiple of 2^-2k and split as ``s = high 2^-k + low 2^-2k``, with ``high`` in [0, 2^k] and ``low`` in [0, 2^k]. Limbs
are summed apart and carries are resolved only when a sum is read, so sums add up over rows and agents in any order,
also modulo 2^64.

Overflow: each limb of a term is at most 2^k, so the sums of N rows stay below 2^63 while N < 2^(63 - k). With the
default k = 40 (a grid of 2^-80) that is 8,388,607 rows in a fleet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.statistics import EXACT_BITS


def limb_block(limb_bits: int) -> int:
    """Return the most terms of one cell that float64 adds exactly: 2^13 for 40 bits."""
    return 1 << (EXACT_BITS - limb_bits)


def split(terms: NDArray[np.float64], limb_bits: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Round `terms`, in [0, 1], to the grid; return the high and the low limbs, integer-valued float64 in [0, 2^k].

    Scaling by a power of two and taking off the integer part are exact, so the one rounding is that of the low limb.
    """
    scale = float(1 << limb_bits)
    low = terms * scale
    high = np.floor(low)
    low -= high
    low *= scale
    np.rint(low, out=low)
    return high, low


def read(high: NDArray[np.int64], low: NDArray[np.int64], limb_bits: int) -> NDArray[np.float64]:
    """Return sums as float64, in units of one row: at most two roundings, the same for equal sums."""
    high, low = high + (low >> limb_bits), low & ((1 << limb_bits) - 1)  # equal sums have equal limbs then
    unit = 0.5**limb_bits
    return high.astype(np.float64) * unit + low.astype(np.float64) * (unit * unit)
