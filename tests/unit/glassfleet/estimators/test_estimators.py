"""The estimators keep scikit-learn's contract, and say what they do with parties and labels."""

from __future__ import annotations

import pkgutil
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

import pyarrow as pa
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import glassfleet.schemes
from console.operator.chosen import read_model_file
from glassfleet import estimators as offered
from glassfleet.contract import catalogue
from glassfleet.estimators import (
    ChiClassifier,
    FedGATreeClassifier,
    FedGATreeRegressor,
    FuzzyRegressionTree,
    FuzzyTreeClassifier,
    FuzzyTreeRegressor,
    SchemeClassifier,
    SchemeRegressor,
    TSKRegressor,
)
from glassfleet.schemes.fedga import Population
from glassfleet.schemes.tree.params import CLASS_RULES, MAX_REGRESSORS
from schemas.codec import document_digest

ESTIMATORS = [
    FuzzyRegressionTree(),
    FuzzyTreeClassifier(),
    FuzzyTreeRegressor(),
    TSKRegressor(n_clusters=8, max_iterations=100),
    ChiClassifier(n_sets=5),  # three sets of two inputs are too coarse for the checks' blobs
    FedGATreeClassifier(generations=5),
    FedGATreeRegressor(generations=5),
]

KINDS = [kind for name in offered.__all__ if (kind := getattr(offered, name))._scheme_name]

LONG = {"check_dtype_object", "check_regressor_data_not_an_array", "check_regressors_int", "check_regressors_train"}
"""Checks that learn most: slow tests, as are all checks of estimators that share a base with one of the others."""


def checks() -> Iterator[Any]:
    for kind in KINDS:
        for number, (estimator, check) in enumerate(estimator_checks_generator(kind())):
            name = getattr(check, "func", check).__name__
            if name == "check_array_api_input":  # scikit-learn leaves it out itself where SCIPY_ARRAY_API is not set
                continue
            is_quick = kind in {FuzzyTreeRegressor, ChiClassifier} and name not in LONG
            marks = [] if is_quick else [pytest.mark.slow]
            yield pytest.param(estimator, check, id=f"{kind.__name__}-{number}-{name}", marks=marks)


@pytest.mark.filterwarnings("ignore:.*far outside the target's limits:UserWarning")
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_estimator_keeps_the_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_every_scheme_of_ours_has_an_estimator_for_each_of_its_purposes() -> None:
    kinds = {"regression": SchemeRegressor, "classification": SchemeClassifier}
    for name in [each.name for each in pkgutil.iter_modules(glassfleet.schemes.__path__)]:
        for purpose in catalogue.load(name).purpose:
            theirs = [kind for kind in KINDS if kind._scheme_name == name]
            assert any(issubclass(kind, kinds[purpose]) for kind in theirs), (name, purpose)


def test_estimator_has_the_defaults_of_its_scheme() -> None:
    for kind in KINDS:
        usual = catalogue.load(kind._scheme_name).Parameters()
        if kind is FuzzyTreeClassifier:  # more rules are never made
            usual = usual.model_copy(update={"max_rules": CLASS_RULES, "max_regressors": MAX_REGRESSORS})
        assert kind()._parameters() == usual, kind


def test_estimator_can_be_exact_where_its_scheme_can() -> None:
    for kind in KINDS:
        assert ("exact" in kind().get_params()) == (
            catalogue.load(kind._scheme_name).abilities.equals_central is not None
        ), kind
    X, y = rows(60)
    for learner, option in (
        (ChiClassifier(n_sets=5, weights="owners", exact=True), "weights='owners'"),
        (TSKRegressor(antecedents="local", exact=True), "antecedents='local'"),
    ):
        with pytest.raises(ValueError, match=f"exact=True: with {option} parties do not learn"):
            learner.fit(X, y > 0)


def test_fit_learns_the_same_exact_or_not_and_parties_only_if_they_are() -> None:
    X, y = rows(120)
    exact = FuzzyRegressionTree(exact=True)
    digest = exact.fit(X, y).digest_
    assert digest == document_digest(exact.model_.to_document())
    assert digest == FuzzyRegressionTree().fit(X, y).digest_ == exact.fit_federated(parties(X, y, 0, 30, 31)).digest_
    assert digest != FuzzyRegressionTree(min_rows=1).fit_federated(parties(X, y, 30, 60)).digest_, "condensed"


def test_forecasts_far_outside_the_limits_are_told_and_model_trees_have_none() -> None:
    X, y = load_diabetes(return_X_y=True)
    X, y, far = X[:300], y[:300], X[300:] * 3.0
    tree = FuzzyRegressionTree().fit(X, y)
    with pytest.warns(UserWarning, match=r"\d+ of 142 forecasts far outside the target's limits, .*FuzzyTreeRegressor"):
        forecasts = tree.predict(far)
    farthest = far[np.abs(forecasts).argmax()]
    assert "the forecast is far outside the target's limits" in str(tree.explain(farthest))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree.predict(X[:20])
        learner = FuzzyTreeRegressor(max_rules=8)
        target = learner.fit(X, y).domain_.target
        assert target is not None
        forecasts = learner.predict(np.concatenate([far, 1e6 * far]))
        assert target.low <= forecasts.min()
        assert forecasts.max() <= target.high + 1e-9


def rows(n: int = 240, seed: int = 3) -> tuple[Any, Any]:
    """Three inputs; the class, or the number, is about the first two."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (n, 3))
    return X, np.where(X[:, 0] > 0, X[:, 1], -1.0 - X[:, 1])


def parties(X: Any, y: Any, *cuts: int) -> list[tuple[Any, Any]]:
    return list(zip(np.split(X, cuts), np.split(y, cuts), strict=True))


@pytest.fixture(scope="module", params=ESTIMATORS, ids=lambda each: type(each).__name__)
def learned(request: pytest.FixtureRequest) -> tuple[Any, Any, Any]:
    """Each estimator after three parties have learned, and rows of the first, for which a FedGA estimator speaks."""
    X, y = rows(1440)
    y = y if isinstance(request.param, SchemeRegressor) else np.where(y > 0, 7, -3)
    parts = parties(X, y, 360, 900)
    return clone(request.param).fit_federated(parts), *parts[0]


def test_estimator_learns_from_parties(learned: tuple[Any, Any, Any]) -> None:
    learner, X, y = learned
    assert learner.outcome_.rounds > 1
    most_frequent = np.mean(y == -3)  # what a classifier reaches that has learned nothing
    assert learner.score(X, y) > (most_frequent if isinstance(learner, SchemeClassifier) else 0.6)
    explanation = learner.explain(X[0])
    assert str(explanation.prediction) == str(learner.predict(X[:1])[0])


def test_saved_estimator_predicts_the_same(learned: tuple[Any, Any, Any], tmp_path: Path) -> None:
    learner, X, _ = learned
    learner.save(tmp_path / "model.json")
    again = type(learner).load(tmp_path / "model.json")
    assert again.predict(X).tolist() == learner.predict(X).tolist()
    assert read_model_file(tmp_path / "model.json")[1].to_document() == learner.model_.to_document()


def test_estimator_of_few_rules_says_why_also_when_it_was_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    X = np.random.default_rng(0).random((1000, 2))
    learner = FuzzyTreeRegressor().fit(X, X @ [0.4, 0.2])
    learner.save(tmp_path / "model.json")
    for each in (learner, FuzzyTreeRegressor.load(tmp_path / "model.json")):
        each.show_rules()
        assert "\nno split said more than a straight line: error " in capsys.readouterr().out


def test_classifier_gives_labels_of_the_type_it_got() -> None:
    X, y = rows()
    for labels in (y > 0, np.where(y > 0, 10, 9), np.where(y > 0, 3.0, -9.0), np.where(y > 0, "up", "down")):
        learner = ChiClassifier(n_sets=5).fit(X, labels)
        assert learner.classes_.tolist() == sorted(set(labels.tolist()))
        assert learner.predict(X).dtype == labels.dtype
        assert learner.score(X, labels) > 0.8
    assert ChiClassifier().fit(X, np.where(y > 0, 10, 9)).domain_.classes == ("10", "9")  # texts, in their order


def test_classifier_takes_a_number_for_one_label_though_a_party_writes_it_with_a_point() -> None:
    X, y = rows()
    (first, ours), (second, theirs) = parties(X, np.where(y > 0, 1, 0), 100)
    learner = ChiClassifier().fit_federated([(first, ours), (second, theirs.astype(np.float64))])
    assert learner.classes_.tolist() == [0.0, 1.0]
    assert learner.domain_.classes == ("0.0", "1.0")


def test_classifier_leaves_out_a_class_that_no_party_may_tell() -> None:
    X, y = rows()
    labels = np.where(y > 0, 1, 0)
    labels[[0, 200]] = 2
    learner = ChiClassifier(min_rows=3).fit_federated(parties(X, labels, 100))
    assert learner.classes_.tolist() == [0, 1]
    assert ChiClassifier(min_rows=1).fit_federated(parties(X, labels, 100)).classes_.tolist() == [0, 1, 2]


def test_estimator_names_the_parameter_that_is_out_of_range() -> None:
    X, y = rows()
    with pytest.raises(ValueError, match="n_sets"):
        FuzzyRegressionTree(n_sets=1).fit(X, y)
    with pytest.raises(ValueError, match="holdout"):
        FuzzyTreeRegressor(holdout=0.9).fit(X, y)
    with pytest.raises(ValueError, match="n_clusters"):
        TSKRegressor(n_clusters=0).fit(X, y)


def test_estimator_says_why_parties_cannot_learn_together() -> None:
    X, y = rows(6)
    with pytest.raises(ValueError, match="no-classes"):
        ChiClassifier().fit_federated(parties(X, np.arange(6) % 3, 3))
    with pytest.raises(ValueError, match="at least one"):
        ChiClassifier().fit_federated([])
    with pytest.raises(ValueError, match="no vehicle counted a row"):
        TSKRegressor().fit_federated([(X[:0], y[:0])] * 2)
    with pytest.raises(ValueError, match="features"):
        TSKRegressor().fit_federated([(X, y), (X[:, :2], y)])


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


@pytest.fixture(scope="module")
def tree() -> FuzzyTreeRegressor:
    return FuzzyTreeRegressor(max_rules=4).fit(*rows())


class TestShown:
    """An estimator shows its model."""

    def test_counterfactual_reaches_its_goal(self, tree: FuzzyTreeRegressor) -> None:
        result = tree.counterfactual([1.0, 0.5, 0.0], ">1")
        assert result.best is not None
        assert tree.predict([list(result.best.row.values())])[0] >= 1.0
        with pytest.raises(ValueError, match="goal 'blue': write"):
            tree.counterfactual([1.0, 0.5, 0.0], "blue")

    def test_pictures_are_svg_and_a_notebook_shows_tree_and_rules(self, tree: FuzzyTreeRegressor) -> None:
        for drawn in (tree.plot_tree(), tree.plot_explanation([1.0, 0.5, 0.0])):
            assert ET.fromstring(drawn).tag.endswith("svg")
        shown = tree._repr_html_()
        assert "data:image/svg+xml" in shown
        assert "IF x0 is" in shown
        drawn = tree.plot_effect(1)
        assert "as x1 goes over its range" in drawn
        assert drawn != tree.plot_effect("x1", rows()[0][0])
        with pytest.raises(ValueError, match="no input 'x9'; there are: x0"):
            tree.plot_effect("x9")

    def test_saved_models_are_read_again_and_written_for_elsewhere(
        self, tree: FuzzyTreeRegressor, tmp_path: Path
    ) -> None:
        path = tmp_path / "model.json"
        tree.save(path)
        assert np.allclose(FuzzyTreeRegressor.load(path).predict(rows()[0]), tree.predict(rows()[0]))
        assert "qoe_predict" in tree.to_c("qoe")
        assert tree.to_fml().startswith("<?xml")
        with pytest.raises(ValueError, match="scheme tree, and TSKRegressor is for tsk"):
            TSKRegressor.load(path)
        with pytest.raises(ValueError, match="forecasts numbers, which FuzzyTreeClassifier does not"):
            FuzzyTreeClassifier.load(path)
        path.write_text("{}", encoding="utf-8")
        with pytest.raises(ValueError, match="record"):
            FuzzyTreeRegressor.load(path)


class TestFedGA:
    """Every party has a tree of its own."""

    @staticmethod
    @cache
    def learner() -> tuple[FedGATreeClassifier, list[tuple[Any, Any]]]:
        X, y = rows(400)
        # The third party's classes are the wrong way round: one tree cannot serve all.
        labels = np.where(y > 0, "up", "down")
        labels[300:] = np.where(y[300:] > 0, "down", "up")
        parts = parties(X, labels, 150, 300)
        return FedGATreeClassifier(generations=5).fit_federated(parts), parts

    def test_estimator_speaks_for_the_first_party_until_told_otherwise(self) -> None:
        learner, parts = self.learner()
        assert learner.score(*parts[0]) > 0.7
        assert learner.score(*parts[2]) < 0.3
        assert learner.speak_for(2).score(*parts[2]) > 0.7
        assert learner.score(*parts[0]) > 0.7, "the copy is apart"
        assert isinstance(learner.population_, Population)
        with pytest.raises(ValueError, match="no party 3"):
            learner.speak_for(3)

    def test_newcomer_makes_a_tree_of_the_population(self) -> None:
        learner, _ = self.learner()
        X, y = rows(200, seed=9)
        mine = learner.personalise(X, np.where(y > 0, "down", "up"))
        assert mine.score(X, np.where(y > 0, "down", "up")) > 0.7
        assert learner.score(X, np.where(y > 0, "up", "down")) > 0.7

    def test_estimator_fitted_alone_has_no_population(self) -> None:
        learner, parts = self.learner()
        learner = learner.speak_for(0).fit(*parts[0])
        assert not hasattr(learner, "trees_")
        with pytest.raises(ValueError, match="fit_federated first"):
            learner.personalise(*parts[0])


def test_importances_add_up_to_one_and_name_what_moves_forecasts() -> None:
    X = np.random.default_rng(0).random((300, 3))
    tree = FuzzyTreeRegressor().fit(X, 3.0 * X[:, 0] + X[:, 1])
    assert tree.feature_importances_ == pytest.approx([0.75, 0.25, 0.0], abs=0.01)
