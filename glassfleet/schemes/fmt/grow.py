"""Nodes from their sums: the gain of a split in squared error, and fits, shrunk towards the node above or sparse.

Moment matrices: see :mod:`glassfleet.numerics.ridge`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.ridge import ridge_objective, solve_ridge
from glassfleet.numerics.sparse import select
from glassfleet.numerics.statistics import triangle
from glassfleet.schemes.fmt.params import GRID_BITS
from glassfleet.schemes.fmt.tree import Cut, Tree

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

UNIT = 1 << (2 * GRID_BITS)
"""One row's full weight, in the integer sums."""

_CANDIDATES = 1 << 9
"""Systems eliminated together: few enough for the cache."""

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


def refine(whole: Ints, above: Array, ridge: float, k: int) -> tuple[Array, float]:
    """Fit a node: the ridge solution around the coefficients of the node above it.

    Returns
    -------
    coefficients : ndarray of float64, shape (k - 1,)
    error : float
        Its squared error.
    """
    matrix = moments(whole[None], k)
    change, _ = solve_ridge(residual_moments(matrix, above[:, None]), ridge)
    coefficients = above + change[:, 0]
    error = residual_moments(matrix, coefficients[:, None])[k - 1, k - 1, 0]
    return coefficients, max(float(error), 0.0)


def gains(whole: Ints, lower: Ints, coefficients: Array, error: float, *, ridge: float, least: float) -> Array:
    """Return the gain of each cut of a node, shape (c,); 0 where a side's weight is below `least` rows.

    Parameters
    ----------
    whole : ndarray of int64, shape (p,)
        The node's sums.
    lower : ndarray of int64, shape (c, p)
        Sums of each cut's lower side.
    coefficients, error
        From :func:`refine`.
    ridge : float
        Pull towards the node's coefficients.
    least : float
        Least weight of a side, in rows.
    """
    k = len(coefficients) + 1
    gain = np.zeros(len(lower))
    weight = lower[:, 0].astype(np.float64) / UNIT
    total = float(whole[0]) / UNIT
    possible = np.flatnonzero((weight >= least) & (total - weight >= least) & (weight > 0) & (weight < total))
    for start in range(0, len(possible), _CANDIDATES // 2):
        chosen = possible[start : start + _CANDIDATES // 2]
        sides = np.concatenate([lower[chosen], whole - lower[chosen]])
        objective = ridge_objective(residual_moments(moments(sides, k), coefficients[:, None]), ridge)
        gain[chosen] = error - (objective[: len(chosen)] + objective[len(chosen) :])
    return np.maximum(gain, 0.0)


def growth_order(tree: Tree, gain_of: dict[int, float]) -> list[int]:
    """Return the numbers of the splits in best-first order: always the known split with the highest gain."""
    order: list[int] = []
    heap: list[tuple[float, int]] = []

    def offer(node: int) -> None:
        if node in tree.split_of:
            heapq.heappush(heap, (-gain_of[node], tree.split_of[node]))

    offer(0)
    while heap:
        _, index = heapq.heappop(heap)
        order.append(index)
        offer(2 * index + 1)
        offer(2 * index + 2)
    return order


def choose_features(gain: Array, cuts: Sequence[Cut], most: int) -> list[int]:
    """Return the inputs with the highest gains, at most `most`, increasing; ties go to the lower number."""
    best: dict[int, float] = {}
    for (feature, _), value in zip(cuts, gain.tolist(), strict=True):
        best[feature] = max(best.get(feature, 0.0), value)
    ranked = sorted(best, key=lambda feature: (-best[feature], feature))
    return sorted(ranked[:most])


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


def fit_nodes(tree: Tree, whole: Ints, regressors: int, variants: Sequence[Variant]) -> Array:
    """Return the coefficients of every node in every way, shape (V, nodes, R + 1).

    Parameters
    ----------
    tree : Tree
        The splits.
    whole : ndarray of int64, shape (nodes, p)
        The nodes' sums.
    regressors : int
        Inputs of the polynomials, R.
    variants : sequence of Variant
        The ways.
    """
    result = np.zeros((len(variants), tree.size, regressors + 1))
    for ridge in dict.fromkeys(variant.ridge for variant in variants):  # the dense fits differ by it alone
        dense = np.zeros((tree.size, regressors + 1))
        for node in range(tree.size):
            above = dense[tree.parent(node)] if node else np.zeros(regressors + 1)
            dense[node], error = refine(whole[node], above, ridge, regressors + 2)
            for place, variant in enumerate(variants):
                if variant.ridge == ridge:
                    few = variant.slopes < regressors
                    result[place, node] = sparse(whole[node], above, error, variant) if few else dense[node]
    return result


def sparse(whole: Ints, above: Array, error: float, variant: Variant) -> Array:
    """Select at most `variant.slopes` regressors, forward and backward, and fit them.

    The objective is that of the dense fit, ``E(g) + ridge |g - above|^2``, with all slopes but the selected ones zero:
    a quadratic, so its sums are those of the node and of `ridge` made-up rows per regressor.

    Parameters
    ----------
    whole : ndarray of int64, shape (p,)
        The node's sums.
    above : ndarray of float64, shape (R + 1,)
        The coefficients that the dense fit is pulled towards.
    error : float
        The dense fit's squared error.
    variant : Variant
        Pull and number of slopes.
    """
    k = len(above) + 1
    weight = float(whole[0]) / UNIT
    if weight <= 0.0:
        return np.zeros(k - 1)
    matrix = moments(whole[None], k)[:, :, 0]
    for j in range(1, k - 1):
        pulled = variant.ridge * float(above[j])
        matrix[j, j] += variant.ridge
        matrix[j, k - 1] += pulled
        matrix[k - 1, j] += pulled
        matrix[k - 1, k - 1] += pulled * float(above[j])
    return select(matrix, variant.slopes, error / weight, variant.ridge)
