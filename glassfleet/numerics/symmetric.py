"""Symmetric systems of equations in a fixed order of operations: large ones, and many small ones together.

Only ``+ - * /`` on whole arrays, element by element: IEEE 754 fixes every result, so it depends on the numbers alone,
not on the processor or the library of linear algebra.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_PANEL = 16
_ROWS = 32
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


def subtract_products(matrix: Array, left: Iterable[Array], right: Iterable[Array]) -> None:
    """Subtract ``left_t right_t'`` from `matrix`, shape (n, m), for each t, first to last, in place.

    Parameters
    ----------
    matrix : ndarray of float64, shape (n, m)
    left : iterable of ndarray of float64, shape (n,)
    right : iterable of ndarray of float64, shape (m,)
    """
    buffer, products = np.empty((_ROWS, matrix.shape[1])), list(zip(left, right, strict=True))
    for top in range(0, len(matrix), _ROWS):
        rows = matrix[top : top + _ROWS]
        part = buffer[: len(rows)]
        for one, other in products:
            np.multiply(one[top : top + _ROWS, None], other, out=part)
            rows -= part


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
    work, inverse = _eliminated(np.concatenate([matrix, right], axis=1), n)
    solution = np.zeros_like(right)
    for i in range(n - 1, -1, -1):
        solution[i] = work[i, n:] * inverse[i]
        work[:i, n:] -= work[:i, i, None] * solution[i]
    return solution


def invert(matrix: Array) -> Array:
    """Return the inverse of a symmetric positive definite matrix, shape (n, n)."""
    n = len(matrix)
    # L' D L of the inverse: L is what elimination makes of the identity.
    work, inverse = _eliminated(np.concatenate([matrix, np.zeros((n, 0))], axis=1), n)
    factors = work * inverse[:, None]
    left = np.eye(n)
    buffer = np.empty((_ROWS, n))
    for top in range(0, n, _ROWS):
        rows = left[top : min(top + _ROWS, n)]
        for i in range(top):
            part = buffer[: len(rows), : i + 1]
            np.multiply(factors[i, top : top + len(rows), None], left[i, : i + 1], out=part)
            rows[:, : i + 1] -= part
        for i in range(top, top + len(rows) - 1):
            left[i + 1 : top + len(rows), : i + 1] -= factors[i, i + 1 : top + len(rows), None] * left[i, : i + 1]
    scaled = left * inverse[:, None]
    result = np.zeros((n, n))
    for top in range(0, n, _ROWS):
        bottom = min(top + _ROWS, n)
        rows = result[top:bottom]
        for i in range(top, n):
            part = buffer[: len(rows), : i + 1 - top]
            np.multiply(scaled[i, top:bottom, None], left[i, top : i + 1], out=part)
            rows[:, top : i + 1] += part
    above = np.triu_indices(n, 1)
    result[above[1], above[0]] = result[above]
    return result


def _eliminated(work: Array, n: int) -> tuple[Array, Array]:
    """Eliminate the first `n` columns, first to last, in place; rows below the diagonal are left as they are.

    Returns
    -------
    work : ndarray of float64, shape (n, n + m)
        D L' and, beyond it, what that makes of the right-hand sides.
    inverse : ndarray of float64, shape (n,)
        One over the pivots; 0 where a column has nothing left.
    """
    inverse = np.zeros(n)
    buffer = np.empty((_ROWS, work.shape[1]))
    for start in range(0, n, _PANEL):
        stop = min(start + _PANEL, n)
        factors = np.zeros((stop - start, n))
        for i in range(start, stop):
            pivot = work[i, i]
            inverse[i] = 1.0 / pivot if pivot > 0.0 else 0.0
            factors[i - start, i + 1 :] = work[i, i + 1 : n] * inverse[i]
            work[i + 1 : stop, i + 1 :] -= factors[i - start, i + 1 : stop, None] * work[i, i + 1 :]
        for top in range(stop, n, _ROWS):
            rows = work[top : min(top + _ROWS, n), top:]
            part = buffer[: len(rows), : rows.shape[1]]
            for i in range(start, stop):
                np.multiply(factors[i - start, top : top + len(rows), None], work[i, top:], out=part)
                rows -= part
    return work, inverse


def solve_each(matrices: Array, right: Array) -> tuple[Array, Array]:
    """Solve many small systems, each for one right-hand side or for several.

    Parameters
    ----------
    matrices : ndarray of float64, shape (n, n, m)
        Symmetric and positive definite; the batch is the last axis.
    right : ndarray of float64, shape (n, m) or (n, t, m)

    Returns
    -------
    solutions : ndarray of float64, shaped as `right`
    value : ndarray of float64, shape (m,)
        ``right' x`` of each, added over right-hand sides: by how much a least-squares fit lowers the squared error.
    """
    n, m = matrices.shape[::2]
    work, sides = matrices.copy(), right.reshape(n, -1, m).copy()
    inverse = np.zeros((n, m))
    value = np.zeros(sides.shape[1:])
    for i in range(n):
        pivot = work[i, i]
        inverse[i] = np.where(pivot > 0.0, 1.0 / np.where(pivot > 0.0, pivot, 1.0), 0.0)
        value += sides[i] * sides[i] * inverse[i]
        factor = work[i, i + 1 :] * inverse[i]
        work[i + 1 :, i + 1 :] -= factor[:, None] * work[i, i + 1 :]
        sides[i + 1 :] -= factor[:, None] * sides[i]
    solution = np.zeros_like(sides)
    for i in range(n - 1, -1, -1):
        solution[i] = sides[i] * inverse[i]
        sides[:i] -= work[:i, i, None] * solution[i]
    return solution.reshape(right.shape), np.add.accumulate(value)[-1]
