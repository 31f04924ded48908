"""Why a model answered as it did for one row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from glassfleet.explain.partitions import partitions
from glassfleet.explain.views import FORMAT, ActivationView, Row, View, as_row, in_words_of, value_text

if TYPE_CHECKING:
    from glassfleet.domain import Domain
    from glassfleet.scheme import Model

BLACK_BOX = ("fedavg_mlp",)
"""Schemes without rules: what can be said about an answer is said, and that it is not more."""


class Degree(View):
    """To which degree an input's value belongs to a fuzzy set.

    Attributes
    ----------
    term : str
    degree : float
        (0, 1]; sets with degree 0 are left out.
    """

    term: str
    degree: float


class Contribution(View):
    """One input of a row.

    Attributes
    ----------
    feature, unit : str
    value : float
        As given; a position among the categories for a column of text.
    text : str
        The value for people.
    share : float or None
        Its part of the total; None when the scheme has none to tell.
    memberships : tuple of Degree
        In the input's fuzzy sets.
    """

    feature: str
    unit: str
    value: float
    text: str
    share: float | None
    memberships: tuple[Degree, ...] = ()


class RowExplanation(View):
    """Why a model answered as it did for one row.

    ``math.fsum((base, rounding, *shares.values())) == total``, to the last bit; for a regression `total` is the
    prediction.

    Attributes
    ----------
    format : int
    scheme, target, unit : str
        `unit` is the target's.
    prediction : float or str
        In the target's own unit, or a class label.
    fired : ActivationView
        The rule that decided (maximum matching), or the strongest of those that were averaged.
    runners_up : tuple of ActivationView
    shares : dict of str to float
        Each input's part of `total`. Empty where the scheme cannot tell.
    base : float
        The part that no input accounts for.
    rounding : float
        What the rounding of base and shares leaves over; of the order of 1e-16 of the largest of them.
    total : float or None
        What base and shares add up to; None without shares.
    measure : str
        What `total` is where it is not the prediction; empty: it is.
    inputs : tuple of Contribution
        Every input, the largest share first.
    fallback : bool
        No rule fired, and the rule with the highest weight answered.
    notes : tuple of str
        What the reader must know: e.g. that a network has no rules.
    text : str
        The answer and its rule in one sentence.
    """

    format: int = FORMAT
    scheme: str
    target: str
    unit: str
    prediction: float | str
    fired: ActivationView
    runners_up: tuple[ActivationView, ...]
    shares: dict[str, float]
    base: float
    rounding: float
    total: float | None
    measure: str
    inputs: tuple[Contribution, ...]
    fallback: bool
    notes: tuple[str, ...]
    text: str


def explain_row(model: Model, domain: Domain | None, row: Row) -> RowExplanation:
    """Say why `model` answers as it does for one row.

    Parameters
    ----------
    model : Model
    domain : Domain or None
        Whose terms and units to speak in; None: the model's own.
    row : mapping of column to value, or numbers in the order of the domain's inputs

    Raises
    ------
    DataError
        The row lacks an input, or has one that is no number.
    UsageError
        `domain` is not the model's but for its words.
    """
    speaker = in_words_of(model, domain)
    own = speaker.domain
    x = as_row(own, row)
    told = speaker.explain(x)
    numeric = not isinstance(told.prediction, str)
    shares = {name: float(share) for name, share in told.shares.items()}
    base, rounding, total = float(told.base), 0.0, None
    if shares:
        total = float(told.prediction) if numeric else math.fsum((base, *shares.values()))
        rounding = math.fsum((total, -base, *(-share for share in shares.values())))
    degrees = [
        tuple(
            Degree(term=part.term, degree=degree)
            for part in partition.sets
            if (degree := part.degree(float(np.clip(x[index], partition.low, partition.high)))) > 0.0
        )
        for index, partition in enumerate(partitions(speaker))
    ]
    inputs = [
        Contribution(
            feature=variable.name,
            unit=variable.unit,
            value=float(x[index]),
            text=value_text(own, index, float(x[index])),
            share=shares.get(variable.name),
            memberships=degrees[index],
        )
        for index, variable in enumerate(own.features)
    ]
    inputs.sort(key=lambda part: -abs(part.share or 0.0))
    unit = own.target.unit if own.target is not None else ""
    fired = ActivationView.of(told.fired)
    answer = told.prediction if isinstance(told.prediction, str) else f"{told.prediction:.6g}{f' {unit}' * bool(unit)}"
    return RowExplanation(
        scheme=speaker.scheme,
        target=own.target_name,
        unit=unit,
        prediction=told.prediction if isinstance(told.prediction, str) else float(told.prediction),
        fired=fired,
        runners_up=tuple(ActivationView.of(item) for item in told.runners_up),
        shares=shares,
        base=base,
        rounding=rounding,
        total=total,
        measure=told.measure,
        inputs=tuple(inputs),
        fallback=bool(told.fallback),
        notes=_notes(speaker, x, fallback=bool(told.fallback), told_shares=bool(shares)),
        text=f"{own.target_name} is {answer}, because of rule {fired.rule.index}: {fired.rule.text}",
    )


def _notes(model: Model, x: np.ndarray, *, fallback: bool, told_shares: bool) -> tuple[str, ...]:
    notes = []
    if model.scheme in BLACK_BOX:
        notes.append("this model is a network: it has no rules, and there is nothing in it to read")
        notes.append(
            "the shares are those of the linear function that the network is around this row; they say nothing about "
            "other rows"
            if told_shares
            else "for classes not even shares of the inputs can be told"
        )
    if fallback:
        notes.append("no rule fires for this row; the rule with the highest weight answered")
    if "structures" in model.complexity():
        notes.append(
            "these are tree structures for vehicles to fit; until a vehicle has made its own tree of one, every row "
            "gets the same answer"
        )
    for value, variable in zip(x, model.domain.features, strict=True):
        if not variable.low <= value <= variable.high and not variable.categories:
            unit = f" {variable.unit}" if variable.unit else ""
            notes.append(
                f"{variable.name} = {value:.6g}{unit} is outside the model's range, {variable.low:.6g} to "
                f"{variable.high:.6g}{unit}; fuzzy models take the nearest limit"
            )
    return tuple(notes)
