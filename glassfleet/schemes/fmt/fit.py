"""Fitting nodes from their sums: shrunk towards the node above, or sparse."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.schemes.fmt.grow import UNIT, refine
from glassfleet.schemes.fmt.linear import moments
from glassfleet.schemes.fmt.tree import Tree

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_SPARSE_RIDGE = 1e-3
"""Keeps a sparse leaf's system regular, in rows; a variable collinear with others has no more to add than this."""


@dataclass(frozen=True)
class Variant:
    """One way to fit the nodes.

    Attributes
    ----------
    ridge : float
        Pull towards the coefficients of the node above, in rows.
    slopes : int
        Most slopes of a node; as many as there are regressors: dense.
    """

    ridge: float
    slopes: int


def fit_nodes(tree: Tree, whole: Ints, regressors: int, variant: Variant) -> Array:
    """Return the coefficients of every node, shape (nodes, R + 1); `whole` has the nodes' sums, shape (nodes, p)."""
    dense = np.zeros((tree.size, regressors + 1))
    for node in range(tree.size):
        above = dense[tree.parent(node)] if node else np.zeros(regressors + 1)
        dense[node] = refine(whole[node], above, variant.ridge, regressors + 2)[0]
    if variant.slopes >= regressors:
        return dense
    return np.stack([sparse(whole[node], dense[node], variant.slopes) for node in range(tree.size)])


def sparse(whole: Ints, dense: Array, slopes: int) -> Array:
    """Select at most `slopes` regressors, forward and backward, and fit them.

    A regressor must cut the squared error by ``sigma^2 ln(weight)``, where sigma^2 is the dense fit's mean squared
    error (the Bayesian information criterion); one that no longer does, given the others, is dropped again.
    """
    k = len(dense) + 1
    matrix = moments(whole[None], k)[:, :, 0]
    weight = float(whole[0]) / UNIT
    if weight <= 1.0:
        return dense * 0.0 if weight <= 0.0 else _ordinary(matrix, [])
    table = matrix.copy()
    for i in range(1, k - 1):
        table[i, i] += _SPARSE_RIDGE
    _sweep(table, 0)
    error = _error_of(matrix, dense)
    threshold = max(error / weight, 1e-12) * round(math.log(max(weight, 2.0)), 6)
    chosen: list[int] = []
    for _ in range(4 * slopes + 4):
        drops = {j: _square(table[j, k - 1]) / -float(table[j, j]) for j in chosen}
        worst = min(drops, key=lambda j: (drops[j], j), default=None)
        if worst is not None and drops[worst] < threshold:
            _sweep(table, worst, back=True)
            chosen.remove(worst)
            continue
        if len(chosen) >= slopes:
            break
        floor = _SPARSE_RIDGE * 1.5
        adds = {
            j: _square(table[j, k - 1]) / float(table[j, j])
            for j in range(1, k - 1)
            if j not in chosen and table[j, j] > floor
        }
        best = max(adds, key=lambda j: (adds[j], -j), default=None)
        if best is None or adds[best] < threshold * 1.0001:
            break
        _sweep(table, best)
        chosen.append(best)
    return _ordinary(matrix, sorted(chosen))


def rank_regressors(whole: Ints, n: int, most: int) -> list[int]:
    """Return at most `most` of `n` inputs, increasing: a forward selection on the root's sums."""
    if n <= most:
        return list(range(n))
    k = n + 2
    table = moments(whole[None], k)[:, :, 0]
    for i in range(1, k - 1):
        table[i, i] += 1.0
    _sweep(table, 0)
    chosen: list[int] = []
    for _ in range(most):
        left = [j for j in range(1, k - 1) if j not in chosen]
        best = max(left, key=lambda j: (_square(table[j, k - 1]) / float(table[j, j]), -j))
        _sweep(table, best)
        chosen.append(best)
    return sorted(j - 1 for j in chosen)


def _error_of(matrix: Array, coefficients: Array) -> float:
    line = [*(-coefficients).tolist(), 1.0]
    total = 0.0
    for i, a in enumerate(line):
        for j, b in enumerate(line):
            total += a * b * float(matrix[i, j])
    return max(total, 0.0)


def _sweep(table: Array, j: int, *, back: bool = False) -> None:
    """Take column j into the regression, or out of it (Goodnight, 1979), in place; element-wise only."""
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


def _ordinary(matrix: Array, chosen: list[int]) -> Array:
    """Return least squares over the intercept and the columns `chosen` (with a touch of ridge), zeros elsewhere."""
    k = matrix.shape[0]
    table = matrix.copy()
    for i in chosen:
        table[i, i] += _SPARSE_RIDGE
    for j in [0, *chosen]:
        _sweep(table, j)
    result = np.zeros(k - 1)
    for j in [0, *chosen]:
        result[j] = table[j, k - 1]
    return result


def _square(value: float) -> float:
    """Multiply, as a power may be computed by a library's approximation."""
    return float(value) * float(value)
