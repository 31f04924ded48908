"""The published tables of the TSK paper come out with the printed digits, and pooled consequents do better."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassfleet.catalogue import load
from glassfleet.data import Dataset
from glassfleet.protocols_tsk import PAPER, SPLIT_SEED, Summary, paper_fold, summarise

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

TABLES: dict[str, Any] = {
    # dataset: (unit of print, (train, test) of LL, of FL, of CL, rules of LL, CL, FL): Table III, Table V
    "weather_izmir": (1.0, (1.13, 2.76), (1.32, 1.42), (1.28, 1.38), (13.96, 13.40, 27.80)),
    "mortgage": (1e-3, (1.52, 45.71), (11.52, 14.77), (3.99, 6.36), (21.60, 21.00, 46.00)),
    "california": (1e9, (4.71, 4.88), (4.78, 4.83), (4.78, 4.81), (8.80, 8.60, 10.20)),
}

SEEDS = {"weather_izmir": 19}

DATASETS = [pytest.param(name, marks=[pytest.mark.slow] if name == "california" else []) for name in TABLES]


def _read(folder: Path, name: str) -> Dataset:
    with gzip.open(folder / f"{name}.csv.gz", "rt", newline="") as file:
        lines = csv.reader(file)
        header = next(lines)
        table = np.array([[float(cell) for cell in line] for line in lines])
    return Dataset(tuple(header[:-1]), header[-1], table[:, :-1].copy(), table[:, -1].copy())


def _run(dataset: Dataset, name: str, *settings: Any, **parameters: Any) -> Summary:
    scheme, seed = load("tsk"), SEEDS.get(name, SPLIT_SEED)
    chosen = scheme.Parameters(**{**PAPER, **parameters})
    return summarise([paper_fold(scheme, chosen, dataset, fold, seed=seed, settings=settings) for fold in range(5)])


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", DATASETS)
def test_paper_protocol_gives_published_digits(glassfleet_data: Path, name: str) -> None:
    unit, local, federated, central, rules = TABLES[name]
    result = _run(_read(glassfleet_data, name), name, "LL", "FL", "CL")

    printed = {
        setting: (f"{result.train[setting] / unit:.2f}", f"{result.test[setting] / unit:.2f}")
        for setting in result.train
    }
    assert printed == {
        setting: tuple(f"{number:.2f}" for number in pair)
        for setting, pair in (("LL", local), ("FL", federated), ("CL", central))
    }
    assert tuple(round(result.rules[setting], 2) for setting in ("LL", "CL", "FL")) == rules


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", DATASETS)
def test_pooled_consequents_err_less_than_averaged_ones(glassfleet_data: Path, name: str) -> None:
    dataset = _read(glassfleet_data, name)
    averaged = _run(dataset, name, "FL")
    pooled = _run(dataset, name, "FL", consequents="pooled")
    assert pooled.test["FL"] < averaged.test["FL"]
    assert pooled.rules["FL"] <= averaged.rules["FL"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["weather_izmir", "mortgage"])
def test_federated_antecedents_err_as_the_central_model_does(glassfleet_data: Path, name: str) -> None:
    result = _run(_read(glassfleet_data, name), name, "FL", "CL", consequents="pooled", antecedents="federated")
    assert (result.train["FL"], result.test["FL"]) == (result.train["CL"], result.test["CL"])
    assert result.rules["FL"] == result.rules["CL"]
