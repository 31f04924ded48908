"""How far forecasts are off on test rows, rule by rule, and the interval around a forecast that follows from it.

Split conformal prediction (Papadopoulos et al. 2002; Lei et al. 2018, Section 2), for each rule by itself (Mondrian,
Vovk 2012): a rule's test rows tell how far the model is off where this rule decides. A forecast's interval is from the
quantile of :data:`TAIL` to that of 1 - :data:`TAIL` of these errors. Vehicles count their errors in fixed bins, and
counts add up; so a fleet's intervals are those of all its test rows in one place, bit for bit. A quantile within a bin
is found on a straight line.

References
----------
J. Lei, M. G'Sell, A. Rinaldo, R. J. Tibshirani, L. Wasserman: Distribution-free predictive inference for regression,
JASA 113, 2018. V. Vovk: Conditional validity of inductive conformal predictors, ACML 2012.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import TypeAdapter

from glassfleet.data.domain import Domain
from glassfleet.model.explanation import Explanation
from glassfleet.model.protocol import Model
from glassfleet.model.rules import Errors, Forecasts
from schemas.codec import document_digest
from schemas.errors import VerificationError

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

WORST: Final = 2.0
"""A larger error, over the target's range, counts as this one."""

TAIL: Final = 20
"""One error in so many lies beyond either end: nine of ten are within."""

LEAST_ROWS: Final = 200
"""Test rows of a rule whose errors are told by themselves; rules with fewer are taken together."""

MOST_RULES: Final = 64
"""Of a model with more rules all errors are counted together: most of its rules have few rows."""

FAR: Final = 0.5
"""A forecast farther than this beyond the target's limits, over its range, is far outside. Where rows are few, a line
fitted to them may say anything elsewhere; a line that goes a little beyond is not odd."""

_OCTAVE, _SMALLEST = 6, -10
# Rounded, so that every machine has the same: powers differ in their last bits.
_SIZES = np.rint(2.0 ** (np.arange(_SMALLEST * _OCTAVE, _OCTAVE + 1) / _OCTAVE) * 2**24) / 2**24
BOUNDS: Final = np.concatenate([-_SIZES[::-1], _SIZES])
"""Limits of the bins, shape (BINS + 1,): errors over the target's range, six bins to a doubling."""

BINS: Final = len(BOUNDS) - 1

_MIDDLES = np.array(
    [(abs(low) + abs(high)) / 2 if low * high > 0 else high / 2 for low, high in pairwise(BOUNDS.tolist())]
)
"""Mean size of an error in each bin."""


@runtime_checkable
class TellsRule(Protocol):
    """A model that says for many rows at once which rule decides."""

    def rules(self) -> Sequence[Any]:
        """Return the rules in a fixed order."""

    def deciding(self, X: Array) -> NDArray[np.intp]:
        """Return for rows `X`, shape (n, F), the index of the rule that an explanation names first, shape (n,)."""


def lines_of(model: Any) -> int:
    """Return over how many lines a model's errors are counted: one for each rule, or one for all."""
    rules = len(model.rules()) if isinstance(model, TellsRule) else 1
    return rules if rules <= MOST_RULES else 1


def counted(off: Array, line: NDArray[np.intp], lines: int) -> Ints:
    """Return the counts of errors by line and bin, shape (lines, BINS).

    Parameters
    ----------
    off : ndarray of float64, shape (n,)
        What was there less what was forecast, over the target's range; any size, also not finite.
    line : ndarray of intp, shape (n,)
    lines : int
    """
    off = np.nan_to_num(off, nan=WORST, posinf=WORST, neginf=-WORST)
    place = np.searchsorted(BOUNDS[1:-1], off)
    counts = np.bincount(line * BINS + place, minlength=lines * BINS).reshape(lines, BINS)
    return counts.astype(np.int64)


def errors_on(model: Any, X: Array, y: Array) -> dict[str, Any]:
    """Return a model's errors on rows as a record has them: ``lines``, see `errors_of`, and ``counts`` by bin.

    Parameters
    ----------
    model : Model
        Of a number.
    X : ndarray of float64, shape (n, F)
        Rows that it was not learned from, in the inputs' own units.
    y : ndarray of float64, shape (n,)
    """
    lines, width = lines_of(model), width_of(model.domain)
    deciding = model.deciding(X) if lines > 1 else np.zeros(len(X), dtype=np.intp)
    return recorded_errors(counted((y - model.predict(X)) / width, deciding, lines), width)


def width_of(domain: Domain) -> float:
    """Return the range of a number that is forecast, in its unit; of a constant 1."""
    assert domain.target is not None
    return (domain.target.high - domain.target.low) or 1.0


def far_outside(domain: Domain, forecasts: ArrayLike) -> str:
    """Say how many of `forecasts`, shape (n,), are far outside the target's limits; empty: none is, or it is a class.

    >>> from glassfleet.data.domain import Variable
    >>> domain = Domain(features=(Variable(name="x", low=0, high=1),), target=Variable(name="y", low=25, high=346))
    >>> far_outside(domain, [100.0, 400.0])
    ''
    >>> print(far_outside(domain, [100.0, 12210.0]))
    1 of 2 forecasts far outside the target's limits, 25 to 346, the farthest 12210
    """
    target = domain.target
    if target is None:
        return ""
    values = np.asarray(forecasts, dtype=np.float64)
    beyond = np.maximum(target.low - values, values - target.high)
    many = int(np.count_nonzero(beyond > FAR * width_of(domain)))
    if not many:
        return ""
    limits = f"the target's limits, {target.low:.6g} to {target.text(target.high)}"
    if len(values) == 1:
        return f"the forecast is far outside {limits}: do not rely on it"
    farthest = f"the farthest {values[beyond.argmax()]:.6g}"
    return f"{many} of {len(values)} forecasts far outside {limits}, {farthest}"


def recorded_errors(counts: Ints, width: float) -> dict[str, Any]:
    """Return summed counts as a record has them."""
    return {"lines": errors_of(counts, width), "counts": counts.sum(axis=0).tolist()}


def over_all(errors: Mapping[str, Any], domain: Domain) -> Errors | None:
    """Return all rules' errors together, of what a record has (`recorded_errors`); None: too few rows to tell."""
    [whole] = errors_of(np.asarray(errors["counts"], dtype=np.int64)[None], width_of(domain))
    return None if whole is None else Errors(**whole)


def errors_of(counts: Ints, width: float) -> list[dict[str, Any] | None]:
    """Return each line's errors as :class:`~glassfleet.model.rules.Errors` has them; None where no interval is known.

    Parameters
    ----------
    counts : ndarray of int64, shape (lines, BINS)
        Sums of what `counted` returns.
    width : float
        The target's range, in its unit.
    """
    rows = counts.sum(axis=1)
    rare = rows < LEAST_ROWS
    together = counts[rare].sum(axis=0) if rows[rare].sum() >= LEAST_ROWS else counts.sum(axis=0)
    errors: list[dict[str, Any] | None] = []
    for line, own in enumerate(rows.tolist()):
        bins = together if rare[line] else counts[line]
        low, high = _quantile(bins[::-1]), _quantile(bins)
        if low is None or high is None:
            errors.append(None)
            continue
        mean = math.fsum(counts[line] * _MIDDLES) / own * width if own else None
        errors.append({"low": -low * width, "high": high * width, "rows": int(bins.sum()), "own": own, "mean": mean})
    return errors


def _quantile(bins: Ints) -> float | None:
    """Return what all but one in `TAIL` of the next errors are at most; None: there are too few to say."""
    rows = int(bins.sum())
    rank = (rows + 1) * (TAIL - 1) / TAIL
    if rank > rows:
        return None
    reach = np.cumsum(bins)
    place = int(np.searchsorted(reach, rank))
    into = (rank - int(reach[place] - bins[place])) / int(bins[place])
    return float(BOUNDS[place] + into * (BOUNDS[place + 1] - BOUNDS[place]))


def with_interval(explanation: Explanation, domain: Domain) -> Explanation:
    """Return an explanation with the interval of its forecast, within the target's limits, where errors are known."""
    forecast = explanation.fired.rule.forecast
    if forecast is None or forecast.errors is None or isinstance(explanation.prediction, str):
        return explanation
    off = np.array([[forecast.errors.low, forecast.errors.high]])
    [[low, high]] = _within_limits(np.array([explanation.prediction]), off, domain).tolist()
    return replace(explanation, interval=(low, high))


def intervals(model: Any, X: Array) -> Array:
    """Return the intervals of a model's forecasts for rows `X`, shape (n, F), as shape (n, 2); NaN where unknown."""
    errors = errors_by_rule(model)
    if not len(errors):
        return np.full((len(X), 2), np.nan)
    return _within_limits(model.predict(X), errors[model.deciding(X)], model.domain)


def errors_by_rule(model: Any) -> Array:
    """Return between which errors nine of ten are, by rule, shape (r, 2): NaN where unknown, r = 0 without rules."""
    rules = model.rules() if isinstance(model, TellsRule) else ()
    errors = np.full((len(rules), 2), np.nan)
    for rule in rules:
        if rule.forecast is not None and rule.forecast.errors is not None:
            errors[rule.index] = rule.forecast.errors.low, rule.forecast.errors.high
    return errors


def _within_limits(forecast: Array, off: Array, domain: Domain) -> Array:
    assert domain.target is not None
    low, high = np.minimum(forecast, domain.target.low), np.maximum(forecast, domain.target.high)
    return np.clip(forecast[:, None] + off, low[:, None], high[:, None])


# --- what each rule forecasts over the training rows, from the sums that its polynomial is fitted to ------------------
#
# A scheme's server half puts :func:`rule_forecasts` into its summary as ``forecasts``; the coordinator keeps it in the
# model's record, beside the document, with a digest of its own: see :func:`glassfleet.model.baseline.recorded`.


MIDDLE: Final = 1.2816
"""Standard deviations on either side of the mean that hold 80 % of a normal distribution."""

MOVERS: Final = 3
"""So many inputs are told by how much they move a rule's forecasts: those that do most."""

SPREAD_STEPS: Final = 256
"""Steps of an input's range to which its standard deviation is rounded."""

STEPS: Final = 1024
"""Steps of the target's range to which forecasts are rounded: two versions' tell less of a vehicle that took part in
one of them only."""


def rule_forecasts(
    domain: Domain, rows: float, matrix: Array, coefficients: Array, inputs: Sequence[int]
) -> dict[str, Any]:
    """Return what each rule forecasts, and how the inputs spread over all rows.

    ``rules`` has a line for each rule, as :class:`~glassfleet.model.rules.Forecasts` has it; None for one without rows.
    ``spreads`` has the standard deviations of the inputs over all rows, in their own units.

    Parameters
    ----------
    domain : Domain
        With a numeric target.
    rows : float
        All rows that were summed over, > 0.
    matrix : ndarray of float64, shape (k, k, r)
        Sums of ``w z z'`` over the rows, w being the degree to which a row is the rule's and z = [1, x], scaled.
    coefficients : ndarray of float64, shape (k, r)
        Over z.
    inputs : sequence of int
        Which of the domain's inputs x are, k - 1 of them.

    Notes
    -----
    Low and high are the mean and :data:`MIDDLE` standard deviations: sums tell no quantiles. All three stay within the
    target's limits.
    """
    target = domain.target
    assert target is not None
    width, names = target.high - target.low, [domain.input_names[number] for number in inputs]
    weight, total, square = matrix[0, 0], np.zeros(matrix.shape[2]), np.zeros(matrix.shape[2])
    for i, left in enumerate(coefficients):  # one by one, so that every machine gets the same bits
        total += left * matrix[0, i]
        for j, right in enumerate(coefficients):
            square += left * matrix[i, j] * right
    divisor = np.where(weight > 0.0, weight, 1.0)
    mean = total / divisor
    spread = _middle(square / divisor, mean)
    scaled = np.minimum(np.maximum(np.stack([mean, mean - spread, mean + spread]), 0.0), 1.0)
    means, lows, highs = domain.unscale_target(np.rint(scaled * STEPS) / STEPS).tolist()
    changes = (
        np.stack(
            [
                2.0 * coefficients[j] * _middle(matrix[j, j] / divisor, matrix[0, j] / divisor)
                for j in range(1, len(matrix))
            ]
        )
        if names
        else np.zeros((0, len(mean)))
    )
    moves = np.rint(changes * STEPS) / STEPS * width
    forecasts: list[dict[str, Any] | None] = []
    for rule, share in enumerate(np.minimum(weight / rows, 1.0).tolist()):
        order = sorted(range(len(names)), key=lambda j: (-abs(moves[j, rule]), j))[:MOVERS]
        own = {names[j]: float(moves[j, rule]) for j in order if moves[j, rule]}
        forecast = {"rows": share, "mean": means[rule], "low": lows[rule], "high": highs[rule], "moves": own}
        forecasts.append(forecast if share > 0.0 else None)
    return {"rules": forecasts, "spreads": _spreads(domain, matrix, inputs)}


def _spreads(domain: Domain, matrix: Array, inputs: Sequence[int]) -> dict[str, float]:
    weight, result = float(matrix[0, 0].sum()), {}
    for j, number in enumerate(inputs, start=1):
        if number < len(domain.features) and weight > 0.0:  # indicators of empty cells come last
            mean, square = (float(matrix[one, j].sum()) / weight for one in (0, j))
            variable = domain.features[number]
            steps = round(math.sqrt(max(0.0, square - mean * mean)) * SPREAD_STEPS)
            result[variable.name] = steps / SPREAD_STEPS * (variable.high - variable.low)
    return result


def _middle(square: Array, mean: Array) -> Array:
    """Return half the width of the middle 80 % from the means of squares and of values."""
    return MIDDLE * np.sqrt(np.maximum(square - mean * mean, 0.0))


_FORECASTS = TypeAdapter(list[Forecasts | None])
_ERRORS = TypeAdapter(list[Errors | None])


@runtime_checkable
class TellsForecasts(Protocol):
    """A model whose rules can tell their forecasts, by index; its rules are read after it was told."""

    forecasts: Mapping[int, Forecasts]
    why_few: str


def tell_forecasts(model: Model, parameters: Mapping[str, Any]) -> None:
    """Let a model's rules say what a record's `parameters` know of their forecasts and errors; they may know nothing.

    Raises
    ------
    VerificationError
        It is not what the record's digests promise, or not of this model.
    """
    if not isinstance(model, TellsForecasts):
        return
    model.why_few = str(parameters.get("why_few", ""))
    if (known := _read(parameters, "forecasts", "rules", _FORECASTS)) is None:
        return
    errors = _read(parameters, "errors", "lines", _ERRORS) or [None]
    if len(errors) == 1 < len(known):  # counted over all rules together: no rule has rows of its own
        errors = [errors[0] and replace(errors[0], own=0, mean=None)] * len(known)
    if len(errors) != len(known):
        raise VerificationError(f"the model's record has errors of {len(errors)} rules, forecasts of {len(known)}")
    model.forecasts = {
        index: replace(line, errors=errors[index]) for index, line in enumerate(known) if line is not None
    }
    if len(model.rules()) != len(known):
        raise VerificationError(
            f"the model's record has forecasts of {len(known)} rules, the model has {len(model.rules())}"
        )


def _read(parameters: Mapping[str, Any], name: str, lines: str, kind: TypeAdapter[Any]) -> Any:
    """Return the lines of what a record says under a name; None where it says nothing."""
    kept = parameters.get(name)
    if kept is None:
        return None
    try:
        if document_digest({key: value for key, value in kept.items() if key != "digest"}) != kept["digest"]:
            raise VerificationError(f"the rules' {name} in the model's record were changed after it was published")
        return kind.validate_python(kept[lines])
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        raise VerificationError(f"the rules' {name} in the model's record cannot be read: {fault!r}") from fault
