"""Models that were learned centrally elsewhere: references for vehicles to compare the fleet's model with.

A reference to the model ``qoe`` is published as ``qoe.central``, so vehicles score it on their own test rows as they
score any model, and nobody forecasts with it in place of the fleet's. No run of the fleet stands behind it: its record
says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glassfleet import catalogue
from glassfleet.scheme import Model
from schemas.errors import DocumentError, UsageError
from schemas.record import ModelRecord
from schemas.topics import check_id

SOURCE = "central"
"""What a record's parameters give as ``source`` when the model was learned in one place."""


def reference_of(name: str) -> str:
    """Return the name of the reference that `name` is compared with."""
    return f"{name}.{SOURCE}"


def is_reference(record: ModelRecord) -> bool:
    """Whether a record is of a model that no run of the fleet has learned."""
    return record.parameters.get("source") == SOURCE


def read_reference(document: Mapping[str, Any], compared: ModelRecord) -> tuple[str, Model]:
    """Return scheme and model of a document that shall be the reference of `compared`.

    Raises
    ------
    NotFoundError
        No such scheme.
    DocumentError
        The document is malformed.
    UsageError
        It cannot be compared: it forecasts another column, or `compared` is a reference itself.
    """
    if is_reference(compared):
        raise UsageError(f"{compared.name!r} is a reference itself: name the model that it is compared with")
    check_id("model", reference_of(compared.name))
    scheme = catalogue.load(str(document.get("scheme", "")))
    try:
        model = scheme.from_document(document)
    except (KeyError, TypeError, ValueError) as fault:
        raise DocumentError(f"this is not the document of a {scheme.name} model: {fault!r}"[:300]) from fault
    known = catalogue.load(compared.scheme).from_document(compared.document).domain
    domain = model.domain
    if (domain.target_name, domain.target is None) != (known.target_name, known.target is None):
        raise UsageError(
            f"the model forecasts {domain.target_name!r}, {compared.name!r} forecasts {known.target_name!r}: "
            "their scores cannot be compared"
        )
    return scheme.name, model
