"""The rows behind several sums of their products: a decomposition of the tensor that the sums are (CP, symmetric).

By Levenberg and Marquardt's steps on rows and weights at once, after the sums are whitened. The number of rows is
given, which an attacker has to guess.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEPS = 400
SOLVED = 1e-8


def decomposed(sums: Array, n: int, starts: int) -> Array:
    """Return rows z and, not returned, weights w with ``sums[m] = sum_i w_mi z_i z_i'``, of the best of some starts.

    Parameters
    ----------
    sums : ndarray of float64, shape (m, k, k)
        Of the rows' products; the first column is 1.
    n : int
        Number of rows.
    starts : int
        Most random starts; fewer where one solves it.

    Returns
    -------
    ndarray of float64, shape (n, k - 1)
        Without the first column.
    """
    factor = np.linalg.cholesky(sums.mean(axis=0) + 1e-6 * np.eye(sums.shape[1]))
    inverse = np.linalg.inv(factor)
    tensor = inverse @ sums @ inverse.T
    best, least = np.zeros((n, sums.shape[1])), np.inf
    for start in range(starts):
        rows, error = _fitted(tensor, n, np.random.default_rng(start))
        if error < least:
            best, least = rows, error
        if error < SOLVED:
            break
    rows = best @ factor.T
    return rows[:, 1:] / rows[:, :1]


def _fitted(tensor: Array, n: int, rng: np.random.Generator) -> tuple[Array, float]:
    """Return rows and the sum of squared errors from one start."""
    m, k, _ = tensor.shape
    i, j = np.triu_indices(k)
    often = np.where(i == j, 1.0, np.sqrt(2.0))
    wanted = tensor[:, i, j] * often
    rows, weights = rng.normal(size=(n, k)) / np.sqrt(n), rng.uniform(0.5, 1.5, size=(m, n))

    def left(rows: Array, weights: Array) -> Array:
        return weights @ (rows[:, i] * rows[:, j] * often) - wanted

    over, damping, place = left(rows, weights), 0.1, np.arange(len(i))
    error = float((over**2).sum())
    for _ in range(STEPS):
        by_row = np.zeros((n, k, len(i)))  # of the products of a row, by its columns
        by_row[:, i, place] += rows[:, j] * often
        by_row[:, j, place] += rows[:, i] * often
        first = np.einsum("mn,nkp->mpnk", weights, by_row).reshape(over.size, -1)
        second = np.einsum("ml,np->mpln", np.eye(m), rows[:, i] * rows[:, j] * often).reshape(over.size, -1)
        slopes = np.concatenate([first, second], axis=1)
        squares, right = slopes.T @ slopes, slopes.T @ over.ravel()
        while damping < 1e8:
            step = np.linalg.solve(squares + damping * np.eye(len(squares)), -right)
            trial = rows + step[: n * k].reshape(n, k), weights + step[n * k :].reshape(m, n)
            now = left(*trial)
            if (now**2).sum() < error:
                break
            damping *= 4.0
        else:
            break
        (rows, weights), over, before, error = trial, now, error, float((now**2).sum())
        damping = max(damping / 3.0, 1e-12)
        if error < SOLVED * 1e-4 or before - error < 1e-7 * before:
            break
    return rows, error
