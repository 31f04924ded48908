"""What a published model tells: whether a row was learned from, and rows that it gives back exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from glassfleet.data.dataset import Dataset
from glassfleet.model.intervals import width_of
from glassfleet.model.protocol import Model
from schemas.leakage import SavedModel

MET = 1e-6
"""A forecast this near, as a share of the target's range, gives the row's target back."""


def model_alone(model: Model, members: Dataset, others: Dataset, protection: str = "") -> SavedModel:
    """Measure a model on the rows that it was learned from and on others of the same source.

    Of a classifier a row is met when its class is; errors are 0 and 1.
    """
    own, rest = (_errors(model, data) for data in (members, others))
    auc = None
    if len(own) and len(rest):
        ranks = rankdata(-np.concatenate([own, rest]))
        auc = float((ranks[: len(own)].sum() - len(own) * (len(own) + 1) / 2) / (len(own) * len(rest)))
    met, met_others = (float((each < MET).mean()) if len(each) else 0.0 for each in (own, rest))
    return SavedModel(protection=protection, auc=auc, met=met, met_others=met_others, rows=len(own), others=len(rest))


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
