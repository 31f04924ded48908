"""The fuzzy tree: seconds and bytes, and their accuracy beside FRT and gradient boosting.

``python -m lab.benchmarks.tree [speed] [parts] [qoe] [changes] [tables]``; all but the first two read test rows, so
they are for reporting, not for choosing settings.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from statistics import fmean
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

from glassfleet.contract import catalogue
from glassfleet.contract.scheme import Scheme, input_quantiles_of
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.schemes.tree import messages, size
from glassfleet.schemes.tree.params import WAYS
from glassfleet.simulation import federated
from lab.benchmarks.measure import data_folder, machine, made_up, print_table, timed, unit_domain
from lab.experiments.folds import Parts, averages_of, plan_of, rows_of
from lab.experiments.rows import read_rows
from lab.papers.work import fleet
from lab.protocols.paper import client_parts, kfold, rmse

TREE, FRT = catalogue.load("tree"), catalogue.load("frt")
RNG = np.random.default_rng(0)
TABLES = ("weather_izmir", "mortgage", "kinematics", "compactiv", "california")
Models = tuple[tuple[str, Any, dict[str, Any]], ...]
"""Title, scheme and parameters of each."""
AS_THEY_ARE = {"min_rows": 1}
"""Rows are not condensed: the tables compare what is learned, with others that learn from the rows as they are."""
RUNS: Models = (
    ("tree, defaults", TREE, {}),
    ("tree, max_rules=12", TREE, {"max_rules": 12}),
    ("tree, compact", TREE, {"compact": True}),
)
"""Whole runs, for seconds and bytes; and in the tables of accuracy."""
TABLED: Models = (RUNS[0], RUNS[2], ("frt", FRT, {}))
"""On the five sets of the FRT paper."""


def speed() -> None:
    """Whole runs of fifteen vehicles, and of one with 36,000 rows."""
    data = made_up(36_000)
    _runs("15 vehicles x 2,367 rows", unit_domain(), {f"vehicle-{i:02d}": made_up(2367, seed=i) for i in range(15)})
    _runs("One vehicle x 36,000 rows, an easy target", unit_domain(), {"vehicle": data})
    _runs("One vehicle x 36,000 rows, a hard target", unit_domain(), {"vehicle": hard(data)})
    rows_of_all = read_rows(data_folder() / "california.csv.gz", None, TREE)
    fold = rows_of(plan_of(TREE, rows_of_all, {}, ()), rows_of_all.X, rows_of_all.y, 0)
    _runs("California, first fold, five clients", fold.domain, fold.train)


def hard(data: Dataset) -> Dataset:
    """Return rows with a target that bends, jumps and multiplies."""
    x = data.X.T
    y = np.sin(6 * x[0]) * x[1] + np.cos(5 * x[2] * x[3]) + 2 * (x[4] > 0.4) * x[5]
    y += np.abs(x[6] - 0.5) * x[7] + np.sin(8 * x[8] * x[0]) + RNG.normal(0.0, 0.05, data.rows)
    return Dataset(data.features, data.target, data.X, (y - y.min()) / np.ptp(y))


def _runs(title: str, domain: Domain, fleet: Parts) -> None:
    """Print what whole runs over rows as they are take of one core, and send."""
    lines = []
    for name, scheme, settings in RUNS:
        spent: list[list[float]] = [[], [], []]
        client = SimpleNamespace(contribute=_clocked(scheme.client.contribute, spent[0]))
        server = SimpleNamespace(start=scheme.server.start, check=_clocked(scheme.server.check, spent[1]))
        server.reduce = _clocked(scheme.server.reduce, spent[2])
        parameters = scheme.Parameters(**AS_THEY_ARE, **settings)
        outcome = federated(cast("Any", SimpleNamespace(client=client, server=server)), parameters, domain, fleet)
        seconds = [*map(sum, spent), sum(map(sum, spent))]
        sent = f"{outcome.bytes_up / len(fleet) / 1e6:.2f}"
        lines.append([name, *(f"{each:.2f}" for each in seconds), outcome.rounds, len(outcome.model.rules()), sent])
    header = ["model", "s: vehicles", "checks", "coordinator", "in all", "rounds", "rules", "MB per vehicle"]
    print_table(f"{title}: a run in this process, processor time", header, lines)


def _clocked(work: Callable[..., Any], spent: list[float]) -> Callable[..., Any]:
    """Return `work` with its processor seconds noted."""

    def call(*given: Any) -> Any:
        seconds, result = timed(lambda: work(*given), 1, time.process_time)
        spent.append(seconds)
        return result

    return call


BOOSTERS: dict[str, Any] = {
    "gradient boosting": GradientBoostingRegressor,
    "histogram gradient boosting": HistGradientBoostingRegressor,
}

PAPERS: Models = (
    ("frt, as published", FRT, {}),
    ("frt, prune=2", FRT, {"prune": 2.0}),
    ("frt, prune=2, max_slopes=6", FRT, {"prune": 2.0, "max_slopes": 6}),
)
QOE: Models = (*PAPERS, *RUNS, ("tree, max_slopes=4", TREE, {"max_slopes": 4}))
CHANGES: Models = (*PAPERS[:2], *RUNS)


def qoe() -> None:
    """The three published vehicles of the QoE case."""
    train, test, domain = fleet(data_folder(), "real")
    _compare("QoE, three vehicles: test RMSE", QOE, lambda _: domain, train, test)


def changes() -> None:
    """The same vehicles with each input's change as a further one: a track of its own."""
    train, test, _ = fleet(data_folder(), "real")
    train, test = with_changes(train), with_changes(test)
    title = "QoE, three vehicles, with each input's change: test RMSE"
    _compare(title, CHANGES, lambda scheme: changes_domain(scheme, train), train, test)


def _compare(title: str, models: Models, domain_of: Callable[[Scheme], Domain], train: Parts, test: Parts) -> None:
    """Print the table of some models, each in its scheme's domain, and of boosting on the pooled rows."""
    rows = [[name, *_fleet(scheme, settings, domain_of(scheme), train, test)] for name, scheme, settings in models]
    pooled = pool(list(train.values()))
    for learner in BOOSTERS.values():
        fitted = learner(random_state=0).fit(pooled.X, pooled.y)
        errors = [rmse(fitted.predict(data.X), data.y) for data in test.values()]
        rows.append([f"{type(fitted).__name__}, pooled rows", "", "", "", *_digits(errors, 4)])
    print_table(title, ["model", "rules", "parameters", "kB per vehicle", *sorted(test), "mean"], rows)


def _fleet(scheme: Any, settings: dict[str, Any], domain: Domain, train: Parts, test: Parts) -> list[Any]:
    """Return rules, parameters, bytes and errors of a federated run."""
    outcome = federated(scheme, scheme.Parameters(**AS_THEY_ARE, **settings), domain, train)
    errors = [rmse(outcome.model.predict(data.X), data.y) for data in test.values()]
    size = outcome.model.complexity()
    return [size["leaves"], size["parameters"], outcome.bytes_up // len(train) // 1000, *_digits(errors, 4)]


def with_changes(parts: Parts) -> Parts:
    """Return the vehicles with every input's change since the row before as a further one; 0 in the first row."""
    return {
        name: Dataset(
            (*data.features, *(f"{each}_change" for each in data.features)),
            data.target,
            np.hstack([data.X, np.diff(data.X, axis=0, prepend=data.X[:1])]),
            data.y,
        )
        for name, data in parts.items()
    }


def changes_domain(scheme: Scheme, train: Parts) -> Domain:
    """Return the domain of `with_changes`, found for `scheme`."""
    names = next(iter(train.values())).features
    bounds = {name: (-1.0, 1.0) if name.endswith("_change") else (0.0, 1.0) for name in (*names, "y")}
    asked = DiscoveryParameters(features=names, target="y", bounds=bounds, input_quantiles=input_quantiles_of(scheme))
    return discover(asked, list(train.values()))


def _digits(errors: list[float], digits: int) -> list[str]:
    return [f"{error:.{digits}f}" for error in [*errors, fmean(errors)]]


def tables() -> None:
    """The five sets of the FRT paper, its protocol: 5 folds, 5 clients, FL."""
    rows = []
    for name in TABLES:
        data = read_rows(data_folder() / f"{name}.csv.gz", None, FRT)
        row: list[Any] = [name]
        for _, scheme, settings in TABLED:
            result = averages_of(plan_of(scheme, data, {**AS_THEY_ARE, **settings}, ["federated"]), data)["federated"]
            row += [f"{result['complexity']['leaves']:.1f}", f"{result['complexity']['parameters']:.0f}"]
            row.append(f"{result['test_rmse']['mean']:.5g}")
        for learner in BOOSTERS.values():
            errors = []
            for train, test in kfold(data.rows, 5):
                fitted = learner(random_state=0).fit(data.X[train], data.y[train])
                errors += [rmse(fitted.predict(data.X[part]), data.y[part]) for part in client_parts(test)]
            row.append(f"{fmean(errors):.5g}")
        rows.append(row)
    print_table(
        "Test RMSE, protocol of the FRT paper, federated; boosting on the pooled rows",
        [
            "dataset",
            *(f"{model[0]}: {column}" for model in TABLED for column in ("rules", "size", "RMSE")),
            *BOOSTERS,
        ],
        rows,
    )


WITHOUT: dict[str, tuple[Any, str, Any, dict[str, Any]]] = {
    "as it is": (messages, "WAYS", WAYS, {}),
    "no price for narrow ramps": (messages, "WAYS", (0.0,), {}),
    "always the price": (messages, "WAYS", (3.0,), {}),
    "one rule": (messages, "WAYS", WAYS, {"max_rules": 1}),
    "no pull to the node above": (size, "KAPPAS", (0.001,), {}),
    "no slopes dropped": (size, "WORTHS", (0.0,), {"max_slopes": 32}),
    "constants in place of lines": (messages, "WAYS", WAYS, {"max_slopes": 0}),
    "size of the least held-out error": (messages, "WAYS", WAYS, {"size_tolerance": 0.0}),
}
"""What is left out: a constant of a module with another value, or other parameters."""


def parts() -> None:
    """What each part is worth: three inner folds (QoE: blocks of time) of the training rows of the first outer fold."""
    lines = []
    for name in (*TABLES, "qoe"):
        if name == "qoe":
            vehicles, _, _ = fleet(data_folder(), "real")
            rows = pool(list(vehicles.values()))
            cuts = [
                (np.concatenate([np.arange(lo), np.arange(hi, len(rows.y))]), np.arange(lo, hi))
                for lo, hi in ((i * len(rows.y) // 3, (i + 1) * len(rows.y) // 3) for i in range(3))
            ]
        else:
            read = read_rows(data_folder() / f"{name}.csv.gz", None, TREE)
            first = next(iter(kfold(read.rows, 5)))[0]
            rows = Dataset(read.features, read.target, read.X[first], read.y[first])
            cuts = [(train, test) for train, test in kfold(rows.rows, 3)]
        line: list[Any] = [name]
        for module, constant, value, settings in WITHOUT.values():
            errors, rules = [], []
            for learned, scored in cuts:
                inner = {"all": Dataset(rows.features, rows.target, rows.X[learned], rows.y[learned])}
                asked = DiscoveryParameters(
                    features=rows.features, target=rows.target, input_quantiles=input_quantiles_of(TREE)
                )
                with mock.patch.object(module, constant, value):
                    model = federated(
                        TREE, TREE.Parameters(**AS_THEY_ARE, **settings), discover(asked, list(inner.values())), inner
                    ).model
                errors.append(rmse(model.predict(rows.X[scored]), rows.y[scored]))
                rules.append(len(model.rules()))
            line.append(f"{fmean(errors):.4g} ({fmean(rules):.0f})")
        lines.append(line)
    print_table("RMSE on inner folds (rules)", ["", *WITHOUT], lines)


if __name__ == "__main__":
    known: dict[str, Callable[[], None]] = {
        "speed": speed,
        "parts": parts,
        "qoe": qoe,
        "changes": changes,
        "tables": tables,
    }
    asked = sys.argv[1:] or list(known)
    if unknown := sorted(set(asked) - set(known)):
        raise SystemExit(f"no benchmark {unknown[0]!r}; known: {', '.join(known)}")
    print(f"Machine: {machine()}.")
    for chosen in asked:
        known[chosen]()
