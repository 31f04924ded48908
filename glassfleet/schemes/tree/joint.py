"""All rules fitted together, from the sums over pairs of leaves.

With the degrees w_l of the leaves, z = [1, x] and the blocks ``G_lm = sum w_l w_m z z'``, ``h_l = sum w_l z y``, the
coefficients b minimise ``b'Gb - 2 b'h`` plus the pull of each node towards the one above it. The same sums give those
of every pruned tree, as a node's degree is the sum of its leaves', and the held-out error of every b. Several targets
(the classes' indicators) have the same G: their errors add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.statistics import unpack_symmetric
from glassfleet.numerics.symmetric import dot, invert, product, solve, subtract_products
from glassfleet.schemes.tree.params import GRID_BITS
from glassfleet.schemes.tree.tree import Tree

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SCALE = 2.0 ** (-2 * GRID_BITS)

RIDGE = 2e-5
"""On every coefficient, times the root of the number of rows: above what rounding to the grid does to small
eigenvalues of the sums, and far below what rows say."""

_TOGETHER = 24
"""Slopes dropped before the inverse is brought up to date."""

_ROOT_SHARE = 0.1
"""Share of the whole fleet's scatter in the measure of a node's pull: a node's own may be flat in some direction."""

_EACH_SHARE = 0.3
"""Share of the fleet's variances, input by input, in that measure: where inputs are nearly collinear, neither scatter
holds back coefficients that cancel out."""


@dataclass(frozen=True)
class Fit:
    """Sums over some rows of a tree's leaves, in its order: a least-squares problem.

    Attributes
    ----------
    tree : Tree
    blocks : ndarray of float64, shape (L, L, k, k)
        G_lm.
    right : ndarray of float64, shape (L, T, k)
        h_l of each target.
    own_squares : ndarray of float64, shape (L, T)
        Sums of w_l y^2.
    """

    tree: Tree
    blocks: Array
    right: Array
    own_squares: Array

    @property
    def columns(self) -> int:
        """Columns of a rule's polynomial, k."""
        return int(self.right.shape[2])

    @property
    def rows(self) -> float:
        """Number of rows, from the sums."""
        return float(np.add.accumulate(self.blocks[:, :, 0, 0].ravel())[-1])

    @property
    def whole(self) -> Array:
        """Sums of ``w_l z z'``, shape (L, k, k): degrees add up to one, so they are those of w_l w_m over all m."""
        whole: Array = np.add.accumulate(self.blocks, axis=1)[:, -1]
        return whole

    @property
    def gram(self) -> Array:
        """All blocks as one matrix, shape (L k, L k)."""
        n = len(self.blocks) * self.columns
        return np.ascontiguousarray(self.blocks.transpose(0, 2, 1, 3)).reshape(n, n)

    @property
    def right_sides(self) -> Array:
        """What all unknowns of each target are fitted to, shape (L k, T)."""
        return columns_of(self.right)

    def error(self, coefficients: Array) -> float:
        """Return the sum of squared errors, >= 0, of coefficients of the shape (L, T, k)."""
        b = columns_of(coefficients)
        made, squares = product(self.gram, b), np.add.accumulate(self.own_squares)[-1].tolist()
        errors = [
            own - dot(b[:, t], 2.0 * right - made[:, t])
            for t, (own, right) in enumerate(zip(squares, self.right_sides.T, strict=True))
        ]
        return max(float(sum(errors)), 0.0)

    def with_pull(self, kappa: float, pull: Array) -> Array:
        """Return the normal matrix: Gram sums, pull and ridge."""
        matrix = self.gram + kappa * pull
        diagonal = np.arange(len(matrix))
        matrix[diagonal, diagonal] += ridge_of(self.rows)
        return matrix


def fit_of(
    tree: Tree,
    n_splits: int,
    sums: Mapping[tuple[int, int], Ints],
    target: Mapping[int, Ints],
    scale: float = SCALE,
) -> Fit:
    """Return the sums of the tree of the first `n_splits` splits of `tree`.

    Parameters
    ----------
    tree : Tree
    n_splits : int
    sums : mapping of (int, int) to ndarray of int64, shape (k (k + 1) / 2,)
        By pair of leaves of `tree`; pairs that no row reaches are left out.
    target : mapping of int to ndarray of int64, shape (T, k + 1)
        Of ``z y`` and ``y^2``, by leaf of `tree`.
    scale : float
        By which the sums are multiplied.
    """
    pruned = tree.first(n_splits)
    leaves = pruned.leaves
    place = {leaf: at for at, leaf in enumerate(leaves)}
    first = next(iter(target.values()))
    k = first.shape[1] - 1
    above = {}
    for leaf in tree.leaves:
        node = leaf
        while node >= pruned.size:
            node = tree.parent(node)
        above[leaf] = place[node]
    total = np.zeros((len(leaves), len(leaves), k * (k + 1) // 2), dtype=np.int64)
    for (i, j), part in sums.items():
        total[above[i], above[j]] += part
        if i != j:
            total[above[j], above[i]] += part
    right = np.zeros((len(leaves), *first.shape), dtype=np.int64)
    for leaf, part in target.items():
        right[above[leaf]] += part
    scaled = right.astype(np.float64) * scale
    blocks = unpack_symmetric(total.astype(np.float64) * scale, k)
    return Fit(pruned, blocks, np.ascontiguousarray(scaled[..., :k]), scaled[..., k])


def columns_of(lines: Array) -> Array:
    """Return the numbers of all leaves, shape (L, T, k), as one column for each target, shape (L k, T)."""
    return np.ascontiguousarray(lines.transpose(0, 2, 1)).reshape(-1, lines.shape[1])


def lines_of(columns: Array, k: int) -> Array:
    """Undo :func:`columns_of`."""
    return np.ascontiguousarray(columns.reshape(-1, k, columns.shape[1]).transpose(0, 2, 1))


def root_of(memory: Mapping[str, Any], columns: int) -> Array:
    """Return the sums of ``z z'`` over the training rows, shape (k, k), from what a server half keeps."""
    return unpack_symmetric(memory["root"].astype(np.float64) * SCALE, columns)


def ridge_of(rows: float) -> float:
    """Return the ridge on every coefficient, in rows, of sums over so many rows."""
    return RIDGE * float(np.sqrt(max(rows, 1.0)))


def even_pull(root: Array) -> Array:
    """Return what a pull adds to the diagonal of its measure, shape (k,): a share of the fleet's variances.

    Parameters
    ----------
    root : ndarray of float64, shape (k, k)
        Sums of ``z z'`` over the training rows; the entry of the intercept is their number.
    """
    mean, squares = root[0] / root[0, 0], np.diagonal(root) / root[0, 0]
    variances: Array = np.maximum(squares - mean * mean, 0.0)
    return _EACH_SHARE * variances


def pull_of(fit: Fit, root: Array) -> Array:
    """Return the quadratic form of the pull, shape (L k, L k), in the leaves' coefficients.

    It is ``sum_c (b_c - b_above)' P_c (b_c - b_above)`` over all nodes c but the root, in rows of the node, at the
    coefficients of inner nodes that make it least: these have no data, and are eliminated from the leaves up.

    Parameters
    ----------
    fit : Fit
    root : ndarray of float64, shape (k, k)
        Sums of ``z z'`` over the training rows; the entry of the intercept is their number.
    """
    k, tree, ridge = fit.columns, fit.tree, ridge_of(fit.rows)
    diagonal = np.arange(k)
    fleet = _ROOT_SHARE / float(root[0, 0]) * root
    fleet[diagonal, diagonal] += even_pull(root)
    own = {leaf: fit.blocks[at, at] for at, leaf in enumerate(tree.leaves)}
    place = {leaf: at for at, leaf in enumerate(tree.leaves)}
    # Of each open node: the leaves below it, and its form in their coefficients and, last, its own.
    forms: dict[int, tuple[list[int], Array]] = {leaf: ([place[leaf]], np.zeros((0, 0))) for leaf in own}
    for index in range(len(tree.splits) - 1, -1, -1):
        sides = (2 * index + 1, 2 * index + 2)
        parts = []
        for child in sides:
            scatter = own[child]
            weight = max(float(scatter[0, 0]), 1e-9)
            measure = (1.0 - _ROOT_SHARE) / weight * scatter + fleet
            # Rounding may have left a collinear node's scatter with eigenvalues below zero.
            measure[diagonal, diagonal] += ridge / max(weight, 1.0)
            below, form = forms.pop(child)
            parts.append((below, _pulled(form, measure) if form.size else _edge(measure)))
        (left, first), (right, second) = parts
        a, b = len(left) * k, len(right) * k
        joined = np.zeros((a + b + k, a + b + k))
        mine, yours = np.r_[0:a, a + b : a + b + k], np.r_[a : a + b + k]
        joined[np.ix_(mine, mine)] += first
        joined[np.ix_(yours, yours)] += second
        node = tree.splits[index].node
        own[node] = own[sides[0]] + own[sides[1]]
        forms[node] = (left + right, joined)
    below, form = forms[0]
    if not form.size:
        return np.zeros((k, k))
    form = _eliminated(form, k)
    order = np.concatenate([np.arange(at * k, at * k + k) for at in below])
    result = np.empty_like(form)
    result[np.ix_(order, order)] = form
    return result


def _edge(measure: Array) -> Array:
    """Return the form of a leaf's pull, in its coefficients and those above."""
    return np.block([[measure, -measure], [-measure, measure]])


def _pulled(form: Array, measure: Array) -> Array:
    """Add a node's pull to its form, and eliminate the node: a form in the leaves below and the node above."""
    k, n = len(measure), len(form)
    wide = np.zeros((n + k, n + k))
    # The node comes last: it is eliminated.
    order = np.r_[0 : n - k, n : n + k]
    wide[np.ix_(order, order)] = form
    inner, outer = slice(n, n + k), slice(n - k, n)
    wide[inner, inner] += measure
    wide[outer, outer] += measure
    wide[inner, outer] -= measure
    wide[outer, inner] -= measure
    return _eliminated(wide, k)


def _eliminated(form: Array, k: int) -> Array:
    """Return the least of a form over its last `k` unknowns, as a form in the others."""
    n = len(form) - k
    last = form[n:, n:].copy()
    diagonal = np.arange(k)
    last[diagonal, diagonal] += 1e-12 * float(np.add.accumulate(last[diagonal, diagonal])[-1]) / k + 1e-15
    across = form[n:, :n]
    solution = solve(last, across)
    result = form[:n, :n].copy()
    subtract_products(result, across, solution)
    return 0.5 * (result + result.T)


def dense(fit: Fit, matrix: Array) -> Array:
    """Return the coefficients with all slopes, shape (L, T, k), from :meth:`Fit.with_pull`."""
    return lines_of(solve(matrix, fit.right_sides), fit.columns)


def sparse(fit: Fit, matrix: Array, most: int, worths: Sequence[float], free: int = 0) -> list[Array]:
    """Drop slopes of one target, the least useful first; return coefficients at each threshold, shapes (L, 1, k).

    A slope's removal costs ``b_j^2 / (H^-1)_jj``. Those of rules with more than `most` go first, then all that cost
    less than so many times the noise's variance.

    Parameters
    ----------
    fit : Fit
    matrix : ndarray of float64, shape (L k, L k)
        H, from :meth:`Fit.with_pull`.
    most : int
        Most slopes of a rule.
    worths : sequence of float
        Ascending thresholds.
    free : int
        So many columns, the last ones, are of excess: their slopes do not count among the `most`.
    """
    k = fit.columns
    inverse = invert(matrix)
    b = product(inverse, fit.right_sides[:, 0])
    b += ridge_of(fit.rows) * product(inverse, b)  # pulled towards zero twice as little: iterated (Riley, 1955)
    variance = fit.error(b.reshape(-1, 1, k)) / max(fit.rows - 0.5 * len(b), 0.2 * fit.rows)
    diagonal = np.diagonal(inverse).copy()
    number = np.arange(len(b))  # of each unknown that is left
    slopes = np.full(len(fit.right), k - 1 - free)
    counts = np.arange(k) < k - free
    alive = np.ones(len(b), dtype=bool)
    waiting: list[tuple[Array, Array]] = []  # downdates of the inverse that are still to be made
    results = []
    for worth in worths:
        while True:
            cost = np.where(alive & (number % k != 0), b * b / np.maximum(diagonal, 1e-300), np.inf)
            over = np.isfinite(cost) & (slopes[number // k] > most) & counts[number % k]
            if over.any():
                cost[~over] = np.inf
            j = int(np.argmin(cost))
            if not np.isfinite(cost[j]) or (not over.any() and cost[j] >= worth * variance):
                break
            column = inverse[j].copy()
            for factor, other in waiting:
                column -= factor[j] * other
            factor = column / column[j] if column[j] > 0.0 else np.zeros_like(column)
            b -= factor * b[j]
            diagonal -= factor * column
            waiting.append((factor, column))
            alive[j] = False
            slopes[number[j] // k] -= counts[number[j] % k]
            if len(waiting) == _TOGETHER:
                subtract_products(inverse, *zip(*waiting, strict=True))
                waiting = []
                inverse = np.ascontiguousarray(inverse[np.ix_(alive, alive)])
                b, diagonal, number, alive = b[alive], diagonal[alive], number[alive], alive[alive]
        whole = np.zeros(fit.right.size)
        whole[number[alive]] = b[alive]
        results.append(whole.reshape(-1, 1, k))
    return results
