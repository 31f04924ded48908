"""Histogram grids for domain discovery: recipes of bins, and what a vehicle does with small counts.

Bins travel as recipes, not as edges. Edges are computed from a recipe with one multiplication and one addition each,
which IEEE 754 fixes, so all machines have identical edges and a row falls into the same bin everywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.errors import TaskError
from schemas.codec import Value

ZERO: Final = 2.0**-1000
"""Magnitudes below this count as exact zero; a normal number, for the sake of processors that flush subnormal ones."""

MAX_BINS: Final = 2**16
"""Most bins of a linear grid."""

STRETCHES: Final = 32
"""A linear grid's bins are taken together to so many stretches, to count who reaches them. In a single fine bin near
the end of a range one finds rows of one vehicle, if any, also in a fleet where nothing is wrong."""


@dataclass(frozen=True)
class Grid:
    """The recipe of one column's bins.

    Attributes
    ----------
    low, high : float
        Outer edges of a linear grid. Equal to each other: the signed logarithmic grid.
    bins : int
        Equal bins between them; 0: the signed logarithmic grid.
    left, right : int
        How many bins from either end are counted one by one; those between are one bin. ``left + right >= bins``: all.
    """

    low: float = 0.0
    high: float = 0.0
    bins: int = 0
    left: int = 0
    right: int = 0

    @property
    def size(self) -> int:
        """Number of counts."""
        if self.bins == 0:
            return len(LOG_EDGES) - 1
        return self.bins if self.left + self.right >= self.bins else self.left + 1 + self.right

    @property
    def width(self) -> float:
        """Width of one bin; infinite for the logarithmic grid."""
        return (self.high - self.low) / self.bins if self.bins else math.inf

    def edges(self) -> NDArray[np.float64]:
        """Return the bin edges, ascending, shape (size + 1,). Bin i is [edges[i], edges[i + 1]); the last is closed."""
        if self.bins == 0:
            return LOG_EDGES
        edges: NDArray[np.float64] = self.low + np.arange(self.bins + 1, dtype=np.float64) * self.width
        edges[-1] = self.high
        if self.left + self.right >= self.bins:
            return edges
        return np.concatenate([edges[: self.left + 1], edges[self.bins - self.right :]])

    def stretches(self) -> NDArray[np.intp]:
        """Return where the stretches begin in which vehicles are counted: bin numbers, ascending, the first is 0.

        Of the logarithmic grid each bin is one; of a linear grid `STRETCHES` equal parts of the range, as far as its
        bins are counted one by one.
        """
        if self.bins == 0 or self.bins <= STRETCHES:
            return np.arange(self.size)
        place = np.arange(self.size)
        if self.size < self.bins:
            place[self.left + 1 :] += self.bins - self.size
        return np.flatnonzero(np.diff(place * STRETCHES // self.bins, prepend=-1))

    def to_value(self) -> list[Value]:
        """Return the recipe as a codec value."""
        return [self.low, self.high, self.bins, self.left, self.right]

    @classmethod
    def from_value(cls, value: Any) -> Grid:
        """Rebuild a recipe; raises TaskError when it is malformed."""
        if not isinstance(value, list) or len(value) != 5:
            raise TaskError("a grid is [low, high, bins, left, right]")
        low, high, bins, left, right = value
        if not all(isinstance(item, float) and math.isfinite(item) for item in (low, high)):
            raise TaskError("the limits of a grid must be finite numbers")
        if not all(type(item) is int and 0 <= item <= MAX_BINS for item in (bins, left, right)):
            raise TaskError("the sizes of a grid must be integers in [0, 2^16]")
        if bins and not (low < high and math.isfinite(high - low) and left >= 1 and right >= 1):
            raise TaskError("a linear grid needs low < high and at least one bin at either end")
        return cls(low, high, bins, left, right)


def _log_edges() -> NDArray[np.float64]:
    """Two bins per octave: 1 and 1.5 times a power of two. Exact binary numbers, no logarithm is computed."""
    powers = np.ldexp(1.0, np.arange(-30, 55))
    positive = np.sort(np.concatenate([powers, 1.5 * powers[:-1]]))
    return np.concatenate([-positive[::-1], [-ZERO, ZERO], positive])


LOG_EDGES: Final = _log_edges()

ROW_EDGES: Final = np.array(sorted({size * 2**octave // 8 for size in range(8, 16) for octave in range(32)}))
"""Edges of the bins of row counts, eight per octave: 1, 2 ... 16, 18, 20 ... Integers, the last is above 2^31."""


def narrowest(low: float, high: float, bins: int) -> float:
    """Return the width that still holds `bins` distinct edges near these limits."""
    return bins * 8.0 * math.ulp(max(abs(low), abs(high)))


def join_small(counts: NDArray[np.int64], min_count: int) -> int:
    """Join bins with fewer than `min_count` rows to the next one towards the median, in place; return how many.

    The total stays, unless it is itself below `min_count`: then all counts become zero. Every cumulative count changes
    by at most ``min_count - 1``, because that is the most that is ever carried over an edge.
    """
    small = (counts > 0) & (counts < min_count)
    if not small.any():
        return 0
    joined = int(small.sum())
    total = int(counts.sum())
    if total < min_count:
        counts[:] = 0
        return joined
    middle = int(np.searchsorted(np.cumsum(counts), (total + 1) // 2))
    filled = np.flatnonzero(counts)
    for path in (filled[filled < middle], filled[filled > middle][::-1]):
        carried = 0
        for index in path:
            carried += int(counts[index])
            if carried < min_count:
                counts[index] = 0
            else:
                counts[index], carried = carried, 0
        counts[middle] += carried
    if counts[middle] < min_count:
        # The bin of the median itself stayed small: its rows go to the nearest bin that is large enough.
        others = np.flatnonzero(counts)
        others = others[others != middle]
        nearest = others[np.argmin(np.abs(others - middle))]
        counts[nearest] += counts[middle]
        counts[middle] = 0
    return joined


def outward(low: float, high: float) -> tuple[float, float]:
    """Return limits, low < high, widened to readable numbers: each by less than a hundredth of the range.

    They are multiples of 1, 2 or 5 times a power of ten, the largest that is at most a hundredth of the range.

    >>> outward(39.187, 104.53), outward(0.0003, 0.98), outward(1003.21, 1021.4)
    ((39.0, 105.0), (0.0, 0.98), (1003.2, 1021.4))
    """
    first, last = Decimal(repr(low)), Decimal(repr(high))
    most = (last - first) / 100
    power = Decimal(1).scaleb(most.adjusted())
    step = max(factor * power for factor in (1, 2, 5) if factor * power <= most)
    below, above = (first / step).to_integral_value(ROUND_FLOOR), (last / step).to_integral_value(ROUND_CEILING)
    return float(below * step) + 0.0, float(above * step) + 0.0


# --- summed histograms, and points from them that follow skewed values and still leave no stretch of the range empty --


def histogram(scaled: NDArray[np.float64], cells: int, times: NDArray[np.float64] | None = None) -> NDArray[np.int64]:
    """Count rows `scaled`, shape (F, n), in [0, 1], in equal cells, each once or so many `times`; shape (F, cells)."""
    f = scaled.shape[0]
    place = cells_of(scaled, cells) + np.arange(f)[:, None] * cells
    counts = np.bincount(place.ravel(), None if times is None else np.tile(times, f), minlength=f * cells)
    return counts.reshape(f, cells).astype(np.int64)


def cells_of(scaled: NDArray[np.float64], cells: int) -> NDArray[np.intp]:
    """Return in which of equal cells of [0, 1] values are, of the same shape."""
    return np.minimum(scaled * float(cells), cells - 1.0).astype(np.intp)


def mixed_quantiles(counts: NDArray[np.int64], parts: int) -> list[float]:
    """Return the `parts` - 1 points, ascending in (0, 1), at equal steps of half the range and half the rows.

    Up to the division that places a point inside its cell all numbers are whole, so points do not depend on the
    machine.

    Parameters
    ----------
    counts : ndarray of int64, shape (cells,)
        Rows in equal cells of [0, 1]. Where there are none the range counts alone.
    parts : int
        >= 1.

    Examples
    --------
    >>> mixed_quantiles(np.array([0, 0, 0, 0]), 2), mixed_quantiles(np.array([6, 0, 0, 0]), 2)
    ([0.5], [0.2])
    """
    cells = len(counts)
    above = np.concatenate([[0], np.cumsum(counts)])
    rows = max(int(above[-1]), 1)
    measure = (rows * np.arange(cells + 1) + cells * above) * parts
    points = []
    for j in range(1, parts):
        target = j * (int(measure[-1]) // parts)
        lower = int(np.searchsorted(measure, target, side="right")) - 1
        inside = (target - int(measure[lower])) / int(measure[lower + 1] - measure[lower])
        points.append((lower + inside) / cells)
    return points
