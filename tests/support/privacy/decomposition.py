"""The rows behind many sums of their products with different weights: single rows in the space that the sums span."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS = 400
NOTHING = 1e-5
"""Singular values below this share of the greatest one are rounding."""


def decomposed(sums: Array, starts: int) -> tuple[int, Array]:
    """Return the rank of some sums, and the rows that a power method finds in the space that they span.

    Sums over n rows z lie in the space of the products z z'. Where they are as many as the rows, and these have more
    products than there are rows, they span it, and the rank tells n. Then ``x -> sum_a (x' P_a x) P_a x``, with P an
    orthonormal basis, leads from most starts to one of the rows.

    Parameters
    ----------
    sums : ndarray of float64, shape (m, k, k)
        Of the rows' products; the first column is 1.
    starts : int

    Returns
    -------
    int, ndarray of float64 of shape (starts, k - 1)
        Rows without their first column; where the rank is that of all symmetric matrices, they mean nothing.
    """
    k = sums.shape[1]
    mean = sums.mean(axis=0)
    factor = np.linalg.cholesky(mean + 1e-6 * np.trace(mean) * np.eye(k))  # rounding makes collinear ones indefinite
    inverse = np.linalg.inv(factor)
    _, values, basis = np.linalg.svd((inverse @ sums @ inverse.T).reshape(len(sums), -1), full_matrices=False)
    rank = int(np.count_nonzero(values > NOTHING * values[0]))
    space = basis[:rank].reshape(rank, k, k)
    rows = np.random.default_rng(0).normal(size=(starts, k))
    for _ in range(STEPS):
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        moved = np.einsum("akl,sl->sak", space, rows, optimize=True)
        rows = np.einsum("sa,sak->sk", np.einsum("sak,sk->sa", moved, rows), moved)
    found = rows @ factor.T
    return rank, found[:, 1:] / found[:, :1]
