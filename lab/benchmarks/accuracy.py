"""What models are worth: the classifier beside others, parts of the fuzzy tree left out, support in private runs.

Classes: beside a tree of twenty leaves and logistic regression, accuracy, log loss, calibration, size. Five stratified
folds of at most 20,000 rows, five clients, rows as they are, limits and categories of the training rows. Test rows are
read: for reporting, not for choosing settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any, NamedTuple
from unittest import mock

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
from glassfleet.contract.messages import Task
from glassfleet.contract.scheme import input_quantiles_of, private_parameters
from glassfleet.data.categories import encode_inputs
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.private.groups import SUPPORT_ROWS
from glassfleet.private.layout import layout_of
from glassfleet.schemes.tree import messages, size
from glassfleet.schemes.tree.params import WAYS
from glassfleet.simulation import federated
from lab.benchmarks.measure import data_folder, print_table
from lab.experiments.rows import read_rows
from lab.papers.sizes import DATASETS
from lab.papers.work import fleet
from lab.protocols.paper import kfold, quantile_domain, rmse

CLASS_SETS = ("magic", "adult", "nursery", "compas")
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
        domain, client = quantile_domain(own), np.random.default_rng(0).integers(0, 5, len(train))
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


def classes() -> None:
    """Print a table for each set, a line for each learner."""
    for name in CLASS_SETS:
        scores, (rules, parameters, rounds, sent) = compared(name)
        lines = []
        for title, own in scores.items():
            shown = {"": title, "accuracy": f"{own.accuracy:.4f} ± {own.spread:.4f}"}
            others = {"macro F1": own.macro_f1, "log loss": own.log_loss, "calibration error": own.calibration}
            lines.append(shown | {what: f"{score:.4f}" for what, score in others.items()})
        size = f"{rules:.1f} rules, {parameters:.0f} numbers, {rounds:.0f} rounds, {sent:.1f} MB up for each client"
        print_table(f"{name}; tree: {size}", lines)


# --- what each part of the fuzzy tree contributes, on training rows alone ---------------------------------------------


SCHEME: Any = catalogue.load("tree")

WITHOUT: dict[str, tuple[Any, str, Any, dict[str, Any]]] = {
    "as it is": (messages, "WAYS", WAYS, {}),
    "the price of luck never subtracted": (messages, "WAYS", (0.0,), {}),
    "always subtracted": (messages, "WAYS", (3.0,), {}),
    "no penalty towards the parent": (size, "KAPPAS", (0.001,), {}),
    "no slopes dropped": (size, "WORTHS", (0.0,), {"max_slopes": 32}),
    "one rule": (messages, "WAYS", WAYS, {"max_rules": 1}),
    "constants in place of lines": (messages, "WAYS", WAYS, {"max_slopes": 0}),
}
"""What is left out: a constant of a module with another value, or other parameters."""

Cut = tuple[Dataset, Dataset]
"""Training rows, and rows to score on."""


def first_fold(name: str) -> Cut:
    """Return the first of five folds of a set; QoE: the vehicles' own training and test rows."""
    if name == "QoE":
        train, test, _ = fleet(data_folder(), "real")
        return pool(list(train.values())), pool(list(test.values()))
    data = read_rows(data_folder() / f"{name}.csv.gz", None, catalogue.load("frt"))
    learned, held_out = next(kfold(data.rows, 5))
    return data.at(learned), data.at(held_out)


def _domain(scheme: Any, parts: list[Dataset], support: int | None = None) -> Domain:
    """Return the limits that vehicles find: in a private run with `support`, if it is given."""
    first, limits = parts[0], input_quantiles_of(scheme)
    asked = DiscoveryParameters(features=first.features, target=first.target, input_quantiles=limits)
    return discover(asked if support is None else private_parameters(DISCOVERY, asked, support), parts)


def ablation() -> None:
    """Three inner folds (QoE: blocks of time) of the training rows of the first outer fold."""
    cuts = {name: list(_cuts(name)) for name in (*DATASETS, "QoE")}
    errors = {what: {name: _error(each, *out) for name, each in cuts.items()} for what, out in WITHOUT.items()}
    print_table("RMSE on inner folds (rules)", [{"": what} | each for what, each in errors.items()])


def _cuts(name: str) -> Iterator[Cut]:
    rows, _ = first_fold(name)
    every = np.arange(rows.rows)
    blocks = np.array_split(every, 3) if name == "QoE" else [scored for _, scored in kfold(rows.rows, 3)]
    yield from ((rows.at(np.setdiff1d(every, block)), rows.at(block)) for block in blocks)


def _error(cuts: list[Cut], module: Any, constant: str, value: Any, settings: dict[str, Any]) -> str:
    errors, rules = [], []
    for learned, scored in cuts:
        with mock.patch.object(module, constant, value):
            parameters = SCHEME.Parameters(min_rows=1, **settings)
            model = federated(SCHEME, parameters, _domain(SCHEME, [learned]), {"all": learned}).model
        errors.append(rmse(model.predict(scored.X), scored.y))
        rules.append(len(model.rules()))
    return f"{fmean(errors):.4g} ({fmean(rules):.0f})"


# --- what `support` costs a private run: rounds, bytes and accuracy, beside one that opens whatever it rests on -------
#
# One group of fifteen vehicles that loses nobody learns what pooled rows would, so pooled rows are learned from. Test
# rows: the first of five folds, or QoE's own.


VEHICLES = 15


def support() -> None:
    """Learn each set with each scheme, with support and without."""
    for name in ("tree", "frt", "tsk"):
        rows = []
        for data in (*DATASETS, "QoE"):
            cut = first_fold(data)
            without, with_support = (_learned(name, *cut, least) for least in (0, SUPPORT_ROWS))
            row = {what: f"{without[what]:.4g} / {with_support[what]:.4g}" for what in without}
            change = 100 * (with_support["test RMSE"] / without["test RMSE"] - 1)
            rows.append({"data": data, **row, "": f"{change:+.1f} %"})
        print_table(f"{name}: support 0 / {SUPPORT_ROWS}", rows)


def _learned(name: str, train: Dataset, test: Dataset, least: int) -> dict[str, float]:
    scheme: Any = catalogue.load(name)
    owner, sizes = np.arange(train.rows) % VEHICLES, list[int]()
    domain = _domain(scheme, [train.at(owner == i) for i in range(VEHICLES)], least)

    def listen(task: Task, _: Any) -> None:
        sizes.append(8 * layout_of(scheme, task).size)

    parameters = private_parameters(scheme, scheme.Parameters(), least)
    outcome = federated(scheme, parameters, domain, {"all": train}, listen=listen)
    return {
        "rounds": outcome.rounds,
        "kB per vehicle": sum(sizes) / 1000,
        "rules": len(outcome.model.rules()),
        "test RMSE": rmse(outcome.model.predict(test.X), test.y),
    }
