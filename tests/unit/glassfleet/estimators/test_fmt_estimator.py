"""The estimator of the model tree keeps scikit-learn's contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

from sklearn.utils.estimator_checks import estimator_checks_generator

from glassfleet.data.dataset import Dataset
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.estimators.fmt import FuzzyModelTree
from schemas.documents import document_digest

NOT_APPLICABLE = {
    "check_array_api_input": "arrays are numpy's here; the check asks for SCIPY_ARRAY_API and other array libraries",
    "check_regressor_data_not_an_array": "asks for pandas, which is no dependency",
}
"""scikit-learn's checks that are left out, each with its reason. None is expected to fail."""

CHECKS = [
    (estimator, check)
    for estimator, check in estimator_checks_generator(FuzzyModelTree())
    if getattr(check, "func", check).__name__ not in NOT_APPLICABLE
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[getattr(c, "func", c).__name__ for _, c in CHECKS])
def test_model_tree_keeps_the_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def rows(n: int = 600) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.where(X[:, 0] > 0, X[:, 1], -X[:, 2]) + rng.normal(0, 0.02, n)


def test_model_tree_finds_the_two_halves_of_a_function() -> None:
    X, y = rows()
    tree = FuzzyModelTree(max_rules=4).fit(X, y)
    assert tree.score(X, y) > 0.9
    assert tree.rules_[0].conditions[0].feature == "x0"
    explanation = tree.explain(X[0])
    assert explanation.prediction == tree.predict(X[:1])[0]


def test_model_tree_is_the_same_from_parties_as_from_all_rows_when_small_groups_are_followed() -> None:
    X, y = rows()
    names = ("x0", "x1", "x2")
    domain = discover(DiscoveryParameters(features=names, target="y"), [Dataset(names, "y", X, y)])
    tree = FuzzyModelTree(min_rows=1, domain=domain)
    together = document_digest(tree.fit(X, y).model_.to_document())
    apart = document_digest(
        tree.fit_federated([(X[:40], y[:40]), (X[40:150], y[40:150]), (X[150:], y[150:])]).model_.to_document()
    )
    assert apart == together


def test_model_tree_names_the_parameter_that_is_out_of_range() -> None:
    with pytest.raises(ValueError, match="holdout"):
        FuzzyModelTree(holdout=0.9).fit(*rows())
