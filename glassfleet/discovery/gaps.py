"""Columns with empty cells: what these are taken for, about the middle of the fleet's values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution
from glassfleet.numerics.grids import Grid
from schemas.errors import RunFailedError


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
