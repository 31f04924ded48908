"""Runs of adjacent sets as words: "at least Medium" rather than a list of sets."""

from __future__ import annotations

from collections.abc import Sequence

from glassfleet.data.domain import Variable
from glassfleet.fuzzy.levels import level_condition
from glassfleet.fuzzy.terms import limits_words, linguistic_terms
from glassfleet.rules import Condition

NAMED = 9
"""Partitions with more sets than this, and without terms of their own, are spoken of in numbers."""


def _terms(variable: Variable, n_sets: int) -> tuple[str, ...] | None:
    terms = linguistic_terms(n_sets, variable)
    return terms if len(variable.terms) == n_sets or not terms[0].startswith("Level") else None


def _value(variable: Variable, knots: Sequence[float], position: float) -> float:
    """Return the value at a position between knots, in the variable's own unit."""
    lower = min(int(position), len(knots) - 2)
    scaled = knots[lower] + (position - lower) * (knots[lower + 1] - knots[lower])
    return variable.low + scaled * (variable.high - variable.low)


def span_words(variable: Variable, knots: Sequence[float], first: int, last: int) -> str:
    """Return the sets `first` .. `last` in words; a partition without names in numbers, where a side has one half.

    >>> span_words(Variable(name="speed", low=0, high=120, unit="km/h"), (0.0, 0.5, 1.0), 1, 2)
    'at least Medium'
    >>> span_words(Variable(name="speed", low=0, high=120, unit="km/h"), tuple(j / 11 for j in range(12)), 0, 5)
    'below 60 km/h'
    """
    top = len(knots) - 1
    terms = _terms(variable, len(knots))
    if terms is None:
        return _limits(variable, knots, first, last)
    if first == last:
        return terms[first]
    if first == 0:
        return f"at most {terms[last]}" if last < top else "anything"
    return f"at least {terms[first]}" if last == top else f"between {terms[first]} and {terms[last]}"


def _limits(variable: Variable, knots: Sequence[float], first: int, last: int) -> str:
    """Return in words where the sets `first` .. `last` have at least one half together."""
    low = None if first == 0 else _value(variable, knots, first - 0.5)
    high = None if last == len(knots) - 1 else _value(variable, knots, last + 0.5)
    return limits_words(variable, low, high)


def span_condition(
    variable: Variable, knots: Sequence[float], first: int, last: int, levels: Sequence[float] = ()
) -> Condition:
    """Return ``variable is ...`` for a run of sets; `peak` is the middle of where the membership is one.

    `levels` are those of an input of text, which are its knots.
    """
    if levels:
        return level_condition(variable, levels, knots[first], knots[last])
    top = len(knots) - 1
    is_named = _terms(variable, len(knots)) is not None
    return Condition(
        feature=variable.name,
        term=span_words(variable, knots, first, last),
        low=_value(variable, knots, max(first - 1, 0)),
        high=_value(variable, knots, min(last + 1, top)),
        peak=0.5 * (_value(variable, knots, first) + _value(variable, knots, last)),
        unit=variable.unit,
        in_numbers=not is_named,
        limits=_limits(variable, knots, first, last) if is_named else "",
    )
