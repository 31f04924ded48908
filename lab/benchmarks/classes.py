"""The classifier beside a tree of twenty leaves and logistic regression: accuracy, log loss, calibration, size.

``python -m lab.benchmarks.classes [magic] [adult] [nursery] [compas]`` reads test rows: for reporting, not for choosing
settings. Five stratified folds of at most 20,000 rows, five clients, rows as they are, limits and categories of the
training rows.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from glassfleet.contract import catalogue
from glassfleet.data.categories import encode_inputs
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import INPUT_QUANTILES, Domain, Variable
from glassfleet.simulation import federated
from lab.benchmarks.measure import data_folder, machine, print_table
from lab.experiments.rows import read_rows

SETS = ("magic", "adult", "nursery", "compas")
MOST_ROWS = 20_000
LEAST_OF_A_CLASS = 30
"""Rows of rarer classes are left out: a fold must have some."""
CELLS = 15
"""Of the calibration error."""

Array = NDArray[np.float64]


def rows_of(name: str) -> Dataset:
    """Return at most so many rows of a table, drawn once, without rare classes."""
    data = read_rows(data_folder() / f"{name}.csv.gz", None, catalogue.load("tree"), labels=True)
    labels, count = np.unique(data.y, return_counts=True)
    kept = np.arange(data.rows)
    if data.rows > MOST_ROWS:
        kept = np.sort(np.random.RandomState(0).permutation(data.rows)[:MOST_ROWS])
    kept = kept[np.isin(data.y[kept], labels[count >= LEAST_OF_A_CLASS])]
    return data.at(kept)


def domain_of(data: Dataset) -> Domain:
    """Return limits, categories and classes of rows that one machine has."""
    low, high = np.quantile(data.X, INPUT_QUANTILES, axis=0)
    features = []
    for index, name in enumerate(data.features):
        texts = data.categories.get(name)
        if texts is None:
            a, b = float(low[index]), float(high[index])
            if a == b:  # nearly all rows have one value
                a, b = float(data.X[:, index].min()), float(data.X[:, index].max())
            features.append(Variable(name=name, low=a, high=b))
        else:
            here = tuple(texts[int(code)] for code in np.unique(data.X[:, index]))
            features.append(Variable(name=name, low=0.0, high=len(here) - 1.0, categories=here))
    return Domain(features=tuple(features), label=data.target, classes=tuple(np.unique(data.y).tolist()))


def calibration_error(chances: Array, right: NDArray[np.bool_]) -> float:
    """Return the mean distance of told chances and shares of rows, over equal cells of the chance, weighted by rows."""
    cell = np.minimum((chances * CELLS).astype(int), CELLS - 1)
    inside = [cell == number for number in range(CELLS)]
    return float(sum(abs(chances[rows].mean() - right[rows].mean()) * rows.mean() for rows in inside if rows.any()))


class Scores(NamedTuple):
    """Means over the folds, but for the calibration error: that of all test rows together."""

    accuracy: float
    macro_f1: float
    log_loss: float
    calibration: float
    spread: float
    """Standard error of the accuracy, over the folds."""


def compared(name: str) -> tuple[dict[str, Scores], Array]:
    """Return each learner's scores on a set, and the classifier's mean rules, numbers, rounds and MB of a client."""
    data = rows_of(name)
    texts = [index for index, column in enumerate(data.features) if column in data.categories]
    numbers = [index for index in range(len(data.features)) if index not in texts]
    given: dict[str, list[tuple[Array, Any]]] = {}
    sizes = []
    scheme: Any = catalogue.load("tree")
    for train, test in StratifiedKFold(5, shuffle=True, random_state=19).split(data.X, data.y):
        own, other = data.at(train), data.at(test)
        domain, client = domain_of(own), np.random.default_rng(0).integers(0, 5, len(train))
        fleet = {f"client-{i}": own.at(client == i) for i in range(5)}
        outcome = federated(scheme, scheme.Parameters(min_rows=1), domain, fleet)
        size = outcome.model.complexity()
        sizes.append((size["leaves"], size["parameters"], outcome.rounds, outcome.bytes_up / 5e6))
        given.setdefault("tree", []).append((outcome.model.predict_proba(encode_inputs(other, domain)), other.y))
        one_hot = ("texts", OneHotEncoder(handle_unknown="ignore"), texts)
        for title, scaler, learner in (
            ("CART, 20 leaves", "passthrough", DecisionTreeClassifier(max_leaf_nodes=20, random_state=0)),
            ("logistic regression", StandardScaler(), LogisticRegression(max_iter=3000)),
        ):
            fitted = make_pipeline(ColumnTransformer([("numbers", scaler, numbers), one_hot]), learner)
            fitted.fit(own.X, own.y)
            given.setdefault(title, []).append((fitted.predict_proba(other.X), other.y))
    names = np.unique(data.y)
    scores = {}
    for title, folds in given.items():
        each = [(p, y, names[p.argmax(axis=1)]) for p, y in folds]
        accuracy = [float((y == answer).mean()) for _, y, answer in each]
        f1 = float(np.mean([f1_score(y, answer, average="macro") for _, y, answer in each]))
        loss = float(np.mean([log_loss(y, p, labels=names) for p, y, _ in each]))
        p, y = np.concatenate([p for p, _, _ in each]), np.concatenate([y for _, y, _ in each])
        # Of two classes the second's chance; of more that of the class that is told.
        sure, right = (p[:, 1], y == names[1]) if len(names) == 2 else (p.max(axis=1), y == names[p.argmax(axis=1)])
        spread = float(np.std(accuracy, ddof=1)) / 5**0.5
        scores[title] = Scores(float(np.mean(accuracy)), f1, loss, calibration_error(sure, right), spread)
    return scores, np.mean(sizes, axis=0)


def classes(name: str) -> None:
    """Print a table's line for each learner."""
    scores, (rules, parameters, rounds, sent) = compared(name)
    print_table(
        f"{name}; tree: {rules:.1f} rules, {parameters:.0f} numbers, {rounds:.0f} rounds, {sent:.1f} MB up for "
        "each client",
        ["", "accuracy", "macro F1", "log loss", "calibration error"],
        [
            [title, f"{own.accuracy:.4f} ± {own.spread:.4f}", *(f"{score:.4f}" for score in own[1:4])]
            for title, own in scores.items()
        ],
    )


if __name__ == "__main__":
    asked = sys.argv[1:] or list(SETS)
    if unknown := sorted(set(asked) - set(SETS)):
        raise SystemExit(f"no set {unknown[0]!r}; known: {', '.join(SETS)}")
    print(f"Machine: {machine()}.")
    for chosen in asked:
        classes(chosen)
