"""Which rows are held out: decided by a hash of the row itself.

A row's place in a file, or the vehicle that holds it, would make the choice depend on how rows are spread, and the
fleet's model would differ from the central one. Equal rows are held out together, wherever they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


def is_held_out(inputs: NDArray[np.float64], target: NDArray[np.float64], share: float) -> NDArray[np.bool_]:
    """Return which rows are held out, about `share` of different rows.

    Parameters
    ----------
    inputs : ndarray of float64, shape (F, n)
        Scaled inputs.
    target : ndarray of float64, shape (n,)
        Scaled target.
    share : float
        In [0, 1).

    Notes
    -----
    SplitMix64 (Steele, Lea and Flood, 2014) over the bits of the row's numbers, one after the other.
    """
    state = np.zeros(target.shape, dtype=np.uint64)
    for column in (*inputs, target):
        bits = (np.ascontiguousarray(column) + 0.0).view(np.uint64)  # + 0.0: zero has one sign
        state = (state ^ bits) + _STEP
        for shift, factor in zip(_SHIFTS[:2], _MIX, strict=True):
            state = (state ^ (state >> shift)) * factor
        state ^= state >> _SHIFTS[2]
    return (state >> np.uint64(11)).astype(np.float64) < share * 2.0**53
