"""Columns of text as inputs where the target is a number: `fmt` and `bmt`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from glassfleet import catalogue
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError, TaskError
from glassfleet.local import central
from glassfleet.scheme import Next
from glassfleet.schemes.bmt.bins import between_levels, find_edges, ramps
from schemas.errors import DocumentError, UsageError

CITIES = ("Bern", "Campinas", "Lima", "Rio", "Santos", "Zug")
PRICE_OF = (9.0, 3.0, 5.0, 5.0, 3.0, 9.0)
HOUSES = Domain(
    features=(
        Variable(name="area", low=30.0, high=200.0, unit="m2"),
        Variable(name="city", low=0.0, high=5.0, categories=CITIES),
    ),
    target=Variable(name="price", low=0.0, high=2000.0),
)


@pytest.fixture(scope="module", params=["fmt", "bmt"])
def scheme(request: pytest.FixtureRequest) -> Any:
    return catalogue.load(request.param)


@pytest.fixture(scope="module")
def houses(scheme: Any) -> Any:
    """Every city has the same houses; Campinas and Santos the same prices, and so have the other pairs."""
    X = np.column_stack([np.repeat(np.linspace(30.0, 200.0, 300), 6), np.tile(np.arange(6.0), 300)])
    y = np.array(PRICE_OF)[X[:, 1].astype(int)] * X[:, 0]
    return central(scheme, scheme.Parameters(), HOUSES, Dataset(("area", "city"), "price", X, y)).model


def test_price_follows_area_and_city_when_cities_are_texts(houses: Any) -> None:
    X = np.array([[100.0, number] for number in range(6)])
    assert houses.predict(X) == pytest.approx(100.0 * np.array(PRICE_OF), abs=15.0)
    told = {part.term for rule in houses.rules() for part in rule.conditions if part.feature == "city"}
    assert told == {"one of Campinas, Santos", "none of Bern, Campinas, Santos, Zug", "one of Bern, Zug"}
    assert all(part.crisp for rule in houses.rules() for part in rule.conditions if part.feature == "city")
    why = houses.explain(np.array([100.0, 1.0]))
    degrees = zip(why.fired.rule.conditions, why.fired.memberships, strict=True)
    assert [degree for part, degree in degrees if part.crisp] == [1.0]


def test_unknown_city_is_taken_for_one_of_the_mean_price(houses: Any) -> None:
    middle = houses.predict(np.array([[100.0, 2.0]]))  # Lima and Rio are nearest to the mean of all
    assert houses.predict(np.array([[100.0, -0.5], [100.0, 77.0]])) == pytest.approx([middle[0]] * 2)


def test_document_is_refused_when_levels_and_categories_differ(scheme: Any, houses: Any) -> None:
    document = houses.to_document()
    assert scheme.from_document(document).to_document() == document
    for levels, reason in (([], "levels of 0 inputs"), ([[], [0.6] * 7], "no knot|is on a ramp")):
        with pytest.raises(DocumentError, match=reason):
            scheme.from_document({**document, "model": {**document["model"], "levels": levels}})


def test_private_run_is_refused_when_an_input_is_text() -> None:
    fmt: Any = catalogue.load("fmt")
    with pytest.raises(UsageError, match="takes numbers alone"):
        fmt.server.start(fmt.Parameters(support=10), HOUSES, 0)
    task = fmt.server.start(fmt.Parameters(), HOUSES, 0).task
    with pytest.raises(TaskError, match="takes numbers alone"):
        fmt.layout(task)


@pytest.mark.parametrize(
    ("column", "by", "reason"),
    [
        (0, 2 << 20, "more rows have a category"),
        (1, 2 << 20, "a category's target is too high"),
        (1, -(2 << 20), "negative"),
    ],
)
def test_server_refuses_categories_that_no_rows_can_have(scheme: Any, column: int, by: int, reason: str) -> None:
    begin = scheme.server.start(scheme.Parameters(min_rows=1), HOUSES, 0)
    assert isinstance(begin, Next)
    data = Dataset(("area", "city"), "price", np.array([[50.0, 1.0], [60.0, 4.0]]), np.array([150.0, 180.0]))
    answer = scheme.client.contribute(begin.task, data, np.random.default_rng(0))
    scheme.server.check(begin.task, answer)
    answer.sums["categories"][1, column] += by
    with pytest.raises(ContributionError, match=reason):
        scheme.server.check(begin.task, answer)


@pytest.mark.parametrize("bins", [32, 64])
@pytest.mark.parametrize("line", [(0.0, 0.0), (0.4, 0.0, 1.0), (0.0, 0.0, 1 / 256, 0.2, 0.4, 0.6, 0.8, 1.0)])
def test_each_two_neighbouring_levels_have_one_ramp_between_them_of_bmt(bins: int, line: tuple[float, ...]) -> None:
    (edges,) = find_edges(np.ones((1, 512), dtype=np.int64), bins, (line,))
    assert (edges.size, edges[0], edges[-1]) == (bins + 1, 0.0, 1.0)
    assert (np.diff(edges) > 1e-6).all()
    chosen = ramps(bins)
    between = edges[chosen[between_levels(chosen, line)]]
    known = sorted({0.0, 1.0, *line})
    assert [[sum(level <= low for level in known), sum(level >= high for level in known)] for low, high in between] == [
        [below, len(known) - below] for below in range(1, len(known))
    ]
