"""Which inputs are columns of products in a private run with `support`, and which of their values many rows have.

Where all rows of a sum but one have one value of a column, the products of the column less this value are that one
row's. So the first question counts different training rows by cells of each input's range, and of the target's. An
input of which nearly all rows of a group are alike is no column of the products of all rows. In later sums the rows
are counted that have another value than a *common* one, which many rows of some group have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.checks import at_most
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.tasks import increasing
from glassfleet.errors import ContributionError, TaskError
from glassfleet.numerics.grids import cells_of, histogram
from glassfleet.private.support import atoms, decided
from schemas.errors import RunFailedError

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MOST_EQUAL = 0.3
"""Most of all rows that may be in one cell of an input's histogram for it to be a column of products."""

LEAST_COMMON = 0.05
"""More of a group's rows must be in a cell for its value to be common, and more than :data:`LEAST_ALIKE`."""

LEAST_ALIKE = 8
"""Rows, or as many as there are inputs, if that is less: a sum of products has two rows more than it has inputs."""

CELLS = 256
"""Cells of the histogram of an input, where a scheme has no histograms of its own."""

Common = tuple[tuple[int, int], ...]
"""Columns (F: the target), and cells of their histograms that many rows are in, increasing."""


def fewest_rows(support: int) -> int:
    """Return the fewest rows of a sum, and of another value: one row would be told, and two of which one is known."""
    return max(3, support)


class LayeredQuestion:
    """A scheme's question of runs with `support`, whose rows are counted by layer.

    Attributes
    ----------
    parameters
        With `support`.
    common : tuple of (int, int)
    least_rows : int
        Fewest rows of a sum of products.
    """

    parameters: Any
    common: Any
    least_rows: Any

    @property
    def least_of(self) -> Ints:
        """What is enough of all rows of a sum, and of those of another value than each common one, by layer."""
        return np.array([self.least_rows, *[fewest_rows(self.parameters.support)] * len(self.common)])

    @property
    def most_told(self) -> int:
        """At which number the counts of any layer end."""
        most: int = max(self.least_rows, fewest_rows(self.parameters.support))
        return most


# --- the vehicle's part ---------------------------------------------------------------------------------------------


def count_values(inputs: NDArray[np.float64], target: NDArray[np.float64], cells: int) -> Ints:
    """Return the histogram of each input and of the target, shape (F + 1, cells).

    Parameters
    ----------
    inputs : ndarray of float64, shape (F, n)
        Scaled, of the vehicle's different training rows.
    target : ndarray of float64, shape (n,)
        Scaled.
    cells : int
    """
    return histogram(np.concatenate([inputs, target[None]]), cells)


def layers_of(inputs: NDArray[np.float64], target: NDArray[np.float64], common: Common, cells: int) -> Bools:
    """Return which rows are in which layer: in the first all of them, then those that are not in each common cell.

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
    ndarray of bool, shape (1 + len(common), n)
    """
    others = [cells_of(target if column == len(inputs) else inputs[column], cells) != cell for column, cell in common]
    return np.stack([np.ones(target.shape, dtype=np.bool_), *others])


# --- the coordinator's part -----------------------------------------------------------------------------------------


def check_values(counts: Ints, rows: int) -> None:
    """Raise :class:`ContributionError` unless all of `counts`, from :func:`count_values`, are of the same rows."""
    at_most(counts, rows, "values are counted of more rows than there are")  # first, as sums of more may overflow
    of_each = counts.sum(axis=1)
    at_most(of_each, rows, "values are counted of more rows than there are")
    if (of_each != of_each[-1]).any():
        raise ContributionError("the values of an input are not counted once for each row")


def decide_columns(
    contributions: Sequence[Contribution], task: Task, support: int, texts: Sequence[int] = (), known: Common = ()
) -> Bools:
    """Return which columns may have products, and which of their cells are common, shape (F + 1, 1 + cells).

    Common is a cell that many rows of an atom are in; and the first and the last one of the target, its limits.
    Products may have an input of which, in each atom with rows, some rows are outside of the fullest cell: `support`,
    or 3. Where that does not hold for the target there are no columns. There are at least as many rows as columns, 1
    and target among them: of more inputs the least alike are taken.

    Parameters
    ----------
    contributions : sequence of Contribution
        The groups' answers to `task`, from :func:`count_values`.
    task : Task
    support : int
    texts : sequence of int
        Inputs that are no numbers: rows may be alone in a category, and products have none of them.
    known : tuple of (int, int)
        Cells with a value that everybody knows, which are common, too.
    """

    def from_rows(parts: list[Ints]) -> Bools:
        each = np.stack(parts)
        rows, fullest = each[:, -1].sum(axis=1), each.max(axis=2)
        of_all = np.add.reduce(each)
        inputs = most_columns(min(LEAST_ALIKE, len(fullest[0]) - 1), int(rows.sum()))
        most = np.maximum(LEAST_COMMON * rows, inputs)
        is_common = np.logical_or.reduce(each > most[:, None, None])
        is_common[-1, [0, -1]] = True
        for column, cell in known:
            is_common[column, cell] = True
        may = np.logical_and.reduce((rows[:, None] - fullest >= fewest_rows(support)) | (rows == 0)[:, None])
        may &= may[-1]
        may[list(texts)] = False
        may[:-1] &= (of_all.max(axis=1) <= MOST_EQUAL * of_all.sum(axis=1))[:-1]
        least_alike = [place for place in np.argsort(of_all[:-1].max(axis=1), kind="stable") if may[place]]
        room = max(0, int(rows[rows > 0].min(initial=len(may) + 1)) - 2)
        may[least_alike[room:]] = False
        return np.concatenate([may[:, None], is_common], axis=1)

    return decided(contributions, lambda _: range(len(contributions[0].sums["rows"])), task, from_rows)


def exposed_columns(contributions: Sequence[Contribution], task: Task, support: int) -> list[int]:
    """Return the columns (F: the target) whose sums over all rows would give rows away: few have another value.

    Parameters
    ----------
    contributions, task, support
        As for :func:`decide_columns`.
    """
    lines = range(len(contributions[0].sums["rows"]))
    each = np.stack([part for given in contributions for part in atoms(given, lambda _: lines, task)])
    others = each.sum(axis=2) - each.max(axis=2)
    few = np.logical_or.reduce((others > 0) & (others < fewest_rows(support)), axis=0)
    return [int(column) for column in np.flatnonzero(few)]


def check_classes(contributions: Sequence[Contribution], task: Task, support: int, cells: Mapping[str, int]) -> None:
    """Raise RunFailedError where sums over all rows would give the rows of a class away: few are of it.

    Parameters
    ----------
    contributions, task, support
        As for :func:`decide_columns`.
    cells : mapping of str to int
        By class that of the target's histogram.
    """
    lines, least = range(len(contributions[0].sums["rows"])), fewest_rows(support)
    each = [part[-1] for given in contributions for part in atoms(given, lambda _: lines, task)]
    scarce = [name for name, cell in cells.items() if any(0 < rows[cell] < least for rows in each)]
    if scarce:
        raise RunFailedError(
            f"in a group, or of who left one, fewer than {least} rows are of class {', '.join(map(repr, scarce))}, and "
            "sums would tell them: bring more vehicles or rows, or leave the class out of the run's domain"
        )


def columns_of(decision: Bools) -> tuple[int, ...]:
    """Return the inputs that may be columns of products, from :func:`decide_columns`."""
    return tuple(np.flatnonzero(decision[:-1, 0]).tolist())


def common_of(decision: Bools, columns: Sequence[int]) -> Common:
    """Return the common cells of some inputs and of the target, from :func:`decide_columns`."""
    every = (*columns, len(decision) - 1)
    return tuple((column, int(cell)) for column in every for cell in np.flatnonzero(decision[column, 1:]))


def decide_slopes(parts: Sequence[Ints], least: Ints, support: int) -> Bools:
    """Return of which leaves or rules sums may be asked, and where a layer lets them have columns, (m, 1 + layers).

    Nobody hides behind rows that weigh next to nothing in a leaf: enough must be heavy.

    Parameters
    ----------
    parts : sequence of ndarray of int64, each of shape (m layers, 2)
        Of each atom, how many rows of each leaf and layer are heavy, and how many are light.
    least : ndarray of int64, shape (layers,)
        What is enough, :attr:`LayeredQuestion.least_of`.
    support : int
        Sums without columns need as many rows, and three.
    """
    counts = np.stack(parts).reshape(len(parts), -1, len(least), 2)
    heavy, light = np.moveaxis(np.concatenate([counts[:, :, :1], counts], axis=2), 3, 0)
    is_enough = (heavy >= np.append(fewest_rows(support), least)) | ((heavy == 0) & (light == 0))
    decision: Bools = is_enough.all(axis=0)
    return decision


def slopes_of(decision: Bools, common: Common, inputs: int) -> Bools:
    """Return which inputs are columns of each leaf, and whether it is asked about at all, shape (m, `inputs` + 1).

    Parameters
    ----------
    decision : ndarray of bool, shape (m, 1 + layers)
        From :func:`decide_slopes`.
    common : tuple of (int, int)
    inputs : int
    """
    is_asked, enough, *others = decision.T
    columns = np.repeat(enough[:, None], inputs + 1, axis=1)
    for (column, _), is_enough in zip(common, others, strict=True):
        of = [column] if column < inputs else range(inputs)
        columns[:, of] &= is_enough[:, None]
    columns[:, -1] = is_asked
    return columns


def most_columns(most: int, rows: int) -> int:
    """Return how many inputs may be columns of products, at most `most`, so that a row's products are few.

    A row has k (k + 1) / 2 products of k columns, 1 and the target among them. Sums that are as many as the rows, over
    the same rows, tell each row where its products are more than there are rows; here they are at most half as many.
    """
    while most > 0 and (most + 2) * (most + 3) > rows:
        most -= 1
    return most


def read_common(value: Any, columns: Sequence[int], cells: int) -> Common:
    """Return a task's common cells of some `columns` of its products; raises TaskError, or as `task_errors`."""
    pairs = [(column, cell) for column, cell in value]
    if not all(type(number) is int for pair in pairs for number in pair):
        raise TaskError("common values are not pairs of integers")
    places = increasing("common values", [column * cells + cell for column, cell in pairs], 1 << 31)
    common = tuple(divmod(place, cells) for place in places)
    if common != tuple(pairs) or not {one for one, _ in common} <= set(columns):
        raise TaskError(f"a common value is of a column of products, in a cell from 0 to {cells - 1}")
    return common
