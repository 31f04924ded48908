"""What people are told of private runs."""

from __future__ import annotations

from glassfleet.private.words import protection

RUN = {"floor": 8, "company": 3, "support": 3, "groups": 1, "editions": 2, "vehicles": 12, "rows": 900}


def test_inputs_without_slopes_are_named_and_many_are_counted() -> None:
    assert "slope" not in protection(RUN)
    some, many = (protection({**RUN, "without_slopes": [f"x{n}" for n in range(count)]}) for count in (2, 11))
    assert some.endswith("; rules have no slopes of x0, x1, as rows are alike there or in the target, or too few")
    assert "of x0, x1, x2, x3, x4, x5, x6, x7 and 3 more, as" in many
