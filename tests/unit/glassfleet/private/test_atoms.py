"""Atoms: each group's sum, and what left it from one edition to the next that was asked about the same place."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from glassfleet import catalogue
from glassfleet.checks import CHECKS, Bench
from glassfleet.private.support import atoms, holds, noted, read_noted
from glassfleet.scheme import Contribution, Task, private_parameters
from schemas.errors import UsageError


def task(*places: str) -> Task:
    return Task("x", "support", {"places": list(places)})


def places(asked: Task) -> list[str]:
    return list(asked.body["places"])


def rows(*numbers: int) -> Contribution:
    return Contribution("support", 0, {"rows": np.array(numbers)[:, None]}, vehicles=9)


def test_atoms_are_the_present_rows_and_the_differences_place_by_place() -> None:
    present = Contribution(
        "support",
        0,
        {"rows": np.array([[5], [7]])},
        former=((task("a", "c"), rows(9, 4)), (task("b"), rows(8)), (task("a"), rows(6))),
    )
    found = [part[:, 0].tolist() for part in atoms(present, places, task("a", "b"))]
    assert found == [[5, 7], [1, 0], [0, 1], [3, 0]]


def test_what_holds_none_or_enough_everywhere_is_held_up() -> None:
    parts = [np.array([0, 3, 9, 0]), np.array([0, 3, 2, 5])]
    assert holds(parts, 3).tolist() == [True, True, False, True]
    assert holds(parts, 5).tolist() == [True, False, False, True]


def test_a_record_is_json_and_reads_back() -> None:
    decided = np.array([[[False, True], [True, True]], [[True, False], [False, False]], [[True] * 2] * 2])
    assert np.array_equal(read_noted(json.loads(json.dumps(noted(decided)))), decided)


SMALL: dict[str, dict[str, Any]] = {
    "frt": {"max_depth": 2},
    "fmt": {"max_rules": 6},
    "tsk": {"n_clusters": 6, "max_rounds": 4},
    "frbc": {},
}


@pytest.mark.parametrize("name", SMALL)
def test_a_scheme_with_support_is_a_sound_one(name: str) -> None:
    scheme: Any = catalogue.load(name)
    parameters = private_parameters(scheme, scheme.Parameters(**SMALL[name]), 3)
    for check in sorted(set(CHECKS) - {"equality"}):  # which holds under the record of what was withheld
        for bench in Bench.all_of(scheme, parameters):
            CHECKS[check](bench)
    assert not scheme.equals_central_with(parameters)
    assert "support" not in scheme.Parameters().model_dump(mode="json")


def test_support_and_prune_exclude_each_other() -> None:
    scheme: Any = catalogue.load("frt")
    with pytest.raises((ValueError, UsageError), match="prune"):
        scheme.Parameters(support=3, prune=2.0)
