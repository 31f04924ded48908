"""Least squares from exact Gram sums, the same on every machine.

``numpy.linalg.lstsq`` on identical sums gave different last bits under different OpenBLAS kernels, hence different
model digests on different computers. This solver uses only ``+ - * /`` and ``sqrt`` on whole arrays, element by
element and in one fixed order. IEEE 754 fixes the result of each of these, so the answer depends on the sums alone: not
on the processor, not on the library, and not on which other systems are solved in the same batch.

Method: cyclic Jacobi eigen-decomposition of the Gram matrix with a round-robin order of rotations (Brent and Luk,
1985), then the minimum-norm solution from the eigenvectors whose eigenvalues are above what rounding alone can produce.

The cut. The Gram matrix is that of rows whose entries were rounded to integers, with errors of at most 1/2 each. If a
direction v of unit length is exactly null for the true rows, then each rounded row r has ``|r . v| <= sqrt(k) / 2``,
so its eigenvalue is at most ``n k / 4`` for n rows of k entries. The sums are then written as float64, which adds at
most ``k eps`` of the largest eigenvalue (the same cut that ``lstsq`` and ``pinv`` use for normal equations). An
eigenvalue below the larger of the two cannot be told from zero and is taken as zero: a column that is constant within
a leaf, and thus collinear with the intercept, for instance. What is above is signal.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.statistics import gram_value, unpack_symmetric

MAX_SWEEPS = 40
"""Jacobi converges quadratically, in 6 to 10 sweeps for the sizes met here; the bound only guarantees an end."""

_EPSILON = 2.0**-53
_NEGLIGIBLE = 2.0**-75
"""Off-diagonal entries this small beside the trace (2^-22 of float64's own rounding) are not rotated."""


def minimum_norm(
    gram: NDArray[np.float64], moment: NDArray[np.float64], rows: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Solve many small least-squares problems from their sums.

    Parameters
    ----------
    gram : ndarray of float64, shape (m, k, k)
        ``Z' Z`` of rows that were rounded to integers, one matrix per problem.
    moment : ndarray of float64, shape (m, k)
        ``Z' y`` of the rounded rows.
    rows : ndarray of int64, shape (m,)
        How many rows each problem has, >= 0.

    Returns
    -------
    ndarray of float64, shape (m, k)
        The solution of least norm of each problem; zeros for a problem without signal.
    """
    m, k = moment.shape
    if m == 0:
        return np.zeros((0, k))
    # The batch is the last axis: each operation below is then one pass over contiguous memory.
    values, vectors = symmetric_eigen(np.ascontiguousarray(gram.transpose(1, 2, 0)))
    right = np.ascontiguousarray(moment.T)
    cut = np.maximum(rows.astype(np.float64) * (k / 4.0), values.max(axis=0) * (k * 2.0 * _EPSILON))
    keep = values > cut
    projected = vectors[0] * right[0]
    for i in range(1, k):
        projected = projected + vectors[i] * right[i]
    weight = np.where(keep, projected, 0.0) / np.where(keep, values, 1.0)
    solution = vectors[:, 0] * weight[0]
    for i in range(1, k):
        solution = solution + vectors[:, i] * weight[i]
    return np.ascontiguousarray(solution.T) + 0.0  # + 0.0 turns -0.0 into 0.0: one way to write each number


def symmetric_eigen(matrices: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Diagonalise many small symmetric matrices with Jacobi rotations.

    Parameters
    ----------
    matrices : ndarray of float64, shape (k, k, m)
        Symmetric in the first two axes.

    Returns
    -------
    values : ndarray of float64, shape (k, m)
        Eigenvalues, in no particular order.
    vectors : ndarray of float64, shape (k, k, m)
        ``vectors[:, i, b]`` belongs to ``values[i, b]``.
    """
    k, _, m = matrices.shape
    size = k + k % 2  # round-robin pairs need an even number; the padding row is zero and is never rotated
    work = np.zeros((size, size, m))
    work[:k, :k] = matrices
    vectors = np.zeros((size, size, m))
    vectors[np.arange(size), np.arange(size)] = 1.0
    trace = np.zeros(m)
    for i in range(k):
        trace = trace + np.abs(work[i, i])
    floor = trace * _NEGLIGIBLE
    rounds = _round_robin(size)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        for _ in range(MAX_SWEEPS):
            rotated = False
            for first, second in rounds:
                rotated |= _rotate(work, vectors, first, second, floor)
            if not rotated:
                break
    return work[np.arange(k), np.arange(k)], vectors[:k, :k]


def _rotate(
    work: NDArray[np.float64],
    vectors: NDArray[np.float64],
    first: NDArray[np.intp],
    second: NDArray[np.intp],
    floor: NDArray[np.float64],
) -> bool:
    """Zero the entries (first[i], second[i]) of all matrices in place; return whether any matrix needed it.

    A matrix that needs no rotation gets c = 1, s = 0, which leaves its numbers as they are: results do not depend on
    the batch.
    """
    a, b, off = work[first, first], work[second, second], work[first, second]
    small = np.abs(off) <= np.maximum(_EPSILON * np.sqrt(np.abs(a)) * np.sqrt(np.abs(b)), floor)
    if small.all():
        return False
    theta = (b - a) / (2.0 * off)
    tangent = np.where(theta < 0.0, -1.0, 1.0) / (np.abs(theta) + np.sqrt(theta * theta + 1.0))
    tangent = np.where(small, 0.0, tangent)
    cosine = 1.0 / np.sqrt(tangent * tangent + 1.0)
    sine = tangent * cosine
    c, s = cosine[:, None, :], sine[:, None, :]
    upper, lower = work[first], work[second]
    work[first] = c * upper - s * lower
    work[second] = s * upper + c * lower
    for matrix in (work, vectors):
        left, right = matrix[:, first], matrix[:, second]
        matrix[:, first] = cosine * left - sine * right
        matrix[:, second] = sine * left + cosine * right
    # What is zero, or known more precisely, by construction is set so: the matrix stays symmetric where it matters.
    change = tangent * off
    work[first, first] = np.where(small, a, a - change)
    work[second, second] = np.where(small, b, b + change)
    work[first, second] = np.where(small, off, 0.0)
    work[second, first] = work[first, second]
    return True


def _round_robin(size: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return size - 1 rounds of size / 2 disjoint pairs that together hold every pair once (the circle method)."""
    rounds = []
    circle = list(range(size))
    for _ in range(size - 1):
        pairs = [sorted((circle[i], circle[size - 1 - i])) for i in range(size // 2)]
        rounds.append((np.array([p for p, _ in pairs]), np.array([q for _, q in pairs])))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return rounds


# --- regressions of rules from their summed Gram matrices -------------------------------------------------------------


def moments(sums: Mapping[str, NDArray[np.int64]], k: int, bits: int) -> NDArray[np.float64]:
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


def consequents(sums: Mapping[str, NDArray[np.int64]], k: int, bits: int) -> NDArray[np.float64]:
    """Return each rule's polynomial, shape (m, k - 1), intercept last: weighted least squares of least norm.

    Parameters
    ----------
    sums : Mapping of str to ndarray of int64
        As for :func:`moments`, and ``count``, the rows of each rule, shape (m,).
    k, bits : int
        As for :func:`moments`.
    """
    gram = unpack_symmetric(gram_value(sums["gram_high"], sums["gram_low"], bits=bits), k)
    return minimum_norm(gram[:, :-1, :-1], gram[:, :-1, -1], sums["count"])
