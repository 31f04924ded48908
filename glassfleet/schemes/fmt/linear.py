"""From integer triangles to moment matrices, and residuals in them; see :mod:`glassfleet.numerics.ridge`."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.statistics import triangle
from glassfleet.schemes.fmt.params import GRID_BITS

Array = NDArray[np.float64]

SCALE = 2.0 ** (-2 * GRID_BITS)


@cache
def _place(k: int) -> NDArray[np.intp]:
    """Return where each entry of a symmetric k x k matrix is in its upper triangle."""
    rows, columns = triangle(k)
    place = np.empty((k, k), dtype=np.intp)
    place[rows, columns] = place[columns, rows] = np.arange(len(rows))
    return place


def moments(sums: NDArray[np.int64], k: int) -> Array:
    """Return the moment matrices, shape (k, k, m), of integer triangles, shape (m, k (k + 1) / 2)."""
    values = np.ascontiguousarray(sums.T).astype(np.float64) * SCALE
    return np.ascontiguousarray(values[_place(k)])


def residual_moments(matrix: Array, coefficients: Array) -> Array:
    """Replace y by the residual ``y - c_0 - c_1 x_1 - ...`` in moment matrices.

    Parameters
    ----------
    matrix : ndarray of float64, shape (k, k, m)
        Moment matrices.
    coefficients : ndarray of float64, shape (k - 1, m) or (k - 1, 1)
        The intercept, then the slopes.
    """
    k = matrix.shape[0]
    result = matrix.copy()
    column = matrix[:, k - 1].copy()
    for j in range(k - 1):
        column -= matrix[:, j] * coefficients[j]
    square = column[k - 1].copy()
    for j in range(k - 1):
        square -= column[j] * coefficients[j]
    result[:, k - 1] = column
    result[k - 1, :] = column
    result[k - 1, k - 1] = square
    return result
