"""Models that were learned centrally elsewhere: references for vehicles to compare the fleet's model with.

A reference to the model ``qoe`` is published as ``qoe.central``, so vehicles score it on their own test rows as they
score any model, and nobody forecasts with it in place of the fleet's. No run of the fleet stands behind it: its record
says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coordinator.journal.port import REFERENCES, StoredModel
from glassfleet.contract import catalogue
from glassfleet.data.domain import Domain
from schemas.codec import document_digest
from schemas.errors import DocumentError, GlassfleetError, NotFoundError, UsageError
from schemas.record import CENTRAL, ModelRecord
from schemas.topics import check_id

_SUFFIX = f".{CENTRAL}"


def is_reference(name: str) -> bool:
    """Whether a model of this name is one to compare with."""
    return name.endswith(_SUFFIX)


@dataclass(frozen=True)
class CentralModel:
    """A document that was read and found fit to be a reference.

    Attributes
    ----------
    name : str
        Of the reference.
    document : dict
        As the scheme writes it, whatever form it came in.
    digest : str
        Of the document.
    """

    name: str
    scheme: str
    document: dict[str, Any]
    digest: str

    @property
    def run(self) -> str:
        """What stands for its run in the registry: the same for the same document under the same name, and no other."""
        return REFERENCES + hashlib.sha256(f"{self.name}\0{self.digest}".encode()).hexdigest()[:16]


def reference_of(name: str) -> str:
    """Return the name of the reference that `name` is compared with."""
    return f"{name}{_SUFFIX}"


def check_not_reserved(run: str, model: str) -> None:
    """Raise UsageError when a run of the fleet would take an id or a model's name that references have."""
    if run.startswith(REFERENCES):
        raise UsageError(
            f"run {run!r}: ids that begin with {REFERENCES!r} stand for central references; choose another"
        )
    if is_reference(model):
        raise UsageError(f"model {model!r}: names that end in {_SUFFIX!r} are for central references; choose another")


def check_learned(model: StoredModel) -> None:
    """Raise UsageError when a registered model is a reference, which no vehicle uses and nobody moves by hand."""
    if model.run.startswith(REFERENCES):
        raise UsageError(
            f"{model.name!r} is a central reference: vehicles score it and never forecast with it, so there is nothing "
            "to promote, roll back or try; register a document again to compare with that one"
        )


def read_reference(document: Mapping[str, Any], compared: ModelRecord) -> CentralModel:
    """Read a document that shall be the reference of `compared`. Pure, and as slow as the document is long.

    Raises
    ------
    NotFoundError
        No such scheme.
    UsageError
        The document is malformed, or cannot be compared: it forecasts another column, or `compared` is a reference
        itself.
    DocumentError
        It is `compared` that cannot be read here.
    """
    if compared.is_reference:
        raise UsageError(f"{compared.name!r} is a reference itself: name the model that it is compared with")
    check_id("model", reference_of(compared.name))
    named = document.get("scheme")
    if not isinstance(named, str):
        raise UsageError("the document cannot be read: a model document names its scheme, as a text")
    scheme = catalogue.load(named)
    try:
        model = scheme.from_document(document)
        written = model.to_document()
    except DocumentError as fault:
        raise UsageError(f"the document cannot be read: {fault}") from fault
    except RecursionError as fault:
        raise UsageError("the document cannot be read: it is nested too deeply") from fault
    except (KeyError, TypeError, ValueError) as fault:
        what = f"this is not the document of a {scheme.name} model: {fault!r}"[:300]
        raise UsageError(f"the document cannot be read: {what}") from fault
    known, domain = _domain(compared), model.domain
    if (domain.target_name, domain.target is None) != (known.target_name, known.target is None):
        raise UsageError(
            f"the model forecasts {domain.target_name!r}, {compared.name!r} forecasts {known.target_name!r}: "
            "their scores cannot be compared"
        )
    return CentralModel(reference_of(compared.name), scheme.name, written, document_digest(written))


def _domain(compared: ModelRecord) -> Domain:
    """Return the domain of a model of the fleet; raises DocumentError, which blames nobody's upload."""
    try:
        return catalogue.load(compared.scheme).from_document(compared.document).domain
    except (DocumentError, NotFoundError, KeyError, TypeError, ValueError) as fault:
        detail = str(fault) if isinstance(fault, GlassfleetError) else repr(fault)
        raise DocumentError(
            f"the fleet's own model {compared.name!r} version {compared.version} cannot be read here, so nothing can "
            f"be compared with it: {detail[:300]}. Install what the coordinator needs for scheme {compared.scheme!r}"
        ) from fault
