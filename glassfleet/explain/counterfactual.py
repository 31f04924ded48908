"""The smallest change of a row's inputs that gives another outcome: found through the model's own predictions.

:mod:`.search` finds candidates and makes them small; this module asks for them and tells them. What holds of every way:
the model was asked for the changed row by itself, and the answer reaches the goal. Changed inputs lie within the
domain, and none that must stay has moved. No changed input is idle: with any one of them put back, the goal is missed.
That no cheaper way exists is not proved. Wachter, Mittelstadt, Russell, *Counterfactual explanations without opening
the black box*, 2017, Eq. 1, with the distance of its Eq. 3 (a sum over inputs, scaled).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from glassfleet.data.domain import Domain
from glassfleet.explain.search import Floats, Search
from glassfleet.explain.views import FORMAT, Goal, Row, View, as_row
from glassfleet.model.protocol import Model, nature
from schemas.errors import UsageError


class InputChange(View):
    """One input that is to be otherwise.

    Attributes
    ----------
    feature, unit : str
    before : float or None
    after : float
        In the input's own unit; positions among the categories for a column of text. None: the cell was empty.
    before_text, after_text : str
        The values for people.
    share_of_range : float
        The change as a share of the input's range, > 0; of an empty cell from what it was taken for, >= 0.
    """

    feature: str
    unit: str
    before: float | None
    after: float
    before_text: str
    after_text: str
    share_of_range: float


class Way(View):
    """A set of changes that reaches the goal.

    Attributes
    ----------
    changes : tuple of Change
        The largest first.
    prediction : float or str
        What the model answers then.
    cost : float
        Sum of the changes as shares of their ranges, plus 0.1 for every changed input.
    row : dict of str to float or None
        The whole changed row; None: the cell stays empty.
    rule : str
        The rule that answers then; empty for a network, which has none.
    """

    changes: tuple[InputChange, ...]
    prediction: float | str
    cost: float
    row: dict[str, float | None]
    rule: str


class Counterfactual(View):
    """How a row would have to be for another outcome.

    Attributes
    ----------
    format : int
    target, unit : str
    goal : str
        In words.
    prediction : float or str
        What the model answers for the row as it is.
    found : bool
    already : bool
        The row reaches the goal as it is; there is nothing to change.
    best : Way or None
        The cheapest way found; None when there is none.
    alternatives : tuple of Way
        Ways that change other inputs, cheapest first.
    closest : float or None
        For numbers, when nothing was found: the forecast nearest to the goal that was seen.
    predictions : int
        How many rows the model was asked for.
    text : str
        All of it in a sentence.
    """

    format: int = FORMAT
    target: str
    unit: str
    goal: str
    prediction: float | str
    found: bool
    already: bool
    best: Way | None
    alternatives: tuple[Way, ...]
    closest: float | None
    predictions: int
    text: str

    def __str__(self) -> str:
        return self.text


def counterfactual(
    model: Model,
    row: Row,
    goal: Goal | None = None,
    *,
    keep: Collection[str] = (),
    only: Collection[str] | None = None,
    max_inputs: int | None = None,
) -> Counterfactual:
    """Find the smallest change of a row's inputs that gives another outcome.

    Parameters
    ----------
    model : Model
    row : mapping of column to value, or numbers in the order of the domain's inputs
    goal : Goal or None
        None: any other class; for numbers a move by a tenth of the target's range, up or down. Whichever takes the
        smallest change.
    keep : collection of str
        Inputs that cannot be changed.
    only : collection of str or None
        The inputs that can be changed, less those of `keep`; None: all of them.
    max_inputs : int or None
        Most inputs that may change.

    Returns
    -------
    Counterfactual
        Changed inputs are within the domain's limits; an empty cell stays empty or gets a value, and no cell is
        emptied. The same arguments give the same answer.

    Raises
    ------
    DataError
        The row lacks an input, or has one that is no number.
    UsageError
        The goal is not one for this target, or `keep` or `only` names no input.
    """
    x = as_row(model.domain, row)
    before = _plain(model.predict(x[None, :])[0])
    wanted = goal or Goal.default(model.domain, before)
    _check(wanted, model.domain, [*keep, *(only or ())], max_inputs)
    names = model.domain.names
    fixed = frozenset(keep) | (frozenset() if only is None else frozenset(names) - frozenset(only))
    search = Search.of(model, x, before, wanted, keep=fixed, most=max_inputs)
    # A population gives every row the same answer: there is nothing to search for.
    ways = [] if nature(model) == "structures" else search.run()
    words = wanted.words(model.domain, before)
    already = bool(wanted.reached(before, np.array([before]))[0])
    results = [_way(search, point) for point in ways]
    return Counterfactual(
        target=model.domain.target_name,
        unit=model.domain.target_unit,
        goal=words,
        prediction=before,
        found=bool(results) or already,
        already=already,
        best=results[0] if results else None,
        alternatives=tuple(results[1:]),
        closest=None if results or already or isinstance(before, str) else search.closest if search.asked else before,
        predictions=search.asked,
        text=_text(model, words, results[0] if results else None, already=already),
    )


def _check(goal: Goal, domain: Domain, named: Collection[str], max_inputs: int | None) -> None:
    numeric = domain.target is not None
    if numeric and goal.label is not None:
        raise UsageError(f"{domain.target_name} is a number: ask for a threshold or a change, not for a class")
    is_numeric_goal = any(value is not None for value in goal.of_number)
    if not numeric and is_numeric_goal:
        raise UsageError(f"{domain.target_name} is a class: name the class to reach, or none for any other")
    if numeric and not is_numeric_goal:
        raise UsageError("the goal names no threshold and no change")
    if goal.label is not None and goal.label not in domain.classes:
        raise UsageError(f"no class {goal.label!r}; there are: {', '.join(domain.classes[:20])}")
    unknown = sorted(set(named) - set(domain.names))
    if unknown:
        raise UsageError(f"{unknown[0]!r} is no input of the model; it has: {', '.join(domain.names)}")
    if max_inputs is not None and max_inputs < 1:
        raise UsageError(f"at least one input must be allowed to change, got {max_inputs}")


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _plain(value: Any) -> float | str:
    return str(value) if isinstance(value, str) else float(value)


def _way(search: Search, point: Floats) -> Way:
    model, x, domain = search.model, search.x, search.model.domain
    changes = [
        InputChange(
            feature=domain.features[i].name,
            unit=domain.features[i].unit,
            before=_or_none(x[i]),
            after=float(point[i]),
            before_text=domain.features[i].text(float(x[i])),
            after_text=domain.features[i].text(float(point[i])),
            share_of_range=float(abs(point[i] - search.start[i]) / search.span[i]),
        )
        for i in np.flatnonzero(search.changed(point)).tolist()
    ]
    changes.sort(key=lambda change: -change.share_of_range)
    why = model.explain(point)
    rule = f"IF {why.fired.rule.antecedent}" if why.chances else str(why.fired.rule)  # its class may be another one
    prediction = _plain(model.predict(point[None, :])[0])
    return Way(
        changes=tuple(changes),
        prediction=prediction,
        cost=float(search.cost(point[None, :])[0]),
        row={name: _or_none(value) for name, value in zip(domain.names, point, strict=True)},
        rule=rule if nature(model) == "rules" else "",
    )


def _text(model: Model, goal: str, way: Way | None, *, already: bool) -> str:
    domain = model.domain
    if already:
        return f"{goal} as the row is"
    if way is None and nature(model) == "structures":
        return (
            f"there is no change of the inputs for which {goal}: this model is tree structures, and every row gets "
            "the same answer until a vehicle has made its own tree of one"
        )
    if way is None:
        return f"no change of the inputs within their ranges was found for which {goal}"
    words = " and ".join(f"{part.feature} were {part.after_text} (is {part.before_text})" for part in way.changes)
    answer = (
        way.prediction if isinstance(way.prediction, str) else f"{way.prediction:.6g} {domain.target_unit}".rstrip()
    )
    return f"if {words}, the answer would be {answer}"
