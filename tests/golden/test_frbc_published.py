"""The published tables of the classifier paper come out with the printed digits (MAGIC, IID, ten nodes, five folds)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.contract.catalogue import load
from glassfleet.data.dataset import Dataset
from glassfleet.simulation import central
from lab.experiments.folds import plan_of, run_fold
from lab.papers.frbc import f1_of, rules_of
from lab.protocols.frbc import reduction_curve
from lab.protocols.paper import minmax_domain
from tests.support.datasets import dataset

PUBLISHED = {
    # setting: F1 g, F1 h (Table I), rules (Table II)
    "LL": ("0.857 ± 0.009", "0.676 ± 0.021", "455.5 ± 5.8"),
    "FL": ("0.867 ± 0.007", "0.690 ± 0.018", "1789.0 ± 16.6"),
    "CL": ("0.867 ± 0.007", "0.690 ± 0.017", "1789.0 ± 16.6"),
}
"""Table II prints 445.5 rules for LL; every reproduction gives 455.5, with the printed deviation."""


@pytest.fixture(scope="module")
def magic() -> Dataset:
    pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")
    return dataset("magic")


def _summary(dataset: Any, settings: Any = ("local", "federated", "central"), **parameters: Any) -> Any:
    plan = plan_of(load("frbc"), dataset, parameters, settings)
    results = [run_fold(plan, dataset, fold) for fold in range(plan.folds)]
    f1, rules = f1_of(results), rules_of(results)
    lines = {each: (f1[each]["g"].text(), f1[each]["h"].text(), rules[each].text(1)) for each in f1}
    return lines, results


def test_paper_protocol_gives_published_digits(magic: Any) -> None:
    lines, results = _summary(magic)

    assert lines == PUBLISHED
    assert all(result["federated"]["nullified"] == 0 for result in results)


def test_pooled_weights_give_the_central_digits(magic: Any) -> None:
    lines, _ = _summary(magic, ("federated",), weights="pooled")

    assert lines["FL"] == PUBLISHED["CL"]


@pytest.mark.slow
def test_condensing_costs_what_the_readme_says(magic: Any) -> None:
    lines, _ = _summary(magic, ("federated",), weights="pooled", min_rows=3)

    assert lines["FL"] == ("0.865 ± 0.006", "0.684 ± 0.016", "2003.0 ± 17.6")


def test_reduction_keeps_the_accuracy_down_to_some_hundred_rules(magic: Any) -> None:
    scheme = load("frbc")
    half = magic.rows // 2
    rows = np.random.default_rng(19).permutation(magic.rows)
    train = Dataset(magic.features, magic.target, magic.X[rows[:half]], magic.y[rows[:half]])
    model = central(scheme, scheme.Parameters(n_sets=5), minmax_domain(magic), train).model

    curve = reduction_curve(model, magic.X[rows[half:]], magic.y[rows[half:]], (50, 200, 500, 10_000))

    assert [size for size, _ in curve] == [50, 200, 500, model.complexity()["rules"]]
    scores = [f1["h"] for _, f1 in curve]
    assert scores[0] < scores[1] < scores[2]
    assert abs(scores[2] - scores[3]) < 0.02
