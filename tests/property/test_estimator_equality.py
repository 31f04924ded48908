"""`fit` and `fit_federated` give the same document with ``exact=True``, however rows are split, with no domain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

import pandas as pd

from glassfleet import estimators
from glassfleet.contract import catalogue
from glassfleet.estimators import SchemeRegressor

CLASSES = [getattr(estimators, name) for name in estimators.__all__]
EXACT = [kind for kind in CLASSES if "exact" in kind().get_params()]

NUMBERS: list[Callable[[np.random.Generator, int], Any]] = [
    lambda rng, n: rng.normal(20.0, 5.0, n),
    lambda rng, n: rng.integers(-2, 3, n) * 0.25,
    lambda rng, n: 1013.0 + rng.random(n),
    lambda rng, n: 1e-9 * rng.exponential(size=n),
    lambda rng, n: np.full(n, 7.5),
    lambda rng, n: rng.random(n) < 0.5,
    lambda rng, n: rng.choice(["yes", "No"], n),
]


@st.composite
def tables(draw: st.DrawFn, kind: Any) -> tuple[pd.DataFrame, pd.Series, list[Any]]:
    """Rows with ties and constants, with texts and empty cells for those who take them; and which each party has."""
    scheme = catalogue.load(kind._scheme_name)
    rng, n = np.random.default_rng(draw(st.integers(0, 2**32 - 1))), draw(st.integers(1, 60))
    table = pd.DataFrame(
        {f"x{place}": draw(st.sampled_from(NUMBERS))(rng, n) for place in range(draw(st.integers(1, 3)))}
    )
    if scheme.abilities.categories and draw(st.booleans()):
        table["text"] = rng.choice(["a", "b", "1", "none"][: draw(st.integers(1, 4))], n)
    if scheme.abilities.missing_cells and draw(st.booleans()):
        for name in table.columns[draw(st.integers(0, 1)) :]:
            table[name] = table[name].where(rng.random(n) < draw(st.sampled_from([0.2, 0.9])))
    y = rng.normal(size=n) + pd.factorize(table.iloc[:, 0])[0] / n
    target = pd.Series(y if issubclass(kind, SchemeRegressor) else draw(st.sampled_from([y > 0.5, np.rint(y)])))
    count = draw(st.integers(1, 8))
    owner = rng.integers(0, count, n)
    if draw(st.booleans()):  # parties have rows of a kind
        owner[np.argsort(table.iloc[:, -1].astype(str).to_numpy(dtype=str), kind="stable")] = np.sort(owner)
    return table, target, [np.flatnonzero(owner == party) for party in range(count)]


def digest(learn: Callable[[], Any]) -> str:
    """Return the digest of what is learned, or why nothing is."""
    try:
        return str(learn().digest_)
    except ValueError as fault:
        return str(fault)


@pytest.mark.parametrize("kind", EXACT, ids=lambda kind: kind.__name__)
@settings(max_examples=8)
@given(st.data())
def test_parties_learn_what_one_learns_from_all_rows(kind: Any, data: st.DataObject) -> None:
    table, target, places = data.draw(tables(kind))
    learner = kind(exact=True)
    alone = digest(lambda: learner.fit(table, target))
    parties = [(table.iloc[place], target.iloc[place]) for place in places]
    assert digest(lambda: learner.fit_federated(parties)) == alone
