"""A paper's protocol - splits, scaling, settings - as one value that ``experiment`` reads; the regression papers'."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import INPUT_QUANTILES, Domain, Variable

FOLDS = 5
CLIENTS = 5
SPLIT_SEED = 19
"""Of scikit-learn's KFold, for the folds and for the clients' parts alike."""

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


def kfold(rows: int, parts: int, seed: int = SPLIT_SEED) -> Iterator[tuple[Rows, Rows]]:
    """Yield (training, test) row numbers of scikit-learn's shuffled KFold."""
    from sklearn.model_selection import KFold  # an extra; a vehicle does not have it

    yield from KFold(parts, shuffle=True, random_state=seed).split(np.zeros((rows, 1)))


def client_parts(chosen: Rows, clients: int = CLIENTS, seed: int = SPLIT_SEED) -> list[Rows]:
    """Split row numbers over clients: client i gets the i-th test set of a KFold."""
    return [chosen[part] for _, part in kfold(len(chosen), clients, seed)]


def rmse(predicted: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    """Return the root mean squared error."""
    return float(np.sqrt(np.mean((predicted - true) ** 2)))


def nested_kfold(y: NDArray[Any], fold: int, folds: int, clients: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Cut the rows into folds, and the training and the test rows of the fold into clients, all by shuffled KFold."""
    train, test = list(kfold(len(y), folds, seed))[fold]
    return list(zip(client_parts(train, clients, seed), client_parts(test, clients, seed), strict=True))


def pooled_domain(
    names: Sequence[str],
    target: str,
    X: NDArray[np.float64],
    y: NDArray[Any],
    input_quantiles: tuple[float, float] = INPUT_QUANTILES,
    *,
    categories: Mapping[str, tuple[str, ...]] | None = None,
) -> Domain:
    """Return a domain from pooled rows: for reproducing the papers only, a real run finds its domain federatedly.

    Inputs: the quantiles `input_quantiles`, or all `categories` of a column of text; target: minimum and maximum, or
    the classes. An empty cell (NaN) is taken for the median of those that are not.
    """
    features = []
    for name, column in zip(names, X.T, strict=True):
        if own := (categories or {}).get(name, ()):
            features.append(Variable(name=name, low=0.0, high=len(own) - 1.0, categories=own))
            continue
        empty = np.isnan(column)
        if empty.all():
            raise ValueError(f"no cell of {name!r} has a value: leave the column out")
        low, middle, high = np.quantile(column[~empty], (input_quantiles[0], 0.5, input_quantiles[1])).tolist()
        missing = min(max(middle, low), high) if empty.any() else None
        features.append(Variable(name=name, low=low, high=high, missing=missing))
    if y.dtype.kind in "UO":
        classes = tuple(np.unique(y.astype(np.str_)).tolist())
        return Domain(features=tuple(features), label=target, classes=classes)
    return Domain(features=tuple(features), target=Variable(name=target, low=float(y.min()), high=float(y.max())))


def quantile_domain(dataset: Dataset, input_quantiles: tuple[float, float] = INPUT_QUANTILES) -> Domain:
    """Return the domain of pooled rows: quantiles of an input, or its categories; the target's limits, or classes."""
    parts = dataset.features, dataset.target, dataset.X, dataset.y
    return pooled_domain(*parts, input_quantiles, categories=dataset.categories)


def minmax_domain(dataset: Dataset) -> Domain:
    """Return the domain of pooled rows: minimum and maximum of each column, or the classes. For the papers only."""
    return quantile_domain(dataset, (0.0, 1.0))


# The regression papers nullify splits but not leaves.
NESTED_KFOLD = PaperProtocol({"min_rows": 1}, CLIENTS, FOLDS, nested_kfold, quantile_domain)
"""The regression papers'."""
