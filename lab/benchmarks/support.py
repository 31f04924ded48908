"""What `support` costs a private run: rounds, bytes and accuracy, beside one that opens whatever it rests on.

One group of fifteen vehicles that loses nobody learns what pooled rows would, so pooled rows are learned from. Test
rows: the first of five folds, or QoE's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glassfleet.contract import catalogue
from glassfleet.contract.messages import Task
from glassfleet.contract.scheme import input_quantiles_of, private_parameters
from glassfleet.data.dataset import Dataset, pool
from glassfleet.discovery import DISCOVERY, DiscoveryParameters, discover
from glassfleet.private.groups import SUPPORT_ROWS
from glassfleet.private.layout import layout_of
from glassfleet.simulation import federated
from lab.benchmarks.measure import data_folder, print_table
from lab.experiments.rows import read_rows
from lab.papers.work import fleet
from lab.protocols.paper import kfold, rmse

SETS = ("weather_izmir", "mortgage", "kinematics", "compactiv", "california", "qoe")
SCHEMES = ("tree", "frt", "tsk")
VEHICLES = 15


def support() -> None:
    """Learn each set with each scheme, with support and without."""
    for name in SCHEMES:
        rows = []
        for data in SETS:
            without, with_support = _learned(name, *_rows(data))
            row = [f"{a:.4g} / {b:.4g}" for a, b in zip(without, with_support, strict=True)]
            rows.append([data, *row, f"{100 * (with_support[-1] / without[-1] - 1):+.1f} %"])
        header = ["data", "rounds", "kB per vehicle", "rules", "test RMSE", ""]
        print_table(f"{name}: support 0 / {SUPPORT_ROWS}", header, rows)


def _rows(name: str) -> tuple[Dataset, Dataset]:
    """Return training and test rows."""
    if name == "qoe":
        train, test, _ = fleet(data_folder(), "real")
        return pool(list(train.values())), pool(list(test.values()))
    data = read_rows(data_folder() / f"{name}.csv.gz", None, catalogue.load("frt"))
    learned, held_out = next(kfold(data.rows, 5))
    return data.at(learned), data.at(held_out)


def _learned(name: str, train: Dataset, test: Dataset) -> list[list[float]]:
    """Return rounds, kB that a vehicle sends, rules and test RMSE; without support, then with it."""
    scheme: Any = catalogue.load(name)
    results = []
    for least in (0, SUPPORT_ROWS):
        wanted = DiscoveryParameters(
            features=train.features, target=train.target, input_quantiles=input_quantiles_of(scheme)
        )
        owner = np.arange(train.rows) % VEHICLES
        parts = [train.at(owner == i) for i in range(VEHICLES)]
        domain = discover(private_parameters(DISCOVERY, wanted, least), parts)
        parameters, sizes = private_parameters(scheme, scheme.Parameters(), least), list[int]()

        def listen(task: Task, _: Any, sizes: list[int] = sizes) -> None:
            sizes.append(8 * layout_of(scheme, task).size)

        outcome = federated(scheme, parameters, domain, {"all": train}, listen=listen)
        error = rmse(outcome.model.predict(test.X), test.y)
        results.append([outcome.rounds, sum(sizes) / 1000, len(outcome.model.rules()), error])
    return results
