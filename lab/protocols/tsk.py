"""The TSK paper's experiments: clients first, folds inside each client. Pure; needs the ``experiments`` extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import Outcome, central, federated, learn_local
from glassfleet.scheme import Scheme
from lab.protocols.paper import PaperProtocol
from lab.protocols.regression import SETTINGS, Setting, kfold

CLIENTS = 5
FOLDS = 5
SPLIT_SEED = 42
"""Of the clients' parts; weather_izmir is published with 19."""

PAPER: dict[str, Any] = {"consequents": "averaged", "antecedents": "local", "min_rows": 1}
"""Parameters of the paper's experiments."""

_Rows = NDArray[np.intp]
Parts = dict[str, Dataset]


@dataclass(frozen=True)
class FoldResult:
    """One fold of an experiment.

    Attributes
    ----------
    fold : int
        Which, from 0.
    train, test : dict of Setting to list of float
        Mean squared error per client, in the target's own unit squared, on the client's training and test rows.
    complexity : dict of Setting to dict
        Size measures of the model (LL: means over the clients' models).
    outcomes : dict of Setting to dict of str to Outcome
        By client; FL and CL have the same one for each.
    """

    fold: int
    train: dict[Setting, list[float]]
    test: dict[Setting, list[float]]
    complexity: dict[Setting, dict[str, float]]
    outcomes: dict[Setting, dict[str, Outcome]]


@dataclass(frozen=True)
class Summary:
    """Averages as in the paper's Tables III and V.

    Attributes
    ----------
    train, test : dict of Setting to float
        Mean squared error, averaged over clients and folds.
    rules : dict of Setting to float
        Number of rules, averaged over models.
    """

    train: dict[Setting, float]
    test: dict[Setting, float]
    rules: dict[Setting, float]


def minmax_scaled(dataset: Dataset) -> tuple[Dataset, float]:
    """Return the dataset scaled to [0, 1], and the width of the target's range in its own unit.

    As ``x * s + (-min * s)`` with ``s = 1 / (max - min)``, like the library that the paper used: the last bits decide
    which of two sets a value half-way between their peaks belongs to. A constant column becomes 0.
    """
    table = np.column_stack([dataset.X, dataset.y])
    low, width = table.min(axis=0), np.ptp(table, axis=0)
    scale = np.where(width > 0, 1.0 / np.where(width > 0, width, 1.0), 0.0)
    scaled = np.clip(table * scale + (-low * scale), 0.0, 1.0)
    return Dataset(dataset.features, dataset.target, scaled[:, :-1].copy(), scaled[:, -1].copy()), float(width[-1])


def _unit_domain(scaled: Dataset) -> Domain:
    features = tuple(Variable(name=name, low=0.0, high=1.0) for name in scaled.features)
    return Domain(features=features, target=Variable(name=scaled.target, low=0.0, high=1.0))


def client_folds(
    rows: int, fold: int, *, clients: int = CLIENTS, folds: int = FOLDS, seed: int = SPLIT_SEED
) -> list[tuple[_Rows, _Rows]]:
    """Return each client's (training, test) row numbers of one fold.

    Client i has the i-th test set of a shuffled KFold over all rows; inside it an unshuffled KFold makes the folds.

    Raises
    ------
    ValueError
        A client has fewer rows than there are folds.
    """
    from sklearn.model_selection import KFold  # noqa: PLC0415 - an extra; a vehicle does not have it

    pairs = []
    for _, part in kfold(rows, clients, seed):
        train, test = list(KFold(folds).split(part))[fold]
        pairs.append((part[train], part[test]))
    return pairs


def split(
    dataset: Dataset, fold: int, *, clients: int = CLIENTS, folds: int = FOLDS, seed: int = SPLIT_SEED
) -> tuple[Parts, Parts]:
    """Return the clients' training and test rows of one fold."""
    pairs = client_folds(dataset.rows, fold, clients=clients, folds=folds, seed=seed)
    train, test = (
        {
            # Padded, so that the order of names is the order of the parts.
            f"client-{index:04d}": Dataset(
                dataset.features, dataset.target, dataset.X[pair[half]], dataset.y[pair[half]]
            )
            for index, pair in enumerate(pairs)
        }
        for half in (0, 1)
    )
    return train, test


def paper_fold(
    scheme: Scheme,
    parameters: Any,
    dataset: Dataset,
    fold: int,
    *,
    settings: Sequence[Setting] = SETTINGS,
    clients: int = CLIENTS,
    folds: int = FOLDS,
    seed: int = SPLIT_SEED,
) -> FoldResult:
    """Run one fold of the TSK paper's protocol.

    Rows are scaled by the limits of all rows, test rows included, as in the paper: for reproducing it only. The models
    in `outcomes` are over the scaled inputs and the scaled target; errors are in the target's own unit. CL trains on
    the clients' training rows, joined in client order; every model is tested on each client's test rows.

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
    scaled, width = minmax_scaled(dataset)
    domain = _unit_domain(scaled)
    train, test = split(scaled, fold, clients=clients, folds=folds, seed=seed)
    outcomes: dict[Setting, dict[str, Outcome]] = {}
    if "LL" in settings:
        outcomes["LL"] = learn_local(scheme, parameters, domain, train)
    if "FL" in settings:
        outcomes["FL"] = dict.fromkeys(train, federated(scheme, parameters, domain, train))
    if "CL" in settings:
        outcomes["CL"] = dict.fromkeys(train, central(scheme, parameters, domain, pool(list(train.values()))))
    return FoldResult(
        fold=fold,
        train={setting: _errors(own, train, width) for setting, own in outcomes.items()},
        test={setting: _errors(own, test, width) for setting, own in outcomes.items()},
        complexity={setting: _mean_complexity(own) for setting, own in outcomes.items()},
        outcomes=outcomes,
    )


def summarise(results: Sequence[FoldResult]) -> Summary:
    """Average over folds and clients."""
    settings = list(results[0].train)
    return Summary(
        train={s: fmean(value for result in results for value in result.train[s]) for s in settings},
        test={s: fmean(value for result in results for value in result.test[s]) for s in settings},
        rules={s: fmean(result.complexity[s]["rules"] for result in results) for s in settings},
    )


def mse(predicted: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """Return the mean squared error."""
    return float(np.mean((predicted - true) ** 2))


def _errors(outcomes: Mapping[str, Outcome], parts: Parts, width: float) -> list[float]:
    return [mse(outcomes[client].model.predict(part.X), part.y) * width * width for client, part in parts.items()]


def client_split(y: NDArray[Any], fold: int, folds: int, clients: int, seed: int) -> list[tuple[_Rows, _Rows]]:
    """Return :func:`client_folds` of a target column, as ``glassfleet experiment`` asks for it."""
    return client_folds(len(y), fold, clients=clients, folds=folds, seed=seed)


def _mean_complexity(outcomes: Mapping[str, Outcome]) -> dict[str, float]:
    sizes = [outcome.model.complexity() for outcome in outcomes.values()]
    return {name: fmean(float(size[name]) for size in sizes) for name in sizes[0]}


PROTOCOL = PaperProtocol(PAPER, CLIENTS, FOLDS, client_split, _unit_domain, SPLIT_SEED, minmax_scaled)
"""For ``glassfleet experiment``."""
