"""Many small ridge regressions from exact sums, in a fixed order of operations.

Only ``+ - * /`` on whole arrays, element by element, with the batch as the last axis: IEEE 754 fixes every result. So
it depends on the sums alone, not on the processor, the BLAS kernel or the size of the batch.

A *moment matrix* here is the weighted Gram matrix of the columns ``[1, x_1 .. x_R, y]``, of shape
(R + 2, R + 2, batch).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def solve_ridge(matrix: Array, ridge: float) -> tuple[Array, Array]:
    """Minimise squared error + ridge * (sum of squared slopes), the intercept free.

    Parameters
    ----------
    matrix : ndarray of float64, shape (k, k, m)
        Moment matrices; the last column is the target.
    ridge : float
        > 0, in rows.

    Returns
    -------
    coefficients : ndarray of float64, shape (k - 1, m)
        The intercept, then the slopes; zeros where there is no weight.
    objective : ndarray of float64, shape (m,)
        The minimum, >= 0.
    """
    work = _eliminate(matrix, ridge)
    k = matrix.shape[0]
    coefficients = np.zeros((k - 1, matrix.shape[2]))
    for i in range(k - 2, -1, -1):
        value = work[i, k - 1].copy()
        for later in range(i + 1, k - 1):
            value -= work[i, later] * coefficients[later]
        pivot = work[i, i]
        coefficients[i] = np.where(pivot > 0.0, value / np.where(pivot > 0.0, pivot, 1.0), 0.0)
    return coefficients, np.maximum(work[k - 1, k - 1], 0.0)


def ridge_objective(matrix: Array, ridge: float) -> Array:
    """Return the minimum of :func:`solve_ridge` alone, shape (m,), >= 0; less work."""
    least: Array = np.maximum(_eliminate(matrix, ridge)[-1, -1], 0.0)
    return least


def _eliminate(matrix: Array, ridge: float) -> Array:
    """Eliminate all columns but the target, first to last (LDL'); each row keeps its values when it is eliminated."""
    work = matrix.copy()
    k = work.shape[0]
    for i in range(1, k - 1):
        work[i, i] += ridge
    for i in range(k - 1):
        pivot, below = work[i, i], slice(i + 1, k)
        inverse = np.where(pivot > 0.0, 1.0 / np.where(pivot > 0.0, pivot, 1.0), 0.0)
        factor = work[below, i] * inverse
        work[below, below] -= factor[:, None] * work[i, below]
    return work
