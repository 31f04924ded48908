"""Condensation: made-up rows in place of a vehicle's own, with the same sums, squares and products.

A vehicle's rows are put into groups of rows that lie close together, and each group is replaced by as many rows that
are computed from the group's sums alone (condensation: Aggarwal and Yu, "A condensation approach to privacy preserving
data mining", EDBT 2004). A scheme whose client learns from condensed rows tells nothing about a row that the sums of
its group do not tell, whatever it is asked, in however many rounds, and however its answers are added and subtracted.

The sums of a group do not determine its rows. Let Z hold a group's n rows and Q be any orthogonal matrix of n columns
that leaves the vector of ones where it is: Q Z has the same sums, squares and products as Z. There are
(n - 1)(n - 2) / 2 dimensions of such matrices. A group has at least one row more than there are columns, all different,
so that its rows do not lie in a subspace that sums would give away (unless all of the vehicle's rows do).

The models of a fleet that condenses are the central ones of its condensed rows, bit for bit: nothing here depends on
the processor, the library of linear algebra or the order of rows.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from glassfleet.data import Dataset
from glassfleet.domain import Domain
from glassfleet.statistics import blocks

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Places = NDArray[np.intp]

NO_ROWS = (
    "no agent that answered has any rows to use: condensing takes more different rows than there are columns, and at "
    "least min_rows. Use fewer inputs, bring more rows, or use the rows as they are (min_rows=1)"
)
"""Why a run in which nobody has anything to tell fails."""

GRID_BITS = 20
"""Points are rounded to multiples of 2^-20, so that sums of their products are exact integers."""

_EXACT_ROWS = 1 << 13
"""Rows whose products add up exactly in float64: 20 + 20 + 13 bits."""

_FLAT = 2.0**-30
"""A pivot below this share of its column's own scatter is rounding: the columns before it explain the column."""


def condensed(data: Dataset, domain: Domain, min_rows: int) -> Dataset:
    """Return made-up rows in place of `data`, with the columns that `domain` names.

    Parameters
    ----------
    data : Dataset
        A vehicle's rows, with the columns of the domain in its order. Text labels are condensed class by class; rows
        of classes that the domain lacks are left out.
    domain : Domain
        The run's: values are clipped to its limits.
    min_rows : int
        Fewest rows of a group; at least one more than there are numeric columns are taken. 1: `data` as they are.

    Returns
    -------
    Dataset
        At most as many rows, in the units of the domain. Rows that are too few for a group are left out: fewer
        different ones than a group needs, at this vehicle or, with labels, of one class.
    """
    if min_rows == 1:
        return data
    low = np.array([variable.low for variable in domain.features])
    width = np.array([variable.high for variable in domain.features]) - low
    inputs = domain.scale_inputs(data.X)
    if domain.target is not None:
        points = condense(np.column_stack([inputs, domain.scale_target(data.y)]), min_rows)
        return Dataset(data.features, data.target, low + points[:, :-1] * width, domain.unscale_target(points[:, -1]))
    labels = data.y.astype(np.str_)
    parts = [condense(inputs[labels == name], min_rows) for name in domain.classes]
    names = np.repeat(np.array(domain.classes, dtype=np.str_), [len(part) for part in parts])
    return Dataset(data.features, data.target, low + np.concatenate(parts) * width, names)


def condense(points: Array, min_rows: int) -> Array:
    """Return made-up points with the sums, squares and products of each group of `points`.

    Parameters
    ----------
    points : ndarray of float64, shape (n, d)
        In [0, 1].
    min_rows : int
        Fewest different points of a group; at least d + 1 are taken.

    Returns
    -------
    ndarray of float64, shape (n, d)
        In [0, 1], as clipping may bring them there. Of shape (0, d) where there are fewer different points than a
        group needs.
    """
    d = points.shape[1]
    least = max(min_rows, d + 1)
    grid = np.rint(points * 2.0**GRID_BITS).astype(np.int64)
    different, count = _distinct(grid)
    if len(different) < least:
        return np.empty((0, d))
    found = []
    groups = _groups(different, least)
    sizes = np.array([int(count[group].sum()) for group in groups])
    for size in np.unique(sizes):
        alike = [groups[place] for place in np.flatnonzero(sizes == size)]
        mean, scatter = _moments(different, count, alike)
        found.append(_made_up(mean, scatter, int(size)))
    return np.clip(np.concatenate(found) / 2.0**GRID_BITS, 0.0, 1.0)


def _distinct(grid: Ints) -> tuple[Ints, Ints]:
    """Return the different rows in lexicographic order, and how often each is there."""
    if not len(grid):
        return grid, np.zeros(0, dtype=np.int64)
    grid = grid[np.lexsort(grid.T[::-1])]
    new = np.concatenate([[True], (grid[1:] != grid[:-1]).any(axis=1)])
    first = np.flatnonzero(new)
    return grid[first], np.diff(first, append=len(grid)).astype(np.int64)


# --- groups ---------------------------------------------------------------------------------------------------------


def _groups(points: Ints, least: int) -> list[Places]:
    """Cut the points in halves until a half would have fewer than `least`: groups of `least` to 2 `least` - 1.

    Each time across the column that explains most of the scatter of all columns, so that what varies together stays
    together.
    """
    found, open_ = [], [np.arange(len(points))]
    while open_:
        inside = open_.pop()
        parts = len(inside) // least
        if parts < 2:
            found.append(inside)
            continue
        here = points[inside]
        order = np.argsort(here[:, _telling(here)], kind="stable")
        cut = len(inside) * (parts // 2) // parts
        open_ += [inside[order[:cut]], inside[order[cut:]]]
    return found


def _telling(points: Ints) -> int:
    """Return the column c with the largest sum over j of cov(c, j)^2 / var(c); of equals the first."""
    scatter = np.zeros((points.shape[1], points.shape[1]))
    total = np.zeros(points.shape[1])
    for block in blocks(len(points), _EXACT_ROWS):
        part = (points[block] - points[0]).astype(np.float64)
        scatter += part.T @ part  # exact, whatever the library's order: 20 + 20 + 13 bits
        total += part.sum(axis=0)
    scatter -= np.multiply.outer(total, total) / len(points)
    explained = np.zeros(len(scatter))
    for line in scatter:
        explained = explained + line * line
    own = np.diagonal(scatter)
    return int(np.argmax(np.where(own >= 1.0, explained / np.maximum(own, 1.0), 0.0)))


# --- the sums of a group, and the rows made of them -------------------------------------------------------------------


def _moments(points: Ints, count: Ints, groups: list[Places]) -> tuple[Array, Array]:
    """Return mean, shape (G, d), and scatter around it, shape (G, d, d), of groups with the same number of rows."""
    inside = np.concatenate(groups)
    lengths = np.array([len(group) for group in groups])
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    weight, own = count[inside][:, None], points[inside]
    n = int(count[groups[0]].sum())
    total = np.add.reduceat(weight * own, starts)
    centre, rest = np.divmod(total, n)
    own = own - np.repeat(centre, lengths, axis=0)
    scatter = np.empty((len(groups), points.shape[1], points.shape[1]))
    for column in range(points.shape[1]):
        products = np.add.reduceat(weight * own[:, column : column + 1] * own, starts)
        scatter[:, column] = products - rest[:, column : column + 1] * rest / n
    return centre + rest / n, scatter


def _made_up(mean: Array, scatter: Array, n: int) -> Array:
    """Return `n` points for each group with this mean and scatter, shape (G n, d): a function of these alone."""
    d = mean.shape[1]
    root, directions = _cholesky(scatter), _directions(n, d)
    points = np.repeat(mean[:, None, :], n, axis=1)
    for column in range(d):
        points += directions[None, :, column, None] * root[:, None, :, column]
    return points.reshape(-1, d)


def _cholesky(scatter: Array) -> Array:
    """Return L with L L' = `scatter`, shape (G, d, d), element by element; columns that others explain become zero."""
    left, root = scatter.copy(), np.zeros_like(scatter)
    own = np.diagonal(scatter, axis1=1, axis2=2)
    for column in range(scatter.shape[1]):
        pivot = left[:, column, column]
        some = pivot > np.maximum(_FLAT * own[:, column], 2.0**-20)
        divisor = np.sqrt(np.where(some, pivot, 1.0))
        line = np.where(some[:, None], left[:, column:, column] / divisor[:, None], 0.0)
        root[:, column:, column] = line
        left[:, column:, column:] -= line[:, :, None] * line[:, None, :]
    return root


@lru_cache(maxsize=256)
def _directions(n: int, d: int) -> Array:
    """Return `d` orthonormal columns of length `n` that each add up to zero, drawn once and for all; d < n.

    Gram and Schmidt, twice, with correctly rounded sums: the same bits on every machine.
    """
    raw = np.random.PCG64(n).random_raw(n * d)
    columns = [np.full(n, 1.0 / math.sqrt(n))]
    for column in (raw >> np.uint64(11)).astype(np.float64).reshape(d, n) / 2.0**53 - 0.5:
        for _ in range(2):
            for known in columns:
                column = column - math.fsum(column * known) * known  # noqa: PLW2901 - what is left of it
        columns.append(column / math.sqrt(math.fsum(column * column)))
    return np.column_stack(columns[1:])
