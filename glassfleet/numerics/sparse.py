"""Which inputs are worth a slope, from exact sums: forward selection, the same on every machine.

Works on a *moment matrix*: the weighted sums of products of the columns ``[1, x_1 .. x_R, y]``. Only ``+ - * /``,
element by element in one order, so that the choice depends on the sums alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


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


def _square(value: float) -> float:
    """Multiply, as a power may be computed by a library's approximation."""
    return float(value) * float(value)
