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
    strongest_sets,
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
