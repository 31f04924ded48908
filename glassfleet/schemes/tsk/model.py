"""The finished system: it predicts, explains itself, and is a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from glassfleet.contract.tasks import check_numeric
from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.matching import WEIGHTS, MatchedRules, WeighedLine, outputs_at
from glassfleet.fuzzy.partition import Memberships
from glassfleet.model.tables import RuleList, RuleTables, lines
from glassfleet.numerics.statistics import blocks
from glassfleet.schemes.tsk.messages import MAX_RULES, NAME, check_antecedents, check_coefficients
from glassfleet.schemes.tsk.params import TskParameters
from glassfleet.schemes.tsk.rules import TskRuleBase, has_otherwise, strengths, with_otherwise

Floats = NDArray[np.float64]

_ROW_BLOCK = 1 << 12
_ENTRIES = 1 << 21


def _relative(strength: Floats) -> Floats:
    """Divide by the largest strength of each row: averages by strengths near 1e-300 lose nothing."""
    best: Floats = strength.max(axis=0)
    return strength / np.where(best > 0, best, 1.0)


class TskSystem(MatchedRules[TskRuleBase]):
    """A first-order Takagi-Sugeno-Kang rule base: fuzzy conditions on every input, a polynomial as consequent.

    Made by a run or by a document; not changed afterwards. See :class:`~glassfleet.fuzzy.matching.MatchedRules` for the
    parameters.
    """

    scheme = "tsk"

    def __init__(self, parameters: TskParameters, domain: Domain, base: TskRuleBase) -> None:
        super().__init__(parameters, domain, base)
        self._otherwise = base.size - 1 if has_otherwise(base.antecedents, parameters.n_sets) else None

    # --- matching ---------------------------------------------------------------------------------------------------

    def _blocks(self, rows: int) -> Iterator[slice]:
        return blocks(rows, max(16, min(_ROW_BLOCK, _ENTRIES // self.base.size)))

    def _answers(self, scaled: Floats, members: Memberships) -> Floats:
        strength = self._strengths(members)
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
        rank = np.where(strength == best, self.rank[:, None], self.base.size).min(axis=0)
        return self.order[np.where(best > 0, rank, 0)]

    def _deciding(self, members: Memberships) -> NDArray[np.intp]:
        return self._winners(self._strengths(members))

    def _fired(self, members: Memberships) -> list[tuple[int, float]]:
        strength = self._strengths(members)[:, 0]
        fired = np.flatnonzero(strength)
        order = fired[np.lexsort((self.rank[fired], -strength[fired]))]
        return [(int(rule), float(strength[rule])) for rule in order]

    def _path(self, index: int) -> list[tuple[int, int]]:
        return [] if index == self._otherwise else list(enumerate(self.base.antecedents[index].tolist()))

    # --- reading ----------------------------------------------------------------------------------------------------

    def complexity(self) -> Mapping[str, int | float]:
        """Return rules, rule length (conditions of a rule), and parameters (sets and coefficients of all rules)."""
        rules, length = self.base.antecedents.shape
        sets = (rules if self._otherwise is None else rules - 1) * length
        coefficients = rules * (length + 1)
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


# --- the model as a document: JSON values, complete and readable without this package ---------------------------------


FORMAT = 1


class _TskRule(WeighedLine):
    antecedent: tuple[int, ...] | None
    coefficients: tuple[float, ...]
    intercept: float


class _TskBody(Strict):
    rules: tuple[_TskRule, ...] = Field(min_length=1, max_length=MAX_RULES)


def write_document(parameters: TskParameters, domain: Domain, base: TskRuleBase) -> dict[str, Any]:
    """Return ``{scheme, format, parameters, domain, model}``.

    A rule's ``antecedent`` is one set number per input, from 0 (the lowest), or null for OTHERWISE, which comes last;
    its polynomial is over the scaled inputs and gives the scaled target.
    """
    otherwise = base.size - 1 if has_otherwise(base.antecedents, parameters.n_sets) else -1
    rules = [
        {
            "antecedent": None if line == otherwise else base.antecedents[line].tolist(),
            "coefficients": base.coefficients[line, :-1].tolist(),
            "intercept": float(base.coefficients[line, -1]),
            **{name: float(getattr(base, name)[line]) for name in WEIGHTS},
        }
        for line in range(base.size)
    ]
    return document_of(NAME, FORMAT, parameters, domain, {"rules": rules})


def read_document(document: Mapping[str, Any]) -> tuple[TskParameters, Domain, TskRuleBase]:
    """Read a document; raises :class:`DocumentError` with the reason, and nothing else, whatever it holds."""
    parameters, domain, model = read_document_head(document, NAME, FORMAT, TskParameters)
    with document_errors():
        body = _TskBody.model_validate(model)
        check_numeric(domain, NAME)
        base = _read_rules(body, parameters.n_sets, len(domain.features))
    return parameters, domain, base


def _read_rules(body: _TskBody, n_sets: int, width: int) -> TskRuleBase:
    """Return the rules; raises ValueError."""
    last = len(body.rules) - 1
    named: list[tuple[int, ...]] = []
    for number, rule in enumerate(body.rules):
        sets = width if rule.antecedent is None else len(rule.antecedent)
        if sets != width or len(rule.coefficients) != width:
            raise ValueError(f"rule {number} has not one set and one coefficient for each of {width} inputs")
        if rule.antecedent is None:
            if number != last:
                raise ValueError(f"rule {number} has no antecedent: OTHERWISE comes last")
            continue
        if not all(0 <= fuzzy_set < n_sets for fuzzy_set in rule.antecedent):
            raise ValueError(f"rule {number}: a set is not in [0, {n_sets})")
        named.append(rule.antecedent)
    antecedents = np.array(named, dtype=np.int8).reshape(len(named), width)
    if len(named) <= last:
        antecedents = with_otherwise(antecedents, n_sets)
    coefficients = np.array([[*rule.coefficients, rule.intercept] for rule in body.rules], dtype=np.float64)
    return TskRuleBase(
        check_antecedents(antecedents, width, n_sets, MAX_RULES, otherwise=True),
        check_coefficients(coefficients, (len(body.rules), width + 1)),
        *(np.array([getattr(rule, name) for rule in body.rules], dtype=np.float64) for name in WEIGHTS),
    )
