"""Drift by rule and by input: what the model in use meets has moved since it was learned, or not.

A line is a rule, or an input. Each night a vehicle has one figure a line, of its test rows: the logarithm of a rule's
mean error, or an input's mean within the model's limits (`figures`). It remembers the figures of nights before
(`DriftMemory`) and tells by how much tonight's differs from their mean, and from the first night's, when the model was
learned (`DriftMemory.changes`). So each vehicle is compared with itself, whoever else is there; and what is summed over
vehicles are six small integers a line, no histogram: a cell of few rows would tell of them.

**The detector** (`drifted`). The mean change over vehicles, over its standard error by the vehicles' own scatter, is a
t-value; as a normal value, one a night, it goes into Page's two-sided CUSUM. As each night is compared with the mean
of all before it (recursive residuals), these values are independent while nothing moves. The limit is where
`FALSE_ALARMS` are expected in a month, over all lines, by Siegmund's formula. The scatter of vehicles has in it what
rows of one drive have in common, and a vehicle's own good and bad days. It has not what moves all vehicles for one
night: a holiday is a drift.

What moves a few vehicles far moves their scatter, too, and is not found so. Hence a second one: each vehicle says
whether a line moved beyond chance there, and so many do not by chance (binomial, as often false as the first).

References
----------
E. S. Page: Continuous inspection schemes, Biometrika 41, 1954. R. L. Brown, J. Durbin, J. M. Evans: Techniques for
testing the constancy of regression relationships over time, JRSS B 37, 1975. D. Siegmund: Sequential analysis, 1985,
equation 2.57.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FALSE_ALARMS: Final = 0.1
"""Expected of each of the two detectors in `MONTH` nights, over all lines, while nothing moves."""

MONTH: Final = 30

FEWEST_ROWS: Final = 10
"""A vehicle tells nothing of a line with fewer test rows."""

FEWEST_VEHICLES: Final = 3
"""Two vehicles have hardly a scatter."""

MARGINS: Final = (math.log(1.05), 0.1)
"""A rule's error that is less than 5 % larger or smaller, or an input's mean that is off by less than a tenth of its
standard deviation, is no drift, however sure."""

COLUMNS: Final = 6
"""What is told of a line: 1; the change against the nights before, and its square; the change since the model was
learned; 1 if that is beyond chance on this vehicle alone, and then that change again."""

GRID: Final = 64
"""Changes are told in steps of so many to one. One row among a hundred others hardly makes a step."""

MOST: Final = 4 * GRID
"""Larger changes count as this."""

KEPT: Final = 64
"""Models whose figures a vehicle remembers; the one that was met longest ago goes first."""

_ALLOWANCE: Final = 1.0
_OVERSHOOT: Final = 1.166
_SURE: Final = 3.5
_BY_CHANCE: Final = 0.01
"""More vehicles than that are not `_SURE` standard deviations off by chance: of few rows they are more than normal."""
_NIGHTS: Final = 7
"""Of so many, a vehicle knows how far its own nights differ; before, it says of no line that it moved."""
_FARTHEST: Final = 6.0
_SMALL: Final = 1e-4


def figures(off: Floats, line: NDArray[np.intp], lines: int, X: Floats, *, labels: bool = False) -> Floats:
    """Return what one vehicle finds tonight, shape (lines + F, 3): figure, its variance by chance, spread.

    NaN where there are less than `FEWEST_ROWS` rows, or an input that does not vary.

    Parameters
    ----------
    off : ndarray, shape (n,)
        Size of each row's error, over the target's range; of classes 0 or 1.
    line : ndarray of intp, shape (n,)
        Which rule decides.
    lines : int
    X : ndarray, shape (n, F)
        Inputs, the model's limits at 0 and 1; NaN: not to be counted.
    labels : bool
        Errors are wrong classes: half a one is added, as none at all has no logarithm.

    Examples
    --------
    >>> import numpy as np
    >>> rng, line = np.random.default_rng(0), np.zeros(400, dtype=np.intp)
    >>> memory = DriftMemory()
    >>> for night in range(3):
    ...     X = rng.uniform(0.0, 0.5, size=(400, 1)) + 0.3 * (night == 2)
    ...     memory.meet("model", f"run-{night}", figures(np.abs(rng.normal(size=400)), line, 1, X))
    >>> memory.changes("model", "run-2").tolist()   # the rule as ever, the input higher by two standard deviations
    [[1, 1, 1, 1, 0, 0], [1, 118, 13924, 114, 0, 0]]
    """
    rows = np.bincount(line, minlength=lines).astype(np.float64)
    sums, squares = (np.bincount(line, each, minlength=lines) for each in (off, off**2))
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.maximum(_SMALL, (sums + 0.5 * labels) / rows)
        variance = np.maximum(squares / rows - (sums / rows) ** 2, 0.0) / (rows * mean**2)
        rules = np.column_stack([np.log(mean), variance, np.ones(lines)])
        there = np.isfinite(X)
        values, counts = np.where(there, np.clip(X, 0.0, 1.0), 0.0), there.sum(axis=0).astype(np.float64)
        center = values.sum(axis=0) / counts
        spread = np.sqrt(np.where(there, (values - center) ** 2, 0.0).sum(axis=0) / counts)
        inputs = np.column_stack([center, spread**2 / counts, spread])
    rules[rows < FEWEST_ROWS] = np.nan
    inputs[(counts < FEWEST_ROWS) | ~(spread > _SMALL)] = np.nan
    return np.concatenate([rules, inputs])


@dataclass
class _Met:
    """One model: its nights before `run`, shape (L, 6), and tonight's figures, shape (L, 3).

    The columns of `past` are the number of nights, mean and squared deviations of their figures (Welford 1962), the
    first night's figure, its variance and spread.
    """

    run: str
    past: Floats
    tonight: Floats
    is_private: bool = False

    def to_value(self) -> dict[str, Any]:
        tonight = [[each if math.isfinite(each) else None for each in line] for line in self.tonight.tolist()]
        return {"run": self.run, "past": self.past.tolist(), "tonight": tonight, "private": self.is_private}

    def before(self, run: str) -> Floats:
        """Return the nights before a run: what it has answered is not counted again, however often it is asked."""
        return self.past if run == self.run else _with(self.past, self.tonight)


def _with(past: Floats, tonight: Floats) -> Floats:
    result = past.copy()
    nights, there = past[:, 0], np.isfinite(tonight[:, 0])
    first, more = there & (nights == 0), there & (nights > 0)
    figure, off = tonight[:, 0], tonight[:, 0] - past[:, 1]
    result[first] = np.column_stack([np.ones(len(past)), figure, np.zeros(len(past)), tonight])[first]
    result[more, 1] += (off / (nights + 1))[more]
    result[more, 2] += (off**2 * nights / (nights + 1))[more]
    result[more, 0] += 1
    return result


@dataclass
class DriftMemory:
    """What a vehicle remembers of the models that it was asked about, by digest: their figures, no rows."""

    models: dict[str, _Met] = field(default_factory=dict)

    def meet(self, digest: str, run: str, tonight: Floats, *, is_private: bool = False) -> None:
        """Take over tonight's figures; of the same run once."""
        known = self.models.get(digest)
        past = np.zeros((len(tonight), 6))
        if known is not None and known.past.shape == past.shape:
            past = known.before(run)
            is_private = is_private or known.is_private
        self._put(digest, _Met(run, past, tonight, is_private))

    def of(self, digests: Iterable[str]) -> DriftMemory:
        """Return what is remembered of some models."""
        return DriftMemory({digest: self.models[digest] for digest in digests if digest in self.models})

    def take(self, other: DriftMemory) -> None:
        """Take over what another one has of its models: they were met last."""
        for digest, met in other.models.items():
            self._put(digest, met)

    def _put(self, digest: str, met: _Met) -> None:
        self.models.pop(digest, None)
        self.models[digest] = met
        while len(self.models) > KEPT:
            del self.models[next(iter(self.models))]

    def is_private(self, digest: str) -> bool:
        """Whether a private run ever asked about the model: of such nothing is told that is not masked."""
        return digest in self.models and self.models[digest].is_private

    def changes(self, digest: str, run: str) -> Ints | None:
        """Return what is told of a model that `meet` took figures of in this run, shape (L, `COLUMNS`); None: nothing.

        A line of which there were no figures before has zeros.
        """
        known = self.models.get(digest)
        if known is None or known.run != run:
            return None
        nights, mean, squares, first, variance, spread = known.past.T
        figure, noise, _ = known.tonight.T
        there = (nights > 0) & np.isfinite(figure)
        spread = np.where(there, spread, 1.0)
        change, since = (np.where(there, figure - other, 0.0) / spread for other in (mean, first))
        own = 2.0 * squares / np.maximum(nights - 1, 1)
        chance = np.sqrt(np.where(there, np.maximum(noise + variance, own), 1.0)) / spread
        margin = np.where(spread == 1.0, MARGINS[0], MARGINS[1])
        moved = (nights >= _NIGHTS) & there & (np.abs(since) > np.maximum(margin, _SURE * chance))
        step, steps = (np.clip(np.rint(GRID * each), -MOST, MOST).astype(np.int64) for each in (change, since))
        return np.column_stack([there, step, step**2, steps, moved, steps * moved]).astype(np.int64)

    def to_value(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {digest: met.to_value() for digest, met in self.models.items()}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> DriftMemory:
        """Return it from what `to_value` returned; raises ValueError, LookupError, TypeError."""
        memory = cls()
        for digest, each in value.items():
            past, tonight = (np.array(each[key], dtype=np.float64) for key in ("past", "tonight"))
            if past.shape != (len(tonight), 6) or tonight.shape != (len(past), 3):
                raise ValueError(f"figures of shapes {past.shape} and {tonight.shape}")
            memory.models[digest] = _Met(str(each["run"]), past, tonight, bool(each["private"]))
        return memory


class Moved(NamedTuple):
    """A line that moved.

    Attributes
    ----------
    line : int
    since : int
        The night from which on, as a place among those that were given.
    change : float
        Mean since the model was learned, over the vehicles that moved, or all: of the logarithm of a rule's error; of
        an input in its standard deviations.
    moved, vehicles : int
        On how many vehicles it is beyond chance (0: on none by itself), of how many that told.
    """

    line: int
    since: int
    change: float
    moved: int
    vehicles: int


def limit_of(lines: int) -> float:
    """Return the limit of the CUSUM at which `FALSE_ALARMS` are expected in a month over so many lines.

    >>> round(limit_of(1), 2), round(limit_of(22), 2)
    (2.38, 3.92)
    """
    nights = 2.0 * lines * MONTH / FALSE_ALARMS  # two sides
    low, high = 0.0, 50.0
    while high - low > 1e-9:
        middle = (low + high) / 2.0
        reach = 2.0 * _ALLOWANCE * (middle + _OVERSHOOT)
        length = (math.exp(reach) - reach - 1.0) / (2.0 * _ALLOWANCE**2)
        low, high = (middle, high) if length < nights else (low, middle)
    return low


def drifted(nights: Sequence[Ints], rules: int) -> list[Moved]:
    """Return the lines that have moved since a model was learned, and still are off.

    Parameters
    ----------
    nights : sequence of ndarray of int64, shape (L, COLUMNS)
        Sums over vehicles, in the order of time.
    rules : int
        How many lines, the first, are of rules.
    """
    if not nights:
        return []
    sums = np.array(nights)
    limit, values, crowds = limit_of(sums.shape[1]), _normal(sums), _crowds(sums)
    found = []
    for line in range(sums.shape[1]):
        vehicles, _, _, since, moved, of_moved = sums[-1, line].tolist()
        change = since / (GRID * vehicles) if vehicles else 0.0
        begin = _alarm((math.copysign(1.0, change) * values[:, line]).tolist(), limit)
        if abs(change) < MARGINS[line >= rules] or begin is None:
            begin = int(crowds[:, line].argmax()) if crowds[-1, line] else None
        if begin is not None:
            found.append(Moved(line, begin, of_moved / (GRID * moved) if moved else change, moved, vehicles))
    return found


def _normal(sums: Ints) -> Floats:
    """Return by how many standard errors the mean change is off, as a normal value, by night and line."""
    from scipy.special import ndtri, stdtr  # noqa: PLC0415  vehicles import this module, and need no quantile

    vehicles, change, square = (sums[:, :, place].astype(np.float64) for place in range(3))
    enough = vehicles >= FEWEST_VEHICLES
    count = np.where(enough, vehicles, FEWEST_VEHICLES)
    mean = change / count
    variance = np.maximum(square - change * mean, 0.0) / (count - 1.0) + 1.0 / 12.0  # of the grid
    value = ndtri(stdtr(count - 1.0, mean / np.sqrt(variance / count)))
    return np.asarray(np.where(enough, np.clip(value, -_FARTHEST, _FARTHEST), 0.0))


def _crowds(sums: Ints) -> NDArray[np.bool_]:
    """Return where more vehicles moved than do by chance, by night and line."""
    from scipy.special import bdtrc  # noqa: PLC0415  as above

    vehicles, moved = sums[:, :, 0], sums[:, :, 4]
    by_chance = bdtrc(np.maximum(moved - 1, 0).astype(np.float64), vehicles, _BY_CHANCE)
    return np.asarray(
        (moved > 0) & (vehicles >= FEWEST_VEHICLES) & (by_chance < FALSE_ALARMS / (sums.shape[1] * MONTH))
    )


def _alarm(values: Iterable[float], limit: float) -> int | None:
    """Return where the first excursion begins that goes beyond the limit."""
    total, begin = 0.0, 0
    for night, value in enumerate(values):
        begin = begin if total > 0.0 else night
        total = max(0.0, total + value - _ALLOWANCE)
        if total > limit:
            return begin
    return None
