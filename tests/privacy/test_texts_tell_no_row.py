"""A row that is alone in its category or class, with an empty cell, or beyond a limit is not told with support."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset, pool
from glassfleet.data.domain import Domain, Variable
from glassfleet.private.columns import decide_columns
from glassfleet.schemes.tree.messages import read_task
from glassfleet.schemes.tree.params import SCORE_BITS
from schemas.errors import RunFailedError
from tests.support.privacy.opened_sums import alone_in_a_band, attacked, opened
from tests.support.privacy.transcripts import Fleet

NAMES = ("a", "b", "c", "city")
CITIES = ("Campinas", "Lima", "Rio", "Santos")
SMALL: dict[str, Any] = {"max_rules": 4, "compact": True}
ALONE = 7
"""Which row of v04 is alone."""


def vehicles(alone: str = "", others: tuple[int, ...] = tuple(range(15))) -> tuple[Fleet, Domain]:
    """Return vehicles of which one row is `alone`: in its "city", with an empty "cell", or "beyond" a limit.

    Of vehicles that are none of the `others` many rows are as that one.
    """
    fleet = {}
    for number in range(15):
        rng = np.random.default_rng(number)
        city = rng.choice(3, 60, p=[0.4, 0.35, 0.25]).astype(np.float64)
        X = np.column_stack([rng.uniform(size=(60, 3)), city])
        is_so = (np.arange(60) % 10 == ALONE) if number not in others else (number == 4) & (np.arange(60) == ALONE)
        if alone == "city":
            X[is_so, 3] = 3.0
        if alone == "cell":
            X[is_so, 1] = np.nan
        if alone == "beyond":
            X[is_so, 1] = 1.4 + 0.3 * X[is_so, 1]
        y = np.sin(6.0 * X[:, 0]) + np.nan_to_num(X[:, 1], nan=1.5) + 0.3 * X[:, 3] + 0.05 * rng.normal(size=60)
        fleet[f"v{number:02d}"] = Dataset(NAMES, "y", X, np.clip(y, -1.2, 3.5))
    features = [Variable(name=each, low=0.0, high=1.0) for each in "abc"]
    changes = {"cell": {"missing": 0.5}, "beyond": {"highest": 2.0}}
    features[1] = features[1].model_copy(update=changes.get(alone, {}))
    text = Variable(name="city", low=0.0, high=3.0, categories=CITIES)
    return fleet, Domain(features=(*features, text), target=Variable(name="y", low=-1.2, high=3.5))


@pytest.mark.parametrize(
    ("alone", "left"),
    [
        ("city", {}),
        ("cell", {"v04": 4}),
        ("beyond", {}),
        pytest.param("city", {"v04": 4}, marks=pytest.mark.slow),
        pytest.param("cell", {}, marks=pytest.mark.slow),
        pytest.param("beyond", {"v04": 4}, marks=pytest.mark.slow),
    ],
)
def test_a_row_that_is_alone_is_not_told(alone: str, left: dict[str, int]) -> None:
    others = tuple(range(15))
    if left:  # of those who leave one row is alone; others have many
        fleet, domain = vehicles(alone)
        some, _ = opened("tree", fleet, 3, left, domain=domain, **SMALL)
        stay = min((each.members for each in some), key=len)
        others = tuple(number for number in range(15) if f"v{number:02d}" not in stay)
        assert 4 in others
    fleet, domain = vehicles(alone, others)
    assert attacked("tree", fleet, 3, left, domain=domain, **SMALL).read == 0


@pytest.mark.parametrize("alone", ["cell", "beyond"])
def test_indicators_and_excess_tell_the_row_as_columns_of_products(alone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def may_be_columns(*asked: Any) -> Any:
        decision = decide_columns(*asked)
        decision[:, 0] = True
        return decision

    fleet, domain = vehicles(alone)
    monkeypatch.setattr("glassfleet.schemes.tree.start.decide_columns", may_be_columns)
    assert attacked("tree", fleet, 3, {}, domain=domain, **SMALL).read > 0


def classified(odd: float) -> tuple[Fleet, Domain]:
    """Return vehicles whose rows have three classes; of the third a share is where "a" is low, and one row is not."""
    fleet = {}
    for number in range(15):
        rng = np.random.default_rng(number)
        X = rng.uniform(size=(60, 3))
        y = np.where((X[:, 0] < 0.5) == (X[:, 1] + rng.normal(0.0, 0.1, 60) > 0.5), "high", "low").astype("<U4")
        y[(X[:, 0] < 0.4) & (rng.random(60) < odd)] = "odd"
        if number == 4:
            X[ALONE], y[ALONE] = (0.9, 0.8, 0.3), "odd"
        fleet[f"v{number:02d}"] = Dataset(NAMES[:3], "y", X, y)
    features = tuple(Variable(name=each, low=0.0, high=1.0) for each in NAMES[:3])
    return fleet, Domain(features=features, label="y", classes=("high", "low", "odd"))


@pytest.mark.parametrize("left", [{}, {"v04": 4}], ids=["all stay", "three leave"])
def test_a_row_that_is_alone_in_its_class_in_a_leaf_is_not_told(
    left: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, domain = classified(0.25)
    assert attacked("tree", fleet, 3, left, domain=domain, **SMALL).read == 0
    if left:
        return
    # Without layers of classes it is.
    least = property(lambda asked: np.array([asked.least_rows, *[0] * (4 * len(asked.common) + 3)]))
    monkeypatch.setattr("glassfleet.schemes.tree.messages.TreeQuestion.least_of", least)
    assert attacked("tree", fleet, 3, left, domain=domain, **SMALL).read > 0


def test_a_class_of_one_row_ends_the_run() -> None:
    fleet, domain = classified(0.0)
    with pytest.raises(RunFailedError, match=r"fewer than 3 rows are of class 'odd'.*leave the class out"):
        opened("tree", fleet, 3, {}, domain=domain, **SMALL)


def residuals(fleet: Fleet, domain: Domain) -> list[float]:
    """Return the residuals of the line over all rows that sums over a category tell of one row."""
    found = []
    for each in opened("tree", fleet, 3, {}, domain=domain, **SMALL)[0]:
        if each.task.kind == "categories":
            weight, residual = (each.sums["scores"] / 2.0**SCORE_BITS).T
            found += (residual / weight)[(weight > 0.0) & (weight < 1.0)].tolist()
    return found


def test_sums_over_a_category_of_one_row_tell_how_far_it_is_off_and_are_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, domain = vehicles("city")
    assert residuals(fleet, domain) == []
    monkeypatch.setattr(
        "glassfleet.schemes.tree.support.holds", lambda parts, least: np.ones(parts[0].shape, dtype=bool)
    )
    (one,) = residuals(fleet, domain)
    asked = next(
        each for each in opened("tree", fleet, 3, {}, domain=domain, **SMALL)[0] if each.task.kind == "categories"
    )
    question, rows = read_task(asked.task), pool(list(fleet.values()))
    assert question.coefficients is not None
    line = question.coefficients[0, 0]
    row = domain.scale_inputs(rows.X[[4 * 60 + ALONE]])[0, list(question.regressors)]
    assert one == pytest.approx(domain.scale_target(rows.y[[4 * 60 + ALONE]])[0] - line[0] - line[1:] @ row, abs=1e-6)


def test_an_empty_cells_number_is_common_however_few_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all rows of a band have empty cells, which are taken for 0: one that has none is read by its columns."""
    features = tuple(Variable(name=each, low=0.0, high=1.0) for each in "abc")
    gaps = tuple(each.model_copy(update={"missing": 0.0}) for each in features[1:])
    domain = Domain(features=(features[0], *gaps), target=Variable(name="y", low=-0.5, high=2.0))
    fleet, alone = {}, np.array([0.98, 0.37, 0.61])
    for number in range(15):
        rng = np.random.default_rng(number)
        X = rng.uniform(size=(60, 3))
        X[X[:, 0] > 0.955, 1:] = np.nan
        if number == 4:
            X[ALONE] = alone
        y = np.abs(X[:, 0] - 0.5) * 2.0 + 0.3 * np.nan_to_num(X[:, 1] * X[:, 2]) + rng.normal(0.0, 0.02, 60)
        fleet[f"v{number:02d}"] = Dataset(("a", "b", "c"), "y", X, y)

    def is_read() -> bool:
        candidates = alone_in_a_band(opened("tree", fleet, 3, {}, domain=domain, **SMALL)[0])
        return any(np.abs(one - alone[1:]).max() < 1e-3 for one in candidates)

    assert not is_read()
    monkeypatch.setattr("glassfleet.schemes.tree.start.decide_columns", lambda *asked: decide_columns(*asked[:4]))
    assert is_read()
