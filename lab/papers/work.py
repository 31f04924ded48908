"""Does one job. As a program (``python -m lab.papers.work``) it is a worker process of a report."""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from edge_agent.sources import read_source
from glassfleet.contract import catalogue
from glassfleet.contract.scheme import input_quantiles_of
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import INPUT_QUANTILES, Domain, Variable
from glassfleet.model.baseline import recorded
from glassfleet.model.intervals import errors_on, intervals, tell_forecasts
from glassfleet.simulation import central, drawn, federated
from lab.experiments.folds import SETTINGS, Parts, learn, measure, plan_of, rows_of, run_fold, scored
from lab.experiments.rows import read_rows
from lab.experiments.workers import serve
from lab.protocols.fedga import run_split
from lab.protocols.frbc import reduction_curve
from lab.protocols.paper import quantile_domain, rmse
from lab.protocols.references import ANCHORS, fit_reference
from lab.qoe.simulator import simulate_vehicle
from lab.qoe.windows import labels_of

VEHICLES = 15
"""Of the simulated fleet, as many as the papers have."""

Arguments = Mapping[str, Any]

T = TypeVar("T")


def run_job(data: Path, kind: str, arguments: Arguments) -> Any:
    """Return a job's result, a JSON value; raises KeyError for an unknown kind."""
    return KINDS[kind](data, arguments)


@cache
def _rows(path: Path, scheme: str, *, labels: bool = False) -> Dataset:
    return read_rows(path, None, catalogue.load(scheme), labels=labels)


def _fold(data: Path, arguments: Arguments) -> Any:
    """One fold of ``glassfleet lab experiment``: arguments scheme, file, parameters, settings, fold, seed, skew."""
    scheme = catalogue.load(arguments["scheme"])
    rows = _rows(data / arguments["file"], scheme.name)
    plan = plan_of(scheme, rows, arguments.get("parameters", {}), arguments.get("settings", SETTINGS))
    changes = {name: arguments[name] for name in ("clients", "folds", "seed", "skew") if name in arguments}
    return run_fold(replace(plan, **changes), rows, arguments["fold"])


def _fedga(data: Path, arguments: Arguments) -> Any:
    """One split of the genetic-algorithm paper: arguments scheme, file, parameters, split, participation."""
    scheme = catalogue.load(arguments["scheme"])
    dataset = _rows(data / arguments["file"], scheme.name, labels=arguments["classes"])
    parameters = scheme.Parameters.model_validate(arguments.get("parameters", {}))
    result = run_split(
        scheme, parameters, dataset, arguments["split"], participation=arguments.get("participation", 1.0)
    )
    return {**asdict(result), "deltas": result.deltas}


def _curve(data: Path, arguments: Arguments) -> Any:
    """F1 against the number of rules of a fold of the classifier paper's central model: arguments file, fold, sizes."""
    scheme = catalogue.load("frbc")
    train, test, domain = _parts(data, {**arguments, "protocol": "frbc"})
    parameters = scheme.Parameters.model_validate({"n_sets": 5, "min_rows": 1})
    model = central(scheme, parameters, domain, pool(list(train.values()))).model
    rows = pool(list(test.values()))
    return [[size, scores] for size, scores in reduction_curve(model, rows.X, rows.y, arguments["sizes"])]


# --- what is learned from the clients of a fold, or from vehicles -----------------------------------------------------


Fleet = tuple[Parts, Parts, Domain]


@cache
def fleet(data: Path, source: str, input_quantiles: tuple[float, float] = INPUT_QUANTILES) -> Fleet:
    """Return training and test rows by vehicle, and the domain: ``"real"`` files, or ``"simulated"`` vehicles."""
    if source == "real":
        sources = {path.name.partition(".")[0]: read_source(path) for path in sorted((data / "qoe").glob("*.csv.gz"))}
        train = {name: part.train for name, part in sources.items()}
        test = {name: part.test for name, part in sources.items()}
        first = next(iter(train.values()))
        # The published rows are scaled already.
        features = tuple(Variable(name=name, low=0.0, high=1.0) for name in first.features)
        return train, test, Domain(features=features, target=Variable(name=first.target, low=0.0, high=1.0))
    vehicles = {f"vehicle-{number:02d}": simulate_vehicle(number) for number in range(VEHICLES)}
    train, test = ({name: each.dataset(split) for name, each in vehicles.items()} for split in ("train", "test"))
    return train, test, quantile_domain(pool(list(train.values())), input_quantiles)


def _parts(data: Path, arguments: Arguments) -> Fleet:
    """Return training and test rows by client, and the domain: arguments source, or file, fold and protocol; limits.

    The rows of a file are those of a fold of the paper that `protocol` names, frt's if none is named. The domain has
    the limits that the scheme `limits` wants, else the paper's.
    """
    limits = input_quantiles_of(catalogue.load(arguments["limits"])) if "limits" in arguments else INPUT_QUANTILES
    if "file" not in arguments:
        return fleet(data, arguments["source"], limits)
    scheme = catalogue.load(arguments.get("protocol", "frt"))
    table = _rows(data / arguments["file"], scheme.name)
    rows = rows_of(plan_of(scheme, table, {}, ()), table, arguments["fold"])
    return rows.train, rows.test, quantile_domain(table, limits) if "limits" in arguments else rows.domain


def _fleet(data: Path, arguments: Arguments) -> Any:
    """Score a scheme: arguments as of `_parts`, scheme, parameters, setting, labels (Good and Poor) or not."""
    scheme = catalogue.load(arguments["scheme"])
    train, test, domain = _parts(data, {"limits": scheme.name, **arguments})
    if arguments.get("labels"):
        train, test = ({name: _labelled(part) for name, part in parts.items()} for parts in (train, test))
        classes = tuple(sorted({str(label) for part in train.values() for label in part.y}))
        domain = Domain(features=domain.features, label=domain.target_name, classes=classes)
    parameters = scheme.Parameters.model_validate(arguments["parameters"])
    how: Any = {"setting": arguments.get("setting", "federated"), "participation": 1.0, "seed": 0}
    learned, taken = _measured(lambda: learn(scheme, parameters, domain, train, **how))
    return {**measure(learned, train, test), **taken}


def _labelled(part: Dataset) -> Dataset:
    return Dataset(part.features, part.target, part.X, np.asarray(labels_of(part.y), dtype=np.str_))


def _reference(data: Path, arguments: Arguments) -> Any:
    """Score a central reference: arguments as of `_parts`, reference."""
    train, test, domain = _parts(data, arguments)
    pooled = pool(list(train.values()))
    model, taken = _measured(lambda: fit_reference(arguments["reference"], domain, pooled))
    sent = pooled.rows * (len(pooled.features) + 1) * 8
    return {**scored("test", dict.fromkeys(test, model), test, domain.classes), **taken, "bytes_up": sent}


def _anchor(data: Path, arguments: Arguments) -> Any:
    """Score a learner of another project on the same rows, not scaled: arguments as of `_parts`, anchor."""
    train, test, _ = _parts(data, arguments)
    pooled, anchor = pool(list(train.values())), ANCHORS[arguments["anchor"]]
    with warnings.catch_warnings():
        # Cubist is given arrays, and says at each forecast that their columns have no names.
        warnings.simplefilter("ignore", UserWarning)
        fitted, taken = _measured(lambda: anchor.make().fit(pooled.X, pooled.y))
        errors = scored("test", dict.fromkeys(test, fitted), test)
    return {**errors, **taken, "complexity": dict(anchor.size(fitted))}


def _dropping(data: Path, arguments: Arguments) -> Any:
    """FL when some vehicles, drawn anew in each round, answer: arguments source, scheme, parameters, count, repeats."""
    train, test, domain = fleet(data, arguments["source"])
    scheme = catalogue.load(arguments["scheme"])
    parameters = scheme.Parameters.model_validate(arguments["parameters"])
    assert domain.target is not None
    low, high = domain.target.low, domain.target.high
    means: dict[str, list[float]] = {"as_is": [], "limited": []}
    for repeat in range(arguments["repeats"]):
        model = federated(scheme, parameters, domain, train, 0, present=drawn(arguments["count"], repeat)).model
        pairs = [(model.predict(part.X), part.y) for part in test.values()]
        means["as_is"].append(fmean(rmse(predicted, y) for predicted, y in pairs))
        means["limited"].append(fmean(rmse(np.clip(predicted, low, high), y) for predicted, y in pairs))
    return means


def _measured(learn: Callable[[], T]) -> tuple[T, dict[str, float]]:
    """Return what is learned, the seconds of processor time that it took, and the most memory beyond what was there."""
    before = time.process_time()
    base = most = _resident()
    done = threading.Event()

    def look() -> None:
        nonlocal most
        while not done.wait(0.005):
            most = max(most, _resident())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        learned = learn()
    finally:
        done.set()
        looking.join()
    most = max(most, _resident())
    return learned, {"seconds": time.process_time() - before, "megabytes": (most - base) / 1e6}


def _resident() -> int:
    """Return the bytes of memory that this process has (Linux)."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


# --- intervals --------------------------------------------------------------------------------------------------------


def _covered(data: Path, arguments: Arguments) -> Any:
    """Count how often intervals hold on a client that was left out: arguments as of `_fleet`, and left.

    The others learn from their training rows and count errors on their test rows.
    """
    scheme = catalogue.load(arguments["scheme"])
    train, test, domain = _parts(data, {"limits": scheme.name, **arguments})
    left = sorted(train)[arguments["left"]]
    outcome = federated(
        scheme,
        scheme.Parameters.model_validate(arguments["parameters"]),
        domain,
        {name: part for name, part in train.items() if name != left},
    )
    model, rows = outcome.model, pool([part for name, part in test.items() if name != left])
    tell_forecasts(model, recorded(outcome.summary, errors_on(model, rows.X, rows.y)))
    new = pool([train[left], test[left]])
    lines = model.deciding(new.X)
    low, high = intervals(model, new.X).T
    within = (low <= new.y) & (new.y <= high)
    return {
        "counted": rows.rows,
        "rows": new.rows,
        "within": int(within.sum()),
        "width": float(np.median(high - low)),
        "rmse": rmse(model.predict(new.X), new.y),
        "rules": [
            [rule.forecast.errors.own, int((lines == rule.index).sum()), int(within[lines == rule.index].sum())]
            for rule in model.rules()
            if rule.forecast is not None and rule.forecast.errors is not None
        ],
    }


KINDS: Mapping[str, Callable[[Path, Arguments], Any]] = {
    "fold": _fold,
    "fedga": _fedga,
    "curve": _curve,
    "fleet": _fleet,
    "reference": _reference,
    "anchor": _anchor,
    "dropping": _dropping,
    "covered": _covered,
}
"""What a job can be."""


if __name__ == "__main__":
    _folder = Path(json.loads(next(sys.stdin)))
    for _reply in serve(sys.stdin, lambda asked: run_job(_folder, asked["kind"], asked["arguments"])):
        print(_reply, flush=True)  # noqa: T201 - the parent reads it
