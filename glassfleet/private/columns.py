"""Which inputs are columns of products in a private run with `support`: decided before any products are summed.

Where all rows of a sum but one have one value of a column, the products of the column less this value are that one
row's. So the first question counts, for each input, the different training rows by cells of its range, and for the
target those at its limits. An input of which
nearly all rows of a group are alike, or many of the fleet's, is no column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError, TaskError
from glassfleet.numerics.edges import cells_of, histogram
from glassfleet.private.support import decided, holds
from glassfleet.scheme import Contribution, Task
from glassfleet.untrusted import at_most, increasing

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MOST_EQUAL = 0.3
"""Most of all rows that may be in one cell of an input's histogram for it to be a column of products."""

LEAST_COMMON = 0.05
"""More of all rows must be in a cell of an input's histogram for its value to be common: 19 cells at most."""

CELLS = 256
"""Cells of the histogram of an input, where a scheme has no histograms of its own."""

LIMITS = (0.0, 1.0)
"""Values of the scaled target that many rows may have: those beyond its limits, too."""

Common = tuple[tuple[int, int], ...]
"""Inputs, and cells of their histograms that many rows are in, increasing."""


def count_values(inputs: NDArray[np.float64], target: NDArray[np.float64], cells: int) -> Ints:
    """Return the histogram of each input, then how many targets are 0, between, and (last) 1, shape (F + 1, cells).

    Parameters
    ----------
    inputs : ndarray of float64, shape (F, n)
        Scaled, of the vehicle's different training rows.
    target : ndarray of float64, shape (n,)
        Scaled.
    cells : int
        Of a histogram, >= 3.
    """
    at_limits = np.zeros(cells, dtype=np.int64)
    at_limits[0], at_limits[-1] = np.count_nonzero(target == 0.0), np.count_nonzero(target == 1.0)
    at_limits[1] = len(target) - at_limits.sum()
    return np.concatenate([histogram(inputs, cells), at_limits[None]])


def check_values(counts: Ints, rows: int) -> None:
    """Raise :class:`ContributionError` unless all of `counts`, from :func:`count_values`, are of the same rows."""
    at_most(counts, rows, "values are counted of more rows than there are")  # first, as sums of more may overflow
    of_each = counts.sum(axis=1)
    at_most(of_each, rows, "values are counted of more rows than there are")
    if (of_each != of_each[-1]).any():
        raise ContributionError("the values of an input are not counted once for each row")


def decide_columns(
    contributions: Sequence[Contribution], domain_of: Callable[[Task], Domain], task: Task, support: int
) -> Bools:
    """Return which inputs may be columns of products, shape (F,).

    In each atom none or at least `support` rows are outside of an input's fullest cell. There are as many rows as
    columns, 1 and target among them: of more inputs the least alike are taken. Of each limit of the target none or at
    least `support` rows have another one, or there are no columns.

    Parameters
    ----------
    contributions : sequence of Contribution
        The groups' answers to `task`, from :func:`count_values`.
    domain_of : callable
        The domain that a task is about.
    task : Task
    support : int
    """

    def places(asked: Task) -> Sequence[Variable]:
        domain = domain_of(asked)
        assert domain.target is not None
        return *domain.inputs, domain.target

    def from_rows(parts: list[Ints]) -> Bools:
        each = np.stack(parts)
        inputs, target = each[:, :-1], each[:, -1]
        rows, of_all = target.sum(axis=1), inputs.sum(axis=0)
        is_column = holds(list(rows[:, None] - inputs.max(axis=2)), support)
        is_column &= of_all.max(axis=1) <= MOST_EQUAL * of_all.sum(axis=1)
        least_alike = [place for place in np.argsort(of_all.max(axis=1), kind="stable") if is_column[place]]
        room = max(0, int(rows[rows > 0].min(initial=len(is_column) + 2)) - 2)
        is_column[least_alike[room:]] = False
        return is_column & holds(list(rows[:, None] - target[:, [0, -1]]), support).all()

    return decided(contributions, places, task, from_rows)


def most_columns(most: int, rows: int) -> int:
    """Return how many inputs may be columns of products, at most `most`, so that a row's products are few.

    A row has k (k + 1) / 2 products of k columns, 1 and the target among them. Sums that are as many as the rows, over
    the same rows, tell each row where its products are more than there are rows; here they are at most half as many.
    """
    while most > 0 and (most + 2) * (most + 3) > rows:
        most -= 1
    return most


def common_cells(histogram: Ints, columns: Sequence[int]) -> Common:
    """Return the cells of the inputs among `columns` that many rows are in.

    Nearly all rows of a node may have such a value: how many have another one is to be counted.
    """
    many = is_common(histogram)
    return tuple((feature, int(cell)) for feature in columns for cell in np.flatnonzero(many[feature]))


def is_common(histogram: Ints) -> Bools:
    """Return which cells many rows are in, of the shape of `histogram`, (F, cells)."""
    many: Bools = histogram > LEAST_COMMON * histogram.sum(axis=1, keepdims=True)
    return many


def decide_common(contributions: Sequence[Contribution], task: Task) -> Bools:
    """Return which cells of the inputs hold a common value, shape (F, cells).

    `contributions`: the groups' answers to `task`, from :func:`count_values`.
    """
    return decided(contributions, lambda _: [], task, lambda parts: is_common(np.add.reduce(parts)[:-1]))


def read_common(value: Any, columns: Sequence[int], cells: int) -> Common:
    """Return a task's common values of some of the `columns` of its products; raises TaskError, or as `task_errors`."""
    places = increasing("common values", [feature * cells + cell for feature, cell in value], 1 << 31)
    common = tuple(divmod(place, cells) for place in places)
    if common != tuple((feature, cell) for feature, cell in value) or not {one for one, _ in common} <= set(columns):
        raise TaskError(f"a common value is of a column of products, in a cell from 0 to {cells - 1}")
    return common


def has_other(inputs: NDArray[np.float64], target: NDArray[np.float64], common: Common, cells: int) -> Bools:
    """Return which rows have another value than a common one of an input, and than a limit of the target.

    Parameters
    ----------
    inputs : ndarray of float64, shape (F, n)
        Scaled.
    target : ndarray of float64, shape (n,)
        Scaled.
    common : tuple of (int, int)
    cells : int
        Of a histogram.

    Returns
    -------
    ndarray of bool, shape (len(common) + 2, n)
    """
    of_inputs = [cells_of(inputs[feature], cells) != cell for feature, cell in common]
    return np.stack([*of_inputs, *(target != limit for limit in LIMITS)])
