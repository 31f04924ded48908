"""A row to begin with: one that a model has something to say about."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.model.protocol import Model, nature
from glassfleet.model.rules import Condition, Rule, most_used

Floats = NDArray[np.float64]

_TRIED: Final = 64
_NEIGHBOURS: Final = 8
_TOWARDS: Final = 0.3
"""How far a row goes from a rule's peak towards another's: then both fire, the first one more."""


def example_row(model: Model) -> Floats:
    """Return a row within the domain for which a much used rule fires, shape (F,), in the inputs' own units.

    It is the peak of the most used rule that is not OTHERWISE and that answers there; inputs that the rule does not
    name have the middle of their range. Where classes compete, it stands a little off the peak towards the nearest
    rule of another class, so that there is something to compare. Structures get the middle of all ranges, and so does a
    model of whose most used rules none answers at its own peak; networks three quarters of them, since in the middle
    their inputs have no shares.
    """
    domain = model.domain
    kind, middle = nature(model), row_at(domain, 0.5)
    if kind != "rules":
        return middle if kind == "structures" else row_at(domain, 0.75)
    rules = [rule for rule in model.rules() if not rule.otherwise]
    ranked = sorted(rules, key=most_used)
    spare = None
    for rule in ranked[:_TRIED]:
        for row in _rows(domain, rule, ranked, middle):
            answer = model.explain(row)
            if answer.fallback or answer.fired.rule.index != rule.index:
                continue
            if any(share != 0.0 for share in answer.shares.values()):
                return row
            spare = row if spare is None else spare
    return middle if spare is None else spare


def row_at(domain: Domain, part: float) -> Floats:
    """Return the row with every input at a part of its range, shape (F,); a whole number for categories."""
    values = [(1.0 - part) * variable.low + part * variable.high for variable in domain.features]
    whole = [bool(variable.categories) for variable in domain.features]
    return np.where(whole, np.rint(values), values)


def moved_into(domain: Domain, rule: Rule, row: Floats) -> Floats:
    """Return a row as near as it can be where a rule's conditions hold, fuzzy ones to the degree of a half."""
    moved = _peak(domain, rule, row)
    for part in _of_values(rule):
        index = domain.names.index(part.feature)
        value, variable = row[index], domain.features[index]
        if part.crisp:
            if part.low < value <= part.high:
                moved[index] = value
        elif not variable.categories:
            low, high = 0.5 * (part.low + part.peak), 0.5 * (part.peak + part.high)
            moved[index] = min(max(value, low, variable.low), high, variable.high)
    return moved


def _rows(domain: Domain, rule: Rule, rules: Sequence[Rule], middle: Floats) -> Iterator[Floats]:
    peak = _peak(domain, rule, middle)
    if domain.target is None and rule.conditions and not any(part.crisp for part in rule.conditions):
        place = {name: index for index, name in enumerate(domain.names)}
        low, high = (middle.copy() for _ in range(2))
        for part in rule.conditions:
            low[place[part.feature]], high[place[part.feature]] = part.low, part.high
        peaks = [_peak(domain, other, middle) for other in rules if other.output != rule.output]
        # Peaks at the ends of the rule's sets are those of the sets beside them.
        near = [other for other in peaks if bool(((low <= other) & (other <= high)).all())]
        near.sort(key=lambda other: int((other != peak).sum()))
        for other in near[:_NEIGHBOURS]:
            yield peak + _TOWARDS * (other - peak)
    yield peak


def _peak(domain: Domain, rule: Rule, middle: Floats) -> Floats:
    row = middle.copy()
    for part in _of_values(rule):
        index = domain.names.index(part.feature)
        variable = domain.features[index]
        value = min(max(part.peak, variable.low), variable.high)
        if part.crisp:  # above the lower limit, and at most the upper one
            low, high = max(part.low, variable.low), min(part.high, variable.high)
            value = 0.5 * low + 0.5 * high
            if variable.categories:
                value = float(np.floor(high)) if np.floor(value) <= part.low else float(np.floor(value))
        row[index] = value
    for part in rule.conditions:
        if part.about_cell and part.term == "missing":
            row[domain.names.index(part.feature)] = np.nan
    return row


def _of_values(rule: Rule) -> list[Condition]:
    """Return the conditions that are about an input's value."""
    return [part for part in rule.conditions if not part.about_cell]
