"""A paper's protocol - splits, scaling, settings - as one value that ``experiment`` reads; the regression papers'."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, pooled_domain
from lab.protocols.regression import CLIENTS, FOLDS, SPLIT_SEED, client_parts, kfold

Rows = NDArray[np.intp]
Split = Callable[[NDArray[Any], int, int, int, int], list[tuple[Rows, Rows]]]
"""(target column, fold, folds, clients, seed) -> each client's training and test rows of that fold."""


@dataclass(frozen=True)
class PaperProtocol:
    """How a paper measured.

    Attributes
    ----------
    parameters : Mapping of str to Any
        Of the scheme, where the paper differs from the scheme's defaults. Names that the scheme lacks are skipped.
    clients, folds : int
        How many the paper has.
    split : callable
        Gives each client's rows of a fold.
    domain : callable
        Gives the domain of all rows, as the paper scaled.
    seed : int
        Of all the splits.
    scaled : callable or None
        Scales all rows beforehand, where the paper's results depend on the last bits of its scaling, and returns the
        width of the target's range too, in its own unit; `domain` is then that of the scaled rows. None: as they are.
    """

    parameters: Mapping[str, Any]
    clients: int
    folds: int
    split: Split
    domain: Callable[[Dataset], Domain]
    seed: int = SPLIT_SEED
    scaled: Callable[[Dataset], tuple[Dataset, float]] | None = None


def nested_kfold(y: NDArray[Any], fold: int, folds: int, clients: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Cut the rows into folds, and the training and the test rows of the fold into clients, all by shuffled KFold."""
    train, test = list(kfold(len(y), folds, seed))[fold]
    return list(zip(client_parts(train, clients, seed), client_parts(test, clients, seed), strict=True))


def _quantile_domain(dataset: Dataset) -> Domain:
    return pooled_domain(dataset.features, dataset.target, dataset.X, dataset.y)


# The regression papers nullify splits but not leaves.
NESTED_KFOLD = PaperProtocol({"min_rows": 1}, CLIENTS, FOLDS, nested_kfold, _quantile_domain)
"""The regression papers'."""
