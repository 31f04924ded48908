"""Condensation: made-up rows in place of a vehicle's own, drawn from what groups of close rows have in common.

A vehicle's rows are put into groups of rows that lie close together. Each group is replaced by as many rows that are
drawn at random with the group's mean and scatter. (After the condensation of Aggarwal and Yu, "A condensation approach
to privacy preserving data mining", EDBT 2004, which draws so that the scatter stays as it is.) A scheme whose client
learns from condensed rows tells nothing that these made-up rows do not tell, whatever it is asked, in however many
rounds, and however its answers are added and subtracted.

Drawn, and not computed so that a group's sums stay: exact sums give rows away. Values are on a grid (tenths of a
degree), and few rows on a grid have given sums and products; a column in which one row stands alone gives that row by a
division. The draw is keyed by a secret of the vehicle and by the group's rows. So the same group is always drawn in the
same way, and repeating a run (with the same limits) averages nothing out. A group that gained or lost a row is drawn
anew, so that the difference of two runs is not that row.

A fleet that condenses learns the central model of its condensed rows, bit for bit: nothing here depends on the
processor, the library of linear algebra or the order of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.categories import encode_inputs
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.numerics.statistics import blocks

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
Places = NDArray[np.intp]

GRID_BITS = 20
"""Points are rounded to multiples of 2^-20, so that sums of their products are exact integers."""

_EXACT_ROWS = 1 << 13
"""Rows whose products add up exactly in float64: 20 + 20 + 13 bits."""

_LABEL = b"glassfleet-condense/1"

_WORDS = 12
"""Uniform numbers of a draw: so many have a variance of 1 together."""

_SPREAD = 2.0 ** (GRID_BITS - 8)
"""Least standard deviation of a group's made-up rows, in each column: where all rows of a group are all but equal,
its mean would be what they are."""

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
        different ones than a group needs, at this vehicle or, with labels, of one class. Rows with a value beyond a
        limit, where lines go on, are in groups of their own: others would take a part of what is far out.
    """
    if min_rows == 1:
        return data
    texts = [place for place, variable in enumerate(domain.inputs) if variable.categories]
    inputs = _inputs(data, domain, texts)
    if domain.target is not None:
        points = np.column_stack([inputs, domain.scale_target(data.y)])
        points = _apart(points, domain, min_rows, data.key, texts)
        X = _in_own_units(points[:, :-1], domain, texts)
        return Dataset(data.features, data.target, X, domain.unscale_target(points[:, -1]))
    labels = data.y.astype(np.str_)
    parts = [_apart(inputs[labels == name], domain, min_rows, data.key, texts) for name in domain.classes]
    names = np.repeat(np.array(domain.classes, dtype=np.str_), [len(part) for part in parts])
    return Dataset(data.features, data.target, _in_own_units(np.concatenate(parts), domain, texts), names)


def _apart(points: Array, domain: Domain, min_rows: int, key: bytes, texts: Sequence[int]) -> Array:
    """Condense rows without excess, and those with some; of the latter the columns that they have."""
    n = len(domain.inputs)
    excess = np.arange(n - len(domain.excess), n)
    far = (points[:, excess] > 0.0).any(axis=1)
    parts = []
    for rows, some in ((points[~far], excess[:0]), (points[far], excess[points[:, excess].any(axis=0)])):
        columns = np.concatenate([np.arange(excess[0] if len(excess) else n), some, np.arange(n, points.shape[1])])
        made = condense(rows[:, columns], min_rows, key, texts)
        wide = np.zeros((len(made), points.shape[1]))
        wide[:, columns] = made
        parts.append(wide)
    return np.concatenate(parts)


def _inputs(data: Dataset, domain: Domain, texts: Sequence[int]) -> Array:
    """Return the inputs in [0, 1], shape (n, F): of a text 0 where the run does not know it, else its number of c."""
    codes = domain.completed(encode_inputs(data, domain))
    inputs = np.minimum(domain.scale_inputs(codes), 1.0)  # excess may be more
    for column in texts:
        own = codes[:, column]
        inputs[:, column] = np.where(own == np.rint(own), own + 1.0, 0.0) / len(domain.inputs[column].categories)
    return inputs


def _in_own_units(points: Array, domain: Domain, texts: Sequence[int]) -> Array:
    """Return features in the units of the domain; a text that the run does not know as the code -0.5."""
    low = np.array([variable.low for variable in domain.inputs])
    width = np.array([variable.high for variable in domain.inputs]) - low
    X: Array = low + points * width
    for column in texts:
        number = np.rint(points[:, column] * len(domain.inputs[column].categories))
        X[:, column] = np.where(number > 0.0, number - 1.0, -0.5)
    return domain.as_given(X)


def condense(points: Array, min_rows: int, key: bytes = b"", kept: Sequence[int] = ()) -> Array:
    """Return made-up points, drawn with the mean and scatter of each group of `points`.

    Parameters
    ----------
    points : ndarray of float64, shape (n, d)
        In [0, 1].
    min_rows : int
        Fewest different points of a group; at least d + 1 are taken.
    key : bytes
        The vehicle's secret. Without it, who guesses all rows of a group can verify the guess.
    kept : sequence of int
        Columns of texts: a made-up row has one of the group's own values, each as often as the group has it, and by
        chance with those of other columns.

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
    groups = _groups(different, least)
    sizes = np.array([int(count[group].sum()) for group in groups])
    parts = []
    for size in sorted(set(sizes.tolist())):
        alike = [groups[place] for place in np.flatnonzero(sizes == size)]
        mean, scatter = _moments(different, count, alike)
        drawn = np.stack([_draw(key, different[group], count[group], size) for group in alike])
        made = _made_up(mean, scatter, drawn)
        for column in kept:
            own = [np.repeat(different[group, column], count[group]) for group in alike]
            order = np.argsort(drawn[:, :, column], axis=1, kind="stable")
            made[:, column] = np.concatenate([line[place] for line, place in zip(own, order, strict=True)])
        parts.append(made)
    return np.clip(np.concatenate(parts) / 2.0**GRID_BITS, 0.0, 1.0)


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
    groups, open_ = [], [np.arange(len(points))]
    while open_:
        inside = open_.pop()
        parts = len(inside) // least
        if parts < 2:
            groups.append(np.sort(inside))
            continue
        here = points[inside]
        order = np.argsort(here[:, _telling(here)], kind="stable")
        cut = len(inside) * (parts // 2) // parts
        open_ += [inside[order[:cut]], inside[order[cut:]]]
    return groups


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


def _draw(key: bytes, points: Ints, count: Ints, n: int) -> Array:
    """Return draws of mean 0 and variance 1, shape (n, d): the same for the same group and key.

    Each is the sum of twelve uniform ones, about normal and the same bits everywhere. Uniform ones themselves have
    sharp edges, which tell a group's mean and scatter much sooner than the draws' own do.
    """
    given = b"".join([_LABEL, len(key).to_bytes(8, "little"), key, count.tobytes(), points.tobytes()])
    digest = hashlib.shake_256(given).digest(_WORDS * 4 * n * points.shape[1])
    total = np.frombuffer(digest, dtype="<u4").reshape(n, -1, _WORDS).sum(axis=2, dtype=np.uint64)
    draws: Array = total.astype(np.float64) / 2.0**32 - _WORDS / 2
    return draws


def _made_up(mean: Array, scatter: Array, drawn: Array) -> Array:
    """Return points with this mean and scatter in expectation, shape (G n, d); `drawn` has the shape (G, n, d)."""
    groups, n, d = drawn.shape
    own = np.arange(d)
    scatter[:, own, own] = np.maximum(scatter[:, own, own], n * _SPREAD**2)
    root = _cholesky(scatter) / np.sqrt(float(n))
    points = np.repeat(mean[:, None, :], n, axis=1)
    for column in range(d):
        points += drawn[:, :, column : column + 1] * root[:, None, :, column]
    return points.reshape(groups * n, d)


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
