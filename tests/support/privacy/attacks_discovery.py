"""Single values from histograms of several rounds, and rows from the questions of a coordinator that narrows.

Joining small bins moves rows towards the median only. So at the far edge of each bin that is told, the number of values
below is exact, and between such edges it is known to within ``min_count`` - 1. Another round has other edges: where two
edges are close and one or two values lie between, these are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Task
from glassfleet.contract.rows import drawn_for
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.discovery import DISCOVERY
from glassfleet.discovery.client import read_task
from glassfleet.numerics.grids import Grid
from lab.audit.report import TOLERANCE
from lab.audit.sums import Rows
from tests.support.privacy.transcripts import Transcript

Array = NDArray[np.float64]

Asked = Callable[[Array], NDArray[np.int64]]
"""A vehicle, its rows and their limit: how many values of each column are below its cut."""

FEW = 2
"""So many values between two edges are values read; three or more are what ``min_count`` lets through."""


class Values(NamedTuple):
    """At least `least` and at most `most` values are in [`low`, `high`)."""

    low: float
    high: float
    least: int
    most: int


def values_of(data: Dataset, name: str) -> Array:
    """Return the values of one column."""
    return data.y if name == data.target else data.X[:, data.features.index(name)]


def ranges_of(domain: Domain) -> dict[str, tuple[float, float]]:
    """Return the limits of all columns."""
    assert domain.target is not None
    return {variable.name: (variable.low, variable.high) for variable in (*domain.features, domain.target)}


def single_values(transcript: Transcript, domain: Domain) -> dict[str, list[Values]]:
    """Return, by column, where one or two values are, to a thousandth of the column's range."""
    ranges = ranges_of(domain)
    return {
        name: _between(*_below(facts), TOLERANCE * (ranges[name][1] - ranges[name][0]))
        for name, facts in _facts(transcript).items()
    }


def _facts(transcript: Transcript) -> dict[str, list[tuple[float, int, int]]]:
    """Return, by column, edges, and the least and the most values that can be below each."""
    facts: dict[str, list[tuple[float, int, int]]] = {}
    for task, answer in transcript:
        question = read_task(task)
        hidden, begin = max(question.min_count - 1, 0), 0
        for name, grid in question.grids.items():
            counts = answer.sums["counts"][begin : begin + grid.size]
            begin += grid.size
            below = np.concatenate([[0], np.cumsum(counts)])
            middle = int(np.searchsorted(below[1:], (below[-1] + 1) // 2))
            known = facts.setdefault(name, [])
            known += [(-np.inf, 0, 0), (np.inf, int(below[-1]), int(below[-1]))]
            for place, edge in enumerate(grid.edges()[1:-1], start=1):
                result = int(below[place])
                if place <= middle:
                    known.append((float(edge), result, result if counts[place - 1] else result + hidden))
                else:
                    known.append((float(edge), result if counts[place] else result - hidden, result))
    return facts


def _below(facts: list[tuple[float, int, int]]) -> tuple[Array, Array, Array]:
    lines = np.array(facts)
    edges, at = np.unique(lines[:, 0], return_inverse=True)
    least, most = np.full(len(edges), -np.inf), np.full(len(edges), np.inf)
    np.maximum.at(least, at, lines[:, 1])
    np.minimum.at(most, at, lines[:, 2])
    return edges, np.maximum.accumulate(least), np.minimum.accumulate(most[::-1])[::-1]


def _between(edges: Array, least: Array, most: Array, width: float) -> list[Values]:
    result: list[Values] = []
    near = np.searchsorted(edges, edges + width, side="right")
    for first, low in enumerate(edges):
        if result and low < result[-1].high:
            continue
        for last in range(first + 1, int(near[first])):
            fewest, largest = int(least[last] - most[first]), int(most[last] - least[first])
            if fewest >= 1 and largest <= FEW:
                result.append(Values(float(low), float(edges[last]), fewest, largest))
                break
    return result


def changed(before: Transcript, after: Transcript) -> dict[str, tuple[float, float]]:
    """Return, by column, where the counts of two runs differ: in all rounds that had the same edges in both."""
    result: dict[str, tuple[float, float]] = {}
    for (task, early), (again, late) in zip(before, after, strict=False):
        place, known = 0, {}
        for name, grid in read_task(task).grids.items():
            known[name] = grid, early.sums["counts"][place : place + grid.size]
            place += grid.size
        place = 0
        for name, grid in read_task(again).grids.items():
            counts = late.sums["counts"][place : place + grid.size]
            place += grid.size
            if name in known and known[name][0] == grid and (differ := np.flatnonzero(counts != known[name][1])).size:
                edges, (low, high) = grid.edges(), result.get(name, (-np.inf, np.inf))
                result[name] = max(low, float(edges[differ[0]])), min(high, float(edges[differ[-1] + 1]))
    return result


# --- a coordinator that asks what it likes --------------------------------------------------------------------------


def ask_below(data: Dataset, domain: Domain, cuts: Array, most: int = 0) -> NDArray[np.int64]:
    """Return how many values of each column the vehicle says are below its cut, shape (F + 1,); the target is last.

    Of at most `most` rows; 0: all. `cuts` are scaled. One question with two bins for each column.
    """
    grids = {}
    for (name, (low, high)), cut in zip(ranges_of(domain).items(), cuts, strict=True):
        width = high - low if high > low else 1.0
        at = low + cut * width
        grids[name] = Grid(at - 2 * width, at + 2 * width, 2, 1, 1)
    body = {
        "columns": {name: grid.to_value() for name, grid in grids.items()},
        "target": data.target, "min_count": 3, "round": 2, "features": list(domain.names),
    }  # fmt: skip
    task = Task("domain", "histogram", body).limited(most)
    counts = DISCOVERY.client.contribute(task, drawn_for(task, data), np.random.default_rng(0)).sums["counts"]
    by_column = dict(zip(sorted(grids), counts.reshape(-1, 2)[:, 0], strict=True))
    return np.array([by_column[name] for name in grids])


def sorted_values(data: Dataset, domain: Domain, steps: int) -> Rows:
    """Return the values of each column in ascending order, shape (n, F + 1), by asking at each of `steps` cuts.

    What the vehicle does not tell, two values at either end, is NaN.
    """
    below = np.array([ask_below(data, domain, np.full(len(domain.features) + 1, cut / steps)) for cut in range(steps)])
    result = np.full((data.rows, below.shape[1]), np.nan)
    for column, counts in enumerate(below.T):
        for cut in np.flatnonzero(np.diff(counts)):
            if counts[cut] > 0 and counts[cut + 1] < data.rows:
                result[counts[cut] : counts[cut + 1], column] = (cut + 0.5) / steps
    return result


def row_that_joins(fewer: Asked, more: Asked, columns: int) -> Array:
    """Return where the row is, by bisection, that the answers of `more` count and those of `fewer` do not."""
    low, high = np.zeros(columns), np.ones(columns)
    for _ in range(11):
        middle = (low + high) / 2
        is_below = more(middle) > fewer(middle)
        low, high = np.where(is_below, low, middle), np.where(is_below, middle, high)
    return (low + high) / 2
