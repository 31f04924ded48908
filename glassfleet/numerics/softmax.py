"""Probabilities from scores, the same bits on every machine: only ``+ - * /``, rounding and powers of two.

``exp`` of a library of mathematics may differ in the last bit from machine to machine; then a rounded term could, and
with it a sum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST = -40.0
"""Differences of scores below this count as this: e^-40 is nothing on any grid that is used."""

_LN2_HIGH, _LN2_LOW = 0.693145751953125, 1.42860682030941723212e-6
"""Their sum is log 2; the first has so few bits that its products with whole numbers below 2^10 are exact."""

_PER_LN2 = 1.4426950408889634
_TERMS = 13
"""Of the series: |r| <= 0.35, and 0.35^14 / 14! is below the last bit."""


def exponential(x: Array) -> Array:
    """Return e^x for x in [`LEAST`, 0], within two units of the last place; below `LEAST` as at it."""
    x = np.maximum(x, LEAST)
    power = np.rint(x * _PER_LN2)
    rest = (x - power * _LN2_HIGH) - power * _LN2_LOW
    value = np.ones_like(rest)
    for term in range(_TERMS, 0, -1):
        value = 1.0 + rest * value / float(term)
    return np.ldexp(value, power.astype(np.int32))


def all_scores(scores: Array) -> Array:
    """Return a score for each class: one alone, shape (1, n), is the second class's, and the first class has zero."""
    return np.concatenate([np.zeros_like(scores), scores]) if len(scores) == 1 else scores


def probabilities(scores: Array) -> Array:
    """Return each class's probability, shape (C, n): e^score over the sum of all, added in the order of classes.

    Parameters
    ----------
    scores : ndarray of float64, shape (S, n)
        As for :func:`all_scores`, finite.

    Examples
    --------
    >>> probabilities(np.array([[0.0, 1.0]])).round(4).tolist()
    [[0.5, 0.2689], [0.5, 0.7311]]
    """
    scores = all_scores(scores)
    parts = exponential(scores - scores.max(axis=0))
    total = parts[0].copy()
    for part in parts[1:]:
        total += part
    shares: Array = parts / total
    return shares
