"""Linguistic terms: what the sets of a partition are called."""

from __future__ import annotations

from glassfleet.data.domain import Variable
from glassfleet.model.rules import Condition

_STANDARD: dict[int, tuple[str, ...]] = {
    2: ("Low", "High"),
    3: ("Low", "Medium", "High"),
    4: ("VeryLow", "Low", "High", "VeryHigh"),
    5: ("VeryLow", "Low", "Medium", "High", "VeryHigh"),
    7: ("ExtremelyLow", "VeryLow", "Low", "Medium", "High", "VeryHigh", "ExtremelyHigh"),
}


def linguistic_terms(n_sets: int, variable: Variable | None = None) -> tuple[str, ...]:
    """Return `n_sets` terms, lowest first: the variable's own if it names as many, else the standard ones.

    >>> linguistic_terms(3)
    ('Low', 'Medium', 'High')
    >>> linguistic_terms(6)[0]
    'Level1of6'
    """
    if variable is not None and len(variable.terms) == n_sets:
        return variable.terms
    return _STANDARD.get(n_sets) or tuple(f"Level{j + 1}of{n_sets}" for j in range(n_sets))


def limits_words(variable: Variable, low: float | None, high: float | None) -> str:
    """Return limits in the variable's own unit in words; None: there is no limit on that side.

    >>> limits_words(Variable(name="speed", low=0, high=120, unit="km/h"), None, 45.0)
    'below 45 km/h'
    """
    unit = f" {variable.unit}" if variable.unit else ""
    if low is None:
        return "anything" if high is None else f"below {high:.4g}{unit}"
    return f"above {low:.4g}{unit}" if high is None else f"between {low:.4g} and {high:.4g}{unit}"


def condition(variable: Variable, fuzzy_set: int, n_sets: int) -> Condition:
    """Return ``variable is term`` with the set's support and peak in the variable's own unit."""
    width = (variable.high - variable.low) / (n_sets - 1)
    low = None if fuzzy_set == 0 else variable.low + (fuzzy_set - 0.5) * width
    high = None if fuzzy_set == n_sets - 1 else variable.low + (fuzzy_set + 0.5) * width
    return Condition(
        feature=variable.name,
        term=linguistic_terms(n_sets, variable)[fuzzy_set],
        low=variable.low + max(fuzzy_set - 1, 0) * width,
        high=variable.low + min(fuzzy_set + 1, n_sets - 1) * width,
        peak=variable.low + fuzzy_set * width,
        unit=variable.unit,
        limits=limits_words(variable, low, high),
    )
