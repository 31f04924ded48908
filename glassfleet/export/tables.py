"""The tables of a model and its domain, as the exported code has them."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib import resources
from typing import Any

from glassfleet.contract import catalogue
from glassfleet.data.domain import FARTHEST
from glassfleet.model.protocol import Model
from glassfleet.model.tables import Conditions, Line, RuleTables, Tables
from schemas.errors import UsageError


def conditions_of(model: Model) -> Conditions:
    """Return when which rule of the model fires; raises ``UsageError`` where that is not known."""
    tables = catalogue.tables_of(model)
    if not isinstance(tables, RuleTables):
        raise UsageError("a network has no rules that could fire")
    return tables.conditions


def levels_of(model: Model) -> tuple[Line, ...]:
    """Return the levels of each input's categories; empty for numbers, and where a scheme states none."""
    tables = catalogue.rule_tables(model)
    return tables.levels if tables is not None and tables.levels else ((),) * len(model.domain.inputs)


def table_values(model: Model, tables: Tables) -> dict[str, Any]:
    """Return numbers, texts and nested tuples by name: the domain's limits and all tables, empty ones too."""
    domain, target = model.domain, model.domain.target
    values: dict[str, Any] = {
        "low": tuple(variable.low for variable in domain.features),
        "high": tuple(variable.high for variable in domain.features),
        "target": (0.0, 1.0) if target is None else (target.low, target.high),
        "classes": len(domain.classes),
        "clipped": False,
    }
    parts: list[Any] = [tables.conditions, tables] if isinstance(tables, RuleTables) else [tables]
    values |= {field.name: getattr(part, field.name) for part in parts for field in fields(part)}
    for done in ("evaluator", "conditions", "weights"):
        values.pop(done, None)
    values["levels"] = (values.get("levels") or ())[: len(domain.features)] or ((),) * len(domain.features)
    values["gaps"] = tuple(domain.gaps)
    values["taken_for"] = tuple(float(domain.features[index].missing or 0.0) for index in domain.gaps)
    values["excess"] = tuple(
        (at, 0 if own.side == "below" else 1, own.of.low if own.side == "below" else own.of.high, own.high)
        for at, own in zip(domain.excess_of, domain.excess, strict=True)
    )
    values["farthest"] = (FARTHEST,)
    if isinstance(tables, RuleTables):
        values["rank"] = tables.rank
        values["default"] = tables.rank.index(0) if tables.default is None else tables.default
    return values


def device_text(name: str) -> str:
    """Return a file of :mod:`glassfleet.export.device`."""
    return (resources.files("glassfleet.export.device") / name).read_text(encoding="utf-8")


def conditions_part(tables: RuleTables) -> str:
    """Return the name of the part that tells which rules fire: ``RuleList`` is ``rule_list``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(tables.conditions).__name__).lower()
