"""Uneven fleets: rows spread over clients by quantity, or by quantity and label. Needs the ``experiments`` extra."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lab.protocols.frbc import Skew, node_fold, node_parts

SLICES = 10
"""A numeric target is cut into as many slices of equal count; they stand for labels."""

Rows = NDArray[np.intp]


def skewed_split(
    y: NDArray[Any], fold: int, folds: int, clients: int, seed: int, *, skew: Skew, alpha: float = 0.5
) -> list[tuple[Rows, Rows]]:
    """Return each client's training and test rows of a fold: uneven clients first, folds inside each client.

    Parameters
    ----------
    y : ndarray, shape (n,)
        Target: numbers, or class labels as text. Numbers are cut into :data:`SLICES` slices of equal count.
    fold, folds, clients, seed : int
        As in :data:`lab.protocols.paper.Split`.
    skew : {"iid", "quantity", "quantity+label"}
        ``"quantity"``: Dirichlet shares of all rows, labels in equal proportion. ``"quantity+label"``: Dirichlet shares
        of every label.
    alpha : float
        Concentration of the Dirichlet draws, > 0; small is uneven.

    Raises
    ------
    ValueError
        No draw leaves every client enough rows.
    """
    labels = y if y.dtype.kind in "UO" else slices(y)
    parts = node_parts(labels, clients, seed=seed, skew=skew, alpha=alpha)
    return [node_fold(labels, part, fold, folds, seed) for part in parts]


def slices(y: NDArray[np.float64]) -> NDArray[np.str_]:
    """Return which of :data:`SLICES` quantile slices each number is in, as text; equal numbers are in one slice."""
    edges = np.unique(np.quantile(y, np.linspace(0, 1, SLICES + 1)[1:-1]))
    return np.searchsorted(edges, y, side="right").astype(np.str_)
