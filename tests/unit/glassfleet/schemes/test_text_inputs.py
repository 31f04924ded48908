"""Columns of text as inputs: their levels, and `tree` with them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution, Task
from glassfleet.data.dataset import Dataset
from glassfleet.data.domain import Domain, Variable
from glassfleet.errors import ContributionError, TaskError
from glassfleet.fuzzy.category_sums import MOST_TOGETHER, category_sums, levels_of
from glassfleet.fuzzy.levels import find_levels
from glassfleet.schemes.tree.bins import between_levels, find_edges, ramps
from glassfleet.simulation import central, federated
from schemas.errors import DocumentError

CITIES = ("Bern", "Campinas", "Lima", "Rio", "Santos", "Zug")
PRICE_OF = (9.0, 3.0, 5.0, 5.0, 3.0, 9.0)
HOUSES = Domain(
    features=(
        Variable(name="area", low=30.0, high=200.0, unit="m2"),
        Variable(name="city", low=0.0, high=5.0, categories=CITIES),
    ),
    target=Variable(name="price", low=0.0, high=2000.0),
)


SCHEME: Any = catalogue.load("tree")


@pytest.fixture(scope="module")
def houses() -> Any:
    """Every city has the same houses; Campinas and Santos the same prices, and so have the other pairs."""
    X = np.column_stack([np.repeat(np.linspace(30.0, 200.0, 300), 6), np.tile(np.arange(6.0), 300)])
    y = np.array(PRICE_OF)[X[:, 1].astype(int)] * X[:, 0]
    return central(SCHEME, SCHEME.Parameters(), HOUSES, Dataset(("area", "city"), "price", X, y)).model


def test_price_follows_area_and_city_when_cities_are_texts(houses: Any) -> None:
    X = np.array([[100.0, number] for number in range(6)])
    assert houses.predict(X) == pytest.approx(100.0 * np.array(PRICE_OF), abs=15.0)
    result = {part.term for rule in houses.rules() for part in rule.conditions if part.feature == "city"}
    assert result == {"one of Campinas, Santos", "none of Bern, Campinas, Santos, Zug", "one of Bern, Zug"}
    assert all(part.crisp for rule in houses.rules() for part in rule.conditions if part.feature == "city")
    why = houses.explain(np.array([100.0, 1.0]))
    degrees = zip(why.fired.rule.conditions, why.fired.memberships, strict=True)
    assert [degree for part, degree in degrees if part.crisp] == [1.0]


def test_unknown_city_is_taken_for_one_of_the_mean_price(houses: Any) -> None:
    middle = houses.predict(np.array([[100.0, 2.0]]))  # Lima and Rio are nearest to the mean of all
    assert houses.predict(np.array([[100.0, -0.5], [100.0, 77.0]])) == pytest.approx([middle[0]] * 2)


def test_document_is_refused_when_levels_and_categories_differ(houses: Any) -> None:
    document = houses.to_document()
    assert SCHEME.from_document(document).to_document() == document
    for levels, reason in (([], "levels of 0 inputs"), ([[], [0.6] * 7], "no knot|is on a ramp")):
        with pytest.raises(DocumentError, match=reason):
            SCHEME.from_document({**document, "model": {**document["model"], "levels": levels}})


KINDS = HOUSES.model_copy(update={"target": None, "label": "kind", "classes": ("flat", "hut", "villa")})


@pytest.mark.parametrize(
    ("domain", "name", "place", "by", "reason"),
    [
        (HOUSES, "categories", (1, 0), 2 << 20, "more rows have a category"),
        (HOUSES, "categories", (1, 1), 2 << 20, "a category's target is too high"),
        (HOUSES, "categories", (1, 1), -(2 << 20), "negative"),
        (HOUSES, "categories", (1, 2), 2 << 20, "a category's inputs are too high"),
        (HOUSES, "categories", (1, 4), 1, "rows of two categories"),
        (HOUSES, "numbers", 0, 3 << 20, "products of inputs"),
        (HOUSES, "numbers", 4, 3 << 20, "products of inputs"),
        (HOUSES, "numbers", 3, -(1 << 60), "no rows have these|negative"),
        (KINDS, "categories", (1, 1), -(1 << 19), "a part of a row"),
        (KINDS, "categories", ([1, 4], [8, 5]), 1, "the categories of an input have more"),
        (KINDS, "numbers", 5, 1 << 17, "the classes have more"),
        (KINDS, "numbers", 8, 1 << 20, "the classes have more"),
    ],
)
def test_server_refuses_sums_that_no_rows_can_have(domain: Domain, name: str, place: Any, by: int, reason: str) -> None:
    begin = SCHEME.server.start(SCHEME.Parameters(min_rows=1), domain, 0)
    y: Any = np.array(["hut", "villa"] if domain.classes else [150.0, 180.0])
    data = Dataset(("area", "city"), domain.target_name, np.array([[50.0, 1.0], [60.0, 4.0]]), y)
    answer = SCHEME.client.contribute(begin.task, data, np.random.default_rng(0))
    SCHEME.server.check(begin.task, answer)
    answer.sums[name][place] += by
    with pytest.raises(ContributionError, match=reason):
        SCHEME.server.check(begin.task, answer)


@pytest.mark.parametrize("classes", ["", "ab", "abc"])
def test_levels_are_what_categories_add_in_a_linear_model_of_all_inputs(classes: str) -> None:
    rng, n = np.random.default_rng(3), 900
    cut, clarity = rng.integers(0, 3, n), rng.integers(0, 4, n)
    weight = np.clip(0.8 - 0.2 * clarity + rng.normal(0, 0.1, n), 0.0, 1.0)  # the clearest stones are the smallest
    y = np.clip(0.6 * weight + 0.08 * clarity + 0.05 * cut, 0.0, 1.0)
    assert np.corrcoef(clarity, y)[0, 1] < -0.3
    texts = [Variable(name=own, low=0.0, high=len(own) - 1.0, categories=tuple(own)) for own in ("rst", "cdef")]
    features = (Variable(name="weight", low=0.0, high=1.0), *texts)
    target = {"label": "y", "classes": tuple(classes)} if classes else {"target": Variable(name="y", low=0, high=1)}
    each = y[:, None]
    if classes:
        y = np.searchsorted(np.quantile(y, [0.3, 0.6])[: len(classes) - 1], y).astype(float)
        each = (y[:, None] == np.arange(len(classes))).astype(float)
    domain = Domain.model_validate({"features": features, **target})
    levels = levels_of(domain, category_sums(domain, np.column_stack([weight, cut, clarity]), y))
    columns = [np.ones(n), weight, *(cut == k for k in range(3)), *(clarity == k for k in range(4))]
    z = np.column_stack(columns).astype(float)
    effects = np.linalg.solve(z.T @ z + np.diag([0.0, 0.1, *[10.0] * 7]), z.T @ each)
    for line, own, rows in ((levels[1], effects[2:5], cut), (levels[2], effects[5:], clarity)):
        counts = np.bincount(rows)
        apart = own - np.average(own, axis=0, weights=counts)
        along = apart @ np.linalg.eigh((apart * counts[:, None]).T @ apart)[1][:, -1]
        expected = (along - along.min()) / np.ptp(along)
        # Which end is up is chance.
        assert line[1:] == pytest.approx(expected, abs=1e-5) or line[1:] == pytest.approx(1.0 - expected, abs=1e-5)


def test_levels_of_many_categories_and_classes_follow_the_means_of_all_classes() -> None:
    names = tuple(f"shop {number:03}" for number in range(MOST_TOGETHER + 1))
    shop = Variable(name="shop", low=0.0, high=len(names) - 1.0, categories=names)
    domain = Domain(features=(shop,), label="y", classes=("a", "b", "c"))
    code, y = np.random.default_rng(8).integers(0, (len(names), 3), (5000, 2)).T
    counts = np.zeros((len(names), 3), dtype=np.int64)
    np.add.at(counts, (code, y), 1)
    (line,) = levels_of(domain, category_sums(domain, code[:, None].astype(float), y.astype(float)))
    assert line == find_levels(counts.sum(axis=1), counts, 1.0)


@pytest.mark.parametrize("bins", [32, 64])
@pytest.mark.parametrize("line", [(0.0, 0.0), (0.4, 0.0, 1.0), (0.0, 0.0, 1 / 256, 0.2, 0.4, 0.6, 0.8, 1.0)])
def test_each_two_neighbouring_levels_have_one_ramp_between_them(bins: int, line: tuple[float, ...]) -> None:
    (edges,) = find_edges(np.ones((1, 512), dtype=np.int64), bins, (line,))
    assert (edges.size, edges[0], edges[-1]) == (bins + 1, 0.0, 1.0)
    assert (np.diff(edges) > 1e-6).all()
    chosen = ramps(bins)
    between = edges[chosen[between_levels(chosen, line)]]
    known = sorted({0.0, 1.0, *line})
    assert [[sum(level <= low for level in known), sum(level >= high for level in known)] for low, high in between] == [
        [below, len(known) - below] for below in range(1, len(known))
    ]


# --- private runs with support ----------------------------------------------------------------------------------------


def supported(rows: int = 400, rare: int = 2) -> tuple[Any, Dataset, list[tuple[Task, Contribution]]]:
    """Learn with support from houses of which few are in Zug; return what was learned, from what, and all answers."""
    rng = np.random.default_rng(2)
    city = np.concatenate([rng.integers(0, 5, rows), np.full(rare, 5)]).astype(np.float64)
    X = np.column_stack([rng.uniform(30, 200, len(city)), city])
    y = 50.0 + X[:, 0] * np.array(PRICE_OF)[city.astype(int)] + rng.normal(0.0, 5.0, len(city))
    data, heard = Dataset(("area", "city"), "price", X, y), list[tuple[Task, Contribution]]()
    parameters = SCHEME.Parameters(support=3, min_rows=1)
    outcome = federated(SCHEME, parameters, HOUSES, {"v": data}, listen=lambda task, given: heard.append((task, given)))
    return outcome, data, heard


def test_category_of_few_rows_is_taken_for_an_unknown_one_with_support_and_others_have_levels() -> None:
    outcome, data, heard = supported()
    unknown, *levels = outcome.model.levels[1]
    assert levels[5] == unknown
    assert np.argsort(levels[:5]).tolist()[-1] == 0  # Bern is the dearest
    assert levels[1] == pytest.approx(levels[4], abs=0.05)
    assert float(np.std(outcome.model.predict(data.X[:400]) - data.y[:400])) < 0.5 * float(np.std(data.y[:400]))
    ((_, answer),) = [each for each in heard if each[0].kind == "categories"]
    assert (answer.sums["scores"][:, 0] > 0).tolist() == [True] * 5 + [False]
    assert "city" in outcome.summary["without_slopes"]


@pytest.mark.parametrize("changed", [{"disclosed": np.ones(5, dtype=np.bool_)}, {"levels": [[], [0.0] * 7]}])
def test_questions_about_categories_that_are_none_are_refused(changed: dict[str, Any]) -> None:
    _, data, heard = supported(100)
    ((task, answer),) = [each for each in heard if each[0].kind == "categories"]
    with pytest.raises(TaskError):
        SCHEME.client.contribute(replace(task, body={**task.body, **changed}), data, None)
    untold = answer.sums["scores"].copy()
    untold[5] = 1
    with pytest.raises(ContributionError, match="was not asked about"):
        SCHEME.server.check(task, replace(answer, sums={"scores": untold}))
