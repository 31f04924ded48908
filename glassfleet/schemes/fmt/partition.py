"""Strong triangular partitions with knots anywhere, and how the knots are found from summed histograms.

A partition of [0, 1] has knots ``0 = k_0 < ... < k_(T-1) = 1``, the peaks of its T sets. A value's *position* is i + u,
where it lies between knots i and i + 1 and has membership u in set i + 1. The union of the sets up to c, a *cut*, then
has the membership ``clip(c + 1 - position, 0, 1)``: the sum of theirs. Everything is computed from positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.numerics.edges import mixed_quantiles

BINS = 256
"""Bins of the histograms; knots of quantiles lie on their edges, mixed ones are at least a bin apart."""

LEAST_GAP = 0.4
"""Least distance of knots, as a share of the uniform step, in a union of two sets of knots."""

LEAST_STEP = 1e-6
"""Knots from a peer or a document are this far apart at least, or a value's position would mean little."""

Knots = tuple[tuple[float, ...], ...]
"""Knots of each input, over its scaled range."""

Kind = Literal["mixed", "uniform", "quantile", "union"]
"""Where knots are placed, see :class:`~glassfleet.schemes.fmt.params.Parameters`."""


def find_knots(counts: NDArray[np.int64], n_sets: int, kind: Kind) -> Knots:
    """Return the knots of every input.

    Parameters
    ----------
    counts : ndarray of int64, shape (F, `BINS`)
        The fleet's histograms.
    n_sets : int
        Sets of the uniform partition; of a mixed one at most, a union has at most ``2 n_sets - 2``.
    kind : {"mixed", "uniform", "quantile", "union"}
        See :class:`~glassfleet.schemes.fmt.params.Parameters`.
    """
    if kind == "mixed":
        return tuple(_mixed(line, n_sets) for line in counts)
    uniform = [j / (n_sets - 1) for j in range(n_sets)]
    if kind == "uniform":
        return (tuple(uniform),) * len(counts)
    return tuple(
        _merge(uniform if kind == "union" else [0.0, 1.0], _quantiles(line, n_sets), n_sets) for line in counts
    )


def _mixed(counts: NDArray[np.int64], n_sets: int) -> tuple[float, ...]:
    """Return the knots at equal steps of half the range and half the rows, without those less than a bin apart."""
    knots = [0.0]
    for knot in mixed_quantiles(counts, n_sets - 1):
        if knot - knots[-1] >= 1 / BINS and 1.0 - knot >= 1 / BINS:
            knots.append(knot)
    return (*knots, 1.0)


def _quantiles(counts: NDArray[np.int64], n_sets: int) -> list[float]:
    """Return the inner knots at equal steps of rank: the edge nearest to each, by whole numbers only."""
    above = np.concatenate([[0], np.cumsum(counts)])
    total = int(above[-1])
    if total == 0:
        return []
    knots = []
    for j in range(1, n_sets - 1):
        distance = np.abs(above * (n_sets - 1) - j * total)
        knots.append(int(np.argmin(distance)) / BINS)
    return knots


def _merge(first: list[float], second: list[float], n_sets: int) -> tuple[float, ...]:
    """Return `first` and those of `second` that keep their distance from all that are taken already."""
    taken = list(first)
    gap = LEAST_GAP / (n_sets - 1)
    for knot in second:
        if all(abs(knot - other) >= gap for other in taken):
            taken.append(knot)
    return tuple(sorted(taken))


def positions(scaled: NDArray[np.float64], knots: Knots) -> NDArray[np.float64]:
    """Return where each value lies between its input's knots, in [0, T - 1]; `scaled` and result have shape (F, n)."""
    result = np.empty_like(scaled)
    for feature, line in enumerate(knots):
        at = np.array(line)
        lower = np.searchsorted(at[1:-1], scaled[feature], side="right")
        width = at[1:] - at[:-1]
        result[feature] = lower + (scaled[feature] - at[lower]) / width[lower]
    return result


def up_to(cut: NDArray[np.float64] | float, position: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the membership in the union of the sets 0 .. `cut`; element-wise, hence the same for any block of rows."""
    degree = cut + 1.0 - position
    np.maximum(degree, 0.0, out=degree)
    np.minimum(degree, 1.0, out=degree)
    return degree


def check_knots(knots: Sequence[Sequence[float]], n_inputs: int, most: int) -> Knots:
    """Return `knots` as tuples; raises ValueError, with the reason, unless they make `n_inputs` partitions."""
    if len(knots) != n_inputs:
        raise ValueError(f"knots of {len(knots)} inputs, expected {n_inputs}")
    for line in knots:
        if not 2 <= len(line) <= most or not all(isinstance(k, float) for k in line):
            raise ValueError("an input has too few or too many knots, or one is no number")
        if line[0] != 0.0 or line[-1] != 1.0 or any(not a + LEAST_STEP < b for a, b in pairwise(line)):
            raise ValueError("the knots of an input do not increase from 0 to 1")
    return tuple(tuple(line) for line in knots)
