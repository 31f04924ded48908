"""The row that a forecast is compared with, and what each input then adds.

It is the fleet's mean of each input, from sums that a run opens anyway. A scheme's server half puts :func:`typical_row`
into its summary as ``reference``; the coordinator keeps it in the model's record, beside the document, with a digest of
its own: see :func:`recorded`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.model.explanation import Explanation
from glassfleet.model.intervals import far_outside, with_interval
from glassfleet.model.protocol import Model, nature
from schemas.codec import document_digest
from schemas.errors import VerificationError

Array = NDArray[np.float64]

STEPS: Final = 256
"""Steps of an input's range to which its mean is rounded: a typical row is near enough, and two versions' means tell
less of a vehicle that took part in one of them only."""

UNTOLD: Final = -0.5
"""Position of a category that the domain does not have."""

STARTS: Final = 16
"""Of more inputs than that, so many begin an order, and of more than 64 fewer; each forecast costs about twice as many
rows times the inputs."""

BESIDE: Final = ("reference", "forecasts", "errors", "why_few")
"""What a model's record says beside the document, see :func:`recorded`."""

TYPICAL: Final = "a typical row, the fleet's mean of each input"
GIVEN: Final = "the row to compare with"


@dataclass(frozen=True)
class ReferenceRow:
    """What a forecast is compared with.

    Attributes
    ----------
    row : ndarray of float64, shape (F,)
        In the inputs' own units, in the domain's order.
    words : str
        Whose it is, for people.
    spreads : dict of str to float
        Standard deviations of inputs over the fleet's rows, in their own units, as far as they are known.
    """

    row: NDArray[np.float64]
    words: str
    spreads: Mapping[str, float] = field(default_factory=dict)


def typical_row(domain: Domain, sums: NDArray[Any]) -> dict[str, float]:
    """Return the mean of each input, in its own unit, on `STEPS` steps of its range; empty where it is not known.

    Categories have no mean: of a column of text the row has :data:`UNTOLD`, which is none of them, and which models
    take for one in between.

    Parameters
    ----------
    domain : Domain
    sums : ndarray, shape (1 + F,), (1 + F, m) or (1, m)
        The weight of rows, then the weighted sums of the inputs, scaled to [0, 1]; of m parts, which are added up. A
        scheme that does not sum its inputs gives the weight alone.
    """
    weight, *totals = (math.fsum(line) for line in np.asarray(sums, dtype=np.float64).reshape(len(sums), -1))
    if weight <= 0 or not totals:
        return {}
    return {
        variable.name: UNTOLD
        if variable.categories
        else variable.low + round(total / weight * STEPS) / STEPS * (variable.high - variable.low)
        for variable, total in zip(domain.features, totals, strict=False)  # indicators of empty cells come last
    }


def filled(sums: NDArray[np.float64], columns: NDArray[np.bool_] | None) -> NDArray[np.float64]:
    """Return rules' weights and sums of inputs, shape (1 + F, m); what a rule does not tell is as in others.

    Parameters
    ----------
    sums : ndarray of float64, shape (1 + F, m)
        As for :func:`typical_row`.
    columns : ndarray of bool, shape (m, F + 1), or None
        From :func:`glassfleet.private.columns.slopes_of`: which inputs each rule tells; None: all.
    """
    if columns is None:
        return sums
    result = sums.copy()
    for total, has in zip(result[1:], columns[:, :-1].T, strict=True):
        weight = math.fsum(sums[0, has])
        total[~has] = sums[0, ~has] * (math.fsum(total[has]) / weight if weight > 0 else 0.5)
    return result


def sums_of_cells(histogram: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return about what :func:`typical_row` takes, shape (1 + F,), from histograms of the inputs, shape (F, cells).

    All rows of a cell are taken for one value in it: 0 in the first cell, 1 in the last one.
    """
    most = histogram.shape[1] - 1
    return np.append(most * histogram[:1].sum(), histogram @ np.arange(most + 1))


def recorded(summary: Mapping[str, Any], errors: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a model's record says of a scheme's summary and of its errors on test rows, each with its digest.

    ``reference``: the typical row. ``forecasts``: those of the rules, see :mod:`glassfleet.model.intervals`.
    ``errors``: see
    :class:`glassfleet.evaluation.scores.ScoresServer`. ``why_few``: why there are few rules, in words; it has no
    digest.
    """
    result: dict[str, Any] = {"why_few": summary["why_few"]} if summary.get("why_few") else {}
    row, forecasts = summary.get("reference"), summary.get("forecasts")
    if row:
        result["reference"] = {"row": dict(row), "digest": document_digest(dict(row))}
    if forecasts:
        result["forecasts"] = {**forecasts, "digest": document_digest(dict(forecasts))}
    if errors:
        result["errors"] = {**errors, "digest": document_digest(dict(errors))}
    return result


def reference_of(parameters: Mapping[str, Any], domain: Domain) -> ReferenceRow | None:
    """Return the typical row of a record's `parameters`; None: it has none.

    Raises
    ------
    VerificationError
        It is not the one that the record's digest promises, or not of this model.
    """
    kept = parameters.get("reference")
    if kept is None:
        return None
    try:
        if document_digest(kept["row"]) != kept["digest"]:
            raise VerificationError("the typical row in the model's record was changed after it was published")
        row = np.array([float(kept["row"][name]) for name in domain.names])
    except (KeyError, TypeError, ValueError) as fault:
        raise VerificationError(f"the typical row in the model's record cannot be read: {fault!r}") from fault
    if not np.isfinite(row).all():
        raise VerificationError("the typical row in the model's record is not finite")
    # Whether they are as they were published `glassfleet.model.intervals.tell_forecasts` says.
    return ReferenceRow(row, TYPICAL, dict(parameters.get("forecasts", {}).get("spreads", {})))


def explained(model: Model, x: Array, reference: ReferenceRow | None) -> Explanation:
    """Say why the model answers as it does for a row, compared with a reference where one is known.

    Of a forecast in numbers by rules, the base is then the model's forecast for the reference, and an input's share is
    what its value adds in place of the reference's, see `Notes`. Otherwise the explanation is the model's own.

    Parameters
    ----------
    model : Model
    x : ndarray of float64, shape (F,)
    reference : Reference or None

    Notes
    -----
    The inputs change from the reference's values to the row's one by one, and a share is the mean change of the
    forecast over some orders: each input first, the others after it in turn, and the same backwards. That is the
    baseline Shapley value as far as no more than two inputs act together, or there are three inputs at most.

    References
    ----------
    M. Sundararajan, A. Najmi: The many Shapley values for model explanation, ICML 2020.
    """
    explanation = with_interval(model.explain(x), model.domain)
    if note := far_outside(model.domain, [explanation.prediction]):
        explanation = replace(explanation, notes=(*explanation.notes, note))
    if reference is None or isinstance(explanation.prediction, str) or nature(model) != "rules":
        return explanation
    base, shares = _compared(model, x, reference.row)
    differences = {
        # A mean has more digits than anybody wants to read.
        variable.name: f"{variable.text(mine) if variable.categories or np.isnan(mine) else f'{mine:.6g}'} instead of "
        f"{variable.text(float(f'{other:.4g}'))}"
        for variable, mine, other in zip(model.domain.features, x, reference.row, strict=True)
        if mine != other
    }
    named = dict(zip(model.domain.names, shares, strict=True))
    return replace(explanation, base=base, shares=named, reference=reference.words, differences=differences)


def _compared(model: Model, x: Array, reference: Array) -> tuple[float, list[float]]:
    moved = np.flatnonzero(x != reference)
    orders = moved[_orders(len(moved))]
    rows = np.tile(reference, (len(orders), len(moved) + 1, 1))
    for step, places in enumerate(orders.T, start=1):
        rows[range(len(orders)), step:, places] = x[places, None]
    # All orders at once: a forecast of few rows costs about as much as one of a thousand.
    forecasts = np.asarray(model.predict(rows.reshape(-1, len(x))), dtype=np.float64).reshape(rows.shape[:2])
    shares = np.zeros(len(x))
    np.add.at(shares, orders, np.diff(forecasts))
    return float(forecasts[0, 0]), (shares / len(orders)).tolist()  # in every order the first row is the reference


def _orders(count: int) -> NDArray[np.intp]:
    """Return orders of `count` inputs, shape (2 starts, count); fewer of many inputs."""
    most = max(1, min(STARTS, STARTS * STARTS * 4 // max(1, count)))
    starts = np.arange(0, max(1, count), max(1, -(-count // most)))
    ahead = (starts[:, None] + np.arange(count)) % max(1, count)
    return np.concatenate([ahead, ahead[:, ::-1]])
