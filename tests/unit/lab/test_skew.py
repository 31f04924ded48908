"""Uneven splits: every row once, uneven as asked, the same for the same seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lab.protocols.skew import SLICES, skewed_split, slices

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

NUMBERS = np.random.default_rng(3).gamma(2.0, size=1500)
LABELS = np.where(NUMBERS > 2.0, "many", "few")


@pytest.mark.parametrize("y", [NUMBERS, LABELS], ids=["numbers", "labels"])
@pytest.mark.parametrize("skew", ["iid", "quantity", "quantity+label"])
def test_split_gives_every_row_to_one_client_and_tests_it_in_one_fold(y: Any, skew: Any) -> None:
    tested = []
    for fold in range(5):
        pairs = skewed_split(y, fold, 5, 8, 7, skew=skew)
        assert len(pairs) == 8
        rows = np.concatenate([np.concatenate(pair) for pair in pairs])
        assert sorted(rows.tolist()) == list(range(len(y)))
        tested += np.concatenate([test for _, test in pairs]).tolist()
    assert sorted(tested) == list(range(len(y)))


def test_split_is_repeatable_and_another_seed_is_another_split() -> None:
    def sizes(seed: int) -> list[int]:
        return [len(train) for train, _ in skewed_split(NUMBERS, 0, 5, 8, seed, skew="quantity")]

    assert sizes(1) == sizes(1)
    assert sizes(1) != sizes(2)


def test_quantity_keeps_the_labels_even_and_quantity_and_label_does_not() -> None:
    def shares(skew: Any) -> Any:
        return [np.mean(LABELS[train] == "many") for train, _ in skewed_split(LABELS, 0, 5, 8, 7, skew=skew)]

    assert np.std(shares("quantity")) < 0.05
    assert np.std(shares("quantity+label")) > 0.1


def test_small_alpha_is_more_uneven() -> None:
    def largest(alpha: float) -> int:
        return max(len(train) for train, _ in skewed_split(NUMBERS, 0, 5, 8, 7, skew="quantity", alpha=alpha))

    assert largest(0.3) > largest(100.0)


def test_split_says_so_when_the_rows_do_not_suffice() -> None:
    with pytest.raises(ValueError, match="fewer nodes or a larger alpha"):
        skewed_split(NUMBERS[:60], 0, 5, 8, 7, skew="quantity", alpha=0.1)


def test_slices_are_of_equal_count_and_keep_equal_numbers_together() -> None:
    assert set(np.unique(slices(NUMBERS), return_counts=True)[1].tolist()) == {len(NUMBERS) // SLICES}
    assert len(set(slices(np.array([1.0] * 90 + [2.0] * 10)).tolist())) == 2
