"""Summed histograms, and points from them that follow skewed values and still leave no stretch of the range empty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


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
