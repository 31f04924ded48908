"""What each part of the fuzzy tree contributes, on training rows alone."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any
from unittest import mock

import numpy as np

from glassfleet.contract import catalogue
from glassfleet.contract.scheme import input_quantiles_of
from glassfleet.data.dataset import Dataset, pool
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.schemes.tree import messages, size
from glassfleet.schemes.tree.params import WAYS
from glassfleet.simulation import federated
from lab.benchmarks.measure import data_folder, print_table
from lab.experiments.rows import read_rows
from lab.papers.sizes import DATASETS
from lab.papers.work import fleet
from lab.protocols.paper import kfold, rmse

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


def ablation() -> None:
    """Three inner folds (QoE: blocks of time) of the training rows of the first outer fold."""
    cuts = {name: list(_cuts(name)) for name in (*DATASETS, "QoE")}
    lines = [[what, *(_error(each, *left_out) for each in cuts.values())] for what, left_out in WITHOUT.items()]
    print_table("RMSE on inner folds (rules)", ["", *cuts], lines)


def _cuts(name: str) -> Iterator[Cut]:
    if name == "QoE":
        rows = pool(list(fleet(data_folder(), "real")[0].values()))
        blocks = np.array_split(np.arange(rows.rows), 3)
        places = [(np.setdiff1d(np.arange(rows.rows), block), block) for block in blocks]
    else:
        every = read_rows(data_folder() / f"{name}.csv.gz", None, SCHEME)
        rows = every.at(next(iter(kfold(every.rows, 5)))[0])
        places = list(kfold(rows.rows, 3))
    yield from ((rows.at(learned), rows.at(scored)) for learned, scored in places)


def _error(cuts: list[Cut], module: Any, constant: str, value: Any, settings: dict[str, Any]) -> str:
    errors, rules = [], []
    for learned, scored in cuts:
        limits = input_quantiles_of(SCHEME)
        asked = DiscoveryParameters(features=learned.features, target=learned.target, input_quantiles=limits)
        with mock.patch.object(module, constant, value):
            parameters = SCHEME.Parameters(min_rows=1, **settings)
            model = federated(SCHEME, parameters, discover(asked, [learned]), {"all": learned}).model
        errors.append(rmse(model.predict(scored.X), scored.y))
        rules.append(len(model.rules()))
    return f"{fmean(errors):.4g} ({fmean(rules):.0f})"
