"""Fuzzy rules with polynomials for consequents: in the variables' own units, and as models that match rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import Strict
from glassfleet.data.domain import Domain, Excess, Indicator, Variable
from glassfleet.fuzzy.partition import Memberships, condition, fuzzify
from glassfleet.model.explanation import RUNNERS_UP, Activation, Explanation, no_rule_fires
from glassfleet.model.rules import Condition, Consequent, Forecasts, Rule, Slope

Array = NDArray[np.float64]


def linear_consequent(
    domain: Domain, intercept: float, slopes: Array, conditions: Sequence[Condition] = ()
) -> Consequent:
    """Return a polynomial over scaled inputs, which gives the scaled target, over the inputs themselves.

    Parameters
    ----------
    domain : Domain
        With a numeric target.
    intercept : float
        The scaled target where all scaled inputs are zero.
    slopes : ndarray of float64, shape (F,)
        One for each input; zeros and constant inputs are left out.
    conditions : sequence of Condition
        Of the rule: they limit the region over which a slope is told.

    Notes
    -----
    True for inputs within their limits, and where the conditions hold that say whether a cell is empty.

    Examples
    --------
    >>> from glassfleet.data.domain import Variable
    >>> speed = Variable(name="speed", low=0, high=120, unit="km/h")
    >>> domain = Domain(features=(speed,), target=Variable(name="frames", low=0, high=100, unit="%"))
    >>> str(linear_consequent(domain, 0.9, np.array([-0.6])))
    'frames = (90 - 0.5 speed) %'
    """
    target = domain.target
    assert target is not None
    return _linear(domain, target, float(intercept), slopes.tolist(), conditions)


def outputs_at(coefficients: Array, scaled: Array, rule: NDArray[np.intp]) -> Array:
    """Return the polynomial of the rule of each row, shape (n,); element-wise, so batch-free.

    Parameters
    ----------
    coefficients : ndarray of float64, shape (r, F + 1)
        Intercepts last.
    scaled : ndarray of float64, shape (n, F)
    rule : ndarray of intp, shape (n,)
    """
    lines = coefficients[rule].T
    output: Array = lines[-1]
    for term in lines[:-1] * scaled.T:
        output = output + term
    return output


WEIGHTS: Final = ("weight", "support", "confidence")
"""The members of :class:`Weighed`."""


class WeighedLine(Strict):
    """The weights of a rule in a document."""

    weight: float = Field(ge=0.0, le=1.0)
    support: float = Field(ge=0.0, le=1.0)
    confidence: float = Field(ge=0.0, le=1.0)


class Weighed(Protocol):
    """The weights of rules, each of shape (r,), in [0, 1]."""

    @property
    def weight(self) -> Array:
        """Of each rule, the harmonic mean of the other two."""

    @property
    def support(self) -> Array:
        """Share of the rows."""

    @property
    def confidence(self) -> Array:
        """One minus the rule's error on the scaled target."""


def linear_rule(  # noqa: PLR0917  what a rule is made of
    domain: Domain,
    index: int,
    weighed: Weighed,
    conditions: tuple[Condition, ...],
    intercept: float,
    slopes: Array,
    forecast: Forecasts | None,
) -> Rule:
    """Return a rule that says a polynomial, see `linear_consequent`; its confidence is one minus its scaled error."""
    target, confidence = domain.target, float(weighed.confidence[index])
    assert target is not None
    tested = None if forecast is None or forecast.errors is None else forecast.errors.mean
    return Rule(
        index=index,
        conditions=conditions,
        consequent=linear_consequent(domain, intercept, slopes, conditions),
        weight=float(weighed.weight[index]),
        support=float(weighed.support[index]),
        confidence=confidence,
        forecast=forecast,
        error=(1.0 - confidence) * (target.high - target.low) if tested is None else tested,
    )


class ReadsRules(ABC):
    """A model whose rules are written out when they are first read, and again when their forecasts become known."""

    _forecasts: Mapping[int, Forecasts] = MappingProxyType({})
    why_few: str = ""
    """What held-out rows said of more rules, where there are few; see :mod:`glassfleet.model.intervals`."""

    @property
    def forecasts(self) -> Mapping[int, Forecasts]:
        """What rules forecast, by index; see :mod:`glassfleet.model.intervals`."""
        return self._forecasts

    @forecasts.setter
    def forecasts(self, known: Mapping[int, Forecasts]) -> None:
        self._forecasts = known
        self.__dict__.pop("_read", None)

    def rules(self) -> Sequence[Rule]:
        """Return the rules in the order of the document."""
        return self._read

    @abstractmethod
    def _rule(self, index: int) -> Rule:
        """Return a rule."""

    @abstractmethod
    def _size(self) -> int:
        """Return the number of rules."""

    @cached_property
    def _read(self) -> tuple[Rule, ...]:
        return tuple(map(self._rule, range(self._size())))


def linear_score(domain: Domain, name: str, line: Array, conditions: Sequence[Condition] = ()) -> Consequent:
    """Return the score `name`, a polynomial over scaled inputs, over the inputs themselves.

    Of an input of text the slope is what its highest level adds (:mod:`glassfleet.fuzzy.levels`). `line`, shape
    (F + 1,), has the intercept first.
    """
    intercept, *slopes = line.tolist()
    return _linear(domain, Variable(name=name, low=0.0, high=1.0), intercept, slopes, conditions)


def _linear(
    domain: Domain, target: Variable, intercept: float, slopes: Sequence[float], conditions: Sequence[Condition]
) -> Consequent:
    limits = {part.feature: (part.low, part.high) for part in conditions if not part.about_cell}
    cells = {part.feature: part.term for part in conditions if part.about_cell}
    width = target.high - target.low
    constant, terms = target.low + width * intercept, []
    for variable, coefficient in zip(domain.inputs, slopes, strict=True):
        span = 1.0 if variable.categories else variable.high - variable.low
        if span == 0.0 or not coefficient:
            continue
        whole = width * coefficient
        if isinstance(variable, Indicator):
            # Where a condition says whether the cell is empty, there is nothing left to tell.
            if variable.of.name not in cells:
                terms.append(Slope(variable.of.name, whole, whole, when_missing=True))
            constant += whole if cells.get(variable.of.name) == "missing" else 0.0
            continue
        if isinstance(variable, Excess):
            limit = variable.of.low if variable.side == "below" else variable.of.high
            terms.append(
                Slope(variable.of.name, whole / span, whole, variable.unit, beyond=f"{variable.side} {limit:.6g}")
            )
            continue
        if cells.get(variable.name) == "missing" and variable.missing is not None:
            constant += width * (coefficient * ((variable.missing - variable.low) / span))
            continue
        low, high = (0.0, 1.0) if variable.categories else limits.get(variable.name, (variable.low, variable.high))
        low, high = max(low, variable.low), min(high, variable.high)
        first, slope = (low - variable.low) / span, width * coefficient / span
        constant += width * (coefficient * first) - slope * low
        terms.append(Slope(variable.name, slope, slope * (high - low)))
    return Consequent(target.name, constant, target.unit, tuple(terms))


# --- models of rules of which the best match answers, or all that fire are averaged -----------------------------------


class Polynomials(Weighed, Protocol):
    """The numbers of rules."""

    @property
    def coefficients(self) -> Array:
        """Polynomials over the scaled inputs, intercepts last, shape (r, F + 1)."""


R = TypeVar("R", bound=Polynomials)


def ranking(weight: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rules in the order in which ties are decided, and each rule's place in it, both of shape (r,).

    The highest weight first, then the first rule. The first in this order answers where no rule fires.
    """
    order = np.lexsort((np.arange(len(weight)), -weight))
    rank = np.empty(len(order), dtype=np.intp)
    rank[order] = np.arange(len(order))
    return order, rank


class MatchedRules(ReadsRules, Generic[R]):
    """A model whose rules each say a polynomial. ``parameters`` have ``n_sets`` and ``inference``.

    Parameters
    ----------
    parameters : Parameters
        Of the run.
    domain : Domain
        Inputs and numeric target.
    base : Polynomials
        The rules, at least one.

    Attributes
    ----------
    order, rank : ndarray of intp, shape (r,)
        See :func:`ranking`.
    """

    _otherwise: int | None = None

    def __init__(self, parameters: Any, domain: Domain, base: R) -> None:
        self.parameters = parameters
        self.domain = domain
        self.base = base
        self.order, self.rank = ranking(base.weight)

    @abstractmethod
    def _blocks(self, rows: int) -> Iterator[slice]:
        """Yield which rows are handled together."""

    @abstractmethod
    def _answers(self, scaled: Array, members: Memberships) -> Array:
        """Return the scaled forecasts of rows, shape (n,), whatever others are in the batch."""

    @abstractmethod
    def _deciding(self, members: Memberships) -> NDArray[np.intp]:
        """Return the rule that answers each row, or the strongest of those averaged, shape (n,)."""

    @abstractmethod
    def _fired(self, members: Memberships) -> list[tuple[int, float]]:
        """Return the rules that fire for the one row with their strengths, the one that decides first."""

    @abstractmethod
    def _path(self, index: int) -> Sequence[tuple[int, int]]:
        """Return the inputs and sets that a rule names."""

    def _normalised(self, index: int, strength: float) -> float | None:  # noqa: ARG002 - compared by strength alone
        return None

    def predict(self, X: Array) -> Array:
        """Predict rows `X`, shape (n, F), in the inputs' own units; returns shape (n,) in the target's unit.

        Raises
        ------
        ValueError
            `X` has another shape, or is not finite.
        """
        X = self.domain.check_rows(X)
        result = np.empty(len(X))
        for block in self._blocks(len(X)):
            scaled = self.domain.scale_inputs(X[block])
            result[block] = self._answers(scaled, fuzzify(scaled, self.parameters.n_sets))
        return self.domain.unscale_target(result)

    def deciding(self, X: Array) -> NDArray[np.intp]:
        """Return the rule that answers each of the rows `X`, or the strongest of those averaged, shape (n,)."""
        X = self.domain.check_rows(X)
        result = np.empty(len(X), dtype=np.intp)
        for block in self._blocks(len(X)):
            result[block] = self._deciding(fuzzify(self.domain.scale_inputs(X[block]), self.parameters.n_sets))
        return result

    def explain(self, x: Array) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,).

        ``shares`` and ``base`` are the terms of the polynomial that answered (or of the average of those that did), in
        the target's own unit.
        """
        row = np.asarray(x, dtype=np.float64).reshape(1, -1)
        prediction, scaled = float(self.predict(row)[0]), self.domain.scale_inputs(row)
        members = fuzzify(scaled, self.parameters.n_sets)
        fired = self._fired(members)
        ranked = fired or [(int(self.order[0]), 0.0)]
        first = ranked[0][0]
        parts = [(first, 1.0)]
        if fired and self.parameters.inference == "weighted_average":
            # Relative to the strongest: products of many memberships are tiny.
            relative = [strength / ranked[0][1] for _, strength in ranked]
            parts = [(rule, part / sum(relative)) for (rule, _), part in zip(ranked, relative, strict=True)]
        target = self.domain.target
        assert target is not None
        terms = np.zeros(scaled.shape[1] + 1)
        for rule, part in parts:
            terms += part * (target.high - target.low) * self.base.coefficients[rule] * [*scaled[0], 1.0]
        activations = [
            Activation(
                self._rule(rule),
                strength,
                tuple(members.degree(feature, 0, j) for feature, j in self._path(rule)),
                self._normalised(rule, strength),
            )
            for rule, strength in ranked[: RUNNERS_UP + 1]
        ]
        notes = ("no other rule fires for this row, so OTHERWISE answers",) * (first == self._otherwise)
        return Explanation(
            prediction=prediction,
            fired=activations[0],
            runners_up=tuple(activations[1:]),
            shares=dict(zip(self.domain.names, terms[:-1].tolist(), strict=True)),
            base=target.low + float(terms[-1]),
            fallback=not fired or first == self._otherwise,
            notes=notes if fired else (no_rule_fires(first),),
        )

    def _size(self) -> int:
        return len(self.base.weight)

    def _rule(self, index: int) -> Rule:
        features, n_sets, line = self.domain.features, self.parameters.n_sets, self.base.coefficients[index]
        conditions = tuple(condition(features[feature], j, n_sets) for feature, j in self._path(index))
        forecast = self.forecasts.get(index)
        rule = linear_rule(self.domain, index, self.base, conditions, line[-1], line[:-1], forecast)
        return replace(rule, otherwise=index == self._otherwise)
