"""Why a model answered as it did for one row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from glassfleet.explain.partitions import partitions
from glassfleet.explain.views import FORMAT, ActivationView, Row, View, as_row
from glassfleet.model.baseline import ReferenceRow, explained
from glassfleet.model.explanation import Chance, Explanation, chance_lines
from glassfleet.model.protocol import Model, Nature, nature


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


class InputShare(View):
    """One input of a row.

    Attributes
    ----------
    feature, unit : str
    value : float
        As given; a position among the categories for a column of text. None: the cell is empty.
    text : str
        The value for people.
    share : float or None
        Its part of the total; None when the scheme has none to tell.
    difference : str
        The value beside the reference's, such as "17 instead of 12"; empty where there is none, or it is the same.
    memberships : tuple of Degree
        In the input's fuzzy sets.
    """

    feature: str
    unit: str
    value: float | None
    text: str
    share: float | None
    difference: str = ""
    memberships: tuple[Degree, ...] = ()


class RowExplanation(View):
    """Why a model answered as it did for one row.

    ``math.fsum((base, rounding, *shares.values())) == total``, to the last bit, wherever there are shares; for a
    regression `total` is the prediction.

    What is not told here is as in :class:`glassfleet.model.explanation.Explanation`.

    Attributes
    ----------
    format : int
    scheme, target, unit : str
        `unit` is the target's.
    nature : str
        ``rules``, ``network`` or ``structures``: see :data:`glassfleet.model.protocol.Nature`.
    fired : ActivationView
        For networks and structures, which have no rules, a line that stands for the answer.
    shares : dict of str to float
        Each input's part of `total`.
    base_text : str
        What `base` is, for people.
    reference : dict of str to float or None
        The row that this one is compared with.
    rounding : float
        What the rounding of base and shares leaves over; of the order of 1e-16 of the largest of them.
    total : float or None
        What base and shares add up to; None without shares.
    measure : str
        What `total` is where it is not the prediction; empty: it is, or there is none.
    inputs : tuple of Contribution
        Every input, the largest share first.
    text : str
        The answer and its rule in one sentence; for networks and structures, that there is none.
    """

    format: int = FORMAT
    scheme: str
    nature: Nature
    target: str
    unit: str
    prediction: float | str
    fired: ActivationView
    runners_up: tuple[ActivationView, ...]
    shares: dict[str, float]
    base: float
    base_text: str
    reference: dict[str, float] | None
    rounding: float
    total: float | None
    measure: str
    inputs: tuple[InputShare, ...]
    fallback: bool
    clipped_from: float | None = None
    interval: tuple[float, float] | None = None
    chances: tuple[Chance, ...] = ()
    notes: tuple[str, ...]
    text: str

    def parts(self, most: int) -> list[tuple[str, float]]:
        """Return inputs with their values and their shares, the largest first; of more than `most` the rest as one."""
        shares = [
            (f"{each.feature} {each.difference or f'= {each.text}'}", each.share) for each in self.inputs if each.share
        ]
        if len(shares) <= most + 1:  # a line for the others would stand for one
            return shares
        return [*shares[:most], (f"the other {len(shares) - most}", sum(share for _, share in shares[most:]))]

    def __str__(self) -> str:
        """Return the answer and its rule, probabilities, base and shares with what they add up to, and notes."""
        lines = chance_lines(self.chances) if self.chances else []
        if self.total is not None:
            first, last = (f"base: {self.base_text}", self.base), (self.measure or "together", self.total)
            lines += [f"{number:+12.4g}  {what}" for what, number in (first, *self.parts(len(self.inputs)), last)]
        return "\n".join([self.text, *lines, *self.notes])


def explain_row(model: Model, row: Row, reference: ReferenceRow | None = None) -> RowExplanation:
    """Say why `model` answers as it does for one row.

    Parameters
    ----------
    model : Model
    row : mapping of column to value, or numbers in the order of the domain's inputs
    reference : ReferenceRow or None
        What the row is compared with, see :func:`glassfleet.explain.explained`.

    Raises
    ------
    DataError
        The row lacks an input, or has one that is no number.
    """
    own = model.domain
    x = as_row(own, row)
    answer = explained(model, x, reference)
    prediction = answer.prediction if isinstance(answer.prediction, str) else float(answer.prediction)
    base, shares, rounding, total = float(answer.base), dict(answer.shares), 0.0, None
    if shares:
        base, parts, rounding, total = exact_sum(
            base, [float(share) for share in shares.values()], None if isinstance(prediction, str) else prediction
        )
        shares = dict(zip(shares, parts, strict=True))
    degrees = [
        tuple(
            Degree(term=part.term, degree=degree)
            for part in partition.sets
            if not np.isnan(x[index])
            and (degree := part.degree(float(np.clip(x[index], partition.low, partition.high)))) > 0.0
        )
        for index, partition in enumerate(partitions(model))
    ]
    inputs = [
        InputShare(
            feature=variable.name,
            unit=variable.unit,
            value=None if np.isnan(x[index]) else float(x[index]),
            text=variable.text(float(x[index])),
            share=shares.get(variable.name),
            difference=answer.differences.get(variable.name, ""),
            memberships=degrees[index],
        )
        for index, variable in enumerate(own.features)
    ]
    inputs.sort(key=lambda part: -abs(part.share or 0.0))
    return RowExplanation(
        scheme=model.scheme,
        nature=nature(model),
        target=own.target_name,
        unit=own.target_unit,
        prediction=prediction,
        fired=ActivationView.of(answer.fired),
        runners_up=tuple(ActivationView.of(item) for item in answer.runners_up),
        shares=shares,
        base=base,
        base_text=answer.base_text,
        reference=dict(zip(own.names, reference.row.tolist(), strict=True)) if reference and answer.reference else None,
        rounding=rounding,
        total=total,
        measure=answer.measure,
        inputs=tuple(inputs),
        fallback=bool(answer.fallback),
        clipped_from=None if answer.clipped_from is None else float(answer.clipped_from),
        interval=answer.interval,
        chances=answer.chances,
        notes=_notes(model, x, answer),
        text=_text(model, answer),
    )


def _text(model: Model, why: Explanation) -> str:
    name, unit = model.domain.target_name, model.domain.target_unit
    sure = f", {why.interval_text}" if why.interval else ""
    answer = why.prediction if isinstance(why.prediction, str) else f"{why.prediction:.6g} {unit}".rstrip()
    kind, rule = nature(model), why.fired.rule
    if kind == "network":
        return f"{name} is {answer}; this model is a network: it has no rules"
    if kind == "structures":
        return (
            f"{name} is {answer} for every row: this model is tree structures, of which each vehicle makes its own tree"
        )
    if why.chances:
        return (
            f"{name} is {answer}, with probability {why.chances[0].probability:.3f}; rule {rule.index} fits best, to "
            f"the degree {why.fired.strength:.3g}: IF {rule.antecedent}"
        )
    if rule.otherwise:
        return f"{name} is {answer}{sure}, because no other rule fires, so rule {rule.index} answers: {rule}"
    if why.fallback:
        return (
            f"{name} is {answer}{sure}, because no rule fires, so rule {rule.index} answers, which has the highest "
            f"weight: {rule}"
        )
    return f"{name} is {answer}{sure}, because of rule {rule.index}: {rule}"


def _notes(model: Model, x: np.ndarray, explanation: Explanation) -> tuple[str, ...]:
    kind = nature(model)
    notes = list(explanation.notes)
    if kind == "network":
        notes.insert(0, "this model is a network: it has no rules, and there is nothing in it to read")
    if kind == "structures":  # whatever the inputs are
        return tuple(notes)
    for value, variable in zip(x, model.domain.features, strict=True):
        if variable.missing is not None and np.isnan(value):
            taken = variable.text(float(f"{variable.missing:.4g}"))
            notes.append(f"{variable.name} is missing; where its value is asked for it is taken for {taken}")
        elif not variable.low <= value <= variable.high and not variable.categories:
            unit = f" {variable.unit}" if variable.unit else ""
            notes.append(
                f"{variable.name} = {value:.6g}{unit} is outside the model's range, {variable.low:.6g} to "
                f"{variable.high:.6g}{unit}; "
                + (
                    "the model takes the nearest limit"
                    if getattr(model, "clips_inputs", True)
                    else "the tree goes on comparing it with its thresholds, as it is"
                )
            )
    return tuple(notes)


def exact_sum(base: float, shares: Sequence[float], total: float | None) -> tuple[float, list[float], float, float]:
    """Return base, shares, a remainder and a total such that ``fsum((base, remainder, *shares)) == total`` exactly.

    Parameters
    ----------
    base : float
    shares : sequence of float
    total : float or None
        What they add up to but for rounding; None: their sum, rounded once.

    Returns
    -------
    base, shares, remainder, total
        Base and shares as given wherever one double can hold what they lack of the total. Where it cannot (the total is
        0, or nearly so), they are first rounded to multiples of 2^-52 of the largest, and the base takes what is left
        over. That moves none of them by more than a few such multiples.

    Notes
    -----
    On that grid all sums are sums of integers, hence exact. The base is chosen so that they give the multiple nearest
    to the total. What the total has beyond it is some of its own bits, which one double holds.

    Examples
    --------
    >>> exact_sum(0.3, [-0.1, -0.2], 0.0)
    (0.3, [-0.1, -0.2], 2.7755575615628914e-17, 0.0)
    """
    parts = [float(share) for share in shares]
    whole = math.fsum((base, *parts)) if total is None else total
    remainder = math.fsum((whole, -base, *(-part for part in parts)))
    if math.fsum((base, remainder, *parts)) == whole:
        return base, parts, remainder, whole
    largest = max(map(abs, (base, whole, *parts)))
    # One bit is kept free, so that the base has room for what the shares' rounding leaves over.
    step = max(math.ldexp(1.0, math.frexp(largest)[1] - 52), math.ulp(0.0))
    numbers = [round(part / step) for part in parts]
    base = (round(whole / step) - sum(numbers)) * step
    parts = [number * step for number in numbers]
    return base, parts, math.fsum((whole, -base, *(-part for part in parts))), whole
