"""The classifier paper's experiments: nodes, folds, LL, FL and CL by F1 per class. Needs the ``experiments`` extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.local import central, federated, learn_local
from glassfleet.scheme import Model, Scheme
from lab.protocols.paper import PaperProtocol
from lab.protocols.regression import SETTINGS, Setting

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
_Rows = NDArray[np.intp]


@dataclass(frozen=True)
class FoldResult:
    """One fold of an experiment.

    Attributes
    ----------
    fold : int
        Which, from 0.
    f1 : dict of Setting to dict of str to list of float
        F1 of each class, by node, on the node's test rows.
    rules : dict of Setting to list of float
        Number of rules: by node for LL, else of the one model.
    complexity : dict of Setting to dict
        Size measures of the model (LL: means over the nodes' models).
    nullified : int
        Statistics that the nodes of FL kept back.
    bytes_up : int
        Sent by all nodes of FL.
    """

    fold: int
    f1: dict[Setting, dict[str, list[float]]]
    rules: dict[Setting, list[float]]
    complexity: dict[Setting, dict[str, float]]
    nullified: int
    bytes_up: int


@dataclass(frozen=True)
class Spread:
    """A mean and the standard deviation (n - 1) beside it, as the tables print them."""

    mean: float
    std: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ± {self.std:.3f}"


@dataclass(frozen=True)
class Summary:
    """Averages as the paper's tables have them.

    Attributes
    ----------
    f1 : dict of Setting to dict of str to Spread
        F1 of each class: over nodes, each averaged over the folds.
    rules : dict of Setting to Spread
        Number of rules: LL over nodes, each averaged over the folds; FL and CL over folds.
    """

    f1: dict[Setting, dict[str, Spread]]
    rules: dict[Setting, Spread]


def minmax_domain(dataset: Dataset) -> Domain:
    """Return the domain of pooled rows: minimum and maximum of each input, and the classes. For the papers only."""
    features = tuple(
        Variable(name=name, low=float(low), high=float(high))
        for name, low, high in zip(dataset.features, dataset.X.min(axis=0), dataset.X.max(axis=0), strict=True)
    )
    classes = tuple(np.unique(dataset.y.astype(np.str_)).tolist())
    return Domain(features=features, label=dataset.target, classes=classes)


def node_parts(
    y: NDArray[Any], nodes: int = NODES, *, seed: int = SPLIT_SEED, skew: Skew = "iid", alpha: float = 0.5
) -> list[_Rows]:
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
        from sklearn.model_selection import StratifiedKFold  # noqa: PLC0415 - an extra; a vehicle does not have it

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
) -> list[_Rows]:
    shares = rng.dirichlet(np.full(nodes, alpha))
    parts: list[list[_Rows]] = [[] for _ in range(nodes)]
    for label in np.unique(y):
        if labels:
            shares = rng.dirichlet(np.full(nodes, alpha))
        rows = rng.permutation(np.flatnonzero(y == label))
        cuts = np.rint(np.cumsum(shares)[:-1] * rows.size).astype(np.intp)
        for part, own in zip(np.split(rows, cuts), parts, strict=True):
            own.append(part)
    return [np.sort(np.concatenate(own)) for own in parts]


def node_fold(
    y: NDArray[Any], part: _Rows, fold: int, folds: int = FOLDS, seed: int = SPLIT_SEED
) -> tuple[_Rows, _Rows]:
    """Return one node's training and test rows of a fold; a class too rare for stratification is split as it comes."""
    from sklearn.model_selection import KFold, StratifiedKFold  # noqa: PLC0415

    _, counts = np.unique(y[part], return_counts=True)
    kind = StratifiedKFold if counts.min() >= folds else KFold
    train, test = list(kind(folds, shuffle=True, random_state=seed).split(np.zeros((part.size, 1)), y[part]))[fold]
    return part[train], part[test]


def paper_fold(
    scheme: Scheme,
    parameters: Any,
    dataset: Dataset,
    fold: int,
    *,
    settings: Sequence[Setting] = SETTINGS,
    folds: int = FOLDS,
    nodes: int = NODES,
    seed: int = SPLIT_SEED,
    skew: Skew = "iid",
    alpha: float = 0.5,
) -> FoldResult:
    """Run one fold of the classifier paper's protocol.

    The domain comes from all rows, test rows included, as in the paper: for reproducing it only.

    Parameters
    ----------
    scheme, parameters
        What is learned; FL uses `parameters` as they are, LL and CL ``scheme.exact(parameters)``.
    dataset : Dataset
        All rows; the target is a class label.
    fold : int
        Which fold, in [0, `folds`).
    settings : sequence of Setting
        Which of LL, FL and CL to run.
    skew, alpha
        See :func:`node_parts`.
    """
    X, y = dataset.X, dataset.y
    domain = minmax_domain(dataset)
    rows = [node_fold(y, part, fold, folds, seed) for part in node_parts(y, nodes, seed=seed, skew=skew, alpha=alpha)]
    train, test = (
        {
            f"node-{i:03d}": Dataset(dataset.features, dataset.target, X[pair[half]], y[pair[half]])
            for i, pair in enumerate(rows)
        }
        for half in (0, 1)
    )
    models: dict[Setting, dict[str, Model]] = {}
    nullified = bytes_up = 0
    if "LL" in settings:
        models["LL"] = {node: own.model for node, own in learn_local(scheme, parameters, domain, train).items()}
    if "FL" in settings:
        outcome = federated(scheme, parameters, domain, train)
        models["FL"], nullified, bytes_up = dict.fromkeys(train, outcome.model), outcome.nullified, outcome.bytes_up
    if "CL" in settings:
        pooled = pool([train[node] for node in sorted(train)])
        models["CL"] = dict.fromkeys(train, central(scheme, parameters, domain, pooled).model)
    return FoldResult(
        fold=fold,
        f1={setting: _scores(models[setting], test, domain.classes) for setting in models},
        rules={setting: _rule_counts(models[setting], each=setting == "LL") for setting in models},
        complexity={setting: _mean_complexity(models[setting]) for setting in models},
        nullified=nullified,
        bytes_up=bytes_up,
    )


def summarise(results: Sequence[FoldResult]) -> Summary:
    """Average over folds, then over nodes."""
    first = results[0]
    f1 = {
        setting: {
            label: _spread([fmean(column) for column in zip(*(r.f1[setting][label] for r in results), strict=True)])
            for label in first.f1[setting]
        }
        for setting in first.f1
    }
    rules = {}
    for setting in first.rules:
        counts = [r.rules[setting] for r in results]
        local = setting == "LL"
        rules[setting] = _spread([fmean(column) for column in (zip(*counts, strict=True) if local else counts)])
    return Summary(f1, rules)


def f1_scores(predicted: NDArray[Any], true: NDArray[Any], classes: Sequence[str]) -> dict[str, float]:
    """Return F1 = 2 TP / (2 TP + FP + FN) of each class; 0 for a class that is neither there nor predicted."""
    scores = {}
    for label in classes:
        said, is_so = predicted == label, true == label
        total = int(said.sum()) + int(is_so.sum())
        scores[label] = 2.0 * int((said & is_so).sum()) / total if total else 0.0
    return scores


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


def _scores(models: Mapping[str, Model], test: Mapping[str, Dataset], classes: Sequence[str]) -> dict[str, list[float]]:
    lines = [f1_scores(models[node].predict(test[node].X), test[node].y, classes) for node in sorted(models)]
    return {label: [line[label] for line in lines] for label in classes}


def _rule_counts(models: Mapping[str, Model], *, each: bool) -> list[float]:
    counts = [float(model.complexity()["rules"]) for model in models.values()]
    return counts if each else counts[:1]


def _mean_complexity(models: Mapping[str, Model]) -> dict[str, float]:
    sizes = [model.complexity() for model in models.values()]
    return {name: fmean(float(size[name]) for size in sizes) for name in sizes[0]}


def _spread(values: Sequence[float]) -> Spread:
    return Spread(fmean(values), stdev(values) if len(values) > 1 else 0.0)


def node_split(y: NDArray[Any], fold: int, folds: int, nodes: int, seed: int) -> list[tuple[_Rows, _Rows]]:
    """Return each node's training and test rows of a fold, IID: nodes first, folds inside each node."""
    return [node_fold(y, part, fold, folds, seed) for part in node_parts(y, nodes, seed=seed)]


PROTOCOL = PaperProtocol(PAPER, NODES, FOLDS, node_split, minmax_domain)
"""For ``glassfleet experiment``."""
