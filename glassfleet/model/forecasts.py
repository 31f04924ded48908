"""What each rule forecasts over the training rows, from the sums that its polynomial is fitted to.

A scheme's server half puts :func:`rule_forecasts` into its summary as ``forecasts``; the coordinator keeps it in the
model's record, beside the document, with a digest of its own: see :func:`glassfleet.model.baseline.recorded`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from glassfleet.data.domain import Domain
from glassfleet.model.protocol import Model
from glassfleet.model.rules import Errors, Forecasts
from schemas.documents import document_digest
from schemas.errors import VerificationError

Array = NDArray[np.float64]

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
