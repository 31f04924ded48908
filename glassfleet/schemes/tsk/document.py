"""The model as a document: JSON values, complete and readable without this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from glassfleet.contract.tasks import check_numeric
from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.fuzzy.consequent import WEIGHTS, WeighedLine
from glassfleet.schemes.tsk.messages import MAX_RULES, NAME, check_antecedents, check_coefficients
from glassfleet.schemes.tsk.params import TskParameters
from glassfleet.schemes.tsk.rules import TskRuleBase, has_otherwise, with_otherwise

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
