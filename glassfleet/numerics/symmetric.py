"""Symmetric systems of equations in a fixed order of operations: large ones, and many small ones together.

Only ``+ - * /`` on whole arrays, element by element: IEEE 754 fixes every result, so it depends on the numbers alone,
not on the processor or the library of linear algebra.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_PANEL = 16
_ROWS = 64
"""Pivots eliminated together, and rows that are updated by them while they are in the cache."""


def product(matrix: Array, vector: Array) -> Array:
    """Return ``matrix @ vector`` of a symmetric matrix, shape (n, n), with a vector or columns, shape (n, ...)."""
    total = np.zeros((matrix.shape[0], *vector.shape[1:]))
    for line, value in zip(matrix, vector, strict=True):
        total += line * value if vector.ndim == 1 else line[:, None] * value
    return total


def dot(first: Array, second: Array) -> float:
    """Return the sum of products, added from the first to the last."""
    terms = first * second
    return float(np.add.accumulate(terms)[-1]) if len(terms) else 0.0


def solve(matrix: Array, right: Array) -> Array:
    """Solve ``matrix @ x = right`` for a symmetric positive definite matrix.

    Parameters
    ----------
    matrix : ndarray of float64, shape (n, n)
    right : ndarray of float64, shape (n, m)

    Returns
    -------
    ndarray of float64, shape (n, m)
        Zero where a column has nothing left after those before it.
    """
    n = len(matrix)
    work = np.concatenate([matrix, right], axis=1)
    inverse = np.zeros(n)
    for start in range(0, n, _PANEL):
        stop = min(start + _PANEL, n)
        factors = np.zeros((stop - start, n))
        for i in range(start, stop):
            pivot = work[i, i]
            inverse[i] = 1.0 / pivot if pivot > 0.0 else 0.0
            factors[i - start, i + 1 :] = work[i, i + 1 : n] * inverse[i]
            for j in range(i + 1, stop):
                work[j, j:] -= factors[i - start, j] * work[i, j:]
        for top in range(stop, n, _ROWS):
            rows = work[top : min(top + _ROWS, n), top:]
            for i in range(start, stop):
                rows -= factors[i - start, top : top + len(rows), None] * work[i, top:]
    found = np.zeros_like(right)
    for i in range(n - 1, -1, -1):
        found[i] = work[i, n:] * inverse[i]
        work[:i, n:] -= work[:i, i, None] * found[i]
    return found


def invert(matrix: Array) -> Array:
    """Return the inverse of a symmetric positive definite matrix, shape (n, n)."""
    found = solve(matrix, np.eye(len(matrix)))
    return 0.5 * (found + found.T)


def solve_each(matrices: Array, right: Array) -> tuple[Array, Array]:
    """Solve many small systems.

    Parameters
    ----------
    matrices : ndarray of float64, shape (n, n, m)
        Symmetric and positive definite; the batch is the last axis.
    right : ndarray of float64, shape (n, m)

    Returns
    -------
    solutions : ndarray of float64, shape (n, m)
    value : ndarray of float64, shape (m,)
        ``right' x`` of each: by how much a least-squares fit lowers the squared error.
    """
    n = matrices.shape[0]
    work = np.concatenate([matrices, right[:, None]], axis=1)
    inverse = np.zeros(right.shape)
    value = np.zeros(right.shape[1])
    for i in range(n):
        pivot = work[i, i]
        inverse[i] = np.where(pivot > 0.0, 1.0 / np.where(pivot > 0.0, pivot, 1.0), 0.0)
        value += work[i, n] * work[i, n] * inverse[i]
        factor = work[i, i + 1 : n] * inverse[i]
        work[i + 1 :, i + 1 :] -= factor[:, None] * work[i, i + 1 :]
    found = np.zeros(right.shape)
    for i in range(n - 1, -1, -1):
        found[i] = work[i, n] * inverse[i]
        work[:i, n] -= work[:i, i] * found[i]
    return found, value
