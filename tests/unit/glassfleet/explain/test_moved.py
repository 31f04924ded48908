"""What moved since a model was learned, in words."""

import numpy as np
import pytest

from glassfleet.data.domain import Domain, Variable
from glassfleet.evaluation.drift import COLUMNS, GRID
from glassfleet.explain.difference import moved

DOMAIN = Domain(
    features=(Variable(name="speed", low=0, high=1), Variable(name="load", low=0, high=1)),
    target=Variable(name="y", low=0, high=1),
)
DIGEST, VEHICLES = "a" * 64, 15


def night(day: int, rules: int, *lines: tuple[int, float, int], of: str = DIGEST) -> tuple[str, dict[str, object]]:
    """Return one record's part: lines that moved, by how much on how many vehicles, alike everywhere."""
    sums = np.zeros((rules + 2, COLUMNS), dtype=np.int64)
    sums[:, 0] = VEHICLES
    sums[:, 2] = VEHICLES  # they scatter by a step
    for line, change, many in lines:
        step = round(change * GRID)
        total = VEHICLES * step
        sums[line] = VEHICLES, total, VEHICLES * step**2 + VEHICLES, total, many, many * step
    return f"2026-11-{day:02}T02:00:00+00:00", {"drift": {"of": of, "rules": rules, "sums": sums.tolist()}}


@pytest.mark.parametrize(
    ("rules", "line", "change", "many", "words"),
    [
        (4, 3, 0.1875, 4, "rule 3: its error is 21% larger than when the model was learned, on 4 of 15 vehicles"),
        (1, 0, -0.1875, 0, "the error is 17% smaller than when the model was learned, over 15 vehicles"),
        (
            4,
            5,
            -0.6,
            12,
            "load is lower by 0.6 standard deviations than when the model was learned, on 12 of 15 vehicles",
        ),
    ],
)
def test_line_that_moved_is_told_with_size_place_and_day(rules, line, change, many, words):
    nights = [night(day, rules) for day in range(20, 24)] + [night(24, rules, (line, change, many))]
    assert moved(nights, DIGEST, DOMAIN) == [f"{words}, since 2026-11-24"]
    assert moved(nights[:-1], DIGEST, DOMAIN) == []


def test_nights_of_other_models_or_of_no_such_lines_are_left_out():
    strange: tuple[str, dict[str, object]] = (
        "2026-11-25T02:00:00+00:00",
        {"drift": {"of": DIGEST, "rules": 4, "sums": [[1, 2], [3, 4]]}},
    )
    none: dict[str, object] = {}
    nights = [night(20, 4), night(21, 4, (3, 1.0, 9), of="b" * 64), ("", none), strange]
    assert moved(nights, DIGEST, DOMAIN) == []
