"""What each rule forecasts over the training rows, from the sums that its polynomial is fitted to.

A scheme's server half puts :func:`rule_forecasts` into its summary as ``forecasts``; the coordinator keeps it in the
model's record, beside the document, with a digest of its own: see :func:`glassfleet.reference.recorded`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from glassfleet.rules import Forecasts
from schemas.documents import document_digest
from schemas.errors import VerificationError

if TYPE_CHECKING:
    from glassfleet.data.domain import Domain
    from glassfleet.scheme import Model

Array = NDArray[np.float64]

MIDDLE: Final = 1.2816
"""Standard deviations on either side of the mean that hold 80 % of a normal distribution."""

STEPS: Final = 1024
"""Steps of the target's range to which forecasts are rounded: two versions' tell less of a vehicle that took part in
one of them only."""


def rule_forecasts(domain: Domain, rows: float, matrix: Array, coefficients: Array) -> list[list[float]]:
    """Return share of rows, mean, low and high of what each rule says; an empty list for a rule without rows.

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

    Notes
    -----
    Low and high are the mean and :data:`MIDDLE` standard deviations: sums tell no quantiles. All three stay within the
    target's limits.
    """
    weight, total, square = matrix[0, 0], np.zeros(matrix.shape[2]), np.zeros(matrix.shape[2])
    for i, left in enumerate(coefficients):  # one by one, so that every machine gets the same bits
        total += left * matrix[0, i]
        for j, right in enumerate(coefficients):
            square += left * matrix[i, j] * right
    some = weight > 0.0
    mean = total / np.where(some, weight, 1.0)
    spread = MIDDLE * np.sqrt(np.maximum(square / np.where(some, weight, 1.0) - mean * mean, 0.0))
    scaled = np.minimum(np.maximum(np.stack([mean, mean - spread, mean + spread]), 0.0), 1.0)
    told = domain.unscale_target(np.rint(scaled * STEPS) / STEPS).T.tolist()
    shares = np.minimum(weight / rows, 1.0).tolist()
    return [[share, *line] if there else [] for share, line, there in zip(shares, told, some, strict=True)]


@runtime_checkable
class TellsForecasts(Protocol):
    """A model whose rules can tell their forecasts, by index; its rules are read after it was told."""

    forecasts: Mapping[int, Forecasts]


def tell_forecasts(model: Model, parameters: Mapping[str, Any]) -> None:
    """Let a model's rules say what a record's `parameters` know of their forecasts; they may know nothing.

    Raises
    ------
    VerificationError
        It is not what the record's digest promises, or not of this model.
    """
    kept = parameters.get("forecasts")
    if kept is None or not isinstance(model, TellsForecasts):
        return
    try:
        if document_digest({"rules": kept["rules"]}) != kept["digest"]:
            raise VerificationError("the rules' forecasts in the model's record were changed after it was published")
        told = {index: Forecasts(*map(float, line)) for index, line in enumerate(kept["rules"]) if line}
        count = len(kept["rules"])
    except (KeyError, TypeError, ValueError) as fault:
        raise VerificationError(f"the rules' forecasts in the model's record cannot be read: {fault!r}") from fault
    model.forecasts = told
    if len(model.rules()) != count:
        raise VerificationError(
            f"the model's record has forecasts of {count} rules, the model has {len(model.rules())}"
        )
