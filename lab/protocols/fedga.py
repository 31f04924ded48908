"""The genetic-algorithm paper's experiments: many agents, one common test set, federated against local trees.

An agent is measured by how much better, in percent, the federated tree is than the one that it grows alone,
``(federated / local - 1) * 100``. That is of the F1 (of class 1 for two classes, else the mean over classes), or of the
root mean squared error. Splits are drawn with numpy; scikit-learn is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.scheme import Scheme, personal_model
from glassfleet.crisp.fit import f1
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain
from glassfleet.evaluation.f1 import class_counts
from glassfleet.simulation import drawn, federated, learn_local
from lab.protocols.paper import PaperProtocol, Rows, minmax_domain, rmse

AGENTS = 20
SPLITS = 10
TEST_SHARE = 0.1
SPLIT_SEED = 19


def common_test_split(
    y: NDArray[Any], fold: int, folds: int = SPLITS, agents: int = AGENTS, seed: int = SPLIT_SEED
) -> list[tuple[Rows, Rows]]:
    """Return each agent's training rows, equal parts at random, and the test rows, the same for all.

    Every `fold` is a split of its own; `folds` says only how many there are. The test share is 10 %.
    """
    del folds
    order = np.random.default_rng([seed, fold]).permutation(len(y)).astype(np.intp)
    held = max(1, round(len(y) * TEST_SHARE))
    test = np.sort(order[:held])
    return [(np.sort(part), test) for part in np.array_split(order[held:], agents)]


@dataclass(frozen=True)
class SplitResult:
    """One split.

    Attributes
    ----------
    federated, local : list of float
        Score of each agent on the common test rows: F1, or RMSE.
    constant : float
        Score of the constant answer: always class 1 (or the most frequent one), or the training mean.
    macro : dict of str to list of float
        Mean F1 over the classes, ``federated`` and ``local``; empty for a numeric target.
    nodes : dict of str to float
        Mean nodes of ``federated`` and ``local`` trees.
    """

    federated: list[float]
    local: list[float]
    constant: float
    macro: dict[str, list[float]]
    nodes: dict[str, float]

    @property
    def deltas(self) -> list[float]:
        """Per agent, in percent; agents whose local score is 0 are left out."""
        return [(own / alone - 1.0) * 100.0 for own, alone in zip(self.federated, self.local, strict=True) if alone > 0]


def run_split(
    scheme: Scheme, parameters: Any, dataset: Dataset, split: int, *, participation: float = 1.0
) -> SplitResult:
    """Learn federated and local trees of one split and score them.

    Parameters
    ----------
    scheme : Scheme
        With ``abilities.alone`` (fedga, dp_tree).
    parameters : scheme.Parameters
    dataset : Dataset
        All rows. The domain comes from all of them, test rows included: for reproducing the paper only.
    split : int
        Which.
    participation : float
        Share of the agents that answer each round, (0, 1].
    """
    domain = minmax_domain(dataset)
    rows = common_test_split(dataset.y, split)
    train = {f"agent-{index:03d}": dataset.at(part) for index, (part, _) in enumerate(rows)}
    X, y = dataset.X[rows[0][1]], dataset.y[rows[0][1]]
    run_seed = SPLIT_SEED * 1000 + split
    present = drawn(max(1, round(participation * AGENTS)), run_seed) if participation < 1 else None
    model = federated(scheme, parameters, domain, train, run_seed, present=present).model
    local = learn_local(scheme, parameters, domain, train, run_seed)
    pairs = {
        "federated": [personal_model(scheme, model, train[agent]) for agent in sorted(train)],
        "local": [local[agent].model for agent in sorted(train)],
    }
    predicted = {kind: [tree.predict(X) for tree in trees] for kind, trees in pairs.items()}
    everything = np.concatenate([train[agent].y for agent in sorted(train)])
    scores = {kind: [_score(domain, predictions, y) for predictions in lines] for kind, lines in predicted.items()}
    macro = {
        kind: [_macro(domain, predictions, y) for predictions in lines]
        for kind, lines in predicted.items()
        if domain.target is None
    }
    return SplitResult(
        scores["federated"], scores["local"], _constant(domain, everything, y), macro,
        {kind: fmean(float(tree.complexity()["nodes"]) for tree in trees) for kind, trees in pairs.items()},
    )  # fmt: skip


def _macro(domain: Domain, predictions: NDArray[Any], y: NDArray[Any]) -> float:
    return float(f1(*class_counts(predictions, y, domain.classes), None))


def _score(domain: Domain, predictions: NDArray[Any], y: NDArray[Any]) -> float:
    if domain.target is not None:
        return rmse(predictions, y)
    return float(f1(*class_counts(predictions, y, domain.classes), 1 if len(domain.classes) == 2 else None))


def _constant(domain: Domain, train: NDArray[Any], y: NDArray[Any]) -> float:
    if domain.target is not None:
        return _score(domain, np.full(len(y), train.mean()), y)
    if len(domain.classes) == 2:
        return _score(domain, np.full(len(y), domain.classes[1]), y)
    labels, counts = np.unique(train, return_counts=True)
    return _score(domain, np.full(len(y), labels[counts.argmax()]), y)


PROTOCOL = PaperProtocol({}, AGENTS, SPLITS, common_test_split, minmax_domain)
"""For ``glassfleet lab experiment``."""
