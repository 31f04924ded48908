"""Models of fuzzy rules with polynomials, of which the best match answers, or all that fire are averaged."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy.consequent import ReadsRules, Weighed, linear_rule
from glassfleet.fuzzy.partition import Memberships, condition, fuzzify
from glassfleet.model.explanation import RUNNERS_UP, Activation, Explanation, no_rule_fires
from glassfleet.model.rules import Rule

Floats = NDArray[np.float64]


class Polynomials(Weighed, Protocol):
    """The numbers of rules."""

    @property
    def coefficients(self) -> Floats:
        """Polynomials over the scaled inputs, intercepts last, shape (r, F + 1)."""


R = TypeVar("R", bound=Polynomials)


def ranking(weight: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
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
    def _answers(self, scaled: Floats, members: Memberships) -> Floats:
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

    def predict(self, X: Floats) -> Floats:
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

    def deciding(self, X: Floats) -> NDArray[np.intp]:
        """Return the rule that answers each of the rows `X`, or the strongest of those averaged, shape (n,)."""
        X = self.domain.check_rows(X)
        result = np.empty(len(X), dtype=np.intp)
        for block in self._blocks(len(X)):
            result[block] = self._deciding(fuzzify(self.domain.scale_inputs(X[block]), self.parameters.n_sets))
        return result

    def explain(self, x: Floats) -> Explanation:
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
