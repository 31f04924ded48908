"""The vehicle's half: chooses a depth, grows its own structure, and scores those of others on its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract.messages import Contribution, Task
from glassfleet.crisp import Columns, CrispTree, Forest, prepare
from glassfleet.crisp.cuts import Rows
from glassfleet.crisp.fit import fit_tree, score_forest
from glassfleet.crisp.forest import Genes, narrow
from glassfleet.crisp.grow import best_depth, depth_scores, grow_tree, kfold_parts, stratified_parts
from glassfleet.data.dataset import Dataset, remembered
from glassfleet.schemes.fedga.messages import NAME, FedgaQuestion, read_task

T = TypeVar("T")

NOISY = 0.25
"""A vehicle whose errors vary less than this from fold to fold has little noise (phi)."""

COMPLEX = 0.02
"""A vehicle whose errors vary more than this from depth to depth has a complex target (theta)."""

DISTINCT = 0.8
"""Share of different targets above which a vehicle votes for elitism."""


class FedgaClient:
    """Answers the three questions from one vehicle's rows."""

    def contribute(self, task: Task, data: Dataset, rng: np.random.Generator) -> Contribution:
        """Answer `task`, see :class:`~glassfleet.contract.scheme.Client`; `rng` is for the row count's noise."""
        question = read_task(task)
        columns = prepare(data, question.domain)
        if question.kind == "depth":
            return _depth(question, columns, data, rng)
        if question.kind == "local":
            own = _own_structure(question, columns, data)
            return Contribution("local", data.rows, values={"structure": own, "votes": _votes(question, columns, data)})
        return _scores(question, columns, data)


def _kept(question: FedgaQuestion, data: Dataset, what: str, make: Callable[[], T], *about: object) -> T:
    """Return what `make` makes for the run and what else it is `about`; the latest is kept in the dataset's memo."""
    key = (question.domain, question.parameters, question.seed, *about)
    return remembered(data.memo, (NAME, what), key, make)


def _cross_validation(question: FedgaQuestion, columns: Columns, data: Dataset) -> NDArray[np.float64]:
    """Return the fitness per fold and depth of the vehicle's own trees, shape (folds, max_depth + 1)."""
    parameters = question.parameters

    def measure() -> NDArray[np.float64]:
        rng = np.random.default_rng([question.seed, 1])
        folds = kfold_parts(stratified_parts(columns, parameters.folds, rng), parameters.folds)
        return depth_scores(columns, folds, parameters.max_depth, positive=question.positive)

    return _kept(question, data, "cv", measure)


def own_depth(question: FedgaQuestion, columns: Columns, data: Dataset) -> int:
    """Return the depth that cross-validation at the vehicle chooses, in [2, max_depth]."""
    scores = _cross_validation(question, columns, data)
    return best_depth(scores) if len(scores) else 2


def _depth(question: FedgaQuestion, columns: Columns, data: Dataset, rng: np.random.Generator) -> Contribution:
    parameters, rows = question.parameters, data.rows
    if columns.classes:
        sums = {"class_rows": np.bincount(columns.y, minlength=columns.classes).astype(np.int64)}
        few = (sums["class_rows"] > 0) & (sums["class_rows"] < parameters.min_rows)
        sums["class_rows"][few] = 0
        nullified = int(few.sum())
    else:
        enough = columns.rows >= parameters.min_rows
        sums = {"target": np.array([columns.rows, columns.y.sum()], dtype=np.int64) * enough}
        nullified = int(not enough and columns.rows > 0)
    depth, weight = 0, 0.0
    if rows:
        depth = parameters.depth or own_depth(question, columns, data)
        weight = float(rows)
        if parameters.row_epsilon is not None:
            weight = max(1.0, weight + float(rng.laplace(0.0, 1.0 / parameters.row_epsilon)))
    return Contribution("depth", rows, sums, {"depth": depth, "weight": weight}, nullified)


def split_rows(question: FedgaQuestion, columns: Columns, data: Dataset) -> tuple[Rows, Rows]:
    """Return the rows that fit and those that score, the same in every round of a run.

    With too few rows to have both, or with ``fit_on_all``, all rows do both.
    """

    def split() -> tuple[Rows, Rows]:
        everything = np.arange(columns.rows)
        parts = max(2, round(1.0 / question.parameters.validation))
        if question.fit_on_all or columns.rows < parts:
            return everything, everything
        part = stratified_parts(columns, parts, np.random.default_rng([question.seed, 2]))
        return np.flatnonzero(part != 0), np.flatnonzero(part == 0)

    return _kept(question, data, "split", split, question.fit_on_all)


def _own_structure(question: FedgaQuestion, columns: Columns, data: Dataset) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Return the structure of the vehicle's own tree; no genes where it is a single leaf."""

    def grow() -> Genes:
        train, _ = split_rows(question, columns, data)
        if not columns.rows:
            return np.empty(0, dtype=np.int32)
        feature = grow_tree(columns, train, question.depth).feature
        return feature if len(feature) > 1 else feature[:0]

    return narrow(_kept(question, data, "own", grow, question.depth, question.fit_on_all), question.n_features)


def _votes(question: FedgaQuestion, columns: Columns, data: Dataset) -> dict[str, bool]:
    """Return what the vehicle wishes; only a numeric target gives reasons to wish."""
    if columns.classes or not columns.rows:
        return {"fit_on_all": False, "elitism": False}
    errors = -_cross_validation(question, columns, data)
    fit_on_all = False
    if len(errors):
        by_depth = errors.mean(axis=0)[2:]
        noise = variation(errors[:, best_depth(-errors)])
        fit_on_all = bool(noise < NOISY and variation(by_depth) > COMPLEX)
    distinct = len(np.unique(columns.y)) > DISTINCT * columns.rows
    return {"fit_on_all": fit_on_all, "elitism": bool(distinct)}


def variation(values: NDArray[np.float64]) -> float:
    """Return the coefficient of variation, with the deviation of the population; 0 for a mean of 0."""
    mean = float(values.mean()) if len(values) else 0.0
    return float(values.std()) / mean if mean > 0 else 0.0


def _scores(question: FedgaQuestion, columns: Columns, data: Dataset) -> Contribution:
    assert question.forest is not None
    scores = np.zeros(question.forest.size)
    if columns.rows:
        fit, score = split_rows(question, columns, data)
        scores = score_forest(columns, question.forest, fit, score, positive=question.positive)
    own = _own_structure(question, columns, data)
    return Contribution("candidates", data.rows, values={"scores": scores, "structure": own})


def choose_tree(question: FedgaQuestion, data: Dataset) -> CrispTree | None:
    """Return the candidate that scores best on the vehicle's rows, fitted to them; None without rows.

    The tree that was scored is the tree that is returned: it is not fitted again to the rows that scored it.
    """
    assert question.forest is not None
    columns = prepare(data, question.domain)
    if not columns.rows:
        return None
    fit, score = split_rows(question, columns, data)
    scores = score_forest(columns, question.forest, fit, score, positive=question.positive)
    best = question.forest.structures()[int(scores.argmax())]
    return fit_tree(columns, Forest.of([best]), fit)


def own_tree(question: FedgaQuestion, data: Dataset) -> CrispTree | None:
    """Return the CART of the vehicle's rows alone, to the depth that cross-validation chooses; None without rows."""
    columns = prepare(data, question.domain)
    if not columns.rows:
        return None
    depth = question.parameters.depth or own_depth(question, columns, data)
    return grow_tree(columns, np.arange(columns.rows), depth)
