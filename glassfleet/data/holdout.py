"""A hash of each row, which rows are held out by it, and which are equal to others.

A row's place in a file, or the vehicle that holds it, would make the choice depend on how rows are spread, and the
fleet's model would differ from the central one. Equal rows are held out together, wherever they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.mixing import bits_of, mixed_in


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
    """
    return (row_hashes(inputs, target) >> np.uint64(11)).astype(np.float64) < share * 2.0**53


def is_first(hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which rows are the first of those that are equal to them, shape (n,), from :func:`row_hashes`."""
    first = np.zeros(hashes.shape, dtype=np.bool_)
    first[np.unique(hashes, return_index=True)[1]] = True
    return first


def row_hashes(inputs: NDArray[np.float64], target: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return a hash of each row, shape (n,), from scaled inputs, shape (F, n), and the scaled target, shape (n,)."""
    state = np.zeros(target.shape, dtype=np.uint64)
    for column in (*inputs, target):
        state = mixed_in(state, bits_of(column))
    return state
