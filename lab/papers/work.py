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
from numpy.typing import NDArray

from edge_agent.sources import read_source
from glassfleet.contract import catalogue
from glassfleet.contract.scheme import input_quantiles_of
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import INPUT_QUANTILES, Domain, Variable
from glassfleet.model.baseline import recorded
from glassfleet.model.intervals import errors_on, intervals, tell_forecasts
from glassfleet.simulation import central, drawn, federated
from lab.experiments.folds import SETTINGS, FoldRows, Parts, learn, measure, plan_of, rows_of, run_fold
from lab.experiments.rows import read_rows
from lab.experiments.workers import serve
from lab.protocols.fedga import run_split
from lab.protocols.frbc import f1_scores, reduction_curve
from lab.protocols.paper import quantile_domain, rmse
from lab.protocols.references import ANCHORS, fit_reference
from lab.qoe.simulator import simulate_vehicle
from lab.qoe.windows import labels_of

VEHICLES = 15
"""Of the simulated fleet, as many as the papers have."""

QUANTILES = 101
"""Points of a distribution of errors: its quantiles at 0, 1, ... 100 %."""

Arguments = Mapping[str, Any]

T = TypeVar("T")


def run_job(data: Path, kind: str, arguments: Arguments) -> Any:
    """Return a job's result, a JSON value; raises KeyError for an unknown kind."""
    return KINDS[kind](data, arguments)


# --- folds of a dataset -----------------------------------------------------------------------------------------------


@cache
def _rows(path: Path, scheme: str, *, labels: bool = False) -> Dataset:
    return read_rows(path, None, catalogue.load(scheme), labels=labels)


def _fold(data: Path, arguments: Arguments) -> Any:
    """One fold of ``glassfleet lab experiment``: arguments scheme, file, parameters, settings, fold, seed, skew."""
    scheme = catalogue.load(arguments["scheme"])
    rows = _rows(data / arguments["file"], scheme.name)
    plan = plan_of(scheme, rows, arguments.get("parameters", {}), arguments.get("settings", SETTINGS))
    changes = {name: arguments[name] for name in ("clients", "folds", "seed", "skew") if name in arguments}
    return run_fold(replace(plan, **changes), rows.X, rows.y, arguments["fold"])


def _fedga(data: Path, arguments: Arguments) -> Any:
    """One split of the genetic-algorithm paper: arguments scheme, file, parameters, split, participation."""
    scheme = catalogue.load(arguments["scheme"])
    dataset = _rows(data / arguments["file"], scheme.name, labels=arguments["classes"])
    parameters = scheme.Parameters.model_validate(arguments.get("parameters", {}))
    result = run_split(
        scheme, parameters, dataset, arguments["split"], participation=arguments.get("participation", 1.0)
    )
    return {**asdict(result), "deltas": result.deltas}


# --- the classifier paper ---------------------------------------------------------------------------------------------


def _nodes(data: Path, arguments: Arguments) -> FoldRows:
    """Return the nodes' rows of a fold of the classifier paper: arguments file, fold."""
    rows = _rows(data / arguments["file"], "frbc")
    return rows_of(plan_of(catalogue.load("frbc"), rows, {}, ()), rows.X, rows.y, arguments["fold"])


def _curve(data: Path, arguments: Arguments) -> Any:
    """F1 against the number of rules of one node's fold of the central model: arguments file, fold, sizes."""
    scheme, rows = catalogue.load("frbc"), _nodes(data, arguments)
    parameters = scheme.Parameters.model_validate({"n_sets": 5, "min_rows": 1})
    model = central(scheme, parameters, rows.domain, pool(list(rows.train.values()))).model
    test = pool(list(rows.test.values()))
    return [[size, scores] for size, scores in reduction_curve(model, test.X, test.y, arguments["sizes"])]


def _opaque(data: Path, arguments: Arguments) -> Any:
    """Score a reference on a fold of the classifier paper, per class and node: arguments file, reference, fold."""
    rows = _nodes(data, arguments)
    model = fit_reference(arguments["reference"], rows.domain, pool(list(rows.train.values())))
    classes = rows.domain.classes
    lines = [f1_scores(model.predict(test.X), test.y, classes) for test in rows.test.values()]
    return {label: [line[label] for line in lines] for label in classes}


# --- quality of experience --------------------------------------------------------------------------------------------

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
    train = {name: vehicle.dataset("train") for name, vehicle in vehicles.items()}
    test = {name: vehicle.dataset("test") for name, vehicle in vehicles.items()}
    pooled = pool(list(train.values()))
    return train, test, quantile_domain(pooled, input_quantiles)


def _qoe(data: Path, arguments: Arguments) -> Any:
    """Score a scheme on the vehicles: arguments source, scheme, parameters, setting, labels (Good and Poor) or not."""
    scheme = catalogue.load(arguments["scheme"])
    train, test, domain = fleet(data, arguments["source"], input_quantiles_of(scheme))
    if arguments.get("labels"):
        train, test, domain = _labelled(train, test, domain)
    parameters = scheme.Parameters.model_validate(arguments.get("parameters", {}))
    learned = learn(scheme, parameters, domain, train, setting=arguments["setting"], participation=1.0, seed=0)
    result = measure(learned, train, test)
    if not domain.classes:
        errors = [np.abs(learned.models[name].predict(part.X) - part.y) for name, part in test.items()]
        result["errors"] = _quantiles(np.concatenate(errors))
    return result


def _labelled(train: Parts, test: Parts, domain: Domain) -> Fleet:
    parts = [
        {
            name: Dataset(part.features, part.target, part.X, np.asarray(labels_of(part.y), dtype=np.str_))
            for name, part in half.items()
        }
        for half in (train, test)
    ]
    classes = tuple(sorted({str(label) for part in parts[0].values() for label in part.y}))
    return parts[0], parts[1], Domain(features=domain.features, label=domain.target_name, classes=classes)


def _qoe_reference(data: Path, arguments: Arguments) -> Any:
    """Score a central reference on the vehicles: arguments source, reference."""
    train, test, domain = fleet(data, arguments["source"])
    model = fit_reference(arguments["reference"], domain, pool(list(train.values())))
    return {"test": [rmse(model.predict(part.X), part.y) for part in test.values()]}


def _dropping(data: Path, arguments: Arguments) -> Any:
    """FL when some vehicles, drawn anew in each round, answer: arguments source, scheme, parameters, count, repeats."""
    train, test, domain = fleet(data, arguments["source"])
    scheme = catalogue.load(arguments["scheme"])
    parameters = scheme.Parameters.model_validate(arguments.get("parameters", {}))
    assert domain.target is not None
    low, high = domain.target.low, domain.target.high
    means: dict[str, list[float]] = {"as_is": [], "limited": []}
    for repeat in range(arguments["repeats"]):
        model = federated(scheme, parameters, domain, train, 0, present=drawn(arguments["count"], repeat)).model
        pairs = [(model.predict(part.X), part.y) for part in test.values()]
        means["as_is"].append(fmean(rmse(predicted, y) for predicted, y in pairs))
        means["limited"].append(fmean(rmse(np.clip(predicted, low, high), y) for predicted, y in pairs))
    return means


# --- accuracy against size --------------------------------------------------------------------------------------------


def _parts(data: Path, arguments: Arguments, input_quantiles: tuple[float, float] = INPUT_QUANTILES) -> Fleet:
    """Return clients' training and test rows and the domain: one fold of a file, or of the vehicles."""
    if not arguments.get("file"):
        return fleet(data, arguments["source"], input_quantiles)
    table = _rows(data / arguments["file"], "frt")
    rows = rows_of(plan_of(catalogue.load("frt"), table, {}, ()), table.X, table.y, arguments["fold"])
    return rows.train, rows.test, quantile_domain(table, input_quantiles)


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


def _sized(data: Path, arguments: Arguments) -> Any:
    """Score a fleet's model, and say how large it is: arguments scheme, parameters, file and fold, or source."""
    scheme = catalogue.load(arguments["scheme"])
    train, test, domain = _parts(data, arguments, input_quantiles_of(scheme))
    parameters = scheme.Parameters.model_validate(arguments["parameters"])
    outcome, taken = _measured(lambda: federated(scheme, parameters, domain, train))
    return {
        "test": fmean(rmse(outcome.model.predict(part.X), part.y) for part in test.values()),
        **taken,
        "complexity": dict(outcome.model.complexity()),
        "bytes": outcome.bytes_up / len(train),
        "rounds": outcome.rounds,
    }


def _sized_reference(data: Path, arguments: Arguments) -> Any:
    """Score a central reference between our trees' limits: arguments reference, file and fold, or source."""
    train, test, domain = _parts(data, arguments, input_quantiles_of(catalogue.load("tree")))
    pooled = pool(list(train.values()))
    model, taken = _measured(lambda: fit_reference(arguments["reference"], domain, pooled))
    return {
        "test": fmean(rmse(model.predict(part.X), part.y) for part in test.values()),
        **taken,
        "bytes": pooled.rows * (len(pooled.features) + 1) * 8 / len(train),
        "inputs": len(pooled.features),
    }


def _sized_anchor(data: Path, arguments: Arguments) -> Any:
    """Score a learner of another project on the same rows, not scaled: arguments anchor, file and fold, or source."""
    train, test, _ = _parts(data, arguments)
    pooled, anchor = pool(list(train.values())), ANCHORS[arguments["anchor"]]
    with warnings.catch_warnings():
        # Cubist is given arrays, and says at each forecast that their columns have no names.
        warnings.simplefilter("ignore", UserWarning)
        fitted, taken = _measured(lambda: anchor.make().fit(pooled.X, pooled.y))
        errors = [rmse(fitted.predict(part.X), part.y) for part in test.values()]
    return {"test": fmean(errors), **taken, "complexity": dict(anchor.size(fitted))}


# --- intervals --------------------------------------------------------------------------------------------------------


def _covered(data: Path, arguments: Arguments) -> Any:
    """Count how often intervals hold on a client that was left out: arguments as of `_sized`, and left.

    The others learn from their training rows and count errors on their test rows.
    """
    scheme = catalogue.load(arguments["scheme"])
    train, test, domain = _parts(data, arguments, input_quantiles_of(scheme))
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


def _quantiles(values: NDArray[np.float64]) -> list[float]:
    quantiles: list[float] = np.quantile(values, np.linspace(0.0, 1.0, QUANTILES)).tolist()
    return quantiles


KINDS: Mapping[str, Callable[[Path, Arguments], Any]] = {
    "fold": _fold,
    "fedga": _fedga,
    "curve": _curve,
    "opaque": _opaque,
    "qoe": _qoe,
    "qoe-reference": _qoe_reference,
    "dropping": _dropping,
    "sized": _sized,
    "sized-reference": _sized_reference,
    "sized-anchor": _sized_anchor,
    "covered": _covered,
}
"""What a job can be."""


if __name__ == "__main__":
    _folder = Path(json.loads(next(sys.stdin)))
    for _reply in serve(sys.stdin, lambda asked: run_job(_folder, asked["kind"], asked["arguments"])):
        print(_reply, flush=True)  # noqa: T201 - the parent reads it
