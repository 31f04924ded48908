"""Antecedents: packing, order, and the tree that finds those which fire."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from glassfleet.fuzzy import fuzzify
from glassfleet.schemes.frbc import limbs, matching
from glassfleet.schemes.frbc.matching import (
    AntecedentTree,
    digits_per_word,
    pack,
    sort_rules,
    strongest_sets,
    unpack,
    word_count,
)


def _unique(antecedents: Any) -> Any:
    return np.unique(antecedents, axis=0)


def _dense(antecedents: Any, members: Any) -> Any:
    """Every row against every rule, one number at a time."""
    n, f = members.rows, antecedents.shape[1]
    strength = np.ones((n, len(antecedents)))
    for row in range(n):
        for rule, sets in enumerate(antecedents):
            for feature in range(f):
                strength[row, rule] *= members.degree(feature, row, int(sets[feature]))
    return strength


@pytest.mark.parametrize(("n_sets", "digits"), [(2, 63), (3, 39), (5, 27), (63, 10)])
def test_word_holds_as_many_sets_as_fit(n_sets: Any, digits: Any) -> None:
    assert digits_per_word(n_sets) == digits
    assert n_sets**digits <= 2**63 < n_sets ** (digits + 1)
    assert word_count(digits, n_sets) == 1
    assert word_count(digits + 1, n_sets) == 2


@pytest.mark.parametrize(("n_features", "n_sets"), [(1, 2), (10, 5), (27, 5), (30, 3), (64, 2), (130, 7)])
def test_packed_antecedents_unpack_and_keep_their_order(n_features: Any, n_sets: Any) -> None:
    antecedents = np.random.default_rng(3).integers(0, n_sets, (200, n_features), dtype=np.int8)
    antecedents[0], antecedents[1] = n_sets - 1, 0

    words = pack(antecedents, n_sets)

    assert np.array_equal(unpack(words, n_features, n_sets), antecedents)
    assert np.array_equal(_unique(antecedents), unpack(_unique(words), n_features, n_sets))


@pytest.mark.parametrize("word", [-1, 5**3, np.iinfo(np.int64).max, np.iinfo(np.int64).min])
def test_unpack_refuses_words_that_are_no_antecedents(word: Any) -> None:
    with pytest.raises(ValueError, match="no list of 3 sets"):
        unpack(np.array([[word]]), 3, 5)


def test_rules_are_sorted_by_antecedent_then_class_with_duplicates_found() -> None:
    words = np.array([[2, 0], [1, 9], [2, 0], [1, 9], [1, 9]])
    classes = np.array([1, 1, 0, 0, 1], dtype=np.int16)

    order, new = sort_rules(words, classes)

    assert list(zip(words[order, 0].tolist(), classes[order].tolist(), strict=True)) == [
        (1, 0), (1, 1), (1, 1), (2, 0), (2, 1),
    ]  # fmt: skip
    assert new.tolist() == [True, True, False, True, True]


def test_strongest_set_is_the_lower_one_on_a_tie() -> None:
    scaled = np.array([[0.0], [0.25], [0.2500001], [0.75], [1.0]])

    assert strongest_sets(fuzzify(scaled, 3)).ravel().tolist() == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(("n_features", "n_sets"), [(1, 2), (3, 3), (5, 5), (8, 2)])
def test_tree_finds_what_a_search_of_all_pairs_finds(n_features: Any, n_sets: Any) -> None:
    rng = np.random.default_rng(n_features)
    X = rng.uniform(0, 1, (80, n_features))
    X[:20] = np.round(X[:20] * (n_sets - 1)) / (n_sets - 1)  # on the peaks: one set alone fires
    members = fuzzify(X, n_sets)
    antecedents = _unique(strongest_sets(fuzzify(rng.uniform(0, 1, (60, n_features)), n_sets)))

    found = np.zeros((80, len(antecedents)))
    for part in AntecedentTree(antecedents, n_sets).match(members, 32):
        assert (part.strength > 0).all()
        found[part.row, part.antecedent] = part.strength

    assert np.array_equal(found, _dense(antecedents, members))


@pytest.mark.parametrize("pairs", [1, 7, 100])
def test_tree_finds_the_same_bits_however_rows_are_cut(monkeypatch: Any, pairs: Any) -> None:
    rng = np.random.default_rng(1)
    members = fuzzify(rng.uniform(0, 1, (150, 6)), 3)
    tree = AntecedentTree(_unique(strongest_sets(members)), 3)

    def collect(max_rows: Any) -> Any:
        parts = list(tree.match(members, max_rows))
        rows = [part.row for part in parts]
        assert all((np.diff(row) >= 0).all() for row in rows)
        assert len(np.unique(np.concatenate(rows))) == sum(len(np.unique(row)) for row in rows), "a row was cut in two"
        return [np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "antecedent", "strength")]

    whole = collect(1000)
    monkeypatch.setattr(matching, "_PAIRS", pairs)
    for max_rows in (1, 64, 1000):
        assert all(np.array_equal(a, b) for a, b in zip(whole, collect(max_rows), strict=True))


def test_tree_finds_own_antecedents_and_no_others() -> None:
    rng = np.random.default_rng(2)
    every = _unique(rng.integers(0, 4, (300, 4), dtype=np.int8))
    tree = AntecedentTree(every[::2], 4)

    assert tree.find(every[::2]).tolist() == list(range(len(every[::2])))
    assert (tree.find(every[1::2]) == -1).all()


def test_empty_tree_matches_nothing() -> None:
    tree = AntecedentTree(np.zeros((0, 3), dtype=np.int8), 5)
    members = fuzzify(np.full((4, 3), 0.3), 5)

    assert list(tree.match(members, 10)) == []
    assert tree.find(strongest_sets(members)).tolist() == [-1] * 4


def test_limbs_hold_each_term_to_half_a_grid_step() -> None:
    terms = np.concatenate([[0.0, 1.0, 0.5**30, 0.5**81, 0.5**82, 1 - 2.0**-53], np.random.default_rng(5).random(500)])

    high, low = limbs.split(terms, 40)

    assert ((high >= 0) & (high <= 2.0**40) & (low >= 0) & (low <= 2.0**40)).all()
    for term, h, w in zip(terms.tolist(), high.tolist(), low.tolist(), strict=True):
        assert abs(Fraction(int(h), 2**40) + Fraction(int(w), 2**80) - Fraction(term)) <= Fraction(1, 2**81)


def test_limb_sums_are_exact_and_carry_when_read() -> None:
    terms = np.random.default_rng(6).random(3000) ** 8
    high, low = limbs.split(terms, 40)
    exact = sum((Fraction(int(h), 2**40) + Fraction(int(w), 2**80) for h, w in zip(high, low, strict=True)), Fraction())
    total = np.array([int(high.sum())]), np.array([int(low.sum())])

    up, down = limbs.normalise(*total, 40)

    assert Fraction(int(up[0]), 2**40) + Fraction(int(down[0]), 2**80) == exact
    assert 0 <= int(down[0]) < 2**40
    assert limbs.read(*total, 40)[0] == limbs.read(up, down, 40)[0] == pytest.approx(float(exact), rel=1e-15)


@pytest.mark.parametrize("bits", [24, 32, 40])
def test_limb_capacity_is_the_most_rows_that_cannot_overflow(bits: Any) -> None:
    most = limbs.limb_capacity(bits)

    assert most << bits < 2**63 <= (most + 1) << bits
    assert limbs.limb_block(bits) << bits == 2**53
