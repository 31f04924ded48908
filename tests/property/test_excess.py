"""Lines of `tree` go on beyond the limits of inputs: exactly, readably, and without moving ordinary rows."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.data.condense import condensed
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Excess, Variable
from glassfleet.discovery import DiscoveryParameters, discover
from glassfleet.estimators import FuzzyTreeRegressor
from tests.support.sample_models import model, wide_rows

Array = NDArray[np.float64]
NAMES = ("a", "b", "c", "d")


def costs(*, six: bool, rows: int = 6000, seed: int = 19) -> tuple[Array, Array]:
    """Heavy-tailed columns that add up to the target, and one of 1 to 5; in `six` rows one is 500 times as large."""
    rng = np.random.default_rng(seed)
    a, b, c = (np.exp(rng.normal(mean, spread, rows)) for mean, spread in ((7, 1), (6, 1.2), (4, 1.5)))
    other = rng.integers(1, 6, rows).astype(float)
    if six:
        b[rng.choice(rows, 6, replace=False)] *= 500.0
    return np.column_stack([a, b, c, other]), a + b + c


@pytest.mark.parametrize("six", [False, True])
def test_a_sum_of_heavy_tailed_columns_is_found_to_a_hundredth_of_boosting_s_error(*, six: bool) -> None:
    X, y = costs(six=six)
    place = np.random.default_rng(19).permutation(len(y))
    train, test = place[:4800], place[4800:]
    tree = FuzzyTreeRegressor().fit(X[train], y[train])
    boosting = HistGradientBoostingRegressor(random_state=0).fit(X[train], y[train])
    error, theirs = (np.abs(each.predict(X[test]) - y[test]).mean() for each in (tree, boosting))
    assert error < 0.01 * theirs
    assert len(tree.rules_) == 1
    assert "of x1 above" in str(tree.rules_[0])


@st.composite
def straight(draw: st.DrawFn) -> tuple[Array, Array]:
    """Columns of very different kinds, and a target that is a sum of them."""
    n, seed = 400, draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    kinds: dict[str, Callable[[], Array]] = {
        "ten orders of magnitude": lambda: 10.0 ** rng.uniform(-5, 5, n),
        "a constant with tiny noise": lambda: 1e6 + rng.normal(0, 1e-3, n),
        "counts": lambda: rng.poisson(3.0, n).astype(float),
        "large integers": lambda: rng.integers(2**52, 2**53, n).astype(float),
        "heavy tails": lambda: rng.standard_cauchy(n),
        "plain": lambda: rng.normal(0, 1, n),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(kinds)), min_size=1, max_size=4))
    X = np.column_stack([kinds[name]() for name in chosen])
    weights = rng.uniform(0.5, 2.0, X.shape[1]) / X.std(axis=0)
    scale = draw(st.sampled_from([1e-12, 1.0, 1e9]))
    exact = [sum(Fraction(value) * Fraction(w) for value, w in zip(row, weights, strict=True)) for row in X.tolist()]
    middle = exact[0]
    return X, np.array([float((value - middle) * Fraction(scale)) for value in exact])


@given(straight())
@settings(max_examples=10)
def test_a_straight_line_is_learned_whatever_the_columns_and_their_units(line: tuple[Array, Array]) -> None:
    X, y = line
    tree = FuzzyTreeRegressor().fit(X, y)
    left = np.abs(tree.predict(X) - y).mean()
    assert left < 0.01 * np.abs(y - np.median(y)).mean()


@pytest.mark.parametrize("factor", [1e3, -1e6, 1e12])
def test_one_vehicle_with_a_broken_sensor_moves_no_ordinary_forecast(factor: float) -> None:
    X, y = costs(six=False, rows=4000)
    fleet = {f"v{place}": Dataset(NAMES, "y", X[place::8], y[place::8]) for place in range(8)}
    last = fleet["v7"].X.copy()
    last[::25, 1] *= factor
    broken = {**fleet, "v7": Dataset(NAMES, "y", last, y[7::8])}
    scheme: Any = catalogue.load("tree")
    forecasts = []
    for vehicles in (fleet, broken):
        search = DiscoveryParameters(
            features=NAMES, target="y", input_quantiles=scheme.abilities.input_quantiles, min_count=0, excess=True
        )
        domain = discover(search, list(vehicles.values()))
        learned = simulation.federated(scheme, scheme.exact(scheme.Parameters()), domain, vehicles).model
        low, high = ([getattr(each, end) for each in domain.features] for end in ("low", "high"))
        inside = ((low <= X) & (high >= X)).all(axis=1)
        forecasts.append(np.where(inside, learned.predict(X), np.nan))
    moved = np.abs(forecasts[0] - forecasts[1])
    assert np.isfinite(moved).mean() > 0.98
    assert np.nanmean(moved) < 0.05 * y.std()


def test_explanations_add_up_and_name_what_is_beyond() -> None:
    learned: Any = model("tree-excess")
    far = 0
    for row in wide_rows(200):
        shown = learned.explain(row)
        assert shown.base + sum(shown.shares.values()) == pytest.approx(shown.prediction, abs=1e-9)
        assert set(shown.shares) == set(learned.domain.names)
        far += shown.prediction > learned.domain.target.high
    assert any("above 10" in str(rule) or "above 100" in str(rule) for rule in learned.rules())
    document = learned.to_document()
    assert catalogue.load("tree").from_document(document).to_document() == document


def test_an_explanation_says_where_an_input_is_further_out_than_the_fleet_has_seen() -> None:
    learned: Any = model("tree-excess")
    assert learned.explain(np.array([30.0, 50.0, 0.5, 1.0])).notes == ()
    notes = learned.explain(np.array([31.0, -50.5, 0.5, 1.0])).notes
    assert notes == (
        "snr is above all that the fleet has seen, 30 dB",
        "dist is below all that the fleet has seen, -50 m",
    )


def domain_beyond() -> Domain:
    one = Variable(name="a", low=0.0, high=1.0, highest=9.0, lowest=-3.0)
    return Domain(features=(one, Variable(name="b", low=0.0, high=1.0)), target=Variable(name="y", low=0.0, high=10.0))


def test_excess_is_an_input_of_its_own_within_tenfold_what_was_seen() -> None:
    domain = domain_beyond()
    assert [each.name for each in domain.inputs] == ["a", "b", "a below 0", "a above 1"]
    assert [each.high for each in domain.inputs if isinstance(each, Excess)] == [3.0, 8.0]
    rows = domain.check_rows(np.array([[5.0, 0.5], [-3.0, 2.0], [1e6, 0.0]]))
    assert rows.tolist() == [[5.0, 0.5, 0.0, 4.0], [-3.0, 2.0, 3.0, 0.0], [1e6, 0.0, 0.0, 999_999.0]]
    assert domain.scale_inputs(rows).tolist() == [[1.0, 0.5, 0.0, 0.5], [0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 10.0]]
    within = np.clip(rows, [v.low for v in domain.inputs], [v.high for v in domain.inputs])
    assert domain.as_given(within).tolist() == [[5.0, 0.5], [-3.0, 1.0], [9.0, 0.0]]
    renamed = domain.reworded(lambda own: own.model_copy(update={"highest": None}))
    assert [each.name for each in renamed.inputs] == ["a", "b", "a below 0"]


@pytest.mark.parametrize("many", [1, 3, 4, 5, 40])
def test_excess_of_few_rows_is_in_no_condensed_row_and_that_of_many_in_none_as_it_was(many: int) -> None:
    rng = np.random.default_rng(many)
    X = rng.random((300, 2))
    X[:many, 0] = 1.0 + 8.0 * rng.random(many)
    data = Dataset(("a", "b"), "y", X, X.sum(axis=1), key=b"k" * 32)
    made = condensed(data, domain_beyond(), 3)
    beyond = made.X[:, 0] > 1.0
    # Columns of such rows: a, b, what is above, y. One row more than these is a group.
    assert bool(beyond.any()) == (many >= 5)
    assert not set(np.round(made.X[beyond, 0], 6)) & set(np.round(X[:many, 0], 6))
