"""The schemes' scores and sizes on sets that scikit-learn ships: our own numbers, which no paper has printed.

They stand for the published tables where the papers' data are absent: a change that moves them unseen moved those too.
The numbers are what these commands print, with `--scheme` and the set's name:

    glassfleet lab datasets fetch diabetes wine breast_cancer --data-dir .
    glassfleet lab experiment --scheme frt --csv diabetes.csv.gz --folds 2
"""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

from glassfleet.contract.catalogue import load
from lab.experiments.folds import averages_of, plan_of
from tests.support.datasets import dataset

NUMBERS = {
    # (scheme, set): (test RMSE, or F1 for classes; leaves or rules) of the federated model, and of the central one
    ("frt", "diabetes"): (("80.32", "46.5"), ("92.37", "56.0")),
    ("tree", "diabetes"): (("56.33", "3.0"), ("56.33", "3.0")),
    ("tsk", "diabetes"): (("424.3", "61.5"), ("59.59", "5.0")),
    ("tree", "wine"): (("0.9361", "2.5"), ("0.9361", "2.5")),
    ("tree", "breast_cancer"): (("0.9605", "2.5"), ("0.9605", "2.5")),
    ("frbc", "wine"): (("0.79", "88.5"), ("0.79", "88.5")),
    ("frbc", "breast_cancer"): (("0.8349", "284.5"), ("0.8349", "284.5")),
}


@pytest.mark.parametrize(
    ("scheme", "name"),
    [pytest.param(*key, marks=[pytest.mark.slow] * (key == ("tree", "breast_cancer"))) for key in NUMBERS],
)
def test_scheme_has_our_numbers_on_a_set_that_everybody_has(scheme: str, name: str) -> None:
    data = dataset(name)
    plan = replace(plan_of(load(scheme), data, {}, ["federated", "central"]), folds=2)
    lines = []
    for result in averages_of(plan, data).values():
        score = result["test_rmse" if "test_rmse" in result else "test_f1"]["mean"]
        size = result["complexity"]
        lines.append((f"{score:.4g}", f"{size.get('leaves', size.get('rules')):.1f}"))
    assert tuple(lines) == NUMBERS[scheme, name]
