"""The central references learn, in the data's own units, and say what they cannot."""

from __future__ import annotations

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import pooled_domain
from lab.protocols.paper import minmax_domain
from lab.protocols.references import REFERENCES, fit_reference

pytest.importorskip("sklearn", reason="pip install glassfleet[experiments]")

RNG = np.random.default_rng(8)
X = RNG.uniform(0, 100, (600, 4))
Y = 3 * X[:, 0] - X[:, 1] + 500 + RNG.normal(0, 5, 600)
NUMBERS = Dataset(("a", "b", "c", "d"), "y", X, Y)
LABELS = Dataset(("a", "b", "c", "d"), "y", X, np.where(Y > 600, "above", "below"))


SOME = [pytest.param(name, marks=[pytest.mark.slow] if name == "boosting" else []) for name in REFERENCES]


@pytest.mark.parametrize("name", SOME)
def test_reference_learns_numbers_in_their_own_unit(name: str) -> None:
    domain = pooled_domain(NUMBERS.features, "y", X, Y)
    model = fit_reference(name, domain, NUMBERS)
    error = np.sqrt(np.mean((model.predict(X) - Y) ** 2))
    assert error < 0.5 * np.std(Y)
    assert np.array_equal(model.predict(X), fit_reference(name, domain, NUMBERS).predict(X))


@pytest.mark.parametrize("name", SOME)
def test_reference_learns_labels(name: str) -> None:
    model = fit_reference(name, minmax_domain(LABELS), LABELS)
    assert np.mean(model.predict(X) == LABELS.y) > 0.9


def test_unknown_reference_is_refused() -> None:
    with pytest.raises(KeyError):
        fit_reference("oracle", minmax_domain(LABELS), LABELS)
