"""The classifier paper's experiments: nodes, folds, LL, FL and CL by F1 per class. Needs the ``experiments`` extra."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.evaluation.f1 import class_counts, class_f1
from lab.protocols.paper import PaperProtocol, Rows, minmax_domain

NODES = 10
FOLDS = 5
SPLIT_SEED = 19
"""Of scikit-learn's StratifiedKFold, for the nodes and for the folds inside a node alike."""

MIN_NODE_ROWS = 10
"""A skewed split is drawn again until every node has this many rows: two in each of five folds."""

_DRAWS = 1000

PAPER: dict[str, Any] = {"n_sets": 5, "weights": "owners", "min_rows": 1}
"""Parameters of the paper's experiment on MAGIC."""

Skew = Literal["iid", "quantity", "quantity+label"]


def node_parts(
    y: NDArray[Any], nodes: int = NODES, *, seed: int = SPLIT_SEED, skew: Skew = "iid", alpha: float = 0.5
) -> list[Rows]:
    """Split rows over nodes.

    Parameters
    ----------
    y : ndarray of text, shape (n,)
        Class labels.
    nodes : int
        How many.
    seed : int
        Of the splits.
    skew : {"iid", "quantity", "quantity+label"}
        ``"iid"``: node i has the i-th test set of a StratifiedKFold, as in the paper. The paper's skewed splits are
        given as a bar chart only; these are Dirichlet draws instead: of the nodes' shares of all rows (the classes in
        equal proportion), or of their shares of every class.
    alpha : float
        Concentration of the Dirichlet draws, > 0; small is uneven.

    Raises
    ------
    ValueError
        No draw leaves :data:`MIN_NODE_ROWS` rows to every node.
    """
    if skew == "iid":
        from sklearn.model_selection import StratifiedKFold  # an extra; a vehicle does not have it

        split = StratifiedKFold(nodes, shuffle=True, random_state=seed).split(np.zeros((len(y), 1)), y)
        return [part for _, part in split]
    rng = np.random.default_rng(seed)
    for _ in range(_DRAWS):
        parts = _dirichlet_parts(y, nodes, rng, alpha, labels=skew == "quantity+label")
        if min(part.size for part in parts) >= MIN_NODE_ROWS:
            return parts
    raise ValueError(
        f"{len(y)} rows cannot be spread over {nodes} nodes with alpha {alpha} so that each has {MIN_NODE_ROWS}; "
        "use fewer nodes or a larger alpha"
    )


def _dirichlet_parts(
    y: NDArray[Any], nodes: int, rng: np.random.Generator, alpha: float, *, labels: bool
) -> list[Rows]:
    shares = rng.dirichlet(np.full(nodes, alpha))
    parts: list[list[Rows]] = [[] for _ in range(nodes)]
    for label in np.unique(y):
        if labels:
            shares = rng.dirichlet(np.full(nodes, alpha))
        rows = rng.permutation(np.flatnonzero(y == label))
        cuts = np.rint(np.cumsum(shares)[:-1] * rows.size).astype(np.intp)
        for part, own in zip(np.split(rows, cuts), parts, strict=True):
            own.append(part)
    return [np.sort(np.concatenate(own)) for own in parts]


def node_fold(y: NDArray[Any], part: Rows, fold: int, folds: int = FOLDS, seed: int = SPLIT_SEED) -> tuple[Rows, Rows]:
    """Return one node's training and test rows of a fold; a class too rare for stratification is split as it comes."""
    from sklearn.model_selection import KFold, StratifiedKFold

    _, counts = np.unique(y[part], return_counts=True)
    kind = StratifiedKFold if counts.min() >= folds else KFold
    train, test = list(kind(folds, shuffle=True, random_state=seed).split(np.zeros((part.size, 1)), y[part]))[fold]
    return part[train], part[test]


def f1_scores(predicted: NDArray[Any], true: NDArray[Any], classes: Sequence[str]) -> dict[str, float]:
    """Return F1 of each class; 0 for a class that is neither there nor predicted."""
    return dict(zip(classes, class_f1(*class_counts(predicted, true, classes)).tolist(), strict=True))


def reduction_curve(
    model: Any, X: NDArray[np.float64], y: NDArray[Any], sizes: Sequence[int]
) -> list[tuple[int, dict[str, float]]]:
    """Return the trade-off of rule reduction: for each number of rules, F1 of each class on rows `X`, `y`.

    Parameters
    ----------
    model : FuzzyRuleClassifier
        With all its rules.
    sizes : sequence of int
        Numbers of rules to keep, >= 1.
    """
    curve = []
    for size in sizes:
        small = model.reduced(size)
        curve.append((small.base.size, f1_scores(small.predict(X), y, model.domain.classes)))
    return curve


def node_split(y: NDArray[Any], fold: int, folds: int, nodes: int, seed: int) -> list[tuple[Rows, Rows]]:
    """Return each node's training and test rows of a fold, IID: nodes first, folds inside each node."""
    return [node_fold(y, part, fold, folds, seed) for part in node_parts(y, nodes, seed=seed)]


PROTOCOL = PaperProtocol(PAPER, NODES, FOLDS, node_split, minmax_domain)
"""For ``glassfleet lab experiment``."""


# --- uneven fleets: rows spread over clients by quantity, or by quantity and label. Needs the ``experiments`` extra ---


SLICES = 10
"""A numeric target is cut into as many slices of equal count; they stand for labels."""


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
