"""Weights of rows: whole ones are repetitions, to the last bit; others are rounded finely; parties have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.data.dataset import Dataset
from glassfleet.estimators import FuzzyTreeClassifier, FuzzyTreeRegressor
from glassfleet.estimators.tree import weighed
from glassfleet.schemes.tree.params import MAX_ROWS

N = 80


def table(seed: int) -> tuple[pd.DataFrame, dict[Any, Any]]:
    """Return rows with text, an empty cell and a value far out, and targets by estimator."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.random((N, 2)), columns=["a", "b"])
    X["city"] = rng.choice(["Ulm", "Bonn", "Kiel"], N)
    X.loc[3, "a"], X.loc[4, "b"] = np.nan, 50.0
    y = np.where(X["city"] == "Ulm", 1.0, 0.2) * X["b"] + rng.normal(0, 0.05, N)
    return X, {
        FuzzyTreeRegressor: y,
        FuzzyTreeClassifier: np.where(y > 0.3, "high", np.where(y > 0.1, "middle", "low")),
    }


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 1000), st.sampled_from([FuzzyTreeRegressor, FuzzyTreeClassifier]), st.sampled_from([3, 200]))
def test_whole_weights_are_repetitions_and_zero_is_absence_to_the_last_bit(seed: int, kind: Any, most: int) -> None:
    X, targets = table(seed)
    y, weights = targets[kind], np.random.default_rng(seed).integers(0, most, N)
    often = np.repeat(np.arange(N), weights)
    learner = kind(max_rules=4)
    digest = learner.fit(X, y, sample_weight=weights).digest_
    assert digest == learner.fit(X.iloc[often], y[often]).digest_


def test_other_weights_are_rounded_to_a_32nd_of_their_mean_and_count_as_rows() -> None:
    data = Dataset(("a",), "y", np.zeros((4, 1)), np.zeros(4))
    exact, often = weighed(data, np.array([0.5, 0.0, 1.25, 1.0]))
    assert exact.weights is not None
    assert (exact.weights.tolist(), exact.parts, often.rows) == ([2, 5, 4], 4, 11)
    rounded, _ = weighed(data, np.array([0.1, 0.2, 0.3, 1e-9]))
    assert rounded.weights is not None
    assert rounded.weights / rounded.parts == pytest.approx([0.1, 0.2, 0.3], abs=0.15 / 32)


@pytest.mark.parametrize("scale", [0.1, 7.3])
def test_line_goes_between_rows_as_their_weights_say(scale: float) -> None:
    x = np.linspace(0.0, 1.0, 400)
    X, y = np.concatenate([x, x])[:, None], np.concatenate([x, x + 1.0])
    weights = scale * np.repeat([1.0, 2.0], 400)
    learner = FuzzyTreeRegressor(max_rules=1).fit(X, y, sample_weight=weights)
    assert learner.predict([[0.5]]) == pytest.approx([0.5 + 2.0 / 3.0], abs=0.01)
    assert learner.outcome_.summary["rows"] == pytest.approx(weights.sum(), rel=1 / 64)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.full(N, -1.0), "Negative values"),
        (np.zeros(N), "zero"),
        (np.ones(N - 1), "shape"),
        (np.full(N, float(MAX_ROWS)), r"adds up to 6\.711e\+08 rows, at most 8388607"),
    ],
)
def test_weights_that_cannot_be_meant_are_refused(weights: Any, words: str) -> None:
    X, targets = table(0)
    with pytest.raises(ValueError, match=words):
        FuzzyTreeRegressor().fit(X, targets[FuzzyTreeRegressor], sample_weight=weights)


def test_parties_have_no_weights() -> None:
    X, targets = table(0)
    with pytest.raises(ValueError, match=r"only fit takes sample_weight"):
        FuzzyTreeRegressor().fit_federated([(X, targets[FuzzyTreeRegressor], np.ones(N))])  # type: ignore[list-item]
