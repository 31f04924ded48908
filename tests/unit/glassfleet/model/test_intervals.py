"""Errors on test rows: counts add up to the central ones, and nine of ten of the next rows are within the intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassfleet.estimators import FuzzyRegressionTree, FuzzyTreeRegressor, TSKRegressor
from glassfleet.explain import explain_row
from glassfleet.model.intervals import BINS, LEAST_ROWS, counted, errors_of, errors_on, intervals

LEARNERS: list[Any] = [
    FuzzyTreeRegressor(),
    FuzzyRegressionTree(),
    FuzzyRegressionTree(inference="weighted_average"),
    TSKRegressor(),
]


def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows whose noise is four times as wide where x0 is high, and skewed."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.0, 1.0, (count, 2))
    noise = rng.gamma(3.0, 0.01, count) * np.where(X[:, 0] > 0.5, 4.0, 1.0)
    return X, np.where(X[:, 0] > 0.5, 1.0 + X[:, 1], 3.0 - X[:, 1]) + noise


@pytest.fixture(scope="module", params=LEARNERS, ids=lambda each: type(each).__name__)
def fitted(request: pytest.FixtureRequest) -> Any:
    return request.param.fit(*rows(3_000, 1)).calibrate(*rows(4_000, 2))


def within(fitted: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    low, high = fitted.predict_interval(X).T
    return np.asarray((low <= y) & (y <= high))


def test_nine_of_ten_new_rows_are_within(fitted: Any) -> None:
    # Three standard errors, of 4,000 rows counted and 8,000 tried.
    assert within(fitted, *rows(8_000, 3)).mean() == pytest.approx(0.9, abs=3 * (0.09 / 4_000 + 0.09 / 8_000) ** 0.5)


def test_nine_of_ten_are_within_where_each_rule_decides() -> None:
    fitted = LEARNERS[0].fit(*rows(3_000, 1)).calibrate(*rows(4_000, 2))
    X, y = rows(8_000, 3)
    held, decided = within(fitted, X, y), fitted.model_.deciding(X)
    much_used = [rule.index for rule in fitted.rules_ if rule.forecast.errors.own >= 1_000]

    assert len(much_used) >= 2
    assert [held[decided == rule].mean() for rule in much_used] == pytest.approx([0.9] * len(much_used), abs=0.03)


def test_explanation_names_the_rule_that_decides_and_its_interval(fitted: Any) -> None:
    X, _ = rows(60, 4)
    expected = fitted.predict_interval(X)
    result = [explain_row(fitted.model_, x, fitted.reference_) for x in X]

    assert [each.fired.rule.index for each in result] == fitted.model_.deciding(X).tolist()
    np.testing.assert_array_equal([each.interval for each in result], expected)
    assert "9 of 10 between" in result[0].text


def test_saved_intervals_come_back(fitted: Any, tmp_path: Any) -> None:
    fitted.save(tmp_path / "model.json")
    again = type(fitted).load(tmp_path / "model.json")
    X, _ = rows(20, 5)

    np.testing.assert_array_equal(again.predict_interval(X), fitted.predict_interval(X))


def test_without_calibration_there_are_none() -> None:
    fitted = FuzzyTreeRegressor().fit(*rows(300, 1))

    assert explain_row(fitted.model_, [0.2, 0.2]).interval is None
    with pytest.raises(ValueError, match="calibrate"):
        fitted.predict_interval([[0.2, 0.2]])


@given(
    off=st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), min_size=1, max_size=60),
    cut=st.integers(0, 60),
    lines=st.integers(1, 4),
)
def test_counts_of_parts_add_up_to_those_of_all_rows(off: list[float], cut: int, lines: int) -> None:
    errors = np.array(off)
    line = np.arange(len(off)) % lines
    whole = counted(errors, line, lines)
    parts = [counted(errors[part], line[part], lines) for part in (slice(0, cut), slice(cut, None))]

    assert whole.shape == (lines, BINS)
    assert int(whole.sum()) == len(off)
    np.testing.assert_array_equal(parts[0] + parts[1], whole)


@pytest.mark.parametrize("width", [1.0, 250.0])
@pytest.mark.parametrize("count", [19, 200, 3_000])
def test_quantile_is_near_that_of_the_errors_themselves(width: float, count: int) -> None:
    off = np.random.default_rng(count).normal(0.02, 0.05, count)
    [result] = errors_of(counted(off, np.zeros(count, dtype=np.intp), 1), width)

    assert result is not None
    exact = np.sort(off)[[(count + 1) // 20 - 1, -((count + 1) // 20)]] * width
    # A bin is 2^(1/6) wide: 12 %.
    assert [result["low"], result["high"]] == pytest.approx(exact.tolist(), rel=0.13)
    assert result["mean"] == pytest.approx(np.abs(off).mean() * width, rel=0.02)


def test_eighteen_rows_say_nothing() -> None:
    assert errors_of(counted(np.zeros(18), np.zeros(18, dtype=np.intp), 1), 1.0) == [None]


def test_rules_with_few_rows_are_taken_together() -> None:
    # One rule with many small errors; two with few, large ones.
    off = np.concatenate([np.full(1_000, 0.01), np.full(LEAST_ROWS - 1, 0.5), np.full(50, 0.5)])
    line = np.repeat([0, 1, 2], [1_000, LEAST_ROWS - 1, 50])
    first, second, third = errors_of(counted(off, line, 3), 1.0)

    assert first is not None
    assert second is not None
    assert third is not None
    assert first["high"] < 0.012
    assert second["high"] == third["high"] > 0.4
    assert (second["own"], third["own"], third["rows"]) == (LEAST_ROWS - 1, 50, LEAST_ROWS + 49)


def test_network_has_no_interval() -> None:
    assert np.isnan(intervals(object(), np.zeros((3, 2)))).all()


def test_central_errors_of_a_model_are_those_of_its_rows(fitted: Any) -> None:
    result = errors_on(fitted.model_, *rows(4_000, 2))

    assert result["lines"] == fitted._beside["errors"]["lines"]
    assert sum(result["counts"]) == 4_000
