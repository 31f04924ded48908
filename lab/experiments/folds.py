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
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from console.operator.specification import checked_parameters
from glassfleet.contract import catalogue
from glassfleet.contract.scheme import Scheme, input_quantiles_of, personal_model
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import INPUT_QUANTILES, Domain
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.model.protocol import Model
from glassfleet.simulation import Outcome, central, drawn, federated, learn_local
from lab.experiments.workers import Worker, ask_all, serve
from lab.protocols import fedga, frbc, tsk
from lab.protocols.frbc import Skew, f1_scores, skewed_split
from lab.protocols.paper import NESTED_KFOLD, PaperProtocol, quantile_domain, rmse

SETTINGS = ("local", "federated", "central")
"""LL, FL and CL in full."""

ARRAYS = ("X", "y")

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
    """

    scheme: str
    parameters: dict[str, Any]
    protocol: str
    clients: int
    folds: int
    seed: int
    settings: list[str]
    participation: float = 1.0
    skew: Skew = "iid"


OF_SCHEMES = {"dp_tree": fedga.PROTOCOL, "fedga": fedga.PROTOCOL, "frbc": frbc.PROTOCOL, "tsk": tsk.PROTOCOL}


def protocol_of(scheme: Scheme, *, labels: bool = False) -> PaperProtocol:
    """Return the protocol of the scheme's paper; of other schemes, that of its purpose, with the limits that it wants.

    Parameters
    ----------
    scheme : Scheme
    labels : bool
        Whether the target is a class label; of interest for schemes with both purposes.
    """
    if "regression" not in scheme.purpose or labels:
        return OF_SCHEMES.get(scheme.name, frbc.PROTOCOL)
    if scheme.abilities.input_quantiles != INPUT_QUANTILES:
        limits = partial(quantile_domain, input_quantiles=input_quantiles_of(scheme))
        return replace(NESTED_KFOLD, domain=limits)
    return OF_SCHEMES.get(scheme.name, NESTED_KFOLD)


def plan_of(
    scheme: Scheme,
    data: Dataset,
    parameters: Mapping[str, Any],
    settings: Sequence[str],
    protocol: str = "paper",
) -> Plan:
    """Return the plan of the protocol of a scheme's paper, with its parameters where `parameters` has no others.

    Raises
    ------
    UsageError
        The parameters are not the scheme's.
    """
    paper = _protocol(scheme, data)
    wanted = paper.parameters if protocol == "paper" else {}
    known = {name: value for name, value in wanted.items() if name in scheme.Parameters.model_fields}
    chosen = checked_parameters(scheme, {**known, **parameters}).model_dump(mode="json")
    return Plan(scheme.name, chosen, protocol, paper.clients, paper.folds, paper.seed, list(settings))


def run_fold(plan: Plan, data: Dataset, fold: int) -> FoldResult:
    """Learn and score every setting of a fold, in [0, plan.folds)."""
    scheme = catalogue.load(plan.scheme)
    parameters = scheme.Parameters.model_validate(plan.parameters)
    train, test, domain, domain_seconds, width = rows_of(plan, data, fold)
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


def rows_of(plan: Plan, data: Dataset, fold: int) -> FoldRows:
    """Return the clients' rows and the domain of one fold, as `run_fold` learns from them."""
    scheme, where = catalogue.load(plan.scheme), (data.y, fold, plan.folds, plan.clients, plan.seed)
    paper, width = _protocol(scheme, data), 1.0
    split = paper.split(*where) if plan.skew == "iid" else skewed_split(*where, skew=plan.skew)
    if plan.protocol == "paper" and paper.scaled is not None:
        data, width = paper.scaled(data)
    # Padded, so that the order of names is the order of the parts.
    train, test = (
        {f"client-{index:04d}": data.at(part) for index, part in enumerate(parts)} for parts in zip(*split, strict=True)
    )
    started = time.perf_counter()
    if plan.protocol == "paper":
        domain = paper.domain(data)
    else:
        labels = data.y.dtype.kind == "U"
        wanted = DiscoveryParameters(
            features=data.features,
            target=data.target,
            input_quantiles=input_quantiles_of(scheme, labels=labels),
            labels=labels,
            categories=True,
            missing=True,
        )
        domain = discover(wanted, list(train.values()))
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


def _protocol(scheme: Scheme, data: Dataset) -> PaperProtocol:
    return protocol_of(scheme, labels=data.y.dtype.kind in "UO")


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


def run_folds(plan: Plan, data: Dataset, jobs: int) -> Iterator[tuple[int, FoldResult]]:
    """Yield (fold, result) as folds finish, on up to `jobs` processes; 1: in this process.

    Raises
    ------
    RunFailedError
        A fold failed, or a worker process died.
    """
    with tempfile.TemporaryDirectory(prefix="glassfleet-") as folder:
        for name in ARRAYS:
            np.save(Path(folder) / f"{name}.npy", getattr(data, name), allow_pickle=False)
        first = {"plan": asdict(plan), **{name: getattr(data, name) for name in ("features", "target", "categories")}}
        questions = [(fold, f"fold {fold}") for fold in range(plan.folds)]
        make = partial(Worker, "lab.experiments.folds", [folder], first)
        yield from ask_all(make, jobs, questions, lambda fold: run_fold(plan, data, fold))


def averages_of(plan: Plan, data: Dataset) -> dict[str, dict[str, Any]]:
    """Run all folds in this process; return :func:`lab.experiments.folds.mean_of` them."""
    return mean_of([run_fold(plan, data, fold) for fold in range(plan.folds)])


def answers(lines: Iterator[str], folder: Path) -> Iterator[str]:
    """Answer the lines that a worker reads: the plan and the columns, then fold after fold."""
    first = json.loads(next(lines))
    X, y = (np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS)
    categories = {name: tuple(texts) for name, texts in first["categories"].items()}
    data = Dataset(tuple(first["features"]), first["target"], X, y, categories=categories)
    plan = Plan(**first["plan"])
    return serve(lines, lambda fold: run_fold(plan, data, fold))


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
                label: {**line, "std": std_of(line["per_client"])} for label, line in lines.items()
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


def std_of(values: Sequence[float]) -> float:
    """Return the standard deviation (n - 1); 0 of a single value."""
    return stdev(values) if len(values) > 1 else 0.0
