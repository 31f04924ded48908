"""Splits in words."""

from __future__ import annotations

import math

from glassfleet.data.domain import Variable
from glassfleet.model.rules import Condition

MOST_CATEGORIES = 6
"""Categories that are named one by one; more are named from the first to the last."""


def interval_condition(variable: Variable, low: float, high: float) -> Condition:
    """Return the condition that an input is above `low` and at most `high`; either may be infinite."""
    short = ""
    if variable.categories:
        term = _categories(variable, low, high)
    else:
        unit = f" {variable.unit}" if variable.unit else ""
        words = []
        if math.isfinite(low) and math.isfinite(high):
            short = f"{low:.6g} to {high:.6g}{unit}"
        if math.isfinite(low):
            words.append(f"above {low:.6g}{unit}")
        if math.isfinite(high):
            words.append(f"at most {high:.6g}{unit}")
        term = " and ".join(words) or "anything"
    ends = (
        low if math.isfinite(low) else min(variable.low, high),
        high if math.isfinite(high) else max(variable.high, low),
    )
    peak = 0.5 * ends[0] + 0.5 * ends[1]
    return Condition(variable.name, term, *ends, peak, variable.unit, crisp=True, short=short)


def _categories(variable: Variable, low: float, high: float) -> str:
    inside = [text for code, text in enumerate(variable.categories) if low < code <= high]
    if not inside:
        return "none of its categories"
    if len(inside) > MOST_CATEGORIES:
        return f"from {inside[0]} to {inside[-1]} ({len(inside)} categories)"
    return " or ".join(inside)
