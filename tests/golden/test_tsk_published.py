"""The published tables of the TSK paper come out with the printed digits, and pooled consequents do better."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.catalogue import load
from glassfleet.contract.scheme import promises_central
from glassfleet.data.dataset import Dataset, pool
from glassfleet.simulation import central, federated
from lab.experiments.folds import Plan, averages_of, plan_of, rows_of
from lab.protocols.paper import rmse
from lab.protocols.tsk import SPLIT_SEED
from schemas.codec import document_digest
from tests.support.datasets import dataset, drives
from tests.support.sample_models import unit_domain

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

TABLES: dict[str, Any] = {
    # dataset: (unit of print, (train, test) of LL, of FL, of CL, rules of LL, CL, FL): Table III, Table V
    "weather_izmir": (1.0, (1.13, 2.76), (1.32, 1.42), (1.28, 1.38), (13.96, 13.40, 27.80)),
    "mortgage": (1e-3, (1.52, 45.71), (11.52, 14.77), (3.99, 6.36), (21.60, 21.00, 46.00)),
    "california": (1e9, (4.71, 4.88), (4.78, 4.83), (4.78, 4.81), (8.80, 8.60, 10.20)),
}

UNITS = {name: table[0] for name, table in TABLES.items()} | {"diabetes": 1e3}
SEEDS = {"weather_izmir": 19}

QUICK = "weather_izmir"
DATASETS = [pytest.param(name, marks=[] if name == QUICK else [pytest.mark.slow]) for name in TABLES]


def _plan(data: Dataset, name: str, *settings: str, **parameters: Any) -> Plan:
    return replace(plan_of(load("tsk"), data, parameters, settings), seed=SEEDS.get(name, SPLIT_SEED))


def _run(data: Dataset, name: str, *settings: str, **parameters: Any) -> dict[str, dict[str, Any]]:
    return averages_of(_plan(data, name, *settings, **parameters), data)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", DATASETS)
def test_paper_protocol_gives_published_digits(name: str) -> None:
    unit, *errors, rules = TABLES[name]
    result = _run(dataset(name), name, "local", "federated", "central")

    printed = [
        tuple(f"{each[f'{kind}_mse']['mean'] / unit:.2f}" for kind in ("train", "test")) for each in result.values()
    ]
    assert printed == [tuple(f"{number:.2f}" for number in pair) for pair in errors]
    assert tuple(round(result[each]["complexity"]["rules"], 2) for each in ("local", "central", "federated")) == rules


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*DATASETS, "diabetes"])
def test_pooled_consequents_err_less_than_averaged_ones(name: str) -> None:
    data = dataset(name)
    averaged = _run(data, name, "federated")["federated"]
    pooled = _run(data, name, "federated", consequents="pooled")["federated"]
    assert pooled["test_mse"]["mean"] < averaged["test_mse"]["mean"]
    assert pooled["complexity"]["rules"] <= averaged["complexity"]["rules"] + 1  # OTHERWISE


DEFAULTS: dict[str, Any] = {
    # dataset: (test MSE in the unit of print, rules) of the default, FL and CL alike
    "weather_izmir": (1.42, 13.6),
    "mortgage": (6.02, 22.2),
    "california": (4.68, 8.0),
    "diabetes": (3.64, 6.0),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*DATASETS, "diabetes"])
def test_default_gives_the_central_model_bit_for_bit_in_every_fold(name: str) -> None:
    data, scheme = dataset(name), load("tsk")
    exact = scheme.exact(scheme.Parameters())
    assert promises_central(scheme, exact)
    plan = _plan(data, name, "federated", **exact.model_dump(mode="json"))
    for unit in range(plan.folds):
        rows = rows_of(plan, data, unit)
        fleet = federated(scheme, exact, rows.domain, rows.train)
        alone = central(scheme, exact, rows.domain, pool(list(rows.train.values())))
        assert document_digest(fleet.model.to_document()) == document_digest(alone.model.to_document())
        assert fleet.summary["sums_digest"] == alone.summary["sums_digest"]
        assert fleet.rounds <= exact.max_rounds + 2
    result, (error, rules) = averages_of(plan, data)["federated"], DEFAULTS[name]
    assert round(result["test_mse"]["mean"] / UNITS[name], 2) == error
    assert round(result["complexity"]["rules"], 2) == rules


@pytest.mark.slow
@pytest.mark.parametrize("consequents", ["pooled", "averaged"])
def test_rows_that_no_rule_covers_are_what_makes_the_published_system_poor_on_quality_of_experience(
    consequents: str,
) -> None:
    scheme = load("tsk")
    sources = drives("qoe")
    names = sources[0].train.features
    domain = unit_domain(names)
    parameters = scheme.Parameters(consequents=consequents, min_rows=1)
    train = {f"v{number}": source.train for number, source in enumerate(sources)}
    model = federated(scheme, parameters, domain, train).model
    X, y = (np.concatenate([getattr(source.test, part) for source in sources]) for part in ("X", "y"))
    bare = np.array([model.explain(row).fallback for row in X[::5]])
    error = np.abs(np.clip(model.predict(X), 0.0, 1.0) - y)[::5]
    assert 0.1 < bare.mean() < 0.5
    limited = fmean(rmse(np.clip(model.predict(s.test.X), 0.0, 1.0), s.test.y) for s in sources)
    if consequents == "pooled":  # OTHERWISE answers for them
        assert limited == pytest.approx(0.2543, abs=1e-4)
        assert error[bare].mean() < 1.3 * error[~bare].mean()
    else:
        assert limited > 0.35
        assert error[bare].mean() > 2.0 * error[~bare].mean()
