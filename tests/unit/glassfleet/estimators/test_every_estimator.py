"""The scikit-learn style estimator keeps scikit-learn's contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from glassfleet.data.dataset import Dataset
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.estimators import FuzzyRegressionTree
from schemas.documents import document_digest

NOT_APPLICABLE = {
    "check_array_api_input": "arrays are numpy's here; the check asks for SCIPY_ARRAY_API and other array libraries",
    "check_regressor_data_not_an_array": "asks for pandas, which is no dependency; a table with names is tested below",
}
"""scikit-learn's checks that are left out, each with its reason. None is expected to fail."""

CHECKS = [
    (estimator, check)
    for estimator, check in estimator_checks_generator(FuzzyRegressionTree())
    if getattr(check, "func", check).__name__ not in NOT_APPLICABLE
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=[getattr(c, "func", c).__name__ for _, c in CHECKS])
def test_estimator_keeps_the_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def rows(n: int = 300) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.where(X[:, 0] > 0, X[:, 1], -X[:, 2]) + rng.normal(0, 0.02, n)


def test_estimator_fits_and_tells_its_rules() -> None:
    X, y = rows()
    tree = FuzzyRegressionTree().fit(X, y)
    assert tree.score(X, y) > 0.8
    assert tree.complexity_["leaves"] == len(tree.rules_) > 1
    assert str(tree.rules_[0]).startswith("IF x")
    explanation = tree.explain(X[0])
    assert explanation.prediction == tree.predict(X[:1])[0]
    assert explanation.base + sum(explanation.shares.values()) == pytest.approx(explanation.prediction)


def test_estimator_learns_the_same_tree_from_parties_as_from_all_rows_when_nothing_is_withheld() -> None:
    X, y = rows()
    names = ("x0", "x1", "x2")
    domain = discover(DiscoveryParameters(features=names, target="y"), [Dataset(names, "y", X, y)])
    tree = FuzzyRegressionTree(nullify=False, min_rows=1, domain=domain)
    together = document_digest(tree.fit(X, y).model_.to_document())
    parties = [(X[:40], y[:40]), (X[40:150], y[40:150]), (X[150:], y[150:])]
    apart = document_digest(tree.fit_federated(parties).model_.to_document())
    assert apart == together


def test_estimator_finds_limits_without_pooling_when_parties_learn() -> None:
    X, y = rows()
    tree = FuzzyRegressionTree().fit_federated([(X[:150], y[:150]), (X[150:], y[150:])])
    assert tree.outcome_.rounds > 1
    assert tree.score(X, y) > 0.8
    for index, variable in enumerate(tree.domain_.features):
        # 2.5 % of 300 rows on either side; two parties may each move a limit by two ranks.
        assert abs(int((X[:, index] < variable.low).sum()) - 7) <= 5
        assert abs(int((X[:, index] > variable.high).sum()) - 7) <= 5


def test_estimator_names_the_parameter_that_is_out_of_range() -> None:
    with pytest.raises(ValueError, match="n_sets"):
        FuzzyRegressionTree(n_sets=1).fit(*rows())


def test_estimator_refuses_an_empty_list_of_parties() -> None:
    with pytest.raises(ValueError, match="at least one"):
        FuzzyRegressionTree().fit_federated([])


def test_estimator_refuses_parties_with_different_columns() -> None:
    X, y = rows()
    with pytest.raises(ValueError, match="features"):
        FuzzyRegressionTree().fit_federated([(X, y), (X[:, :2], y)])


def test_estimator_works_in_a_grid_search_over_a_pipeline() -> None:
    X, y = rows(120)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), FuzzyRegressionTree()), {"fuzzyregressiontree__n_sets": [3, 5]}, cv=2
    )
    search.fit(X, y)
    assert search.best_score_ > 0.4


def test_estimator_keeps_the_names_of_columns_when_the_input_has_them() -> None:
    X, y = rows()
    table = pa.table({name: X[:, index] for index, name in enumerate(("speed", "load", "signal"))})
    tree = FuzzyRegressionTree().fit(table, y)
    assert tree.feature_names_in_.tolist() == ["speed", "load", "signal"]
    assert tree.domain_.names == ("speed", "load", "signal")
    assert "speed is" in str(tree.rules_[0])
    with pytest.raises(ValueError, match="feature names should match"):
        tree.predict(table.rename_columns(["speed", "load", "noise"]))
