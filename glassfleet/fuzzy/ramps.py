"""Ramps on an input as words: "below 45 km/h" rather than two numbers of a trapezoid."""

from __future__ import annotations

from collections.abc import Sequence

from glassfleet.data.domain import Variable
from glassfleet.fuzzy.levels import level_condition
from glassfleet.fuzzy.partition import limits_words
from glassfleet.model.rules import Condition

Ramp = tuple[float, float]
"""Where the degree of the lower side begins to fall, and where it ends, over the scaled range."""

Span = tuple[Ramp | None, Ramp | None]
"""The ramps that bound a set of values from below and from above; None: no bound. The first ends where the second
begins, or earlier."""


def lower_degree(value: float, ramp: Ramp) -> float:
    """Return the degree of the lower side of a ramp at a scaled value, in [0, 1]."""
    low, high = ramp
    return min(max((high - value) / (high - low), 0.0), 1.0)


def span_degree(value: float, span: Span) -> float:
    """Return the degree of a scaled value in a span, in [0, 1]."""
    below, above = span
    degree = 1.0 if above is None else lower_degree(value, above)
    return degree if below is None else degree * (1.0 - lower_degree(value, below))


def ramp_words(variable: Variable, below: Ramp | None, above: Ramp | None) -> str:
    """Return a span in words: its limits are where a ramp has one half.

    >>> speed = Variable(name="speed", low=0, high=120, unit="km/h")
    >>> ramp_words(speed, None, (0.25, 0.5)), ramp_words(speed, (0.0, 0.5), (0.5, 1.0))
    ('below 45 km/h', 'between 30 and 90 km/h')
    """
    low, high = (None if ramp is None else _value(variable, 0.5 * (ramp[0] + ramp[1])) for ramp in (below, above))
    return limits_words(variable, low, high)


def ramp_condition(
    variable: Variable, below: Ramp | None, above: Ramp | None, levels: Sequence[float] = ()
) -> Condition:
    """Return ``variable is ...`` for a span; `peak` is the middle of where the degree is one.

    `levels` are those of an input of text, of which none is on a ramp.
    """
    first, second = below or (0.0, 0.0), above or (1.0, 1.0)
    if levels:
        return level_condition(variable, levels, first[1], second[0])
    return Condition(
        feature=variable.name,
        term=ramp_words(variable, below, above),
        low=_value(variable, first[0]),
        high=_value(variable, second[1]),
        peak=_value(variable, 0.5 * (first[1] + second[0])),
        unit=variable.unit,
        in_numbers=True,
    )


def _value(variable: Variable, scaled: float) -> float:
    return variable.low + scaled * (variable.high - variable.low)
