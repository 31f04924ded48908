"""Counterfactuals: they hold, they are within bounds, small, and the same every time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassfleet.explain import Goal, counterfactual
from schemas.errors import UsageError
from tests.support.sample_models import NAMES, model, population, rows


@pytest.mark.parametrize("kind", ["frt", "tsk"])
def test_smallest_move_either_way_is_found_when_no_goal_is_named(kind: str) -> None:
    learned = model(kind)
    ways: set[bool] = set()
    assert Goal.default(learned.domain, 1.0) == Goal.parse("+-10%", learned.domain)
    for row in rows(5, seed=7):
        told = counterfactual(learned, row)
        one = [counterfactual(learned, row, Goal.parse(goal, learned.domain)).best for goal in ("+10%", "-10%")]
        costs = [way.cost for way in one if way is not None]
        assert (told.best is not None) == bool(costs)
        if told.best is not None:
            # The same candidates are tried for all three, and of the cheapest a few are relaxed.
            assert told.best.cost <= min(costs) + 0.0101
            assert isinstance(told.prediction, float)
            assert isinstance(told.best.prediction, float)
            ways.add(told.best.prediction > told.prediction)
    assert ways == {True, False}, "up for some rows, down for others"


def test_nothing_is_found_when_nothing_can_change_the_answer() -> None:
    told = counterfactual(population(), rows()[0])
    assert (told.found, told.best) == (False, None)
    assert "no change" in told.text
    told = counterfactual(model("frt"), rows()[0], Goal(above=1e9))
    assert told.closest is not None
    assert told.closest >= float(model("frt").predict(rows(50)).max()) - 1.0
    assert not counterfactual(model("frt"), rows()[0], keep=NAMES).found


def test_answer_is_the_same_when_asked_twice() -> None:
    first, second = (counterfactual(model("frt"), rows()[4]) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("frt", "good"),
        ("frt", "5"),
        ("frt", ">x"),
        ("frt", "+0"),
        ("frt", "+-0"),
        ("frt", "+--1"),
        ("frt", "+/--1"),
        ("frt", "+/1"),
        ("frt", "\N{MINUS SIGN}"),
        ("frbc", "+-1"),
        ("frbc", ">3"),
        ("frbc", "no"),
    ],
)
def test_goal_is_refused_when_it_is_none_for_the_target(kind: str, text: str) -> None:
    with pytest.raises(UsageError):
        Goal.parse(text, model(kind).domain)


def test_search_is_refused_when_goal_or_input_is_unknown() -> None:
    for kind, goal, keep in (
        ("frt", Goal(label="good"), ()),
        ("frt", Goal(), ()),
        ("frbc", Goal(above=1.0), ()),
        ("frbc", Goal(label="no"), ()),
        ("frbc", Goal(), ("height",)),
    ):
        with pytest.raises(UsageError):
            counterfactual(model(kind), rows()[0], goal, keep=keep)
    with pytest.raises(UsageError, match="at least one"):
        counterfactual(model("frt"), rows()[0], max_inputs=0)
    with pytest.raises(ValueError, match="one of"):
        Goal(above=1.0, below=2.0)


@given(st.floats(-1e6, 1e6).filter(bool))
def test_goals_mean_what_they_say_when_typed(number: float) -> None:
    domain = model("frt").domain
    assert Goal.parse(f">{number!r}", domain) == Goal(above=number)
    assert Goal.parse(f"<= {number!r}", domain) == Goal(below=number)
    assert Goal.parse(f"{number:+}", domain) == Goal(change=float(f"{number:+}"))
