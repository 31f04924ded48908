"""The papers' experiments: scaling, folds, and the settings LL, FL and CL. Pure; needs the ``experiments`` extra."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, pooled_domain
from glassfleet.local import central, federated, learn_local
from glassfleet.scheme import Model, Scheme

Setting = Literal["LL", "FL", "CL"]
SETTINGS: tuple[Setting, ...] = ("LL", "FL", "CL")

FOLDS = 5
CLIENTS = 5
SPLIT_SEED = 19
"""Of scikit-learn's KFold, for the folds and for the clients' parts alike."""

_Rows = NDArray[np.intp]


@dataclass(frozen=True)
class FoldResult:
    """One fold of an experiment.

    Attributes
    ----------
    fold : int
        Which, from 0.
    train, test : dict of Setting to list of float
        RMSE per client, in the target's own unit, on the client's training and test rows.
    complexity : dict of Setting to dict
        Size measures of the model (LL: means over the clients' models).
    nullified : int
        Statistics that the clients of FL set to zero.
    """

    fold: int
    train: dict[Setting, list[float]]
    test: dict[Setting, list[float]]
    complexity: dict[Setting, dict[str, float]]
    nullified: int


@dataclass(frozen=True)
class Summary:
    """Averages over folds.

    Attributes
    ----------
    train, test : dict of Setting to list of float
        RMSE per client, averaged over the folds.
    complexity : dict of Setting to dict
        Size measures, averaged over the folds.
    """

    train: dict[Setting, list[float]]
    test: dict[Setting, list[float]]
    complexity: dict[Setting, dict[str, float]]

    def average(self, setting: Setting) -> float:
        """Return the test RMSE averaged over folds, then over clients."""
        return fmean(self.test[setting])


def kfold(rows: int, parts: int, seed: int = SPLIT_SEED) -> Iterator[tuple[_Rows, _Rows]]:
    """Yield (training, test) row numbers of scikit-learn's shuffled KFold."""
    from sklearn.model_selection import KFold  # noqa: PLC0415 - an extra; a vehicle does not have it

    yield from KFold(parts, shuffle=True, random_state=seed).split(np.zeros((rows, 1)))


def client_parts(chosen: _Rows, clients: int = CLIENTS, seed: int = SPLIT_SEED) -> list[_Rows]:
    """Split row numbers over clients: client i gets the i-th test set of a KFold."""
    return [chosen[part] for _, part in kfold(len(chosen), clients, seed)]


def paper_fold(
    scheme: Scheme,
    parameters: Any,
    dataset: Dataset,
    fold: int,
    *,
    settings: Sequence[Setting] = SETTINGS,
    folds: int = FOLDS,
    clients: int = CLIENTS,
    seed: int = SPLIT_SEED,
) -> FoldResult:
    """Run one fold of the regression papers' protocol.

    The domain comes from all rows, test rows included, as in the papers: for reproducing them only.

    Parameters
    ----------
    scheme, parameters
        What is learned; FL uses `parameters` as they are, LL and CL ``scheme.exact(parameters)``.
    dataset : Dataset
        All rows, in their own units and in the order of the file.
    fold : int
        Which fold, in [0, `folds`).
    settings : sequence of Setting
        Which of LL, FL and CL to run.
    """
    domain = pooled_domain(dataset.features, dataset.target, dataset.X, dataset.y)
    train_rows, test_rows = list(kfold(dataset.rows, folds, seed))[fold]
    train, test = (
        {
            f"client-{i}": Dataset(dataset.features, dataset.target, dataset.X[part], dataset.y[part])
            for i, part in enumerate(client_parts(rows, clients, seed))
        }
        for rows in (train_rows, test_rows)
    )
    models, nullified = _learn(scheme, parameters, domain, train, settings)
    return FoldResult(
        fold=fold,
        train={setting: _errors(models[setting], train) for setting in models},
        test={setting: _errors(models[setting], test) for setting in models},
        complexity={setting: _mean_complexity(models[setting]) for setting in models},
        nullified=nullified,
    )


def summarise(results: Sequence[FoldResult]) -> Summary:
    """Average over folds."""
    first = results[0]
    return Summary(
        train={s: _columns([result.train[s] for result in results]) for s in first.train},
        test={s: _columns([result.test[s] for result in results]) for s in first.test},
        complexity={
            s: {name: fmean(result.complexity[s][name] for result in results) for name in first.complexity[s]}
            for s in first.complexity
        },
    )


def _learn(
    scheme: Scheme, parameters: Any, domain: Domain, train: Mapping[str, Dataset], settings: Sequence[Setting]
) -> tuple[dict[Setting, dict[str, Model]], int]:
    """Return each setting's model for each client, and how much FL nullified."""
    models: dict[Setting, dict[str, Model]] = {}
    nullified = 0
    if "LL" in settings:
        own = learn_local(scheme, parameters, domain, train)
        models["LL"] = {agent: outcome.model for agent, outcome in own.items()}
    if "FL" in settings:
        outcome = federated(scheme, parameters, domain, train)
        models["FL"], nullified = dict.fromkeys(train, outcome.model), outcome.nullified
    if "CL" in settings:
        pooled = pool([train[agent] for agent in sorted(train)])
        models["CL"] = dict.fromkeys(train, central(scheme, parameters, domain, pooled).model)
    return models, nullified


def _errors(models: Mapping[str, Model], parts: Mapping[str, Dataset]) -> list[float]:
    return [rmse(models[agent].predict(part.X), part.y) for agent, part in sorted(parts.items())]


def rmse(predicted: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """Return the root mean squared error."""
    return float(np.sqrt(np.mean((predicted - true) ** 2)))


def _mean_complexity(models: Mapping[str, Model]) -> dict[str, float]:
    sizes = [model.complexity() for model in models.values()]
    return {name: fmean(float(size[name]) for size in sizes) for name in sizes[0]}


def _columns(lines: Sequence[Sequence[float]]) -> list[float]:
    return [fmean(column) for column in zip(*lines, strict=True)]
