"""The fuzzy model tree: seconds and bytes, and its accuracy beside FRT, BMT and gradient boosting.

``python -m lab.benchmarks.fmt [speed] [qoe] [memory] [tables]``; all but ``speed`` read test rows, so they are for
reporting, not for choosing settings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from statistics import fmean
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor

from glassfleet import catalogue
from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain
from glassfleet.data.lags import Memory, Recall, remember
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.local import federated
from glassfleet.scheme import Done, Next, Scheme
from glassfleet.traits import input_quantiles_of
from lab.benchmarks.learning import INPUTS, made_up, unit_domain
from lab.benchmarks.measure import data_folder, machine, ms, print_table, timed
from lab.experiments.folds import Parts, averages_of, plan_of
from lab.experiments.rows import read_rows
from lab.papers.work import fleet
from lab.protocols.paper import client_parts, kfold, rmse
from schemas.codec import encode

FMT, FRT, BMT = catalogue.load("fmt"), catalogue.load("frt"), catalogue.load("bmt")
RNG = np.random.default_rng(0)
TABLES = ("weather_izmir", "mortgage", "kinematics", "compactiv", "california")
ACCURATE = {"max_slopes": 64, "size_tolerance": 0.01}
"""Settings that prefer accuracy to short rules."""
Models = tuple[tuple[str, Any, dict[str, Any]], ...]
"""Title, scheme and parameters of each."""
BLENDED: Models = (
    ("bmt, defaults", BMT, {}),
    ("bmt, max_rules=12", BMT, {"max_rules": 12}),
    ("bmt, max_rules=8", BMT, {"max_rules": 8}),
    ("bmt, compact", BMT, {"compact": True}),
)
"""The blended model tree, for the tables of accuracy."""
AS_THEY_ARE = {"min_rows": 1}
"""Rows are not condensed: the tables compare what is learned, with others that learn from the rows as they are."""


def speed() -> None:
    """A vehicle's answers over 36,000 rows, and a run of 15 vehicles."""
    data, rows = made_up(36_000), []
    step: Next | Done = FMT.server.start(FMT.Parameters(), unit_domain(), 0)
    for number in range(4):
        assert isinstance(step, Next)
        task = step.task

        def again(data: Dataset = data) -> Any:
            return FMT.client.contribute(task, data, RNG)  # noqa: B023 - used at once

        fresh = Dataset(data.features, data.target, data.X, data.y)
        first = timed(lambda: again(fresh), 1)[0]  # noqa: B023 - used at once
        warm, answer = timed(again, 9)
        nodes = len(task.body.get("nodes", [])) or 1
        rows.append([f"{number + 1}: {task.kind}", nodes, ms(first), ms(warm), len(encode(answer.to_value()))])
        step = FMT.server.reduce(step.state, [answer])
    print_table(
        f"FMT: a vehicle's first answers over 36,000 rows x {INPUTS} inputs",
        ["round", "nodes", "ms, rows fresh", "ms, rows prepared", "bytes"],
        rows,
    )
    fleet = {f"vehicle-{index:02d}": made_up(2367, seed=index) for index in range(15)}
    lines = []
    for settings in ({}, {"max_rules": 12}, {"max_rules": 12, "other_sets": ()}):
        seconds, outcome = timed(lambda: federated(FMT, FMT.Parameters(**settings), unit_domain(), fleet), 3)  # noqa: B023
        size = outcome.model.complexity()
        lines.append(
            [settings or "defaults", f"{seconds:.2f}", outcome.rounds, size["leaves"], outcome.bytes_up // 15 // 1000]
        )
    print_table(
        "FMT: a run of 15 vehicles x 2,367 rows in this process",
        ["settings", "s", "rounds", "rules", "kB per vehicle"],
        lines,
    )


BOOSTERS: dict[str, Any] = {
    "gradient boosting": GradientBoostingRegressor,
    "histogram gradient boosting": HistGradientBoostingRegressor,
}

QOE: Models = (
    ("frt, as published", FRT, {}),
    ("frt, prune=2", FRT, {"prune": 2.0}),
    ("frt, prune=2, max_slopes=6", FRT, {"prune": 2.0, "max_slopes": 6}),
    ("fmt, defaults", FMT, {}),
    ("fmt, one rule answers", FMT, {"inference": "one_rule"}),
    ("fmt, max_rules=12", FMT, {"max_rules": 12}),
    ("fmt, max_rules=12, other_sets=()", FMT, {"max_rules": 12, "other_sets": ()}),
    ("fmt, max_slopes=6", FMT, {"max_slopes": 6}),
    ("fmt, size_tolerance=0.06", FMT, {"size_tolerance": 0.06}),
    ("fmt, max_slopes=64, size_tolerance=0.01", FMT, ACCURATE),
    ("fmt, max_slopes=64, size_tolerance=0", FMT, {"max_slopes": 64, "size_tolerance": 0.0}),
    *BLENDED,
)
MEMORY: Models = (
    ("frt, as published", FRT, {}),
    ("frt, prune=2", FRT, {"prune": 2.0}),
    ("fmt, defaults", FMT, {}),
    ("fmt, one rule answers", FMT, {"inference": "one_rule"}),
    ("fmt, max_rules=12, max_regressors=16", FMT, {"max_rules": 12, "max_regressors": 16}),
    ("fmt, max_slopes=64, size_tolerance=0.01", FMT, ACCURATE),
    *BLENDED,
)


def qoe() -> None:
    """The three published vehicles of the QoE case."""
    train, test, domain = fleet(data_folder(), "real")
    _compare("QoE, three vehicles: test RMSE", QOE, lambda _: domain, train, test)


def memory() -> None:
    """The same vehicles with lagged features: a track of its own."""
    train, test, _ = fleet(data_folder(), "real")
    title = "QoE, three vehicles, with lagged features: test RMSE"
    _compare(title, MEMORY, lambda scheme: memory_domain(scheme, train), train, test)


def _compare(title: str, models: Models, domain_of: Callable[[Scheme], Domain], train: Parts, test: Parts) -> None:
    """Print the table of some models, each in its scheme's domain, and of boosting on the pooled rows in frt's."""
    rows = [[name, *_fleet(scheme, settings, domain_of(scheme), train, test)] for name, scheme, settings in models]
    domain = domain_of(FRT)
    pooled = pool([remember(data, domain.memory) for data in train.values()])
    for learner in BOOSTERS.values():
        fitted = learner(random_state=0).fit(pooled.X, pooled.y)
        errors = [rmse(fitted.predict(remember(data, domain.memory).X), data.y) for data in test.values()]
        rows.append([f"{type(fitted).__name__}, pooled rows", "", "", "", *_digits(errors, 4)])
    print_table(title, ["model", "rules", "parameters", "kB per vehicle", *sorted(test), "mean"], rows)


def _fleet(scheme: Any, settings: dict[str, Any], domain: Domain, train: Parts, test: Parts) -> list[Any]:
    """Return rules, parameters, bytes and errors of a federated run; test rows get the domain's lagged features."""
    outcome = federated(scheme, scheme.Parameters(**AS_THEY_ARE, **settings), domain, train)
    remembered = [remember(data, domain.memory) for data in test.values()]
    errors = [rmse(outcome.model.predict(data.X), data.y) for data in remembered]
    size = outcome.model.complexity()
    return [size["leaves"], size["parameters"], outcome.bytes_up // len(train) // 1000, *_digits(errors, 4)]


def memory_domain(scheme: Scheme, train: Parts) -> Domain:
    """Return the domain, found for `scheme`, of the QoE vehicles with every input's change since the row before."""
    names = next(iter(train.values())).features
    memory = Memory(inputs=tuple(Recall(input=name, difference=1) for name in names))
    bounds = dict.fromkeys((*names, "y"), (0.0, 1.0)) | dict.fromkeys(memory.columns, (-1.0, 1.0))
    asked = DiscoveryParameters(
        features=(*names, *memory.columns),
        target="y",
        bounds=bounds,
        input_quantiles=input_quantiles_of(scheme),
        memory=memory,
    )
    return discover(asked, list(train.values()))


def _digits(errors: list[float], digits: int) -> list[str]:
    return [f"{error:.{digits}f}" for error in [*errors, fmean(errors)]]


def tables() -> None:
    """The five sets of the FRT paper, its protocol: 5 folds, 5 clients, FL."""
    rows = []
    for name in TABLES:
        data = read_rows(data_folder() / f"{name}.csv.gz", None, FRT)
        row: list[Any] = [name]
        for scheme, settings in ((FMT, {}), (FMT, ACCURATE), (FRT, {})):
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
            *(f"{m} {c}" for m in ("fmt", "fmt, all slopes,", "frt") for c in ("rules", "size", "RMSE")),
            *BOOSTERS,
        ],
        rows,
    )


if __name__ == "__main__":
    known: dict[str, Callable[[], None]] = {"speed": speed, "qoe": qoe, "memory": memory, "tables": tables}
    asked = sys.argv[1:] or list(known)
    if unknown := sorted(set(asked) - set(known)):
        raise SystemExit(f"no benchmark {unknown[0]!r}; known: {', '.join(known)}")
    print(f"Machine: {machine()}.")
    for chosen in asked:
        known[chosen]()
