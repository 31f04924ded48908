"""All formats by name, and pictures of a model as SVG."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from glassfleet.contract import catalogue
from glassfleet.explain.branches import rule_tree, structures
from glassfleet.explain.effects import Effect
from glassfleet.explain.row import RowExplanation
from glassfleet.explain.summary import rule_summaries, summary
from glassfleet.export.c_header import to_c
from glassfleet.export.fml import to_fml
from glassfleet.export.svg.charts import REPORT, waterfall
from glassfleet.export.svg.effects import Scale, effect_curve
from glassfleet.export.svg.shapes import file_of
from glassfleet.export.svg.trees import MOST_LEAVES, RuleTree, StructureTree
from glassfleet.model.intervals import tell_forecasts
from glassfleet.model.protocol import Model, nature
from glassfleet.model.tables import RuleTables
from schemas.codec import document_digest
from schemas.errors import DocumentError, UsageError, VerificationError
from schemas.record import ModelRecord


@dataclass(frozen=True)
class Format:
    """One format: the suffix of its files, what it is in one line, and its media type."""

    suffix: str
    what: str
    media_type: str


FORMATS: Final[Mapping[str, Format]] = {
    "json": Format(".json", "document, digest and summary; reads back", "application/json"),
    "fml": Format(".xml", "IEEE 1855 Fuzzy Markup Language", "application/xml"),
    "c": Format(".h", "a C99 header for small devices, without dependencies", "text/x-c"),
    "svg": Format(".svg", "the tree as a picture", "image/svg+xml"),
}


def export(model: Model, kind: str, *, title: str = "", prefix: str = "model") -> bytes:
    """Return a model in a format, as the bytes of a file.

    Parameters
    ----------
    model : Model
    kind : str
        A key of :data:`FORMATS`.
    title : str
        E.g. name and version.
    prefix : str
        What the names in a C header begin with.

    Raises
    ------
    UsageError
        There is no such format, or it cannot hold the model.
    """
    writers: Mapping[str, Callable[[], str]] = {
        "json": lambda: to_json(model),
        "fml": lambda: to_fml(model, title),
        "c": lambda: to_c(model, prefix, title),
        "svg": lambda: tree_picture(model, title),
    }
    if kind not in writers:
        raise UsageError(f"no format {kind!r}; there are: {', '.join(FORMATS)}")
    return writers[kind]().encode("utf-8")


def holding(model: Model) -> tuple[str, ...]:
    """Return the formats other than JSON that can hold a model."""
    drawn = () if nature(model) == "network" else ("svg",)
    try:
        tables = catalogue.tables_of(model)
    except UsageError:
        return drawn
    return ("c", *(["fml"] * isinstance(tables, RuleTables)), *drawn)


MOST_RULES: Final = 1000
"""Rules that the summary in the JSON states in words; the document has all of them."""


def to_json(model: Model) -> str:
    """Return ``{format, digest, document, summary}``; the digest is that of the document."""
    document = model.to_document()
    whole = {
        "format": "glassfleet-export/1",
        "digest": document_digest(document),
        "document": document,
        "summary": summary(model, top=MOST_RULES).to_dict(),
    }
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_model(data: bytes, name: str) -> tuple[ModelRecord | None, Model]:
    """Read a model from the bytes of a record, a bare document, or an export in JSON.

    Parameters
    ----------
    data : bytes
    name : str
        Of the file, for messages.

    Returns
    -------
    ModelRecord or None
        Only where `data` is one.
    Model

    Raises
    ------
    DocumentError, VerificationError
        It is none of these, or was changed.
    """
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict) or "cohort" in whole or not ({"document", "model"} & set(whole)):
        record = ModelRecord.load(data)  # which says what is wrong with a file that is no record
        return record, catalogue.model_of(record)
    document = whole.get("document", whole)
    if not isinstance(document, dict) or not isinstance(document.get("scheme"), str):
        raise DocumentError(f"{name}: not a model document: it names no scheme")
    if "digest" in whole and document_digest(document) != whole["digest"]:
        raise VerificationError(f"{name}: the document is not that of its digest; it was changed")
    model = catalogue.load(document["scheme"]).from_document(document)
    tell_forecasts(model, whole)
    return None, model


MOST_SHARES = 12
"""Inputs that have a line of their own; the others are added up."""


def tree_picture(model: Model, title: str = "") -> str:
    """Draw a model's rules as a tree, or the fittest structure of a population.

    Parameters
    ----------
    title : str
        Printed above.

    Raises
    ------
    UsageError
        The model is a network.
    """
    kind = nature(model)
    if kind == "network":
        raise UsageError("this model is a network: it has neither rules nor a tree to draw")
    if kind == "structures":
        best = structures(model)[0]
        which = f"the fittest structure, number {best.number}"
        return file_of(StructureTree([best.root], most=MOST_LEAVES).picture(), f"{title}: {which}" if title else which)
    rules = model.rules()
    labels = [each.label for each in rule_summaries(rules)]
    note = "per cent: the share of the training rows"
    if any(rule.forecast for rule in rules):
        note += "; the mean of a rule's forecasts for its rows, and where about 8 of 10 of them are"
    elif rules and rules[0].consequent.slopes is not None:
        note += "; at the end: the input that moves the forecast most, and by how much within the rule's region"
    tree = RuleTree([rule_tree(model)], labels=labels, classes=model.domain.classes, most=MOST_LEAVES)
    return file_of(tree.picture(), title, note)


def shares_picture(explained: RowExplanation) -> str:
    """Draw how base and shares of one row add up to its forecast; raises ``UsageError`` where it has no shares."""
    if explained.total is None:
        why = "; ".join(explained.notes or ("the model has none",))
        raise UsageError(f"this forecast has no shares to draw: {why}")
    called = f"{explained.target}: {explained.prediction}" if explained.measure else explained.target
    unit = "" if explained.measure else explained.unit
    return file_of(waterfall(REPORT, explained.base, explained.parts(MOST_SHARES), explained.total, unit, called))


def effect_picture(model: Model, curve: Effect, others: str) -> str:
    """Draw how the answer moves with one input; `others` says what the other inputs are."""
    domain = model.domain
    svg = effect_curve(curve, Scale.of([curve], domain.classes), domain.classes, domain.target_unit)
    return file_of(
        svg, f"{domain.target_name} as {curve.feature.name} goes over its range", f"the others are those of {others}"
    )
