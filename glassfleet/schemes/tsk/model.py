"""The finished system: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glassfleet.data.domain import Domain
from glassfleet.fuzzy import condition, fuzzify
from glassfleet.fuzzy.consequent import ReadsRules, linear_rule, outputs_at
from glassfleet.fuzzy.partition import Memberships
from glassfleet.numerics.statistics import blocks
from glassfleet.rules import RUNNERS_UP, Activation, Explanation, Rule, no_rule_fires
from glassfleet.schemes.tsk.document import write_document
from glassfleet.schemes.tsk.params import Parameters
from glassfleet.schemes.tsk.rules import RuleBase, has_otherwise, strengths
from glassfleet.tables import RuleList, RuleTables, lines

Floats = NDArray[np.float64]

_ROW_BLOCK = 1 << 12
_ENTRIES = 1 << 21


def _relative(strength: Floats) -> Floats:
    """Divide by the largest strength of each row: averages by strengths near 1e-300 lose nothing."""
    best: Floats = strength.max(axis=0)
    return strength / np.where(best > 0, best, 1.0)


class TskSystem(ReadsRules):
    """A first-order Takagi-Sugeno-Kang rule base: fuzzy conditions on every input, a polynomial as consequent.

    Made by a run or by a document; not changed afterwards.

    Parameters
    ----------
    parameters : Parameters
        Of the run.
    domain : Domain
        Inputs and numeric target.
    base : RuleBase
        The rules, at least one.
    """

    scheme = "tsk"

    def __init__(self, parameters: Parameters, domain: Domain, base: RuleBase) -> None:
        self.parameters = parameters
        self.domain = domain
        self.base = base
        # Ties go to the highest rule weight, then to the first rule; the first in this order is also the default.
        self._order = np.lexsort((np.arange(base.size), -base.weight))
        self._rank = np.empty(base.size, dtype=np.intp)
        self._rank[self._order] = np.arange(base.size)
        self._otherwise = base.size - 1 if has_otherwise(base.antecedents, parameters.n_sets) else None

    # --- predicting -------------------------------------------------------------------------------------------------

    def predict(self, X: Floats) -> Floats:
        """Predict rows `X`, shape (n, F), in the inputs' own units; returns shape (n,) in the target's unit.

        Raises
        ------
        ValueError
            `X` has another shape, or is not finite.
        """
        X = self.domain.check_rows(X)
        result = np.empty(X.shape[0])
        for block in self._blocks(len(X)):
            result[block] = self._predict_scaled(self.domain.scale_inputs(X[block]))
        return self.domain.unscale_target(result)

    def deciding(self, X: Floats) -> NDArray[np.intp]:
        """Return the rule that answers each of the rows `X`, or the strongest of those averaged, shape (n,)."""
        X = self.domain.check_rows(X)
        result = np.empty(X.shape[0], dtype=np.intp)
        for block in self._blocks(len(X)):
            members = fuzzify(self.domain.scale_inputs(X[block]), self.parameters.n_sets)
            result[block] = self._winners(self._strengths(members))
        return result

    def _blocks(self, rows: int) -> Iterator[slice]:
        return blocks(rows, max(16, min(_ROW_BLOCK, _ENTRIES // self.base.size)))

    def _predict_scaled(self, scaled: Floats) -> Floats:
        strength = self._strengths(fuzzify(scaled, self.parameters.n_sets))
        winner = self._winners(strength)
        if self.parameters.inference == "maximum_matching":
            return outputs_at(self.base.coefficients, scaled, winner)
        # Entries row by row and rule by rule: bincount adds them in this order, whatever rows are in the batch.
        row, rule = np.nonzero(strength.T)
        weight, n = _relative(strength)[rule, row], len(scaled)
        total = np.bincount(row, weights=weight, minlength=n)
        terms = np.bincount(row, weights=weight * outputs_at(self.base.coefficients, scaled[row], rule), minlength=n)
        fired = total > 0
        return np.where(fired, terms / np.where(fired, total, 1.0), outputs_at(self.base.coefficients, scaled, winner))

    def _strengths(self, members: Memberships) -> Floats:
        """Return the strength with which each rule answers; OTHERWISE does only where no other rule fires."""
        strength = strengths(self.base.antecedents, members)
        if self._otherwise is not None:
            strength[-1] = np.where(strength[:-1].max(axis=0, initial=0.0) > 0, 0.0, 1.0)
        return strength

    def _winners(self, strength: Floats) -> NDArray[np.intp]:
        """Return the rule that answers each row: the strongest, ties by rule weight; the default where none fires."""
        best = strength.max(axis=0)
        rank = np.where(strength == best, self._rank[:, None], self.base.size).min(axis=0)
        return self._order[np.where(best > 0, rank, 0)]

    # --- explaining -------------------------------------------------------------------------------------------------

    def explain(self, x: Floats) -> Explanation:
        """Say why the model answers as it does for the one row `x`, shape (F,).

        ``shares`` and ``base`` are the terms of the polynomial that answered (or of the average of those that did), in
        the target's own unit.
        """
        row = np.asarray(x, dtype=np.float64).reshape(1, -1)
        prediction = float(self.predict(row)[0])
        scaled = self.domain.scale_inputs(row)
        members = fuzzify(scaled, self.parameters.n_sets)
        strength = self._strengths(members)[:, 0]
        fired = np.flatnonzero(strength)
        order = fired[np.lexsort((self._rank[fired], -strength[fired]))]
        ranked = [(int(rule), float(strength[rule])) for rule in order] or [(int(self._order[0]), 0.0)]
        averaged = self.parameters.inference == "weighted_average" and fired.size > 0
        parts = [(ranked[0][0], 1.0)]
        if averaged:
            relative = _relative(strength)
            total = float(relative.sum())
            parts = [(rule, float(relative[rule]) / total) for rule, _ in ranked]
        target = self.domain.target
        assert target is not None
        width = target.high - target.low
        shares, base = np.zeros(scaled.shape[1]), 0.0
        for rule, part in parts:
            shares += part * width * self.base.coefficients[rule, :-1] * scaled[0]
            base += part * width * float(self.base.coefficients[rule, -1])
        activations = [self._activation(members, rule, value) for rule, value in ranked[: RUNNERS_UP + 1]]
        return Explanation(
            prediction=prediction,
            fired=activations[0],
            runners_up=tuple(activations[1:]),
            shares={name: float(share) for name, share in zip(self.domain.names, shares, strict=True)},
            base=target.low + base,
            fallback=fired.size == 0 or ranked[0][0] == self._otherwise,
            notes=(
                (no_rule_fires(ranked[0][0]),)
                if fired.size == 0
                else ("no other rule fires for this row, so OTHERWISE answers",) * (ranked[0][0] == self._otherwise)
            ),
        )

    def _activation(self, members: Memberships, rule: int, strength: float) -> Activation:
        sets = () if rule == self._otherwise else self.base.antecedents[rule]
        degrees = tuple(members.degree(feature, 0, int(j)) for feature, j in enumerate(sets))
        return Activation(self._rule(rule), strength, degrees)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _rule(self, index: int) -> Rule:
        base, n_sets = self.base, self.parameters.n_sets
        sets = () if index == self._otherwise else base.antecedents[index]
        conditions = tuple(condition(self.domain.features[feature], int(j), n_sets) for feature, j in enumerate(sets))
        line = base.coefficients[index]
        rule = linear_rule(self.domain, index, base, conditions, line[-1], line[:-1], self.forecasts.get(index))
        return replace(rule, otherwise=index == self._otherwise)

    def _size(self) -> int:
        return self.base.size

    def complexity(self) -> Mapping[str, int | float]:
        """Return rules, rule length (conditions of a rule), and parameters (sets and coefficients of all rules)."""
        rules, length = self.base.antecedents.shape
        sets = (rules if self._otherwise is None else rules - 1) * length
        coefficients = rules * (length + 1)
        if self.parameters.max_slopes is not None:  # those that are zero are not told
            coefficients = rules + int(np.count_nonzero(self.base.coefficients[:, :-1]))
        return {"rules": rules, "rule_length": length, "parameters": sets + coefficients}

    def tables(self) -> RuleTables:
        """Return the model as plain tables, for exports; OTHERWISE, which has no sets, answers when no rule fires."""
        base, n_sets = self.base, self.parameters.n_sets
        return RuleTables(
            evaluator="weighted_mean" if self.parameters.inference == "weighted_average" else "maximum_matching",
            conditions=RuleList(n_sets, tuple(map(tuple, base.antecedents.tolist()))),
            weights=tuple(base.weight.tolist()),
            constants=tuple(base.coefficients[:, -1].tolist()),
            slopes=lines(base.coefficients[:, :-1].tolist()),
            relative=True,
            default=self._otherwise,
        )

    # --- the document -----------------------------------------------------------------------------------------------

    def to_document(self) -> dict[str, Any]:
        """Return the model as JSON values; its digest is the model's identity."""
        return write_document(self.parameters, self.domain, self.base)
