"""Is one version better than another on the same rows: differences of vehicles, their noise, and what follows.

A vehicle tells how much worse one version is than another on its test rows, and the variance of that by the chance of
these rows. It is that of a jackknife over blocks of rows in their order: rows beside each other have much in common,
and count as one. Over the vehicles the mean is taken of what is cut to the usual (in a private run to
`MOST_TOLD`, as nobody sees what is usual), with the noise of that. It is a test of paired differences, stratified by
vehicle: those that are there *are* the fleet, and what is left to chance are their rows. So fleets of three, or of one,
can be judged, too.

**The rule** (`decided`). A candidate is compared with the present version and with earlier ones that were in use, each
on tonight's rows. It becomes current when it is shown to be at most `MARGIN` worse than each of them: the error of the
first kind is `LEVEL`, whichever of them is the best, as all tests must pass. So the margin is against the best, every
night anew, and a chain of small losses cannot slide. Beside that, one that is shown to be better than the present
version, and looks best of all, becomes current. When neither is so, and an earlier version looks best and is shown to
be better than the present one by more than `MARGIN`, that one is current again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

MOST: Final = 9.0
"""How much worse one figure is than another is told up to here: ten times as large."""

SAME: Final = 0.0005
"""Two figures count as the same when they differ by less, relative to each other: words would say 0.0 %."""

MARGIN: Final = 0.01
"""Two versions whose errors differ by at most that are taken for equally good."""

LEVEL: Final = 0.0002
"""Chance that a version which is worse than another by more than `MARGIN` passes the test beside it, one-sided."""

MOST_FORMERS: Final = 3
"""Earlier versions that a candidate is compared with, besides the present one: five documents in all."""

BLOCKS: Final = 10
"""Of a vehicle's test rows, for the jackknife."""

MOST_TOLD: Final = 0.1
"""What one vehicle of a private run says is cut to this, either way, before it is summed."""

USUAL: Final = 3.0
"""So many standard deviations from the median vehicle a vehicle's word counts; what is farther out is cut to that."""

_DEVIATION: Final = 1.4826
"""Standard deviation of normal values, over their median distance from the median."""


class PairedDifference(NamedTuple):
    """How much worse one version is than another on one vehicle's rows, and the variance of that; see `relative`."""

    change: float
    variance: float


@dataclass(frozen=True)
class Estimate:
    """How much worse one version is than another over the fleet.

    Attributes
    ----------
    change : float
        See `relative`.
    noise : float
        By so much it may be off by chance, at `LEVEL`, one-sided: a multiple of its standard error.
    vehicles : int
        That compared the two.
    """

    change: float
    noise: float
    vehicles: int

    @property
    def most(self) -> float:
        """How much worse it may be, with all its noise."""
        return self.change + self.noise


def relative(metric: str, figure: float, other: float) -> float:
    """Return how much worse a figure is than another, relative to the other. Of ``f1`` more is better.

    In [-1, `MOST`]; of ``f1`` in [-`MOST`, 1].
    """
    loss = other - figure if metric == "f1" else figure - other
    if not loss:
        return 0.0
    return max(-MOST, min(MOST, loss / abs(other))) if other else math.copysign(MOST, loss)


def in_words(worse_by: float) -> str:
    """Return a relative difference of two scores, of `relative`, in words.

    >>> in_words(0.0414), in_words(-0.011), in_words(0.0004), in_words(MOST)
    ('4.1 % worse', '1.1 % better', 'the same', 'more than 900 % worse')
    """
    if abs(worse_by) < SAME:
        return "the same"
    percent = f"{100 * abs(worse_by):.1f}" if abs(worse_by) < MOST else f"more than {100 * MOST:.0f}"
    return f"{percent} % {'worse' if worse_by > 0 else 'better'}"


def change_in_words(metric: str, worse: float) -> str:
    """Say what `relative` returns in the sign of what is measured: F1 falls where an error rises.

    >>> change_in_words("rmse", 0.1234), change_in_words("f1", 0.05), change_in_words("rmse", 9.0)
    ('error +12.3%', 'F1 -5.0%', 'error more than 10 times as high')
    """
    name = "F1" if metric == "f1" else "error"
    change = -worse if metric == "f1" else worse
    if change >= MOST:
        return f"{name} more than 10 times as high"
    # `+ 0.0` makes of a negative zero a positive one.
    return f"{name} {round(change, 3) + 0.0:+.1%}"


def against(metric: str, beside: Mapping[int, Estimate]) -> str:
    """Say how a candidate stands beside the version that it stands worst beside, with the noise where it matters.

    >>> against("rmse", {3: Estimate(0.004, 0.009, 8)})
    'not sure enough: error +0.4% against version 3, over 8 vehicles; it may truly be +1.3%, allowed is +1.0%'
    """
    version = max(beside, key=lambda each: beside[each].most)
    estimate, best = beside[version], f", the best of {len(beside)} versions" if len(beside) > 1 else ""
    vehicles = f"{estimate.vehicles} vehicle" + ("" if estimate.vehicles == 1 else "s")
    text = f"{change_in_words(metric, estimate.change)} against version {version}{best}, over {vehicles}"
    if estimate.most <= MARGIN:
        return text
    most, limit = (change_in_words(metric, each).partition(" ")[2] for each in (estimate.most, MARGIN))
    sure = "not sure enough: " if estimate.change <= MARGIN else ""
    return f"{sure}{text}; it may truly be {most}, allowed is {limit}"


def difference(
    metric: str,
    figure: Callable[[NDArray[Any], NDArray[Any]], float],
    y: NDArray[Any],
    forecast: NDArray[Any],
    other: NDArray[Any],
) -> PairedDifference:
    """Return how much worse `forecast` is than `other` on one vehicle's rows.

    Parameters
    ----------
    metric : "rmse" or "f1"
    figure : callable
        Returns it from the target and forecasts.
    y, forecast, other : ndarray, shape (n,)
        n at least 1, in the order of the rows; of a single row the variance is not known, and said to be huge.

    Examples
    --------
    >>> import numpy as np
    >>> y, rng = np.zeros(400), np.random.default_rng(0)
    >>> error = rng.normal(size=400)
    >>> def root_mean_square(y, forecast):
    ...     return float(np.sqrt(np.mean((y - forecast) ** 2)))
    >>> change, variance = difference("rmse", root_mean_square, y, 1.1 * error, error)
    >>> round(change, 6), variance < 1e-12
    (0.1, True)
    """
    blocks = min(BLOCKS, y.size)

    def change(rows: NDArray[np.bool_]) -> float:
        return relative(metric, figure(y[rows], forecast[rows]), figure(y[rows], other[rows]))

    whole = change(np.ones(y.size, dtype=bool))
    if blocks < 2:
        return PairedDifference(whole, MOST**2)
    block = np.arange(y.size) * blocks // y.size
    without = [change(block != left_out) for left_out in range(blocks)]
    return PairedDifference(whole, (blocks - 1) * float(np.var(without)))


def over_vehicles(differences: Sequence[PairedDifference]) -> Estimate:
    """Return the mean over vehicles, at least one, of what is cut to the usual.

    That is `USUAL` standard deviations around the median: the vehicles' own, robust, or the noise of the median one,
    whichever is larger; and of a variance as much of the median one. So a vehicle that lies, or has a broken sensor,
    moves the mean by no more than an honest one could.
    """
    changes, variances = (np.array(each) for each in zip(*differences, strict=True))
    middle = np.median(changes)
    typical = max(0.0, float(np.median(variances)))
    usual = USUAL * max(_DEVIATION * np.median(np.abs(changes - middle)), math.sqrt(typical))
    cut = np.clip(changes, middle - usual, middle + usual)
    noise = np.minimum(variances, USUAL**2 * typical)
    return from_sums(len(differences), float(cut.sum()), float(noise.sum()))


def from_sums(vehicles: int, change: float, variance: float) -> Estimate:
    """Return the mean over vehicles, at least one, from the sums of their differences and of the variances."""
    from scipy.special import stdtrit  # noqa: PLC0415  vehicles import this module, and need no quantile

    quantile = float(stdtrit((BLOCKS - 1) * vehicles, 1.0 - LEVEL))
    return Estimate(change / vehicles, quantile * math.sqrt(max(0.0, variance)) / vehicles, vehicles)


def mean_of_cut(changes: Sequence[float]) -> float:
    """Return a mean in which no vehicle, whatever it says, weighs more than one; of none 0."""
    return math.fsum(max(-1.0, min(1.0, each)) for each in changes) / len(changes) if changes else 0.0


def decided(candidate: Mapping[int, Estimate], formers: Mapping[int, Estimate], present: int) -> int | None:
    """Return which version shall be current after a candidate was scored.

    Parameters
    ----------
    candidate : mapping of int to Estimate
        How much worse the candidate is, by the version that it was compared with: the present one, and earlier ones.
    formers : mapping of int to Estimate
        How much worse each of these earlier ones is than the present version.
    present : int

    Returns
    -------
    int or None
        None: the candidate; else the present version, or an earlier one.
    """
    if all(each.most <= MARGIN for each in candidate.values()):
        return None
    beside_present = candidate[present]
    best = min(formers, key=lambda version: formers[version].change, default=present)
    if best == present or beside_present.change <= formers[best].change:
        return None if beside_present.most <= 0 and all(each.change <= 0 for each in candidate.values()) else present
    return best if formers[best].most <= -MARGIN else present
