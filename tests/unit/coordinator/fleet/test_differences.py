"""Vehicles are compared with each other before they learn together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coordinator.engine import Offer
from coordinator.fleet.differences import differences

PLAN = "a" * 64
MOST = Offer(frozenset({"tree"}), ("speed", "gear"), "fuel", ("numbers in km/h", "words", "numbers"), (), PLAN)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"target": "Fuel"}, "has the target 'Fuel', most have 'fuel'"),
        ({"features": ("speed",), "kinds": ("numbers", "numbers")}, "has no column 'gear', which most have"),
        ({"kinds": ("numbers in km/h", "numbers", "numbers")}, "has numbers in 'gear', where most have words"),
        (
            {"kinds": ("numbers in mph", "words", "numbers")},
            "has numbers in mph in 'speed', where most have numbers in km/h",
        ),
        (
            {"far": ("speed",)},
            "has a value in 'speed' that is far from all its others, and repeated: does it mean no value?",
        ),
        ({"plan": "b" * 64}, "has rows that were made by another plan than most"),
        ({"plan": ""}, "has rows that no plan made"),
        ({"kinds": ("numbers", "words", "numbers")}, ""),
        ({"features": ("speed", "gear", "more"), "kinds": ("numbers", "words", "words", "numbers")}, ""),
    ],
)
def test_who_differs_from_most_is_named_with_the_cause(change, words):
    offers = {"a": MOST, "b": MOST, "c": replace(MOST, **change)}
    assert dict(differences(offers)) == ({"c": words} if words else {})
    assert dict(differences({"a": MOST, "c": replace(MOST, **change)})) == {}, "two vehicles: nobody knows who is right"


def test_nobody_differs_where_no_half_agrees():
    kinds = [
        ("numbers in km/h", "words", "numbers"),
        ("numbers in mph", "words", "numbers"),
        ("words", "words", "numbers"),
    ]
    assert dict(differences({str(index): replace(MOST, kinds=each) for index, each in enumerate(kinds)})) == {}
