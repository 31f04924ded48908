"""Condensation: the sums stay, the rows do not, and nothing but the sums decides what is made up."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassfleet import condense as module
from glassfleet.condense import condense, condensed
from glassfleet.data import Dataset
from glassfleet.domain import Domain, Variable


@st.composite
def points(draw: Any) -> Any:
    """Rows of columns that go together, some of them equal, away from the limits."""
    n, d = draw(st.integers(1, 400)), draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = 0.5 + 0.05 * np.clip(rng.normal(0, 1, (n, d)) @ rng.normal(0, 1, (d, d)) / d, -5, 5)
    return rows[rng.integers(0, n, n)] if draw(st.booleans()) else rows


@given(points(), st.integers(2, 12))
def test_sums_squares_and_products_stay(rows: Any, least: int) -> None:
    made = condense(rows, least)
    if len(np.unique(np.rint(rows * 2**20), axis=0)) < max(least, rows.shape[1] + 1):
        assert made.shape == (0, rows.shape[1])
        return
    assert made.shape == rows.shape
    assert np.allclose(rows.sum(axis=0), made.sum(axis=0), atol=len(rows) * 1e-6)
    assert np.allclose(rows.T @ rows, made.T @ made, atol=len(rows) * 1e-5)


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


@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_other_rows_with_the_same_sums_give_the_same_made_up_rows(seed: int, d: int) -> None:
    # One group; turned in the space of its rows, around the vector of ones.
    rng, n = np.random.default_rng(seed), 2 * d + 1
    rows = 0.5 + 0.05 * np.clip(rng.normal(0, 1, (n, d)), -3, 3)
    ones = np.full((n, 1), 1 / np.sqrt(n))
    basis = np.linalg.qr(np.column_stack([ones, rng.normal(0, 1, (n, n - 1))]))[0][:, 1:]
    turn = np.linalg.qr(rng.normal(0, 1, (n - 1, n - 1)))[0]
    turned = (ones @ ones.T + basis @ turn @ basis.T) @ rows
    assert np.abs(turned - rows).max() > 1e-3
    assert np.abs(condense(rows, n) - condense(turned, n)).max() < 1e-4


def test_made_up_rows_are_the_same_on_every_machine() -> None:
    rows = (np.arange(120, dtype=np.float64).reshape(40, 3) ** 2 % 97) / 97
    # Also under each OPENBLAS_CORETYPE that was tried: Prescott, Haswell, SkylakeX.
    assert hashlib.sha256(condense(rows, 5).tobytes()).hexdigest() == GOLDEN


GOLDEN = "0229babadd93bfc4ca1e7ce3dcf7a7cbd1f59aa70a21dabecdd71f14c53e547b"


@pytest.mark.parametrize("counts", [(4, 30, 0), (9, 2, 50)])
def test_classes_are_condensed_apart_and_left_out_when_too_few(counts: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    labels = np.repeat(["a", "b", "other"], counts)
    data = Dataset(("u", "v"), "kind", rng.random((len(labels), 2)), labels)
    features = (Variable(name="u", low=0, high=1), Variable(name="v", low=0, high=2))
    made = condensed(data, Domain(features=features, label="kind", classes=("a", "b")), 4)
    kept = [count if count >= 4 else 0 for count in counts[:2]]
    assert [int((made.y == name).sum()) for name in ("a", "b", "other")] == [*kept, 0]
