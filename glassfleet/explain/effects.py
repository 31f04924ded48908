"""How a model's answer moves with one input while the others stay, and how much each input counts over all rules.

Both ask the model alone; no rows are needed. The rows to start from are the typical row of the model's record (an
example row where it has none) and that row moved into each rule, as far as the rule's conditions ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain, Variable
from glassfleet.model.baseline import ReferenceRow
from glassfleet.model.protocol import Model, nature, readable_rules
from glassfleet.model.rules import Condition, Rule, most_used
from schemas.errors import UsageError

Floats = NDArray[np.float64]

POINTS: Final = 65
"""Values of a curve."""

STEPS: Final = 33
"""Values of an input that its importance is computed from."""

FARTHEST: Final = 2.5
"""An input's values lie within so many standard deviations."""

RULES: Final = 40
"""Rules, those with the most rows, that importance is the mean of."""

CURVES: Final = 12
"""Inputs whose effect is shown, those that count most."""

WORK: Final = 30_000_000
"""Rules that are asked for it in all, one for each value of each input from each of these rules: about a second."""

EXAMPLE: Final = "an example row, as the model's record has no typical one"


@runtime_checkable
class TellsChances(Protocol):
    """A classifier that tells how likely each class is."""

    def predict_proba(self, X: Floats) -> Floats:
        """Return the chance of each class, in the order of the domain's, shape (n, C)."""


@dataclass(frozen=True)
class Effect:
    """What a model answers while one input goes over its range and the others keep the values of a row.

    Attributes
    ----------
    feature : Variable
        The input.
    values : tuple of float
        Of the input, ascending, in its own unit; of a column of text the positions of its categories.
    answers : tuple of (float or str)
        Forecasts in the target's own unit, or classes.
    value : float or None
        What the row itself has, within the input's limits; None: none of its categories.
    chances : dict of str to (tuple of float)
        Of each class, in percent, and of two classes of the second alone; empty where the model tells none.
    """

    feature: Variable
    values: tuple[float, ...]
    answers: tuple[float | str, ...]
    value: float | None
    chances: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


def effect(model: Model, row: Floats, feature: str) -> Effect:
    """Return how the answer moves with one input, and the chances of classes, where the model tells them.

    Parameters
    ----------
    model : Model
    row : ndarray of float64, shape (F,)
        What the other inputs are, in their own units.
    feature : str
        Name of the input.

    Raises
    ------
    UsageError
        There is no such input, or the model answers every row the same.
    """
    if nature(model) == "structures":
        raise UsageError("these are tree structures: until a vehicle fits one, every row gets the same answer")
    names = model.domain.names
    if feature not in names:
        raise UsageError(f"no input {feature!r}; there are: {', '.join(names)[:400]}")
    place = names.index(feature)
    variable = model.domain.features[place]
    values = _values(variable, POINTS)
    own = float(row[place])
    is_known = not np.isnan(own) and (not variable.categories or own in values)
    inside = min(max(own, variable.low), variable.high) if is_known else None
    varied = _varied([row], place, values)
    answers = np.asarray(model.predict(varied)).tolist()
    chances = {label: tuple(own.tolist()) for label, own in _chances(model, varied).items()}
    return Effect(variable, tuple(values.tolist()), tuple(answers), inside, chances)


def starting_row(model: Model, reference: ReferenceRow | None) -> ReferenceRow:
    """Return the row whose inputs are varied one by one: the typical row, or an example where there is none."""
    return ReferenceRow(example_row(model), EXAMPLE) if reference is None else reference


def importance(model: Model, reference: ReferenceRow | None, features: Sequence[str]) -> dict[str, float]:
    """Return by how much each input alone moves the answer over the fleet's rows, by name.

    An input spreads as it does over the rows, around the typical row's value, while the others stay. Where its spread
    is not known, it goes evenly over its range. Of a forecast it is the mean distance from the mean forecast on this
    way, in the target's own unit. So it is of the chance of the class whose chance moves most, in percent, where the
    model tells chances. Of other classes it is the share of the way, in percent, on which the class is another one than
    most often there. It is the mean over the rules with the most rows (at most :data:`RULES`, fewer of large models),
    weighted by these, each from the typical row moved into the rule; a network is asked at the typical row.

    Parameters
    ----------
    model : Model
    reference : ReferenceRow or None
        The typical row; None: the middle of the inputs' ranges.
    features : sequence of str
        The inputs that are asked for.
    """
    typical = row_at(model.domain, 0.5) if reference is None else reference.row

    def spread(place: int) -> tuple[Floats, Floats]:
        variable = model.domain.features[place]
        deviation = None if reference is None or variable.categories else reference.spreads.get(variable.name)
        if deviation is None:
            values = _values(variable, STEPS)
            return values, np.full(len(values), 1.0 / len(values))
        places = np.linspace(-FARTHEST, FARTHEST, STEPS)
        often = np.exp(-0.5 * places**2)
        return np.clip(typical[place] + deviation * places, variable.low, variable.high), often / often.sum()

    def distance(answers: NDArray[Any], often: Floats) -> Floats:
        if answers.dtype.kind == "f":
            distances = np.abs(answers - (answers @ often)[:, None])
            return np.asarray(distances @ often, dtype=np.float64)
        return np.array(
            [100.0 - 100.0 * max(often[line == each].sum() for each in np.unique(line)) for line in answers]
        )

    return _moved(model, typical, features, spread, distance)


def reach(model: Model, reference: ReferenceRow | None, features: Sequence[str]) -> dict[str, float]:
    """Return by how much each input alone could move the answer over its whole range, as `importance` otherwise.

    That is the highest forecast less the lowest, or chance, also where hardly a row has such a value. Of other classes
    there is nothing to tell.
    """
    if model.domain.target is None and not isinstance(model, TellsChances):
        return {}

    def span(answers: NDArray[Any], _: Floats) -> Floats:
        return np.asarray(np.ptp(answers, axis=1), dtype=np.float64)

    def whole(place: int) -> tuple[Floats, Floats]:
        values = _values(model.domain.features[place], STEPS)
        return values, values

    typical = row_at(model.domain, 0.5) if reference is None else reference.row
    return _moved(model, typical, features, whole, span)


def _moved(
    model: Model,
    typical: Floats,
    features: Sequence[str],
    spread: Callable[[int], tuple[Floats, Floats]],
    distance: Callable[[NDArray[Any], Floats], Floats],
) -> dict[str, float]:
    """Return how far the answer moves with each input, a mean over rules.

    `spread` gives an input's values and how often each is, `distance` how far answers, shape (rules, values), move.
    """
    if nature(model) == "structures":
        return {}
    domain = model.domain
    rules = [rule for rule in readable_rules(model) if not rule.otherwise]
    weights = [rule.support if rule.forecast is None else rule.forecast.rows for rule in rules]
    asked = min(RULES, max(1, WORK // max(1, STEPS * len(features) * len(rules))))
    most = sorted(range(len(rules)), key=lambda at: (-weights[at], at))[:asked]
    starts = [moved_into(domain, rules[at], typical) for at in most] or [typical]
    weight = np.array([weights[at] for at in most] or [1.0])
    weight = weight if weight.sum() > 0 else np.ones(len(starts))
    result = {}
    for name in features:
        place = domain.names.index(name)
        values, often = spread(place)
        varied = _varied(starts, place, values)
        moving = list(_chances(model, varied).values()) or [np.asarray(model.predict(varied))]
        moved = np.max([distance(answers.reshape(len(starts), -1), often) for answers in moving], axis=0)
        result[name] = float(np.average(moved, weights=weight))
    return result


def main_effects(model: Model, row: Floats, counts: Mapping[str, float]) -> tuple[Effect, ...]:
    """Return the effects of the inputs that count most, as `importance` has it, those first.

    Parameters
    ----------
    model : Model
    row : ndarray of float64, shape (F,)
    counts : mapping of str to float
        By input; one that counts for nothing has no effect to show.
    """
    least = 1e-9 * max(counts.values(), default=0.0)  # less is rounding
    ranked = sorted((name for name in counts if counts[name] > least), key=lambda name: -counts[name])
    return tuple(effect(model, row, name) for name in ranked[:CURVES])


def _values(variable: Variable, points: int) -> Floats:
    if variable.categories:
        return np.arange(len(variable.categories), dtype=np.float64)
    return np.linspace(variable.low, variable.high, points)


def _varied(rows: Sequence[Floats], place: int, values: Floats) -> Floats:
    """Return each row with each value of one input, shape (rows * values, F)."""
    varied = np.repeat(np.array(rows), len(values), axis=0)
    varied[:, place] = np.tile(values, len(rows))
    return varied


def _chances(model: Model, X: Floats) -> dict[str, Floats]:
    """Return the chances of each class, in percent; of two that of the second, which says both."""
    if not isinstance(model, TellsChances):
        return {}
    chances, classes = 100.0 * model.predict_proba(X), model.domain.classes
    return {label: chances[:, at] for at, label in enumerate(classes) if at or len(classes) > 2}


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
