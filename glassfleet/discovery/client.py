"""The vehicle's half of discovery: counts rows by bin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.tasks import Remembered
from glassfleet.data.categories import count_labels, tell_categories
from glassfleet.data.dataset import Dataset
from glassfleet.errors import TaskError
from glassfleet.numerics.grids import ROW_EDGES, Grid, join_small
from schemas import limits
from schemas.codec import Value

MAX_COUNTS: Final = 2**22
"""Most counts that a vehicle computes for one task (32 MiB)."""


class DiscoveryClient:
    """The vehicle's half: counts rows by bin."""

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:
        """Count the rows of `data` on the grids of `task`.

        Returns
        -------
        Contribution
            Sums ``counts`` (int64: the grids of all asked columns, by name, one after the other) and ``outside``
            (int64, shape (columns, 2): rows below and above the grid, which are in the edge bins as well; told in the
            first round). In a private run also ``vehicles`` (int64, 1 for each stretch of each grid that this vehicle
            reaches, in the order of the counts), so that sums over vehicles say how many there are. In its first round
            also ``row_counts`` (int64, shape (238,): 1 in the bin of this vehicle's number of rows). ``gaps`` (int64, 1
            for each column in which a cell is empty, in a run that takes such; only where there is one, or in a private
            run): rows with an empty cell are in no count of its column. ``nullified`` is the number of small counts
            that were not sent as they are. Values ``labels`` and ``label_rows`` when the task asks for labels,
            ``categories`` when it asks for those.

        Raises
        ------
        TaskError
            The vehicle lacks a column, the target is text, or the task is malformed.
        """
        del rng
        question = read_task(task)
        grids, target, min_count = question.grids, question.target, question.min_count
        counts: list[NDArray[np.int64]] = []
        outside = np.zeros((len(grids), 2), dtype=np.int64)
        nullified = 0
        asks_categories = task.body.get("categories") is True
        gaps = np.zeros(len(grids), dtype=np.int64)
        for row, (name, grid) in enumerate(grids.items()):
            edges = grid.edges()
            values = _values(data, name, target, text=asks_categories, missing=bool(question.missing))
            gaps[row] = len(values) < data.rows
            bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, grid.size - 1)
            count = np.bincount(bins, minlength=grid.size).astype(np.int64)
            tails = (int((values < edges[0]).sum()), int((values > edges[-1]).sum()))
            joined = join_small(count, min_count)
            nullified += joined
            for side, tail in enumerate(tails if question.is_first else ()):  # 0: of the first bin, 1: of the last
                # What is left of the edge bin without its tail must not be a small count either.
                if tail and min(tail, int(count[-side]) - tail or min_count) < min_count:
                    nullified += 1
                else:
                    outside[row, side] = tail
            counts.append(count)
        texts: dict[str, Value] = {}
        asked = task.body.get("labels")
        if asked == "either" and data.target == target and data.y.dtype.kind == "f":
            texts = {"labels": [], "label_rows": np.zeros(0, dtype=np.int64)}
        elif asked in (True, "either"):
            texts, withheld = count_labels(data, target, min_count)
            nullified += withheld
        if asks_categories:
            texts["categories"], withheld = tell_categories(data, list(grids), min_count)
            nullified += withheld
        sums = {"counts": np.concatenate(counts), "outside": outside}
        if gaps.any() or question.missing == "summed":
            sums["gaps"] = gaps
        if task.body.get("guarded") is True:
            sums["vehicles"] = reached(question.stretches, sums["counts"])
            if question.is_first:
                sums["row_counts"] = row_bin(data.rows)
        return Contribution(task.kind, data.rows, sums, texts, nullified)


def shapes_of(task: Task) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the sums that answer `task`; raises TaskError where it asks for texts, too."""
    question = read_task(task)
    if task.body.get("labels") or task.body.get("categories"):
        raise TaskError("a vehicle's own labels and categories are no sums")
    if question.min_count > 1:
        raise TaskError("counts of which a vehicle withholds the small ones do not add up")
    shapes: dict[str, tuple[int, ...]] = {
        "counts": (sum(grid.size for grid in question.grids.values()),),
        "outside": (len(question.grids), 2),
    }
    if task.body.get("guarded") is True:
        shapes["vehicles"] = question.stretches.shape
        if question.is_first:
            shapes["row_counts"] = (ROW_EDGES.size - 1,)
    if question.missing:
        shapes["gaps"] = (len(question.grids),)
    return shapes


def reached(stretches: NDArray[np.intp], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return 1 for each stretch in which there are `counts`, else 0; `stretches` as of `stretches_of`, same shape."""
    return (np.add.reduceat(counts, stretches) > 0).astype(np.int64)


def stretches_of(grids: Mapping[str, Grid]) -> NDArray[np.intp]:
    """Return where the stretches of all grids begin in their counts."""
    starts, begin = [], 0
    for grid in grids.values():
        starts.append(grid.stretches() + begin)
        begin += grid.size
    return np.concatenate(starts)


def row_bin(rows: int) -> NDArray[np.int64]:
    """Return 1 in the bin of ``ROW_EDGES`` that `rows` is in, else 0; shape (238,). Without rows there is no bin."""
    bins = np.zeros(ROW_EDGES.size - 1, dtype=np.int64)
    if rows:
        bins[np.searchsorted(ROW_EDGES, rows, side="right") - 1] = 1
    return bins


@dataclass(frozen=True)
class DiscoveryQuestion:
    """A task of domain discovery, read and checked.

    Attributes
    ----------
    grids : dict of str to Grid
        By column, in the order of the counts.
    target : str
    min_count : int
        Fewest rows that a vehicle tells of a bin.
    is_first : bool
        The coarse round, in which rows outside the grids are told.
    stretches : ndarray of intp
        Where the stretches of all grids begin in the counts.
    missing : bool or "summed"
        Whether cells may be empty; "summed": each vehicle says in which columns they are, if in none.
    """

    grids: dict[str, Grid]
    target: str
    min_count: int
    is_first: bool
    stretches: NDArray[np.intp]
    missing: Literal[True, False, "summed"]

    @classmethod
    def from_task(cls, task: Task) -> DiscoveryQuestion:
        """Read `task`; raises TaskError when it is malformed."""
        if task.scheme != "domain" or task.kind != "histogram":
            raise TaskError(f"not a task of domain discovery: {task.scheme!r}, {task.kind!r}")
        columns, target, min_count = (task.body.get(key) for key in ("columns", "target", "min_count"))
        if not isinstance(columns, Mapping) or not 1 <= len(columns) <= limits.MAX_FEATURES + 1:
            raise TaskError("the task names no columns")
        number = task.body.get("round", 1)
        if not isinstance(target, str) or type(min_count) is not int or type(number) is not int:
            raise TaskError("the task lacks its target, min_count or round")
        missing = task.body.get("missing", False)
        if missing is not False and missing is not True and missing != "summed":
            raise TaskError("the task does not say whether cells may be empty")
        grids = {name: Grid.from_value(columns[name]) for name in sorted(columns)}
        if sum(grid.size for grid in grids.values()) > MAX_COUNTS:
            raise TaskError(f"the task asks for more than {MAX_COUNTS} counts")
        return cls(grids, target, min_count, number == 1, stretches_of(grids), missing)


read_task = Remembered(DiscoveryQuestion.from_task)
"""``DiscoveryQuestion.from_task``, once for each task."""


def _values(data: Dataset, name: str, target: str, *, text: bool, missing: bool) -> NDArray[np.float64]:
    """Return a column's values, without empty cells; raises TaskError where the run takes none."""
    column = _column(data, name, target, text=text)
    empty = np.isnan(column)
    if empty.any() and not missing:
        raise TaskError(
            f"column {name!r} has empty cells here, and this run takes none: fill them, or use a scheme that takes them"
        )
    return column[~empty]


def _column(data: Dataset, name: str, target: str, *, text: bool) -> NDArray[np.float64]:
    if name == target:
        if data.target != target:
            raise TaskError(f"the target here is {data.target!r}, not {target!r}")
        if data.y.dtype.kind != "f":
            raise TaskError(f"target {target!r} holds classes here, numbers in the run; take a scheme for classes")
        return data.y.astype(np.float64, copy=False)
    if name not in data.features:
        raise TaskError(f"column {name!r} is missing here")
    if name in data.categories and not text:
        raise TaskError(f"column {name!r} holds text here, and the run takes numbers only; use a scheme for categories")
    return data.X[:, data.features.index(name)]
