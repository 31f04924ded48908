"""What a published model tells: whether a row was learned from, and rows that it gives back exactly.

`shadowed` is the likelihood ratio attack of Carlini et al., "Membership inference attacks from first principles" (IEEE
S&P 2022, algorithm 1): models are learned from random halves of the rows. For each row its error is one normal
distribution under models that had it, and another under those that had not; a model's error is more likely under one of
the two. Each model is attacked with all others as shadows. It is much stronger than a threshold for errors
(`model_alone`), as it knows how hard each row is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

from glassfleet.data.dataset import Dataset
from glassfleet.model.intervals import width_of
from glassfleet.model.protocol import Model
from schemas.leakage import SavedModel

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

MET = 1e-6
"""A forecast this near, as a share of the target's range, gives the row's target back."""


def model_alone(model: Model, members: Dataset, others: Dataset, protection: str = "") -> SavedModel:
    """Measure a model on the rows that it was learned from and on others of the same source.

    Of a classifier a row is met when its class is; errors are 0 and 1.
    """
    own, rest = (_errors(model, data) for data in (members, others))
    auc = _auc(-own, -rest) if len(own) and len(rest) else None
    met, met_others = (float((each < MET).mean()) if len(each) else 0.0 for each in (own, rest))
    return SavedModel(protection=protection, auc=auc, met=met, met_others=met_others, rows=len(own), others=len(rest))


def _auc(own: Array, others: Array) -> float:
    """Return how often a score of `own` is larger than one of `others`: the area under the curve."""
    ranks = rankdata(np.concatenate([own, others]))
    return float((ranks[: len(own)].sum() - len(own) * (len(own) + 1) / 2) / (len(own) * len(others)))


def _errors(model: Model, data: Dataset) -> Array:
    """Return the size of each error, as a share of the target's range."""
    if not data.rows:
        return np.empty(0)
    forecast = model.predict(data.select([variable.name for variable in model.domain.features]).X)
    target = model.domain.target
    if target is None:
        return np.not_equal(forecast.astype(np.str_), data.y.astype(np.str_)).astype(np.float64)
    errors: Array = np.abs(forecast - data.y) / width_of(model.domain)
    return errors


_SMALLEST = 1e-6
"""Errors, as shares of the target's range, and chances are no smaller than this to the attacker."""

_LEAST = 4
"""Fewest shadow models: with fewer there is no spread to compare."""


@dataclass(frozen=True)
class Shadowed:
    """How well shadow models tell rows that a model was learned from.

    Attributes
    ----------
    auc : float
        In [0, 1]; 0.5 is nothing.
    hits : float
        Share of the rows learned from that are named when one in a hundred others is named by mistake; 0.01 is nothing.
    models : int
        Learned, each from a random half of the rows.
    """

    auc: float
    hits: float
    models: int


def shadowed(learn: Callable[[Bools], Model], data: Dataset, models: int, seed: int = 0) -> Shadowed:
    """Learn `models` models from halves of `data`, and attack each with the others.

    Parameters
    ----------
    learn : callable
        Returns the model of the rows that a mask, shape (n,), has.
    data : Dataset
        All rows, in the order of the masks.
    models : int
        At least 5.
    """
    if models <= _LEAST:
        raise ValueError(f"{models} models; at least {_LEAST + 1} are needed")
    rng = np.random.default_rng(seed)
    # Each row is in half of the models, or one more.
    order = rng.permuted(np.tile(np.arange(models)[:, None], data.rows), axis=0)
    had = order < models // 2
    values = np.stack([_confidence(learn(mask), data) for mask in had])
    scores = np.empty_like(values)
    for target in range(models):
        rest = np.arange(models) != target
        inside, outside = (_likelihood(values[target], values[rest], had[rest] == is_in) for is_in in (True, False))
        scores[target] = np.round(inside - outside, 6)  # less is rounding
    own, others = scores[had], scores[~had]
    return Shadowed(_auc(own, others), float((own > np.quantile(others, 0.99)).mean()), models)


def _likelihood(values: Array, shadows: Array, some: Bools) -> Array:
    """Return the log likelihood of each row's value, shape (n,), among `some` of the shadows' values, (m, n).

    Means are each row's own, the spread is that of all rows: of few shadows a row's own would be chance.
    """
    count = some.sum(axis=0)
    mean = np.where(count > 0, np.where(some, shadows, 0.0).sum(axis=0) / np.maximum(count, 1), shadows.mean(axis=0))
    spread = max(float((shadows - mean)[some].std()), 1e-3)
    likelihood: Array = norm.logpdf(values, mean, spread)
    return likelihood


def _confidence(model: Model, data: Dataset) -> Array:
    """Return how right a model is about each row, about normal: the logit of a class's chance, if there are such."""
    X, domain = data.select([variable.name for variable in model.domain.features]).X, model.domain
    if domain.target is not None:
        errors: Array = np.abs(model.predict(X) - data.y) / width_of(domain)
        return np.asarray(-np.log(errors + _SMALLEST), dtype=np.float64)
    labels = data.y.astype(np.str_)
    chances = getattr(model, "predict_proba", None)
    if chances is None:
        return np.equal(model.predict(X).astype(np.str_), labels).astype(np.float64)
    place = {name: number for number, name in enumerate(domain.classes)}
    every: Array = chances(X)
    known = np.array([place.get(label, -1) for label in labels])
    own = np.where(known >= 0, every[np.arange(len(known)), known], 0.0)
    own = np.clip(own, _SMALLEST, 1.0 - _SMALLEST)
    return np.asarray(np.log(own) - np.log1p(-own), dtype=np.float64)
