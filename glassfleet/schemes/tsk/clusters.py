"""Fuzzy C-means with exact sums: the same centres for any spread of rows, any order and any BLAS kernel.

One iteration of fuzzy C-means (fuzzifier m = 2) on rows z of D columns in [0, 1] and K centres v is

    d_ik = |z_i - v_k|^2,   u_ik = (1 / d_ik) / sum_j (1 / d_ij),   v_k' = sum_i u_ik^2 z_i / sum_i u_ik^2.

Rows and centres are rounded to a grid of 2^-b, with b small enough that every partial sum of d = |z|^2 - 2 z v + |v|^2
is an integer below 2^53: one BLAS product then gives the exact distances. Memberships follow element by element, in the
order of the clusters. Their squares are rounded to 2^-30 and split into two halves of 15 bits, so that the products
with the rows' grid values are exact as well. Both halves' sums are int64: they add up over agents in any order. What
decides the end, the squared change of the memberships, is such a sum too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.statistics import EXACT_BITS, blocks, to_grid

Floats = NDArray[np.float64]

ROW_BLOCK = 1 << 11
"""Rows handled together: few enough for the processor's cache; exact products allow 2^13."""

SQUARE_BITS = 30
HALF_BITS = SQUARE_BITS // 2
CHANGE_BITS = 36
_MAX_BITS = 25


def grid_bits(columns: int) -> int:
    """Return the fraction bits of rows and centres for which squared distances over `columns` are exact, at most 25."""
    return min(_MAX_BITS, (EXACT_BITS - 2 - math.ceil(math.log2(columns))) // 2)


def cluster_capacity() -> int:
    """Return the largest total number of rows whose sums fit in int64 (each term is below 2^(15 + 25))."""
    return (1 << (63 - HALF_BITS - _MAX_BITS)) - 1


@dataclass(frozen=True)
class ClusterRows:
    """Rows to cluster, on the grid.

    Attributes
    ----------
    bits : int
        Fraction bits of the grid.
    width : int
        Columns of a row, D.
    blocks : list of ndarray of float64, shape (D + 2, n)
        Integer values: the columns, ones, and the squared length of each row.
    """

    bits: int
    width: int
    blocks: list[Floats]

    @classmethod
    def of(cls, columns: Sequence[Floats] | Floats) -> ClusterRows:
        """Return the table of D `columns`, each of shape (n,), in [0, 1]."""
        d, bits = len(columns), grid_bits(len(columns))
        parts = []
        for block in blocks(len(columns[0]), ROW_BLOCK):
            part = np.ones((d + 2, block.stop - block.start))
            part[d + 1] = 0.0
            for number, column in enumerate(columns):
                part[number] = to_grid(column[block], bits)
                part[d + 1] += part[number] * part[number]
            parts.append(part)
        return cls(bits, d, parts)

    def memberships(self, centres: Floats) -> Iterator[Floats]:
        """Yield the memberships in clusters around `centres`, shape (K, D); per block, shape (K, n)."""
        on_grid = to_grid(centres, self.bits)
        square = np.zeros(len(on_grid))
        for column in on_grid.T:
            square = square + column * column
        left = np.column_stack([-2.0 * on_grid, square, np.ones(len(on_grid))])
        for block in self.blocks:
            u = left @ block  # squared distances: exact, see the module's docstring
            # A row that is a centre is as close as half a grid step, instead of infinitely close.
            np.maximum(u, 0.25, out=u)
            np.divide(1.0, u, out=u)
            yield _normalise(u)

    def seeded(self, clusters: int, seed: int) -> Iterator[Floats]:
        """Yield memberships uniform at random, by position: those of ``RandomState(seed).rand(n, clusters)``.

        The published results start like this; the stream of the old generator is frozen, so it will stay the same. Rows
        in another order get other memberships.
        """
        drawn = np.random.RandomState(seed)
        for block in self.blocks:
            yield _normalise(np.ascontiguousarray(drawn.rand(block.shape[1], clusters).T))


def first_centres(clusters: int, columns: int, seed: int) -> Floats:
    """Return centres to begin a common clustering with, shape (K, D): uniform at random in [0, 1], multiples of 2^-b.

    They rest on nobody's rows. (Random memberships would put all centres next to the mean of all rows; from there some
    dozen iterations pass before anything moves.)
    """
    bits = grid_bits(columns)
    drawn = np.random.RandomState(seed).rand(clusters, columns)
    return np.floor(drawn * float(1 << bits)) * 0.5**bits


def _normalise(u: Floats) -> Floats:
    """Divide each column by its sum, in place and in the order of the lines; returns `u`."""
    total = u[0].copy()
    for line in u[1:]:
        total += line
    np.divide(1.0, total, out=total)
    u *= total
    return u


@dataclass(frozen=True)
class Moments:
    """Sums over rows of the squared memberships times the row; additive.

    Attributes
    ----------
    high, low : ndarray of int64, shape (K, D + 1)
        ``high * 2^15 + low`` is, in units of the grids, the sum of u^2 [z, 1] for each cluster.
    """

    high: NDArray[np.int64]
    low: NDArray[np.int64]

    def centres(self, bits: int, otherwise: Floats | None) -> Floats:
        """Return the centres, shape (K, D), multiples of 2^-bits in [0, 1].

        A cluster without mass keeps its centre in `otherwise`, or gets the middle.
        """
        value = self.high.astype(np.float64) * float(1 << HALF_BITS) + self.low.astype(np.float64)
        mass = value[:, -1:] * float(1 << bits)
        some = mass > 0
        ratio = value[:, :-1] / np.where(some, mass, 1.0)
        kept = np.full_like(ratio, 0.5) if otherwise is None else otherwise
        # The quotient of rounded sums could exceed 1 by a rounding; the grid's limits are the rows' own.
        return np.where(some, np.minimum(to_grid(ratio, bits), float(1 << bits)) * 0.5**bits, kept)


def moments(table: ClusterRows, memberships: Iterable[Floats], clusters: int) -> Moments:
    """Return the exact sums of one iteration.

    Parameters
    ----------
    table : Table
        Rows.
    memberships : iterable of ndarray of float64, shape (K, n)
        One per block of the table.
    clusters : int
        K.
    """
    d = table.width
    high, low = (np.zeros((clusters, d + 1), dtype=np.int64) for _ in range(2))
    for block, u in zip(table.blocks, memberships, strict=True):
        square = u * u
        square *= float(1 << SQUARE_BITS)
        np.rint(square, out=square)
        upper = np.floor(square * 0.5**HALF_BITS)
        high += (upper @ block[: d + 1].T).astype(np.int64)
        upper *= float(1 << HALF_BITS)
        square -= upper
        low += (square @ block[: d + 1].T).astype(np.int64)
    return Moments(high, low)


def change(before: Iterable[Floats], after: Iterable[Floats]) -> int:
    """Return the squared Frobenius norm of the change of memberships; each row's is rounded to a multiple of 2^-36."""
    total = 0
    for old, new in zip(before, after, strict=True):
        difference = new - old
        difference *= difference
        rows = difference[0].copy()
        for line in difference[1:]:
            rows += line
        total += int(to_grid(rows, CHANGE_BITS).sum())
    return total


def settled(squared_change: int, tolerance: float) -> bool:
    """Whether a change from :func:`change` is below the tolerance."""
    return float(squared_change) * 0.5**CHANGE_BITS < tolerance * tolerance


def fuzzy_c_means(
    columns: Sequence[Floats] | Floats, clusters: int, *, seed: int, tolerance: float, max_iterations: int
) -> Floats:
    """Cluster rows at hand.

    Parameters
    ----------
    columns : sequence of ndarray of float64, shape (n,)
        Rows in [0, 1], one array per column.
    clusters : int
        K.
    seed : int
        Of the first memberships, [0, 2^32).
    tolerance : float
        Ends when the Frobenius norm of the change of memberships is below it.
    max_iterations : int
        Ends after as many iterations.

    Returns
    -------
    ndarray of float64, shape (K, D)
        Centres; no centres, shape (0, D), of no rows.
    """
    if len(columns[0]) == 0:
        return np.zeros((0, len(columns)))
    table = ClusterRows.of(columns)
    u, centres = list(table.seeded(clusters, seed)), None
    for _ in range(max_iterations):
        sums = moments(table, u, clusters)
        centres = sums.centres(table.bits, centres)
        moved = 0
        for place, new in enumerate(table.memberships(centres)):  # the old ones give way block by block: less memory
            moved += change(u[place : place + 1], [new])
            u[place] = new
        if settled(moved, tolerance):
            break
    assert centres is not None
    return centres
