"""The house does not grow unnoticed: `deploy.site.size` counts it."""

from __future__ import annotations

from deploy.site import size

MOST = {
    "product: lines of code": 47_817,
    "product: modules": 438,
    "lab: lines of code": 9_376,
    "lab: modules": 95,
    "tests: lines of code": 37_626,
    "tests: modules": 313,
    "product: class names with two meanings": 10,
    "documentation: words": 57_100,
    "README: words": 1_000,
    "glossary: entries": 40,
}
"""Whoever raises one says in the commit for what, and what could not go instead."""


def test_house_is_no_larger_than_this() -> None:
    assert {what: number for what, number in size.sizes().items() if number > MOST[what]} == {}


TWO_MEANINGS = {
    "Decoder": "messages of a coordinator, and of an agent: the two sides of one protocol",
    "Presence": "what a coordinator, and an agent, say of themselves on the broker",
    "Publisher": "messages of a coordinator, and of an agent",
    "Restarted": "an event of a run, and of a session",
    "Signatures": "a coordinator's, and what an operator holds them against",
    "Tick": "time passes: an event of each pure machine",
}
"""Public classes that share a name, and why."""


def test_class_has_a_name_of_its_own() -> None:
    assert {name for name in size.doubled_classes() if not name.startswith("_")} == set(TWO_MEANINGS)


TEXT = """'A module.'
import os


def f():  # none
    'A text.'
    # none
    return (
        1
    )
"""


def test_lines_of_code_are_what_has_to_be_read() -> None:
    assert size.lines_of_code(TEXT) == 4
