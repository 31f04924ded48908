"""Hinges: ``max(0, x - knot)`` of a scaled input, as in MARS (Friedman, 1991), so that a line over the input can bend.

They bend at inner knots of the input's partition, and stand behind the inputs: hinge h is input F + h of a polynomial.
Which are worth it is found from one matrix of summed products.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.numerics.sparse import sweep

Array = NDArray[np.float64]
Hinges = tuple[tuple[int, float], ...]
"""Of each hinge the input and the knot, in (0, 1)."""

WORTH = 20.0
"""A hinge must cut the squared error by this many times the noise's variance: each is one more thing to read."""

MOST_CANDIDATES = 160
"""Their products are summed in one answer: more are thinned out evenly."""

_LEAST_ROWS = 2.0
"""A candidate with no more than this left, given the others, is collinear with them."""


def candidates(domain: Domain, inputs: Iterable[int], knots: Sequence[Sequence[float]]) -> Hinges:
    """Return where lines over `inputs` may bend: at every second inner knot of each that is a number."""
    hinges = [(at, knot) for at in inputs if not domain.inputs[at].categories for knot in knots[at][1:-1:2]]
    return tuple(hinges[:: max(1, -(-len(hinges) // MOST_CANDIDATES))])


def with_hinges(inputs: Array, hinges: Hinges) -> Array:
    """Return scaled inputs, shape (F, n), and below them their hinges, shape (F + H, n)."""
    if not hinges:
        return inputs
    return np.concatenate([inputs, [np.maximum(inputs[at] - knot, 0.0) for at, knot in hinges]])


def choose(matrices: Sequence[Array], lines: int, most: int) -> list[int]:
    """Choose hinges by a forward selection that begins with all lines.

    Parameters
    ----------
    matrices : sequence of ndarray of float64, shape (k, k)
        Moment matrices, in rows, over ``[1, lines, candidates, y]``, of each target y.
    lines : int
        How many of the columns are the inputs themselves.
    most : int
        Most hinges, >= 0.

    Returns
    -------
    list of int
        Numbers of candidates, increasing. The gain of one is the sum over the targets; each of them is worth more than
        :data:`WORTH` times the noise's variance, the squared error by row of the lines alone.
    """
    tables = [matrix.copy() for matrix in matrices]
    k, first = len(tables[0]), 1 + lines
    for table in tables:
        table[np.arange(1, k - 1), np.arange(1, k - 1)] += 1.0
        for column in range(first):
            sweep(table, column)
    rows = max(float(matrices[0][0, 0]), 1.0)
    least = WORTH * sum(max(float(table[-1, -1]), 0.0) for table in tables) / rows
    chosen: list[int] = []
    while len(chosen) < most:
        gains = {
            column: sum(float(table[column, -1]) * float(table[column, -1]) for table in tables)
            / float(tables[0][column, column])
            for column in range(first, k - 1)
            if column not in chosen and tables[0][column, column] > _LEAST_ROWS
        }
        best = max(gains, key=lambda column: (gains[column], -column), default=None)
        if best is None or gains[best] <= least:
            break
        for table in tables:
            sweep(table, best)
        chosen.append(best)
    return [column - first for column in sorted(chosen)]


def check_hinges(value: Sequence[Sequence[Any]], domain: Domain, knots: Sequence[Sequence[float]]) -> Hinges:
    """Return `value` as hinges; raises ValueError, with the reason, unless they bend lines of the domain's numbers."""
    hinges = tuple((at, knot) for at, knot in value)
    if any(type(at) is not int or type(knot) is not float for at, knot in hinges):
        raise ValueError("a hinge is not the number of an input, and a knot")
    if list(hinges) != sorted(set(hinges)):
        raise ValueError("hinges are not in order, or not different")
    for at, knot in hinges:
        if not 0 <= at < len(knots) or domain.inputs[at].categories or knot not in knots[at][1:-1]:
            raise ValueError(f"a hinge at {knot} of input {at}, which is no inner knot of an input of numbers")
    return hinges


def bends_contradict(products: Array, hinges: Sequence[tuple[int, int, float]], slack: float) -> bool:
    """Whether sums of products cannot be those of hinges ``h = max(0, x - knot)`` of inputs in [0, 1].

    Parameters
    ----------
    products : ndarray of float64, shape (..., k)
        Sums of ``v [1, ...]`` over rows, with any weights v >= 0.
    hinges : sequence of (int, int, float)
        Of each the columns of h and x, and the knot.
    slack : float
        What rounding may make of it.

    Notes
    -----
    In each row ``x - knot <= h <= (1 - knot) x``.
    """
    return any(
        bool(
            (products[..., column] > (1.0 - knot) * products[..., own] + slack).any()
            or (products[..., column] < products[..., own] - knot * products[..., 0] - slack).any()
        )
        for column, own, knot in hinges
    )
