"""What one vehicle can do to the limits of all: little. Used by the coordinator's half, from five vehicles on.

A unit mistake (inputs times 10^6) in one of fifteen vehicles is a fifteenth of all rows, more than any quantile
forgives. So a limit also needs vehicles: rows in a stretch of bins that fewer than max(2, a tenth of the fleet) reach
are not counted - in the logarithmic bins always, in equal bins where that matters (`LEVERAGE`). A run may ask for
limits further out than the usual quantiles of an input. It gets them only as far as that many vehicles reach, and at
least the usual ones: a hundredth of all rows must not stretch the range of the others. And a vehicle that claims many
times the rows of others would decide every quantile: it counts like five times the median, at most. Both need sums
only, over vehicles: of rows, of ones per stretch, and of ones per bin of row counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution
from glassfleet.discovery.client import row_bin
from glassfleet.numerics.grids import ROW_EDGES, Grid
from schemas.errors import RunFailedError

MIN_FLEET: Final = 5
"""With fewer vehicles nobody can tell which one is wrong: all rows count."""

MANY_ROWS: Final = 5
"""A vehicle counts for at most so many times the median vehicle's rows, unless the run says how many."""

LEVERAGE: Final = 2
"""In equal bins the rule holds where one vehicle makes the range more than so many times as wide. Below that it would
cost more, in fleets where each vehicle has its own part of the range, than a wrong vehicle can do."""

FAR_OUT: Final = 0.5
"""A vehicle is named when this share of its rows, or more, lies outside the limits of a column: with the usual
quantiles a twentieth of all rows does."""

MAX_NAMED: Final = 100
"""So many vehicles are named at most."""

_COLUMNS_NAMED: Final = 3

Notes = dict[str, Any]
"""``far_out``: by vehicle and column, the share of its rows outside the limits; ``rows``: of vehicles whose rows do not
all count, how many they have."""


def in_words(notes: Mapping[str, Any], most: int) -> list[tuple[str, str]]:
    """Return each vehicle of `notes`, and why it stands out; `most` rows of each count.

    Examples
    --------
    >>> in_words({"far_out": {"v3": {"speed": 0.98, "load": 1.0}}, "rows": {}}, 640)
    [('v3', "100% of its rows lie outside the limits of 'load', 98% of 'speed'")]
    """
    vehicles = []
    for agent, columns in sorted(notes.get("far_out", {}).items()):
        worst = sorted(columns.items(), key=lambda column: (-column[1], column[0]))
        (first, share), *others = worst[:_COLUMNS_NAMED]
        named = ", ".join([repr(first), *(f"{part:.0%} of {name!r}" for name, part in others)])
        more = f" and {len(worst) - _COLUMNS_NAMED} more columns" if len(worst) > _COLUMNS_NAMED else ""
        vehicles.append((agent, f"{share:.0%} of its rows lie outside the limits of {named}{more}"))
    rows = sorted(notes.get("rows", {}).items())
    return vehicles + [(agent, f"at most {most} of its {many} rows count") for agent, many in rows]


def fewest_vehicles(vehicles: int) -> int:
    """Return how many of a fleet of `vehicles` must reach a stretch of bins for its rows to count."""
    return max(2, math.ceil(vehicles / 10)) if vehicles >= MIN_FLEET else 1


def usual_rows(rows: Iterable[int | NDArray[np.int64]]) -> int:
    """Return `MANY_ROWS` times the median number of rows, by the upper edge of its bin; 0 for less than `MIN_FLEET`.

    Parameters
    ----------
    rows : iterable of int or ndarray of int64, shape (238,)
        Numbers of rows, or ones in their bins (``row_counts``) or sums of such.
    """
    bins = np.zeros(ROW_EDGES.size - 1, dtype=np.int64)
    for each in rows:
        bins += row_bin(each) if isinstance(each, int) else each
    vehicles = int(bins.sum())
    if vehicles < MIN_FLEET:
        return 0
    median = int(np.searchsorted(np.cumsum(bins), (vehicles + 1) // 2))
    return min(MANY_ROWS * int(ROW_EDGES[median + 1]), 2**31 - 1)


def weighed_down(contribution: Contribution, most: int, grids: Mapping[str, Grid]) -> NDArray[np.int64]:
    """Return a vehicle's counts as `most` of its rows would have given them, about: it tells all, see `drawn_for`.

    Counts up to each bin of a column are rounded, not those of bins: so each column of all rows still has `most` in
    all, and few in many bins do not all become none.
    """
    counts = contribution.sums["counts"]
    if not most or contribution.rows <= most:
        return counts
    ends = np.cumsum([grid.size for grid in grids.values()])
    columns = np.split(counts, ends[:-1])
    return np.concatenate(
        [np.diff(np.cumsum(column) * most // contribution.rows, prepend=np.int64(0)) for column in columns]
    )


def counted(counts: NDArray[np.int64], dropped: Sequence[int]) -> NDArray[np.int64]:
    """Return the rows of one column by bin without those `dropped` in former rounds, below and above the grid.

    They are in the edge bins now.
    """
    kept = counts.copy()
    for side in (0, 1):  # the first bin, and the last
        kept[-side] = max(0, int(kept[-side]) - dropped[side])
    return kept if kept.any() else counts


def supported(
    grid: Grid, counts: NDArray[np.int64], vehicles: NDArray[np.int64], fewest: int
) -> NDArray[np.int64] | None:
    """Return the rows of one column by bin in stretches that `fewest` vehicles reach.

    None when that is less than a quarter of all rows: such vehicles differ, and none of them is the odd one. One
    vehicle cannot bring that about: with five times the rows of each of four others it has less than three quarters.

    Parameters
    ----------
    grid : Grid
    counts : ndarray of int64, shape (bins,)
        Rows by bin, of all vehicles.
    vehicles : ndarray of int64, shape (stretches,)
        How many vehicles reach each stretch of `grid`.
    fewest : int
    """
    kept = np.where(np.repeat(vehicles >= fewest, np.diff(grid.stretches(), append=grid.size)), counts, 0)
    return kept if 4 * int(kept.sum()) >= int(counts.sum()) else None


def noted(
    notes: Mapping[str, Any],
    contributions: Sequence[Contribution],
    spans: Mapping[str, tuple[int, int, int, int]],
    most: int,
) -> Notes:
    """Return `notes` with the vehicles that are far out in this round's counts.

    Parameters
    ----------
    notes : mapping
        Of former rounds; empty at first.
    contributions : sequence of Contribution
        Each with the agent that sent it; nobody is named where that is not known, or in the sum of a group.
    spans : mapping of str to (int, int, int, int)
        By column, as places in ``counts``: where its counts begin, where those within its limits begin and end, and
        where all its counts end.
    most : int
        A vehicle's rows that count; 0: all.
    """
    far_out: dict[str, Any] = {agent: dict(columns) for agent, columns in notes.get("far_out", {}).items()}
    rows: dict[str, Any] = dict(notes.get("rows", {}))
    places = np.array(list(spans.values()), dtype=np.intp).reshape(-1, 4).T
    for contribution in contributions:
        agent = contribution.agent
        if not agent or not contribution.rows or contribution.vehicles is not None:
            continue
        if most and contribution.rows > most and len(rows) < MAX_NAMED:
            rows[agent] = contribution.rows
        before = np.concatenate([[0], np.cumsum(contribution.sums["counts"])])
        begin, first, last, end = before[places]
        shares = ((first - begin + end - last) / contribution.rows).tolist()
        for name, outside in zip(spans, shares, strict=True):
            if outside >= FAR_OUT and (agent in far_out or len(far_out) < MAX_NAMED):
                columns = far_out.setdefault(agent, {})
                columns[name] = max(outside, columns.get(name, 0.0))
    return {"far_out": far_out, "rows": rows}


# --- columns with empty cells: what these are taken for, about the middle of the fleet's values -----------------------


def middles(
    known: Mapping[str, Any],
    grids: Mapping[str, Grid],
    contributions: Sequence[Contribution],
    counts: NDArray[np.int64],
) -> dict[str, Any]:
    """Return the narrowest bin that is known to hold the middle of the values, by column with an empty cell.

    Raises RunFailedError, ``no-rows``, where no cell of a column has a value. `known` is what former rounds found.
    """
    bins, begin = dict(known), 0
    summed = sum((each.sums["gaps"] for each in contributions if "gaps" in each.sums), np.zeros(len(grids), np.int64))
    for (name, grid), vehicles in zip(grids.items(), summed, strict=True):
        above = np.cumsum(counts[begin : begin + grid.size])
        begin += grid.size
        if not vehicles:
            continue
        if not above[-1]:
            raise RunFailedError(f"no cell of column {name!r} has a value; leave the column out", "no-rows")
        middle = int(np.searchsorted(above, (above[-1] + 1) // 2))
        first, last = grid.edges()[middle : middle + 2].tolist()
        if name not in bins or last - first < bins[name][1] - bins[name][0]:
            bins[name] = [first, last]
    return bins


def taken_for(middle: Sequence[float], low: float, high: float) -> float:
    """Return what an empty cell is taken for: the middle of a bin, within the limits."""
    first, last = (min(max(edge, low), high) for edge in middle)
    return min(max(0.5 * first + 0.5 * last, low), high)
