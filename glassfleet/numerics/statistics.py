"""Exact additive statistics: sums that do not depend on the order of the rows or on who holds them.

Floating-point addition is not associative, so a sum over the rows of five vehicles differs in its last bits from the
sum over the pooled rows, and a tree grown from it can differ in its first split. Here every row's term is rounded to a
fixed-point grid *before* it is summed. A rounded term is an integer below 2^53, sums of such integers are exact in
float64 while they stay below 2^53, and blocks are then added as int64. What is left is integer arithmetic: any spread
of rows, any block size and any order give the same sums.

Two conditions make that true, and callers must hold them:

- every term is in [0, 1] and is computed with element-wise operations in one fixed order (no BLAS, ``einsum`` or
  reduction before the rounding: their order of operations changes with the block);
- the total number of rows is at most :func:`capacity` (or :func:`gram_capacity`), beyond which int64 would overflow.

Gram sums for regressions multiply two rounded entries, and a least-squares solution amplifies their rounding by the
condition number. A grid of 2^-20, the finest whose products fit one float64 block sum, changed a printed digit of a
published table (a leaf of nine rows with strengths near 5e-4). So entries are rounded to 2^-30 and split into two
halves of 15 bits; the products of halves are exact in BLAS for blocks of up to 2^23 rows, and the sum is two int64
limbs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Number = TypeVar("Number", np.int64, np.float64)

EXACT_BITS = 53
"""Integers up to 2^53 and their sums up to 2^53 are exact in float64."""

_NEXT_TO_NOTHING = 1e-300

_TOGETHER = 8
"""Lines of weights in one product of matrices: small matrices are multiplied without being copied first."""

_CARRY_ROWS = 1 << 13
"""Rows between two carries of Gram sums: the middle products times 2^half stay far below 2^63."""


def capacity(bits: int) -> int:
    """Return the largest total number of rows whose sums of `bits`-bit terms fit in int64."""
    return (1 << (63 - bits)) - 1


def limb_bits(bits: int) -> int:
    """Return the width of the low limb of Gram sums of `bits`-bit entries: G = high * 2^width + low."""
    return 2 * (bits // 2)


def gram_capacity(bits: int) -> int:
    """Return the largest total number of rows whose Gram sums of `bits`-bit entries fit their limbs.

    The high limb grows with the rows, the low limb (below 2^30 at each agent) with the agents only.
    """
    return (1 << (63 - (2 * bits - limb_bits(bits)))) - 1


def gram_block(bits: int) -> int:
    """Return the most rows of `bits`-bit entries whose products of halves are exact in float64 (2^23 for 30 bits)."""
    return 1 << (EXACT_BITS - 2 * (bits - bits // 2))


def to_grid(terms: NDArray[np.float64], bits: int) -> NDArray[np.float64]:
    """Round `terms`, in [0, 1], to multiples of 2^-bits; return them as integer-valued float64, times 2^bits."""
    scaled = terms * float(1 << bits)
    np.rint(scaled, out=scaled)
    return scaled


def pair_sums(weights: NDArray[np.float64], columns: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    """Return weighted sums of the products of all pairs of columns, packed; each product is rounded once.

    Parameters
    ----------
    weights : ndarray of float64, shape (m, n)
        Whole numbers. Callers see to it that a sum of weights times 2^`bits` is at most 2^53: exact, whatever the order
        in which the library of linear algebra adds.
    columns : ndarray of float64, shape (k, n)
        In [0, 1].
    bits : int

    Returns
    -------
    ndarray of int64, shape (m, k (k + 1) / 2)
        In units of 2^-bits.
    """
    k, n = columns.shape
    columns = np.ascontiguousarray(columns)
    scaled = columns * float(1 << bits)
    products = np.empty((k * (k + 1) // 2, n))
    start = 0
    for lag in range(k):  # diagonal by diagonal: whole stretches of memory at a time
        np.multiply(columns[: k - lag], scaled[lag:], out=products[start : start + k - lag])
        start += k - lag
    np.rint(products, out=products)
    sums = np.empty((len(weights), len(products)))
    for some in blocks(len(weights), _TOGETHER):
        np.matmul(weights[some], products.T, out=sums[some])
    return sums[:, _by_diagonal(k)].astype(np.int64)


@cache
def _by_diagonal(k: int) -> NDArray[np.intp]:
    """Return where each entry of a packed triangle is when the triangle is written diagonal by diagonal."""
    first, second = triangle(k)
    lag = second - first
    place: NDArray[np.intp] = lag * k - lag * (lag - 1) // 2 + first
    return place


def sum_by_cell(cells: NDArray[np.intp], terms: NDArray[np.float64], n_cells: int, *, bits: int) -> NDArray[np.int64]:
    """Sum integer-valued terms by cell, exactly.

    Parameters
    ----------
    cells : ndarray of intp, shape (n,)
        The cell of each term, in [0, `n_cells`).
    terms : ndarray of float64, shape (n,)
        Integer values in [0, 2^`bits`], from :func:`to_grid`.
    n_cells : int
        Number of cells.
    bits : int
        Fraction bits of the terms; at most 2^(53 - bits) terms are added in float64 at a time.

    Returns
    -------
    ndarray of int64, shape (n_cells,)
    """
    total = np.zeros(n_cells, dtype=np.int64)
    for block in blocks(cells.shape[0], 1 << (EXACT_BITS - bits)):
        total += np.bincount(cells[block], weights=terms[block], minlength=n_cells).astype(np.int64)
    return total


def gram_sums(columns: NDArray[np.float64], *, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the exact Gram matrix of integer-valued columns, in two limbs.

    The BLAS products are exact whatever the kernel, because every partial sum is an integer below 2^53.

    Parameters
    ----------
    columns : ndarray of float64, shape (k, n)
        Integer values in [0, 2^`bits`], from :func:`to_grid`; one line per variable.
    bits : int
        Fraction bits of the entries.

    Returns
    -------
    high, low : ndarray of int64, shape (k, k)
        ``columns @ columns.T = high * 2^limb_bits(bits) + low``; low in [0, 2^limb_bits). Both are additive.
    """
    k, half = columns.shape[0], bits // 2
    high = np.zeros((k, k), dtype=np.int64)
    low = np.zeros((k, k), dtype=np.int64)
    for block in blocks(columns.shape[1], min(gram_block(bits), _CARRY_ROWS)):
        halves = np.empty((2 * k, block.stop - block.start))
        np.floor(columns[:, block] * 0.5**half, out=halves[:k])
        np.subtract(columns[:, block], halves[:k] * 2.0**half, out=halves[k:])
        products = (halves @ halves.T).astype(np.int64)
        middle = products[:k, k:] + products[k:, :k]
        high += products[:k, :k]
        low += (middle << half) + products[k:, k:]
        high, low = carry(high, low, bits=bits)
    return high, low


def carry(high: NDArray[np.int64], low: NDArray[np.int64], *, bits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the same two-limb sums with the low limb in [0, 2^limb_bits(bits)): one way to write each number."""
    width = limb_bits(bits)
    return high + (low >> width), low & ((1 << width) - 1)


def gram_value(high: NDArray[np.int64], low: NDArray[np.int64], *, bits: int) -> NDArray[np.float64]:
    """Return two-limb sums as float64, in units of the squared grid; within 2^-52 of the exact value."""
    return high.astype(np.float64) * 2.0 ** limb_bits(bits) + low.astype(np.float64)


def blocks(n: int, size: int, first: int = 0) -> Iterator[slice]:
    """Yield slices of at most `size` that cover ``range(first, n)``."""
    for start in range(first, n, size):
        yield slice(start, min(start + size, n))


@cache
def triangle(k: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return rows and columns of the upper triangle of a k x k matrix, row by row: to find them takes longest."""
    return np.triu_indices(k)


def pack_symmetric(matrices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the upper triangles, row by row, of matrices of shape (..., k, k); shape (..., k (k + 1) / 2)."""
    above = triangle(matrices.shape[-1])
    return np.ascontiguousarray(matrices[..., above[0], above[1]])


def unpack_symmetric(triangles: NDArray[Number], k: int) -> NDArray[Number]:
    """Undo :func:`pack_symmetric`; returns shape (..., k, k)."""
    above = triangle(k)
    full = np.empty((*triangles.shape[:-1], k, k), dtype=triangles.dtype)
    full[..., above[0], above[1]] = triangles
    full[..., above[1], above[0]] = triangles
    return full


def are_semidefinite(matrices: NDArray[np.float64], room: NDArray[np.float64]) -> bool:
    """Return whether no eigenvalue of symmetric matrices, shape (m, k, k), is below -`room`, shape (m,)."""
    try:
        # Tells the same as the eigenvalues, in less time. Where there are no rows all is 0, which is no fault.
        np.linalg.cholesky(matrices + np.maximum(room, _NEXT_TO_NOTHING)[:, None, None] * np.eye(matrices.shape[-1]))
    except np.linalg.LinAlgError:
        return False
    return True


def rule_weight(support: ArrayLike, confidence: ArrayLike) -> NDArray[np.float64]:
    """Return the harmonic mean of supports and confidences, which are in [0, 1]; 0 where both are 0.

    >>> rule_weight([0.5, 0.0], [1.0, 0.0]).round(3).tolist()
    [0.667, 0.0]
    """
    confidence, support = np.asarray(confidence, dtype=np.float64), np.asarray(support, dtype=np.float64)
    both = confidence + support
    return np.where(both > 0.0, 2.0 * confidence * support / np.where(both > 0.0, both, 1.0), 0.0)


def weigh(
    ws: NDArray[np.int64], wq: NDArray[np.int64], rows: int, bits: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Return rule weight, support and confidence; a rule that never fires has zeros.

    confidence = sum w q / sum w, support = sum w q / rows, weight = their harmonic mean.

    Parameters
    ----------
    ws, wq : ndarray of int64, shape (r,)
        Sums of w and w q in units of 2^-bits.
    rows : int
        Rows that were summed over.
    bits : int
        Fraction bits.
    """
    strength, quality = ws.astype(np.float64), wq.astype(np.float64)
    confidence = np.where(ws > 0, quality / np.where(ws > 0, strength, 1.0), 0.0)
    support = quality / (float(max(rows, 1)) * float(1 << bits))
    weight = rule_weight(support, confidence)
    return np.minimum(weight, 1.0), support, confidence
