"""What a published model tells: whether a row was learned from, and rows that it gives back exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from glassfleet.data.dataset import Dataset
from glassfleet.model.intervals import width_of
from glassfleet.model.protocol import Model

MET = 1e-6
"""A forecast this near, as a share of the target's range, gives the row's target back."""


@dataclass(frozen=True)
class ModelLeak:
    """What was measured on a model.

    Attributes
    ----------
    auc : float or None
        Membership: how well small errors tell the rows that were learned from, in [0, 1]; 0.5 is nothing. None: there
        are no other rows to tell them from.
    met, met_others : float
        Share of the rows learned from, and of the others, whose target the forecast is.
    rows, others : int
    """

    auc: float | None
    met: float
    met_others: float
    rows: int
    others: int


def model_alone(model: Model, members: Dataset, others: Dataset) -> ModelLeak:
    """Measure a model on the rows that it was learned from and on others of the same source.

    Of a classifier a row is met when its class is; errors are 0 and 1.
    """
    own, rest = (_errors(model, data) for data in (members, others))
    auc = None
    if len(own) and len(rest):
        ranks = rankdata(-np.concatenate([own, rest]))
        auc = float((ranks[: len(own)].sum() - len(own) * (len(own) + 1) / 2) / (len(own) * len(rest)))
    met, met_others = (float((each < MET).mean()) if len(each) else 0.0 for each in (own, rest))
    return ModelLeak(auc, met, met_others, len(own), len(rest))


def _errors(model: Model, data: Dataset) -> NDArray[np.float64]:
    """Return the size of each error, as a share of the target's range."""
    if not data.rows:
        return np.empty(0)
    forecast = model.predict(data.select([variable.name for variable in model.domain.features]).X)
    target = model.domain.target
    if target is None:
        return np.not_equal(forecast.astype(np.str_), data.y.astype(np.str_)).astype(np.float64)
    errors: NDArray[np.float64] = np.abs(forecast - data.y) / width_of(model.domain)
    return errors
