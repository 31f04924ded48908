"""The TSK paper's experiments: clients first, folds inside each client. Pure; needs the ``experiments`` extra."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from lab.protocols.paper import PaperProtocol, Rows, kfold

CLIENTS = 5
FOLDS = 5
SPLIT_SEED = 42
"""Of the clients' parts; weather_izmir is published with 19."""

PAPER: dict[str, Any] = {"consequents": "averaged", "antecedents": "local", "min_rows": 1}
"""Parameters of the paper's experiments."""


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


def client_folds(y: NDArray[Any], fold: int, folds: int, clients: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Return each client's (training, test) row numbers of one fold.

    Client i has the i-th test set of a shuffled KFold over all rows; inside it an unshuffled KFold makes the folds.

    Raises
    ------
    ValueError
        A client has fewer rows than there are folds.
    """
    from sklearn.model_selection import KFold  # an extra; a vehicle does not have it

    pairs = []
    for _, part in kfold(len(y), clients, seed):
        train, test = list(KFold(folds).split(part))[fold]
        pairs.append((part[train], part[test]))
    return pairs


PROTOCOL = PaperProtocol(PAPER, CLIENTS, FOLDS, client_folds, _unit_domain, SPLIT_SEED, minmax_scaled)
"""For ``glassfleet lab experiment``."""
