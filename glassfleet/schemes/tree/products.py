"""Sums of columns, of the products of all pairs of columns, and of terms by cell: exact, in whatever order."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.statistics import blocks, pair_sums, to_grid, triangle
from glassfleet.schemes.tree.params import EXACT_ROWS, GRID_BITS, SCORE_BITS, WEIGHTED_ROWS

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

SELDOM = 16
"""A column that is above zero in less than one row of so many is multiplied in those rows alone."""


def sum_columns(weights: Array, columns: Array, times: Array | None = None) -> Ints:
    """Return sums of weights times columns, all rounded to the grid.

    Parameters
    ----------
    weights : ndarray of float64, shape (m, n)
        In [0, 1].
    columns : ndarray of float64, shape (k, n)
        In [-1, 1] times :data:`MAX_RESIDUAL`.
    times : ndarray of float64, shape (n,), or None
        How often each row counts, a whole number up to :data:`MOST_TIMES`; None: once.

    Returns
    -------
    ndarray of int64, shape (m, k)
    """
    total = np.zeros((len(weights), len(columns)), dtype=np.int64)
    for block in blocks(columns.shape[1], EXACT_ROWS if times is None else WEIGHTED_ROWS):
        # All are integers, and a block's sums are at most 2^53: exact, whatever the library's order.
        total += (_whole(weights, times, block) @ to_grid(columns[:, block], GRID_BITS).T).astype(np.int64)
    return total


def sum_pairs(weights: Array, columns: Array, times: Array | None = None) -> Ints:
    """Return sums of weights times the products of all pairs of columns, shape (m, k (k + 1) / 2).

    Parameters as of :func:`sum_columns`, with columns in [0, 1]; each product is rounded to the grid. A column of
    excess is zero in nearly all rows: it is multiplied in the others alone.
    """
    seldom = np.count_nonzero(columns, axis=1) * SELDOM < columns.shape[1]
    if not seldom.any():
        return _sum_pairs(weights, columns, times)
    there = np.flatnonzero(columns[seldom].any(axis=0))
    total = _sum_pairs(weights.take(there, 1), columns.take(there, 1), None if times is None else times[there])
    first, second = triangle(len(columns))
    total[:, ~(seldom[first] | seldom[second])] = _sum_pairs(weights, columns[~seldom], times)
    return total


def _sum_pairs(weights: Array, columns: Array, times: Array | None) -> Ints:
    k = len(columns)
    # A megabyte of products at a time stays in the cache.
    together = max(WEIGHTED_ROWS, min(EXACT_ROWS, 250_000 // (k * (k + 1)))) if times is None else WEIGHTED_ROWS
    total = np.zeros((len(weights), k * (k + 1) // 2), dtype=np.int64)
    for block in blocks(columns.shape[1], together):
        total += pair_sums(_whole(weights, times, block), columns[:, block], GRID_BITS)
    return total


def _whole(weights: Array, times: Array | None, block: slice) -> Array:
    whole = to_grid(weights[:, block], GRID_BITS)
    return whole if times is None else whole * times[block]


def sum_by_cell(
    terms: Array, cells: NDArray[np.intp], n_cells: int, times: Array | None = None, *, many: bool = False
) -> Ints:
    """Return the sums of the terms of the rows in each cell, shape (m, n_cells, c), on the grid of scores.

    Parameters
    ----------
    terms : ndarray of float64, shape (c, n)
    cells : ndarray of intp, shape (m, n)
        In which cells each row is.
    n_cells : int
    times : ndarray of float64, shape (n,), or None
        How often each row counts; None: once.
    many : bool
        Whether there are so many rows that a sparse matrix pays: it takes a third of the time, and its library 23 MB.
    """
    m, n = cells.shape
    whole = to_grid(terms, SCORE_BITS)
    # Integers of at most 29 bits, and less than 2^23 rows: exact sums in any order.
    if many:
        from scipy.sparse import csc_matrix  # noqa: PLC0415

        own = (cells + n_cells * np.arange(m)[:, None]).T.astype(np.int32).ravel()
        counts = np.ones(len(own)) if times is None else np.repeat(times, m)
        adding = csc_matrix((counts, own, np.arange(0, m * n + 1, m, dtype=np.int32)), shape=(m * n_cells, n))
        together: Ints = (adding @ np.ascontiguousarray(whole.T)).astype(np.int64)
        return together.reshape(m, n_cells, len(terms))
    if times is not None:
        whole *= times
    total = np.empty((m, n_cells, len(terms)))
    for mine, sums in zip(cells, total, strict=True):
        for column, term in enumerate(whole):
            sums[:, column] = np.bincount(mine, term, n_cells)
    return total.astype(np.int64)
