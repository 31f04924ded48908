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

import pandas as pd
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
from schemas.documents import document_digest

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
"""Checks that learn most; of the estimators that take longest they are slow tests."""


def checks() -> Iterator[Any]:
    for kind in KINDS:
        for number, (estimator, check) in enumerate(estimator_checks_generator(kind())):
            name = getattr(check, "func", check).__name__
            if name == "check_array_api_input":  # scikit-learn leaves it out itself where SCIPY_ARRAY_API is not set
                continue
            takes_long = name in LONG and kind is FuzzyTreeRegressor
            marks = [pytest.mark.slow] * takes_long
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
        for learner in (FuzzyTreeRegressor(max_rules=8), FuzzyTreeRegressor(max_rules=8)):
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


class TestTables:
    """Data frames: names, columns of text, one row in each of its forms."""

    def learner(self) -> tuple[FuzzyTreeClassifier, Any, Any]:
        rng = np.random.default_rng(0)
        city, size = rng.choice(["Campinas", "Natal", "Recife", "Santos"], 600), rng.uniform(20, 200, 600)
        table = pd.DataFrame({"city": city, "size": size, "new": rng.random(600) < 0.5})
        price = pd.Series(np.where(np.isin(city, ["Natal", "Santos"]) & (size > 80), "dear", "cheap"), name="price")
        parts = [(table[i::3], price[i::3]) for i in range(3)]
        return FuzzyTreeClassifier().fit_federated(parts), table, price

    def test_texts_are_categories_that_parties_find_together(self) -> None:
        tree, table, price = self.learner()
        assert tree.domain_.variable("city").categories == ("Campinas", "Natal", "Recife", "Santos")
        assert tree.score(table, price) > 0.95
        paris = table.assign(city="Paris")
        assert np.allclose(tree.predict_proba(paris).sum(axis=1), 1.0)
        result = tree.explain(paris.iloc[0])  # a row of a table is explained as it is predicted
        assert result.prediction == tree.predict(paris[:1])[0]
        assert "an unknown category" in {part.text for part in result.inputs}
        marked = table.assign(city=table["city"].map({"Campinas": "none"}).fillna("?").astype("category"))
        by_text = FuzzyTreeRegressor().fit(marked, table["city"] == "Campinas")
        for row in (marked.iloc[0], marked.iloc[0].to_dict()):  # words for no value are categories where they were
            assert by_text.explain(row).prediction == by_text.predict(marked[:1])[0]

    def test_text_that_is_numbers_or_nothing_in_one_table_is_still_text(self) -> None:
        _, table, price = self.learner()
        codes = table["city"].map({"Campinas": "1", "Natal": "2", "Recife": "0", "Santos": "11"})
        tree = FuzzyTreeRegressor().fit(table.assign(city=codes), price == "dear")
        assert (tree.predict(table.assign(city=codes.astype(int))) == tree.predict(table.assign(city=codes))).all()
        for nothing in (None, np.nan):
            empty = table.assign(city=nothing)
            assert (tree.predict(empty) == tree.predict(table.assign(city="missing"))).all()
            parties = [(table[:300], price[:300]), (empty[300:], price[300:])]
            fleet = FuzzyTreeClassifier(exact=True).fit_federated(parties)
            whole = FuzzyTreeClassifier().fit(pd.concat([table[:300], empty[300:]]), price)
            assert fleet.digest_ == whole.digest_

    @pytest.mark.parametrize("learner", [FuzzyTreeRegressor, FuzzyTreeClassifier])
    def test_empty_cells_are_learned_from_and_parties_learn_what_one_learns(self, learner: Any) -> None:
        rng = np.random.default_rng(3)
        _, table, _ = self.learner()
        table["size"] = table["size"].where(rng.random(600) < 0.8)
        table["city"] = table["city"].where(rng.random(600) < 0.8, None)
        value = pd.Series(np.where(table["size"].isna(), 150.0, table["size"]), name="price")
        value += 50.0 * table["city"].isna()
        value = value > 120 if learner is FuzzyTreeClassifier else value
        tree = learner(exact=True).fit_federated([(table[i::3], value[i::3]) for i in range(3)])
        assert tree.score(table, value) > 0.97
        assert tree.domain_.variable("size").missing is not None
        assert "missing" in tree.domain_.variable("city").categories
        assert learner().fit(table, value).digest_ == tree.digest_
        assert learner().fit_federated([(table, value)]).score(table, value) > 0.9  # of condensed rows
        result = tree.explain({"city": None, "size": float("nan"), "new": True})
        assert {part.feature: part.text for part in result.inputs} == {"city": "missing", "size": "missing", "new": "1"}
        assert any(note.startswith("size is missing; where its value is asked for it is") for note in result.notes)
        assert tree.counterfactual({"city": "Natal", "size": None, "new": 1.0}).found
        assert tree.__sklearn_tags__().input_tags.allow_nan

    def test_yes_and_no_are_numbers_where_texts_are_none(self) -> None:
        tree, table, _ = self.learner()
        lights = table["new"].map({True: "Yes", False: "no"})
        given = table[["size"]].assign(lights=lights)
        learned = FuzzyRegressionTree().fit(given, 3.0 * table["new"])
        assert np.allclose(learned.predict(given), 3.0 * table["new"], atol=0.1)
        assert learned.domain_.variable("lights").categories == ()
        assert learned.explain({"size": 30.0, "lights": "yes"}).prediction == pytest.approx(3.0, abs=0.1)
        assert tree.fit(given, table["new"]).domain_.variable("lights").categories == ("Yes", "no")

    def test_estimator_says_which_column_it_cannot_take(self) -> None:
        tree, table, _ = self.learner()
        with pytest.raises(ValueError, match=r"'city' holds text, and FuzzyRegressionTree takes numbers: leave it out"):
            FuzzyRegressionTree().fit(table, table["size"])
        with pytest.raises(ValueError, match="Input X contains NaN"):
            FuzzyRegressionTree().fit(table[["size"]].where(table["size"] > 30), table["size"])
        with pytest.raises(ValueError, match="'size' has an empty cell, and none was there to learn from"):
            tree.predict(table.assign(size=np.nan))
        with pytest.raises(ValueError, match="column 'when' holds times"):
            tree.fit(table.assign(when=pd.Timestamp(0)), table["new"])
        many = pd.DataFrame({"id": [f"id {row}" for row in range(5000)]})
        with pytest.raises(ValueError, match="column 'id' has 5000 different texts here; at most 4096"):
            tree.fit(many, np.arange(5000) % 2)
        with pytest.raises(ValueError, match="column 'size' has a value beyond 1e16: give it in another unit"):
            tree.fit(table.assign(size=table["size"] * 1e16), table["new"])
        with pytest.raises(ValueError, match="no category 'Oz'; known: Campinas"):
            tree.explain({"city": "Oz", "size": 30.0, "new": 1.0})


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


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_frames_of_other_libraries_give_the_model_of_pandas(library: str) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.random(200) * 100, "city": rng.choice(["Rio", "Santos", "Olinda"], 200)})
    table.loc[::9, "size"] = np.nan
    price = table["size"].fillna(50.0) + 30.0 * (table["city"] == "Rio")
    other: Any = pa.Table.from_pandas(table)
    if library == "polars":
        import polars as pl

        other = pl.from_pandas(table)
    ours, theirs = FuzzyTreeRegressor().fit(table, price), FuzzyTreeRegressor().fit(other, price)
    assert ours.digest_ == theirs.digest_
    assert ours.predict(table).tolist() == theirs.predict(other).tolist()
    row = other.slice(0, 1)
    assert theirs.explain(row).prediction == ours.explain(table.iloc[:1]).prediction


def test_importances_add_up_to_one_and_name_what_moves_forecasts() -> None:
    X = np.random.default_rng(0).random((300, 3))
    tree = FuzzyTreeRegressor().fit(X, 3.0 * X[:, 0] + X[:, 1])
    assert tree.feature_importances_ == pytest.approx([0.75, 0.25, 0.0], abs=0.01)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_rules_are_a_frame_from_which_forecasts_follow(library: Any) -> None:
    X = np.random.default_rng(0).random((400, 2))
    tree = FuzzyTreeRegressor(max_rules=3).fit(X, np.abs(X[:, 0] - 0.5) + X[:, 1])
    frame = tree.rules_frame(library)
    columns = ["rule", "says", "input", "low", "high", "coefficient", "weight"]
    assert list(frame.column_names if library == "pyarrow" else frame.columns) == columns
    pandas: Any = pd.DataFrame(
        {name: list(frame[name]) if library != "pyarrow" else frame[name].to_pylist() for name in columns}
    )
    for rule in tree.rules_:
        own, says = pandas[pandas["rule"] == rule.index].set_index("input"), rule.consequent
        value = own.loc["", "coefficient"] + sum(own.loc[s.name, "coefficient"] for s in says.slopes or ())
        assert isinstance(says.value, float)
        assert value == pytest.approx(says.value + sum(s.per_unit for s in says.slopes or ()))
        assert {c.feature for c in rule.conditions} <= set(own[own["low"].notna()].index)
