"""SplitMix64 (Steele, Lea and Flood, 2014) as a hash of lines of numbers: one number after the other is mixed in."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_ROUNDS: Final = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))


def mixed_in(state: NDArray[np.uint64], values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hashes of lines, shape (n,), from those of their beginnings and the next number of each."""
    state = (state ^ values) + _STEP
    for shift, factor in _ROUNDS:
        state = (state ^ (state >> shift)) * factor
    return state ^ (state >> np.uint64(31))


def bits_of(numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return the bits of numbers, to be mixed in; zero has one sign."""
    return (np.ascontiguousarray(numbers, dtype=np.float64) + 0.0).view(np.uint64)
