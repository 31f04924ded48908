"""The model as a document: JSON values, complete and readable without this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pydantic import Field

from glassfleet.contract.tasks import check_classes
from glassfleet.data.documents import Strict, document_errors, document_of, read_document_head
from glassfleet.data.domain import Domain
from glassfleet.schemes.frbc.matching import pack, sort_rules
from glassfleet.schemes.frbc.params import MAX_CLASSES, MAX_RULES, FrbcParameters
from glassfleet.schemes.frbc.rulebase import RuleBase

SCHEME = "frbc"
FORMAT = 1


class _FrbcRule(Strict):
    sets: tuple[int, ...]
    class_: int = Field(alias="class", ge=0)
    weight: float = Field(ge=0.0, le=1.0)
    support: float = Field(ge=0.0, le=1.0)


class _FrbcBody(Strict):
    rules: tuple[_FrbcRule, ...] = Field(min_length=1, max_length=MAX_RULES)


def write_document(parameters: FrbcParameters, domain: Domain, base: RuleBase) -> dict[str, Any]:
    """Return ``{scheme, format, parameters, domain, model}``.

    ``model.rules`` is in the lexicographic order of ``sets``: one set number per input, in the order of
    ``domain.features``, 0 the lowest; ``class`` is a position in ``domain.classes``. A single rule without sets always
    holds.
    """
    lines = zip(
        base.antecedents.tolist(), base.classes.tolist(), base.weight.tolist(), base.support.tolist(), strict=True
    )
    rules = [
        {"sets": sets, "class": number, "weight": weight, "support": support} for sets, number, weight, support in lines
    ]
    return document_of(SCHEME, FORMAT, parameters, domain, {"rules": rules})


def read_document(document: Mapping[str, Any]) -> tuple[FrbcParameters, Domain, RuleBase]:
    """Read a document; raises :class:`DocumentError` with the reason, and nothing else, whatever it holds."""
    parameters, domain, model = read_document_head(document, SCHEME, FORMAT, FrbcParameters)
    with document_errors():
        body = _FrbcBody.model_validate(model)
        check_classes(domain, SCHEME, MAX_CLASSES)
        base = _read_rules(body, domain, parameters.n_sets)
    return parameters, domain, base


def _read_rules(body: _FrbcBody, domain: Domain, n_sets: int) -> RuleBase:
    """Return the rules; raises ValueError."""
    width = len(domain.features)
    if len(body.rules) == 1 and not body.rules[0].sets:
        width = 0
    for number, rule in enumerate(body.rules):
        if len(rule.sets) != width or not all(0 <= j < n_sets for j in rule.sets):
            raise ValueError(
                f"rule {number} does not name one of {n_sets} sets for each of {len(domain.features)} inputs"
            )
        if rule.class_ >= len(domain.classes):
            raise ValueError(f"rule {number} names class {rule.class_}, there are {len(domain.classes)}")
    antecedents = np.array([rule.sets for rule in body.rules], dtype=np.int8).reshape(len(body.rules), width)
    if width:
        order, new = sort_rules(pack(antecedents, n_sets), np.zeros(len(body.rules), dtype=np.int16))
        if (order != np.arange(order.size)).any() or not new.all():
            raise ValueError("rules must be in the lexicographic order of their sets, each antecedent once")
    return RuleBase(
        antecedents,
        np.array([rule.class_ for rule in body.rules], dtype=np.intp),
        np.array([rule.weight for rule in body.rules]),
        np.array([rule.support for rule in body.rules]),
    )
