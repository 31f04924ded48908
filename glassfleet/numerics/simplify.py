"""Fewer rules and fewer slopes for any rule base with linear consequents, from the rules' summed Gram matrices alone.

A Gram matrix of the columns ``[x, 1, y]``, weighted with a rule's strengths, tells the squared error of *any*
polynomial on the rule's rows. So the coordinator can weigh what a rule or a slope is worth without asking anybody.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.linear import minimum_norm, ridge_objective, solve_ridge
from glassfleet.numerics.sparse import select
from glassfleet.numerics.statistics import gram_value, unpack_symmetric

Array = NDArray[np.float64]
Sums = Mapping[str, NDArray[np.int64]]

RIDGE = 1e-3
"""Keeps a rule's system regular, in rows, when rules are compared."""

SPARSE_RIDGE = 1e-6
"""The same when slopes are chosen: a rule with many conditions may weigh less than a row in all."""


def moments(sums: Sums, k: int, bits: int) -> Array:
    """Return the moment matrices of rules, columns ``[1, x, y]``, shape (k, k, m), in rows.

    Parameters
    ----------
    sums : Mapping of str to ndarray of int64
        ``gram_high`` and ``gram_low``, triangles of the columns ``[x, 1, y]``, shape (m, k (k + 1) / 2).
    k : int
        Number of columns.
    bits : int
        Grid of the columns' entries.
    """
    gram = unpack_symmetric(gram_value(sums["gram_high"], sums["gram_low"], bits=bits), k)
    order = [k - 2, *range(k - 2), k - 1]
    return np.ascontiguousarray(gram[:, order][:, :, order].transpose(1, 2, 0)) * 2.0 ** (-2 * bits)


def variance(matrix: Array, error: Array) -> float:
    """Return the noise's variance: the squared errors of all rules, by their weight. Added one by one, in order."""
    weight = total = 0.0
    for rule in range(error.size):
        weight, total = weight + float(matrix[0, 0, rule]), total + float(error[rule])
    return total / weight if weight > 0.0 else 0.0


def consequents(sums: Sums, k: int, bits: int, most: int | None) -> Array:
    """Return each rule's polynomial, shape (m, k - 1), intercept last: weighted least squares of least norm, or sparse.

    Parameters
    ----------
    sums : Mapping of str to ndarray of int64
        As for :func:`moments`, and ``count``, the rows of each rule, shape (m,).
    k, bits : int
        As for :func:`moments`.
    most : int or None
        Most slopes of a polynomial; None: all.
    """
    if most is not None and most < k - 2:
        return sparse_consequents(moments(sums, k, bits), most)
    gram = unpack_symmetric(gram_value(sums["gram_high"], sums["gram_low"], bits=bits), k)
    return minimum_norm(gram[:, :-1, :-1], gram[:, :-1, -1], sums["count"])


def sparse_consequents(matrix: Array, most: int) -> Array:
    """Return polynomials with at most `most` slopes each, shape (m, k - 1), intercept last, of moment matrices."""
    k = matrix.shape[0]
    dense = ridge_objective(matrix, SPARSE_RIDGE)
    ridged = matrix.copy()
    for column in range(1, k - 1):
        ridged[column, column] += SPARSE_RIDGE
    lines = np.zeros((matrix.shape[2], k - 1))
    for rule in range(len(lines)):
        weight = float(matrix[0, 0, rule])
        if weight > 0.0:
            chosen = select(np.ascontiguousarray(ridged[:, :, rule]), most, float(dense[rule]) / weight, SPARSE_RIDGE)
            lines[rule] = [*chosen[1:], chosen[0]]
    return lines


def rules_worth_keeping(
    matrix: Array, rows: NDArray[np.int64], antecedents: NDArray[np.int8], price: float, *, last: bool
) -> NDArray[np.bool_]:
    """Return which rules of a rule base are worth their parameters, shape (m,); at least one.

    Without a rule, its rows are answered by another one nearby: the rule whose polynomial does best on them among those
    whose antecedents differ in the fewest inputs. Rules are dropped one by one, the cheapest first, as long as that
    adds less than the price of the rule to the squared error.

    Parameters
    ----------
    matrix : ndarray of float64, shape (k, k, m)
        From :func:`moments`.
    rows : ndarray of int64, shape (m,)
        How many rows each rule has. k - 1 parameters that say nothing save about k - 1 noise variances, times the rows'
        mean strength, which is far below one where a rule has many conditions.
    antecedents : ndarray of int8, shape (m, F)
        One set per input.
    price : float
        Noise variances that a rule's k - 1 parameters must save, each.
    last : bool
        The last rule is OTHERWISE, which is kept, and answers for another only where that is all that is left.
    """
    m, k = matrix.shape[2], matrix.shape[0]
    coefficients, error = solve_ridge(matrix, RIDGE)
    named = m - last
    strength = matrix[0, 0] / np.maximum(rows, 1).astype(np.float64)
    allowed = price * (k - 1) * variance(matrix[:, :, :named], error[:named]) * strength
    loss = np.stack([_errors(matrix, coefficients[:, rule]) - error for rule in range(m)])  # (who answers, whose rows)
    apart = (antecedents[:, None, :] != antecedents[None]).sum(axis=2).astype(np.float64)
    kept = np.ones(m, dtype=bool)
    while kept.sum() > 1 + last:
        distance = np.where(kept[:, None] & ~np.eye(m, dtype=bool), apart, np.inf)
        if last:
            distance[-1] = np.where(kept, antecedents.shape[1] + 1.0, np.inf)
        nearest = distance == distance.min(axis=0)
        cost = np.where(nearest, loss, np.inf).min(axis=0) - allowed
        cost[~kept] = np.inf
        if last:
            cost[-1] = np.inf
        rule = int(np.argmin(cost))
        if not cost[rule] < 0.0:
            break
        kept[rule] = False
    return kept


def _errors(matrix: Array, coefficients: Array) -> Array:
    """Return the squared error of one polynomial, intercept first, on every rule's rows, shape (m,)."""
    line = [*(-coefficients).tolist(), 1.0]
    total = np.zeros(matrix.shape[2])
    for i, a in enumerate(line):
        for j, b in enumerate(line):
            total += (a * b) * matrix[i, j]
    return np.maximum(total, 0.0)
