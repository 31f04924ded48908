"""The papers' protocols: who gets which rows in which fold, scaling, F1, and the central references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glassfleet.catalogue import load
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import pooled_domain
from glassfleet.local import central
from lab.protocols import frbc, tsk
from lab.protocols.anchors import ANCHORS
from lab.protocols.choice import protocol_of
from lab.protocols.paper import NESTED_KFOLD, minmax_domain
from lab.protocols.references import REFERENCES, fit_reference
from lab.protocols.skew import SLICES, skewed_split, slices

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

GAMMA = np.random.default_rng(3).gamma(2.0, size=1500)
WORDS = np.where(GAMMA > 2.0, "many", "few")
RNG = np.random.default_rng(8)
X = RNG.uniform(0, 100, (600, 4))
Y = 3 * X[:, 0] - X[:, 1] + 500 + RNG.normal(0, 5, 600)
NUMBERS = Dataset(("a", "b", "c", "d"), "y", X, Y)
LABELS = Dataset(("a", "b", "c", "d"), "y", X, np.where(Y > 600, "above", "below"))


def test_schemes_are_measured_by_the_protocol_of_their_paper() -> None:
    assert protocol_of(load("frbc")) is frbc.PROTOCOL
    assert protocol_of(load("tsk")) is tsk.PROTOCOL
    assert protocol_of(load("frt")) is NESTED_KFOLD


def test_model_tree_has_the_folds_of_the_regression_papers_and_limits_of_its_own() -> None:
    ours = protocol_of(load("fmt"))
    assert replace(ours, domain=NESTED_KFOLD.domain) == NESTED_KFOLD
    x = np.arange(1001.0)
    data = Dataset(("x",), "y", x[:, None], x)
    (published,), (limits,) = (protocol.domain(data).features for protocol in (NESTED_KFOLD, ours))
    assert (published.low, published.high) == pytest.approx((25.0, 975.0))
    assert (limits.low, limits.high) == pytest.approx((1.0, 999.0))


@pytest.mark.parametrize("y", [GAMMA, WORDS], ids=["numbers", "labels"])
@pytest.mark.parametrize("skew", ["iid", "quantity", "quantity+label"])
def test_split_gives_every_row_to_one_client_which_keeps_it_and_tests_it_in_one_fold(y: Any, skew: Any) -> None:
    tested, kept = [], set()
    for fold in range(5):
        pairs = skewed_split(y, fold, 5, 8, 7, skew=skew)
        whole = [tuple(sorted(np.concatenate(pair).tolist())) for pair in pairs]
        assert len(whole) == 8
        assert min(map(len, whole)) >= frbc.MIN_NODE_ROWS
        assert sorted(row for part in whole for row in part) == list(range(len(y)))
        kept |= set(whole)
        tested += np.concatenate([test for _, test in pairs]).tolist()
    assert len(kept) == 8
    assert sorted(tested) == list(range(len(y)))


def test_split_is_repeatable_and_another_seed_is_another_split() -> None:
    def sizes(seed: int) -> list[int]:
        return [len(train) for train, _ in skewed_split(GAMMA, 0, 5, 8, seed, skew="quantity")]

    assert sizes(1) == sizes(1)
    assert sizes(1) != sizes(2)


def test_skewed_clients_differ_in_what_the_skew_names() -> None:
    def spread(skew: Any) -> tuple[float, float]:
        parts = [train for train, _ in skewed_split(WORDS, 0, 5, 8, 7, skew=skew)]
        sizes = np.array([part.size for part in parts]) / len(WORDS)
        return float(sizes.std()), float(np.std([np.mean(WORDS[part] == "many") for part in parts]))

    (iid_size, iid_label), (q_size, q_label), (both_size, both_label) = map(
        spread, ("iid", "quantity", "quantity+label")
    )
    assert iid_size < 0.01 < min(q_size, both_size)
    assert max(iid_label, q_label) < 0.05 < both_label


def test_small_alpha_is_more_uneven_and_refused_when_the_rows_do_not_suffice() -> None:
    def largest(alpha: float, y: Any = GAMMA) -> int:
        return max(len(train) for train, _ in skewed_split(y, 0, 5, 8, 7, skew="quantity", alpha=alpha))

    assert largest(0.3) > largest(100.0)
    with pytest.raises(ValueError, match="fewer nodes or a larger alpha"):
        largest(0.1, GAMMA[:60])


def test_slices_are_of_equal_count_and_keep_equal_numbers_together() -> None:
    assert set(np.unique(slices(GAMMA), return_counts=True)[1].tolist()) == {len(GAMMA) // SLICES}
    assert len(set(slices(np.array([1.0] * 90 + [2.0] * 10)).tolist())) == 2


def test_clients_of_tsk_come_first_and_folds_inside_them() -> None:
    folds = [tsk.client_folds(np.zeros(50), fold, 5, 5, 42) for fold in range(5)]
    whole = [np.sort(np.concatenate(pair)) for pair in folds[0]]
    assert sorted(np.concatenate(whole).tolist()) == list(range(50))
    for fold in folds[1:]:  # a client keeps its rows, whatever the fold
        assert all(np.array_equal(np.sort(np.concatenate(pair)), own) for pair, own in zip(fold, whole, strict=True))
    # Unshuffled: each fold tests a client's next rows.
    for number, fold in enumerate(folds):
        assert all(
            np.array_equal(test, own[2 * number : 2 * number + 2]) for (_, test), own in zip(fold, whole, strict=True)
        )


def test_scaling_is_to_the_unit_range_and_survives_a_constant_column() -> None:
    constant = Dataset(("a", "b"), "y", np.column_stack([X[:, 0] - 50, np.full(len(X), 5.0)]), Y)
    scaled, width = tsk.minmax_scaled(constant)
    assert width == pytest.approx(np.ptp(Y))
    assert scaled.X.min(axis=0).tolist() == [0.0, 0.0]
    assert scaled.X.max(axis=0) == pytest.approx([1.0, 0.0])
    assert scaled.y.min() == 0.0


def test_f1_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import f1_score

    names = ["g", "h", "k", "z"]
    true, said = np.random.default_rng(1).choice(names[:3], 200), np.random.default_rng(3).choice(names[:2], 200)
    expected = f1_score(true, said, labels=names, average=None, zero_division=0)
    assert list(frbc.f1_scores(said, true, names).values()) == pytest.approx(expected.tolist())


def test_reduction_curve_starts_at_one_rule_and_ends_at_the_model() -> None:
    scheme = load("frbc")
    model = central(scheme, scheme.Parameters(), minmax_domain(LABELS), LABELS).model
    every = model.complexity()["rules"]
    curve = frbc.reduction_curve(model, X, LABELS.y, (1, 5, every))
    assert [size for size, _ in curve] == [1, 5, every]
    assert curve[-1][1] == frbc.f1_scores(model.predict(X), LABELS.y, model.domain.classes)
    assert min(curve[0][1].values()) == 0.0


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "boosting" else []) for name in REFERENCES]
)
def test_reference_learns_numbers_in_their_own_unit_and_labels(name: str) -> None:
    domain = pooled_domain(NUMBERS.features, "y", X, Y)
    model = fit_reference(name, domain, NUMBERS)
    assert np.sqrt(np.mean((model.predict(X) - Y) ** 2)) < 0.5 * np.std(Y)
    assert np.array_equal(model.predict(X), fit_reference(name, domain, NUMBERS).predict(X))
    assert np.mean(fit_reference(name, minmax_domain(LABELS), LABELS).predict(X) == LABELS.y) > 0.9


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "ebm" else []) for name in ANCHORS]
)
@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_anchor_learns_numbers_and_says_how_large_it_is(name: str) -> None:
    anchor = ANCHORS[name]
    pytest.importorskip(anchor.package, reason="pip install glassfleet[anchors]")
    fitted = anchor.make().fit(X, Y)
    assert np.sqrt(np.mean((fitted.predict(X) - Y) ** 2)) < 0.5 * np.std(Y)
    size = anchor.size(fitted)
    assert size["rules"] >= 1
    assert size["parameters"] > size["rules"] - 1


def test_linear_leaves_are_few_where_a_line_is_right() -> None:
    anchor = ANCHORS["linear-leaves"]
    assert anchor.size(anchor.make().fit(X, Y)) == {"rules": 1, "parameters": 5}
