"""The folds of an experiment, in this process or in worker processes that speak JSON lines.

A worker is ``python -m lab.experiments.folds``: the first line it reads is the plan, each further line a fold's number;
it answers each with one line. Numbers travel as JSON and rows as ``.npy`` files, so nothing is pickled, and a worker
needs no ``fork``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from glassfleet.contract import catalogue
from glassfleet.contract.scheme import Scheme, input_quantiles_of, personal_model
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.model.protocol import Model
from glassfleet.simulation import Outcome, central, drawn, federated, learn_local
from lab.experiments.workers import Worker, ask_all, serve
from lab.protocols.choice import protocol_of
from lab.protocols.frbc import Skew, f1_scores, skewed_split
from lab.protocols.paper import PaperProtocol, Rows, rmse

SETTINGS = ("local", "federated", "central")
"""LL, FL and CL in full."""

Parts = Mapping[str, Dataset]


@dataclass(frozen=True)
class Plan:
    """One experiment.

    Attributes
    ----------
    scheme : str
        Name in the catalogue.
    parameters : dict
        As JSON values.
    names, target
        Columns.
    protocol : {"paper", "federated"}
        ``paper``: the domain is pooled from all rows, test rows included, as the papers do. ``federated``: the clients
        find it from their training rows by additive histograms, as a real run does.
    clients, folds, seed : int
        Of the nested KFold.
    settings : list of str
        Which of `SETTINGS`.
    participation : float
        Share of the clients, (0, 1], that answers a round of federated learning, drawn anew in each.
    skew : {"iid", "quantity", "quantity+label"}
        ``iid``: the protocol's own split. Otherwise see :func:`lab.protocols.frbc.skewed_split`.
    categories : dict of str to list of str
        Of the columns of text: their categories, which the rows hold positions of.
    """

    scheme: str
    parameters: dict[str, Any]
    names: list[str]
    target: str
    protocol: str
    clients: int
    folds: int
    seed: int
    settings: list[str]
    participation: float = 1.0
    skew: Skew = "iid"
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)


def plan_of(scheme: Scheme, data: Dataset, parameters: Mapping[str, Any], settings: Sequence[str]) -> Plan:
    """Return the plan of the protocol of a scheme's paper, with its parameters where `parameters` has no others."""
    paper = _protocol(scheme, data.y)
    known = {name: value for name, value in paper.parameters.items() if name in scheme.Parameters.model_fields}
    chosen = scheme.Parameters.model_validate({**known, **parameters})
    return Plan(
        scheme.name,
        chosen.model_dump(mode="json"),
        list(data.features),
        data.target,
        "paper",
        paper.clients,
        paper.folds,
        paper.seed,
        list(settings),
        categories=data.categories,
    )


def run_fold(plan: Plan, X: NDArray[np.float64], y: NDArray[Any], fold: int) -> FoldResult:
    """Learn and score every setting of one fold.

    Parameters
    ----------
    plan : Plan
    X : ndarray of float64, shape (n, F)
    y : ndarray of float64 or text, shape (n,)
    fold : int
        In [0, plan.folds).
    """
    scheme = catalogue.load(plan.scheme)
    parameters = scheme.Parameters.model_validate(plan.parameters)
    train, test, domain, domain_seconds, width = rows_of(plan, X, y, fold)
    result: FoldResult = {}
    for setting in plan.settings:
        started = time.perf_counter()
        how: Any = {"setting": setting, "participation": plan.participation, "seed": plan.seed}
        learned = learn(scheme, parameters, domain, train, **how)
        seconds = time.perf_counter() - started
        seconds += domain_seconds * (plan.protocol == "federated")
        result[setting] = measure(learned, train, test, seconds, width)
    return result


class FoldRows(NamedTuple):
    """What a fold's settings have in common; `width` brings an error to the target's own unit."""

    train: Parts
    test: Parts
    domain: Domain
    domain_seconds: float
    width: float


def rows_of(plan: Plan, X: NDArray[np.float64], y: NDArray[Any], fold: int) -> FoldRows:
    """Return the clients' rows and the domain of one fold, as `run_fold` learns from them."""
    scheme = catalogue.load(plan.scheme)
    split = _split(plan, scheme, y, fold)
    X, y, width = _scaled(plan, scheme, X, y)
    train, test = (_parts(plan, X, y, rows) for rows in zip(*split, strict=True))
    started = time.perf_counter()
    domain = _domain(plan, scheme, X, y, train)
    return FoldRows(train, test, domain, time.perf_counter() - started, width)


@dataclass(frozen=True)
class Learned:
    """A setting's runs (one each for LL, else one), and each client's model."""

    runs: Sequence[Outcome]
    models: Mapping[str, Model]


def learn(
    scheme: Scheme, parameters: Any, domain: Domain, train: Parts, *, setting: str, participation: float, seed: int
) -> Learned:
    """Learn one of `SETTINGS`; `participation` is the share of clients in each federated round."""
    if setting == "local":
        own = learn_local(scheme, parameters, domain, train, seed)
        return Learned(list(own.values()), _personal(scheme, {name: run.model for name, run in own.items()}, train))
    if setting == "federated":
        count = max(1, round(participation * len(train)))
        present = drawn(count, seed) if count < len(train) else None
        outcome = federated(scheme, parameters, domain, train, seed, present=present)
        return Learned([outcome], _personal(scheme, dict.fromkeys(train, outcome.model), train))
    pooled = pool(list(train.values()))
    outcome = central(scheme, parameters, domain, pooled, seed)
    (model,) = _personal(scheme, {"central": outcome.model}, {"central": pooled}).values()
    return Learned([outcome], dict.fromkeys(train, model))


def _personal(scheme: Scheme, models: Mapping[str, Model], train: Parts) -> Mapping[str, Model]:
    """Return what each client answers with: its own version of the model, where the scheme makes one."""
    return {name: personal_model(scheme, model, train[name]) for name, model in models.items()}


def _protocol(scheme: Scheme, y: NDArray[Any]) -> PaperProtocol:
    return protocol_of(scheme, labels=y.dtype.kind in "UO")


def _split(plan: Plan, scheme: Scheme, y: NDArray[Any], fold: int) -> list[tuple[Rows, Rows]]:
    if plan.skew == "iid":
        return _protocol(scheme, y).split(y, fold, plan.folds, plan.clients, plan.seed)
    return skewed_split(y, fold, plan.folds, plan.clients, plan.seed, skew=plan.skew)


def _scaled(
    plan: Plan, scheme: Scheme, X: NDArray[np.float64], y: NDArray[Any]
) -> tuple[NDArray[np.float64], NDArray[Any], float]:
    """Return the rows as the paper scaled them, and what an error must be multiplied by to be in the target's unit."""
    scaled = _protocol(scheme, y).scaled
    if plan.protocol != "paper" or scaled is None:
        return X, y, 1.0
    data, width = scaled(_dataset(plan, X, y))
    return data.X, data.y, width


def _parts(plan: Plan, X: NDArray[np.float64], y: NDArray[Any], parts: Sequence[Rows]) -> dict[str, Dataset]:
    # Padded, so that the order of names is the order of the parts.
    return {f"client-{index:04d}": _dataset(plan, X[part], y[part]) for index, part in enumerate(parts)}


def _dataset(plan: Plan, X: NDArray[np.float64], y: NDArray[Any]) -> Dataset:
    categories = {name: tuple(texts) for name, texts in plan.categories.items()}
    return Dataset(tuple(plan.names), plan.target, X, y, categories=categories)


def _domain(plan: Plan, scheme: Scheme, X: NDArray[np.float64], y: NDArray[Any], train: Parts) -> Domain:
    if plan.protocol == "paper":
        return _protocol(scheme, y).domain(_dataset(plan, X, y))
    wanted = DiscoveryParameters(
        features=tuple(plan.names),
        target=plan.target,
        input_quantiles=input_quantiles_of(scheme, labels=y.dtype.kind == "U"),
        labels=y.dtype.kind == "U",
        categories=True,
        missing=True,
    )
    return discover(wanted, list(train.values()))


def measure(learned: Learned, train: Parts, test: Parts, seconds: float = 0.0, width: float = 1.0) -> dict[str, Any]:
    """Score each client's model on its rows: one setting of a `FoldResult`. `width` brings errors to their unit."""
    models, runs = learned.models, learned.runs
    sizes = [model.complexity() for model in {id(model): model for model in models.values()}.values()]
    classes = next(iter(models.values())).domain.classes
    return {
        "measure": "f1" if classes else "rmse",
        **scored("test", models, test, classes, width),
        **scored("train", models, train, classes, width),
        "complexity": {name: fmean(float(size[name]) for size in sizes) for name in sizes[0]},
        "sizes": [dict(size) for size in sizes],
        **{name: sum(getattr(run, name) for run in runs) for name in ("bytes_up", "bytes_down", "nullified")},
        "rounds": fmean(run.rounds for run in runs),
        "seconds": seconds,
    }


def scored(
    kind: str, models: Mapping[str, Any], parts: Parts, classes: Sequence[str] = (), width: float = 1.0
) -> dict[str, Any]:
    """Return the scores of each client's model on its rows of a kind, as a `FoldResult` has them."""
    predicted = {name: models[name].predict(part.X) for name, part in parts.items()}
    if not classes:
        return {kind: [rmse(predicted[name], part.y) * width for name, part in parts.items()]}
    each = [f1_scores(predicted[name], part.y, classes) for name, part in parts.items()]
    by_class = {label: [line[label] for line in each] for label in classes}
    return {kind: [fmean(line.values()) for line in each], f"{kind}_classes": by_class}


def run_folds(plan: Plan, X: NDArray[np.float64], y: NDArray[Any], jobs: int) -> Iterator[tuple[int, FoldResult]]:
    """Yield (fold, result) as folds finish, on up to `jobs` processes; 1: in this process.

    Raises
    ------
    RunFailedError
        A fold failed, or a worker process died.
    """
    with tempfile.TemporaryDirectory(prefix="glassfleet-") as folder:
        np.save(Path(folder) / "X.npy", X, allow_pickle=False)
        np.save(Path(folder) / "y.npy", y, allow_pickle=False)
        questions = [(fold, f"fold {fold}") for fold in range(plan.folds)]
        make = partial(Worker, "lab.experiments.folds", [folder], asdict(plan))
        yield from ask_all(make, jobs, questions, lambda fold: run_fold(plan, X, y, fold))


def averages_of(plan: Plan, data: Dataset) -> dict[str, dict[str, Any]]:
    """Run all folds in this process; return :func:`lab.experiments.folds.mean_of` them."""
    return mean_of([run_fold(plan, data.X, data.y, fold) for fold in range(plan.folds)])


def answers(lines: Iterator[str], folder: Path) -> Iterator[str]:
    """Answer the lines that a worker reads: the plan, then fold after fold."""
    plan = Plan(**json.loads(next(lines)))
    X, y = (np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ("X", "y"))
    return serve(lines, lambda fold: run_fold(plan, X, y, fold))


if __name__ == "__main__":
    for reply in answers(sys.stdin, Path(sys.argv[1])):
        print(reply, flush=True)  # noqa: T201 - the parent reads it


# --- averages over the folds and repetitions of an experiment, as its tables and its JSON have them -------------------


FoldResult = dict[str, dict[str, Any]]
"""Per setting: ``measure`` (``rmse`` or ``f1``), ``test`` and ``train`` (per client), for a classifier ``test_classes``
and ``train_classes`` (F1 of each class, per client), ``complexity`` (mean over the models; of each one in ``sizes``),
``bytes_up``, ``bytes_down``, ``nullified``, ``rounds``, ``seconds``."""

SHORT = {"local": "LL", "federated": "FL", "central": "CL"}
"""What the papers call the settings."""


def mean_of(results: Sequence[FoldResult]) -> dict[str, dict[str, Any]]:
    """Average over folds, per setting: scores per fold and client and their means, complexity, bytes and the rest."""
    return {setting: _averages([result[setting] for result in results]) for setting in results[0]}


def _averages(folds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores: dict[str, Any] = {}
    for kind in ("test", "train"):
        name = f"{kind}_{folds[0]['measure']}"
        scores[name] = _over_folds([fold[kind] for fold in folds])
        if name.endswith("rmse"):  # some papers average the squares, which the averaged roots do not tell
            scores[f"{kind}_mse"] = _over_folds([[error**2 for error in fold[kind]] for fold in folds])
        by_class = [fold.get(f"{kind}_classes", {}) for fold in folds]
        if by_class[0]:
            lines = {label: _over_folds([fold[label] for fold in by_class]) for label in by_class[0]}
            scores[name]["classes"] = {
                label: {**line, "std": _std(line["per_client"])} for label, line in lines.items()
            }
    complexity = {name: fmean(fold["complexity"][name] for fold in folds) for name in folds[0]["complexity"]}
    rest = {
        name: fmean(fold[name] for fold in folds)
        for name in ("bytes_up", "bytes_down", "nullified", "rounds", "seconds")
    }
    return {**scores, "complexity": complexity, **rest}


def _over_folds(lines: Sequence[Sequence[float]]) -> dict[str, Any]:
    per_client = [fmean(column) for column in zip(*lines, strict=True)]
    return {"per_client": per_client, "mean": fmean(per_client), "per_fold": [list(line) for line in lines]}


def _std(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0
