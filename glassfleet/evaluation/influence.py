"""Without whom the others gain: one vehicle is left out of the sums of regressions, which are solved again.

Theory. Sums over the products of ``[1, x, y]`` tell how large the squared error of *any* line is over the rows behind
them: ``y'y - 2 b'X'y + b'X'X b``. So who has each vehicle's sums, rule by rule, can fit the rules to all of them and to
all but one, and knows what either is worth to each of the others, without another question. Whoever has honest rows in
a part of the inputs of its own changes little for the others: rules fit there, too. Whoever says something else where
others have rows does.

The tree itself stays as it was grown, with the sums of all. Two that lie together are not found: without one of them
the other is left.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_GAIN: Final = 1.15
"""A vehicle is named when the error of the median other one is at least so many times as large with it."""

EACH_GAINS: Final = 1.05
"""And that of each other one so many times, but for `NEED_NOT`; see docs/explanation/model-registry.md for what honest
fleets had."""

NEED_NOT: Final = 0.2
"""Share of the others that need not gain, rounded down: nobody alone keeps a name from being told in a fleet of six. In
honest fleets that are split by the target, those with rows like the candidate's lose much without it."""

FEWEST_OTHERS: Final = 3
"""With rows where the candidate has some."""

FEWEST: Final = 5
"""Of fewer vehicles none is named, as for their rows (`glassfleet.discovery.guard.MIN_FLEET`)."""

MOST: Final = 200
"""Of more vehicles none is looked at: one has a fortieth of the weight at most, and it takes up to 22 ms (tree) to make
a vehicle's matrices of its answers."""

MOST_BYTES: Final = 2**28
"""Of all moment matrices together."""

_RIDGE: Final = 1e-3
"""In rows: a rule that no row reaches has a solution, too."""

_NOTHING: Final = 1e-9
"""Squared error, on the scale of y, of what rounding leaves where rules fit all rows."""


@dataclass(frozen=True)
class Influence:
    """One vehicle's influence on all others.

    Attributes
    ----------
    agent : str
    error, without : float
        Root of the mean squared error over the rows of all others, on the scale of y: of the rules fitted to the sums
        of all, and to those of all others.
    """

    agent: str
    error: float
    without: float

    def in_words(self, name: str) -> str:
        """Say it of the vehicle, which is called by `name`.

        >>> Influence("v7", error=13.91, without=1.084).in_words("v7")
        'without v7 the others gain: error 1.08 instead of 13.9'
        """
        return f"without {name} the others gain: error {self.without:.3g} instead of {self.error:.3g}"


def harmful(moments: Mapping[str, Array]) -> Influence | None:
    """Return the vehicle without which the others gain, by `EACH_GAINS` and `LEAST_GAIN`; None: there is none.

    Parameters
    ----------
    moments : mapping of str to ndarray of float64, shape (k, k, m)
        Moment matrices over ``[1, x, y]`` by rule, in rows, by vehicle; at least one vehicle.

    Examples
    --------
    >>> def vehicle(slope):
    ...     x = np.linspace(0, 1, 20)
    ...     line = np.stack([np.ones(20), x, slope * x])
    ...     return (line @ line.T)[:, :, None]
    >>> harmful({f"v{at}": vehicle(slope) for at, slope in enumerate([1.0, 1.1, 0.9, -4.0, 1.0])}).agent
    'v3'
    """
    total = sum(moments.values(), np.zeros_like(next(iter(moments.values()))))
    if not np.isfinite(total).all():
        return None
    line = _solved(total)

    def gain(agent: str) -> float:
        others = total - moments[agent]
        return _ratio(_error(others, line), _error(others, _solved(others)))

    agent = max(moments, key=gain)
    others = total - moments[agent]
    better = _solved(others)
    if not any(
        _is_harm(others, {one: own for one, own in moments.items() if one != agent}, line, better, rules)
        for rules in (moments[agent][0, 0] >= 1.0, np.ones(len(line), dtype=bool))
    ):
        return None
    rows = float(others[0, 0].sum())
    return Influence(agent, math.sqrt(_error(others, line) / rows), math.sqrt(_error(others, better) / rows))


def _is_harm(others: Array, moments: Mapping[str, Array], line: Array, better: Array, rules: NDArray[np.bool_]) -> bool:
    """Whether the others gain in some rules, shape (m,), by `EACH_GAINS` and `LEAST_GAIN`, and not by chance alone."""
    rows, coefficients = others[0, 0, rules].sum(), line[rules].size
    if rows <= coefficients:
        return False
    # Whoever fits so many coefficients to so many rows is nearer to these than to others, by so much.
    chance = math.sqrt(1.0 - coefficients / rows)
    each = sorted(
        chance * _ratio(_error(own[:, :, rules], line[rules]), _error(own[:, :, rules], better[rules]))
        for own in moments.values()
        if own[0, 0, rules].any()  # who has no rows there gains nothing, and loses nothing
    )
    return (
        len(each) >= FEWEST_OTHERS
        and each[int(NEED_NOT * len(each))] >= EACH_GAINS
        and statistics.median(each) >= LEAST_GAIN
    )


def _ratio(error: float, without: float) -> float:
    """Return how many times as large an error is, by its root; 1 where both are below what rounding leaves."""
    return math.sqrt((error + _NOTHING) / (without + _NOTHING))


def _error(matrix: Array, line: Array) -> float:
    """Return the sum of squared errors, >= 0, of coefficients by rule, shape (m, k - 1)."""
    residual = np.append(-line, np.ones((len(line), 1)), axis=1)
    return max(float(np.vdot(matrix.T @ residual[:, :, None], residual)), 0.0)


def _solved(matrix: Array) -> Array:
    """Return least-squares coefficients by rule, shape (m, k - 1), of moment matrices, shape (k, k, m)."""
    moved = np.moveaxis(matrix, -1, 0)
    k = matrix.shape[0] - 1
    solved = np.linalg.solve(moved[:, :k, :k] + _RIDGE * np.eye(k), moved[:, :k, k:])
    return np.asarray(solved[:, :, 0], dtype=np.float64)
