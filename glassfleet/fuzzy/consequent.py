"""Linear consequents in the variables' own units."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.data.documents import Strict
from glassfleet.data.domain import Domain, Excess, Indicator, Variable
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
    output: Array = coefficients[rule, -1]
    for feature in range(scaled.shape[1]):
        output = output + coefficients[rule, feature] * scaled[:, feature]
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
