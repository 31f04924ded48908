"""The papers' protocols: who gets which rows in which fold, scaling, F1, and the central references."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glassfleet.catalogue import load
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import pooled_domain
from lab.protocols import frbc, tsk
from lab.protocols.anchors import ANCHORS
from lab.protocols.choice import protocol_of
from lab.protocols.paper import NESTED_KFOLD, minmax_domain
from lab.protocols.references import REFERENCES, fit_reference
from lab.protocols.skew import skewed_split

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
