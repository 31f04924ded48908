"""Fewer slopes from exact sums: forward and backward selection, the same on every machine.

Works on a *moment matrix*: the weighted sums of products of the columns ``[1, x_1 .. x_R, y]``. Only ``+ - * /``,
element by element in one order, so that the choice depends on the sums alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

WORTH = 2.0
"""A slope must cut the squared error by this many times the noise's variance (Mallows' C_p, 1973)."""

_FLOOR = 1.5
"""A column with no more than this many times the ridge left, given the others, is collinear with them."""


def select(matrix: Array, most: int, variance: float, ridge: float) -> Array:
    """Choose at most `most` slopes, forward and backward, and fit them with the intercept.

    Parameters
    ----------
    matrix : ndarray of float64, shape (R + 2, R + 2)
        Moment matrix in rows, with `ridge` on the diagonal of the columns ``x``.
    most : int
        Most slopes, >= 0.
    variance : float
        Of the noise: the squared error of the fit with all slopes, by row. A slope that cuts the squared error by less
        than :data:`WORTH` times this is left out, or dropped again when others have made it so.
    ridge : float
        > 0, in rows.

    Returns
    -------
    ndarray of float64, shape (R + 1,)
        The intercept, then the slopes, zero where they were left out; all zero where there is no weight.
    """
    k = matrix.shape[0]
    if matrix[0, 0] <= 0.0:
        return np.zeros(k - 1)
    table = matrix.copy()
    sweep(table, 0)
    threshold, floor = max(variance, 1e-12) * WORTH, ridge * _FLOOR
    chosen: list[int] = []
    for _ in range(4 * most + 4):  # more than is ever needed; adding and dropping the same column has an end
        drops = {j: _square(table[j, k - 1]) / -float(table[j, j]) for j in chosen}
        worst = min(drops, key=lambda j: (drops[j], j), default=None)
        if worst is not None and drops[worst] < threshold:
            sweep(table, worst, back=True)
            chosen.remove(worst)
            continue
        if len(chosen) >= most:
            break
        adds = {
            j: _square(table[j, k - 1]) / float(table[j, j])
            for j in range(1, k - 1)
            if j not in chosen and table[j, j] > floor
        }
        best = max(adds, key=lambda j: (adds[j], -j), default=None)
        if best is None or adds[best] < threshold * 1.0001:
            break
        sweep(table, best)
        chosen.append(best)
    return _fit(matrix, sorted(chosen))


def forward(matrix: Array, most: int, targets: int = 1) -> list[int]:
    """Return the `most` columns ``x`` of a moment matrix (from 1) that a forward selection takes, in its order.

    Of several targets, the last columns, gains add up.
    """
    table = matrix.copy()
    sweep(table, 0)
    chosen: list[int] = []
    for _ in range(most):
        left = [j for j in range(1, matrix.shape[0] - targets) if j not in chosen]
        best = max(left, key=lambda j: (sum(map(_square, table[j, -targets:])) / float(table[j, j]), -j))
        sweep(table, best)
        chosen.append(best)
    return chosen


def ranked(matrix: Array, most: int, targets: int = 1) -> list[int]:
    """Return at most `most` of the columns ``x``, numbered from 0, increasing: a forward selection, ridge 1."""
    n = len(matrix) - 1 - targets
    if n <= most:
        return list(range(n))
    inner = np.arange(1, n + 1)
    matrix = matrix.copy()
    matrix[inner, inner] += 1.0
    return sorted(j - 1 for j in forward(matrix, most, targets))


def sweep(table: Array, j: int, *, back: bool = False) -> None:
    """Take column j into the regression, or out of it (Goodnight, 1979), in place."""
    pivot = float(table[j, j])
    if pivot == 0.0:
        return
    row = table[j].copy()
    column = table[:, j].copy()
    table -= column[:, None] * (row / pivot)[None]
    sign = -1.0 if back else 1.0
    table[j] = row / pivot * sign
    table[:, j] = column / pivot * sign
    table[j, j] = -1.0 / pivot


def _fit(matrix: Array, chosen: Sequence[int]) -> Array:
    k = matrix.shape[0]
    table = matrix.copy()
    for j in [0, *chosen]:
        sweep(table, j)
    result = np.zeros(k - 1)
    for j in [0, *chosen]:
        result[j] = table[j, k - 1]
    return result


def _square(value: float) -> float:
    """Multiply, as a power may be computed by a library's approximation."""
    return float(value) * float(value)
