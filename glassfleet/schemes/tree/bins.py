"""Bins of the inputs: their edges from summed histograms, and the ramps that may lie between edges."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import log

import numpy as np
from numpy.typing import NDArray

from glassfleet.fuzzy.levels import Levels, level_knots
from glassfleet.numerics.grids import mixed_quantiles
from glassfleet.schemes.tree.params import GROUP

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

CELLS = 512
"""Cells of the scan's histograms; edges of bins lie within them."""

WIDTHS = (64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2)
"""Widths of ramps, in bins; ramps start in steps of an eighth of their width."""


def find_edges(counts: Ints, bins: int, levels: Levels) -> Array:
    """Return the edges of each input's bins, shape (F, `bins` + 1): 0, ascending, 1.

    They are the quantiles of a measure that is half uniform and half the rows' own, linear within a cell. So an input
    with a long tail has fine bins where its rows are, and none is without bins where few are.

    Parameters
    ----------
    counts : ndarray of int64, shape (F, `CELLS`)
        The fleet's histograms.
    bins : int
    levels : tuple of tuple of float
        Of each input's categories; empty where all inputs are numbers.

    Notes
    -----
    Of an input of text each level begins a group of bins, and is alone in it: the steps between levels are four bins
    wide, and what is left of the last one has the bins that are left.
    """
    lines = levels or ((),) * len(counts)
    return np.array(
        [
            level_edges(line, bins) if line else [0.0, *mixed_quantiles(own, bins), 1.0]
            for own, line in zip(counts, lines, strict=True)
        ]
    )


def level_edges(line: Sequence[float], bins: int) -> list[float]:
    """Return the edges of the bins of an input of text, see :func:`find_edges`."""
    steps = [a + j / GROUP * (b - a) for a, b in pairwise(level_knots(line)) for j in range(GROUP)]
    rest = bins - len(steps) + 1
    return [*steps, *(steps[-1] + j / rest * (1.0 - steps[-1]) for j in range(1, rest)), 1.0]


def between_levels(chosen: Ints, line: Sequence[float]) -> NDArray[np.bool_]:
    """Return which ramps lie between two neighbouring levels of an input of text, one for each two."""
    first, last = chosen.T
    n_steps = len(level_knots(line)) - 1
    is_between: NDArray[np.bool_] = (first < GROUP * n_steps) & (first % GROUP == 1) & (last - first == GROUP // 2)
    return is_between


def bins_of(scaled: Array, edges: Array) -> NDArray[np.int16]:
    """Return the bin of each value, shape (F, n)."""
    return np.stack([np.searchsorted(e[1:-1], x, side="right") for e, x in zip(edges, scaled, strict=True)]).astype(
        np.int16
    )


@cache
def ramps(bins: int, least: int = WIDTHS[-1]) -> Ints:
    """Return the ramps between edges, shape (ramps, 2): first and last edge, `least` (1 or 2) bins apart or more."""
    widths = (*WIDTHS, *range(least, WIDTHS[-1]))
    places = [(a, a + width) for width in widths for a in range(0, bins - width + 1, max(1, width // 8))]
    return np.array(places, dtype=np.int64)


@cache
def prices(bins: int) -> Array:
    """Return what each of :func:`ramps` owes to chance, shape (ramps,), in variances of the noise.

    The best of m ramps of one width that say nothing is expected to gain 2 log m more than one of them. The ramp as
    wide as the range, of which there is one, costs nothing. Rounded, as logarithms differ in their last bits.
    """
    first, last = ramps(bins).T
    return np.array([round(2.0 * log(8 * (bins - width) / width + 1), 3) for width in (last - first).tolist()])


def at_middles(edges: Array, chosen: Ints) -> Array:
    """Return the membership in the lower side of ramps at the middle of each bin, shape (ramps, bins)."""
    middle = 0.5 * (edges[1:] + edges[:-1])
    low, high = edges[chosen[:, 0], None], edges[chosen[:, 1], None]
    return np.minimum(np.maximum((high - middle) / (high - low), 0.0), 1.0)
