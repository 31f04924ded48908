"""Estimators over data frames: names, columns of text, empty cells; rules as a frame."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

import pandas as pd
import pyarrow as pa

from glassfleet.estimators import FuzzyRegressionTree, FuzzyTreeClassifier, FuzzyTreeRegressor


@cache
def learned() -> tuple[FuzzyTreeClassifier, Any, Any]:
    rng = np.random.default_rng(0)
    city, size = rng.choice(["Campinas", "Natal", "Recife", "Santos"], 600), rng.uniform(20, 200, 600)
    table = pd.DataFrame({"city": city, "size": size, "new": rng.random(600) < 0.5})
    price = pd.Series(np.where(np.isin(city, ["Natal", "Santos"]) & (size > 80), "dear", "cheap"), name="price")
    parts = [(table[i::3], price[i::3]) for i in range(3)]
    return FuzzyTreeClassifier().fit_federated(parts), table, price


class TestTables:
    """Data frames: names, columns of text, one row in each of its forms."""

    def learner(self) -> tuple[FuzzyTreeClassifier, Any, Any]:
        return deepcopy(learned())

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
