"""Rows: condensed."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassfleet.data import condense as module
from glassfleet.data.condense import condense, condensed
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable


@st.composite
def points(draw: Any) -> Any:
    """Rows of columns that go together, some of them equal, away from the limits."""
    n, d = draw(st.integers(1, 400)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = 0.5 + 0.05 * np.clip(rng.normal(0, 1, (n, d)) @ rng.normal(0, 1, (d, d)) / d, -5, 5)
    return rows[rng.integers(0, n, n)] if draw(st.booleans()) else rows


@given(points(), st.integers(2, 12))
def test_as_many_rows_are_made_up_unless_they_are_too_few(rows: Any, least: int) -> None:
    made = condense(rows, least)
    few = len(np.unique(np.rint(rows * 2**20), axis=0)) < max(least, rows.shape[1] + 1)
    assert made.shape == ((0, rows.shape[1]) if few else rows.shape)


def test_made_up_rows_have_mean_and_scatter_of_their_group_over_many_draws() -> None:
    rng = np.random.default_rng(5)
    rows = 0.5 + 0.05 * np.clip(rng.normal(0, 1, (7, 3)) @ rng.normal(0, 1, (3, 3)), -5, 5)
    drawn = [condense(rows, 7, number.to_bytes(4, "little")) for number in range(4000)]
    deviation = rows.std(axis=0)
    assert (np.abs(np.mean([each.mean(axis=0) for each in drawn], axis=0) - rows.mean(axis=0)) < 0.03 * deviation).all()
    second = np.mean([each.T @ each for each in drawn], axis=0) / 7
    expected = rows.T @ rows / 7
    assert np.abs(second - expected).max() < 0.03 * deviation.max()


@given(points(), st.integers(0, 2**32 - 1))
def test_order_of_rows_changes_no_bit(rows: Any, seed: int) -> None:
    shuffled = rows[np.random.default_rng(seed).permutation(len(rows))]
    assert condense(rows, 3).tobytes() == condense(shuffled, 3).tobytes()


@given(points(), st.integers(2, 12))
def test_every_group_has_more_different_rows_than_there_are_columns(rows: Any, least: int) -> None:
    different, count = module._distinct(np.rint(rows * 2**20).astype(np.int64))
    least = max(least, rows.shape[1] + 1)
    if len(different) >= least:
        groups = module._groups(different, least)
        assert all(least <= len(group) < 2 * least for group in groups)
        assert sorted(np.concatenate(groups).tolist()) == list(range(len(different)))
    assert count.sum() == len(rows)


@given(st.integers(0, 2**32 - 1), st.integers(3, 6))  # of fewer numbers, half may come close by chance
def test_group_is_drawn_anew_when_a_row_of_it_or_the_secret_changes(seed: int, d: int) -> None:
    rng, n = np.random.default_rng(seed), 2 * d + 1  # one group
    rows = 0.5 + 0.1 * np.clip(rng.normal(0, 1, (n, d)), -3, 3)
    other = rows.copy()
    other[0, 0] += 2.0**-20
    made = condense(rows, n, b"secret")
    assert np.array_equal(made, condense(rows.copy(), n, b"secret"))
    for again in (condense(other, n, b"secret"), condense(rows, n, b"another")):
        assert np.median(np.abs(again - made)) > 1e-3


def test_made_up_rows_are_the_same_on_every_machine() -> None:
    rows = (np.arange(120, dtype=np.float64).reshape(40, 3) ** 2 % 97) / 97
    # Also under each OPENBLAS_CORETYPE that was tried: Prescott, Haswell, SkylakeX.
    assert hashlib.sha256(condense(rows, 5).tobytes()).hexdigest() == GOLDEN


GOLDEN = "f11ce4169dffd34d258799f290fea9d9c812dd231f411fb1fba075a9b15a768b"


@pytest.mark.parametrize("counts", [(4, 30, 0), (9, 2, 50)])
def test_classes_are_condensed_apart_and_left_out_when_too_few(counts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    labels = np.repeat(["a", "b", "other"], counts)
    data = Dataset(("u", "v"), "kind", rng.random((len(labels), 2)), labels)
    features = (Variable(name="u", low=0, high=1), Variable(name="v", low=0, high=2))
    made = condensed(data, Domain(features=features, label="kind", classes=("a", "b")), 4)
    kept = [count if count >= 4 else 0 for count in counts[:2]]
    assert [int((made.y == name).sum()) for name in ("a", "b", "other")] == [*kept, 0]


def test_empty_cells_stay_as_many_as_they_are_and_have_no_value() -> None:
    rng = np.random.default_rng(1)
    X = rng.random((400, 2)) * 100.0
    X[rng.random(400) < 0.25, 1] = np.nan
    features = (Variable(name="a", low=0, high=100), Variable(name="b", low=0, high=100, missing=50.0))
    domain = Domain(features=features, target=Variable(name="y", low=0, high=1))
    made = condensed(Dataset(("a", "b"), "y", X, rng.random(400)), domain, 5)
    assert made.rows == 400
    assert np.isnan(made.X[:, 1]).sum() == np.isnan(X[:, 1]).sum()
    assert np.isfinite(made.X[:, 0]).all()
    assert not set(made.X[:, 0]) & set(X[:, 0])
