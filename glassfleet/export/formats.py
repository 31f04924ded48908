"""All formats by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from glassfleet.contract import catalogue
from glassfleet.explain.summary import summary
from glassfleet.explain.views import Row
from glassfleet.export.c_header import to_c
from glassfleet.export.figures import Kind, main_picture, picture
from glassfleet.export.fml import from_fml, to_fml
from glassfleet.export.page import to_html, to_markdown
from glassfleet.export.python_file import to_python
from glassfleet.model.baseline import ReferenceRow
from glassfleet.model.forecasts import tell_forecasts
from glassfleet.model.protocol import Model
from glassfleet.model.tables import RuleTables
from schemas.documents import document_digest
from schemas.errors import DocumentError, UsageError, VerificationError
from schemas.record import ModelRecord


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes
    ----------
    suffix : str
        Of a file.
    what : str
        In one line.
    media_type : str
        Of HTTP.
    """

    suffix: str
    what: str
    media_type: str


FORMATS: Final[Mapping[str, Format]] = {
    "json": Format(".json", "document, digest and summary; reads back", "application/json"),
    "fml": Format(".xml", "IEEE 1855 Fuzzy Markup Language; reads back", "application/xml"),
    "markdown": Format(".md", "a page of text: rules, use of inputs, complexity", "text/markdown"),
    "html": Format(".html", "one page with pictures inside", "text/html"),
    "c": Format(".h", "a C99 header for small devices, without dependencies", "text/x-c"),
    "python": Format(".py", "one Python file without dependencies", "text/x-python"),
    "svg": Format(".svg", "a picture", "image/svg+xml"),
    "png": Format(".png", "a picture", "image/png"),
}


def export(
    model: Model,
    kind: str,
    *,
    title: str = "",
    prefix: str = "model",
    what: str | None = None,
    row: Row | None = None,
    reference: ReferenceRow | None = None,
    structure: int | None = None,
) -> bytes:
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
    what : str or None
        Which picture, see :data:`glassfleet.export.figures.PICTURES`; None: the one that shows the model best.
    row : mapping or sequence, or None
        For pictures of one row.
    reference : Reference or None
        What such a picture compares the row with.
    structure : int or None
        Of a population, which structure the picture of a tree shows, 1 being the fittest; None: that.

    Raises
    ------
    UsageError
        There is no such format, or it cannot hold the model.
    """
    if kind in ("svg", "png"):
        chosen = what or main_picture(model) or "tree"  # a network has none, which drawing says
        if structure is not None and chosen != "tree":
            raise UsageError("a structure is drawn as a tree; it does not go with other pictures")
        number = 1 if structure is None else structure
        image: Kind = "svg" if kind == "svg" else "png"
        return picture(model, chosen, image, row=row, reference=reference, title=title, structure=number)
    if what is not None or row is not None or structure is not None:
        raise UsageError(f"format {kind!r} is no picture; pictures, rows and structures go with svg and png")
    writers = {
        "fml": lambda: to_fml(model, title),
        "json": lambda: to_json(model),
        "markdown": lambda: to_markdown(model, title),
        "html": lambda: to_html(model, title),
        "c": lambda: to_c(model, prefix, title),
        "python": lambda: to_python(model, title),
    }
    if kind not in writers:
        raise UsageError(f"no format {kind!r}; there are: {', '.join(FORMATS)}")
    return writers[kind]().encode("utf-8")


def holding(model: Model) -> tuple[str, ...]:
    """Return the formats for elsewhere, other than pictures, that can hold a model."""
    try:
        tables = catalogue.tables_of(model)
    except UsageError:
        return ("html",)
    return ("c", "python", "html", "fml") if isinstance(tables, RuleTables) else ("c", "python", "html")


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
    """Read a model from the bytes of a record, a bare document, an export in JSON, or FML.

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
    if data.lstrip()[:1] == b"<":
        try:
            return None, from_fml(data.decode("utf-8"))
        except UnicodeDecodeError as fault:
            raise DocumentError(f"{name} is not UTF-8: {fault}") from fault
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict) or "cohort" in whole or not ({"document", "model"} & set(whole)):
        record = ModelRecord.load(data)  # which says what is wrong with a file that is no record
        return record, catalogue.model_of(record)
    document = whole.get("document", whole)
    if not isinstance(document, dict):
        raise DocumentError(f"{name}: `document` is not a JSON object")
    if "digest" in whole and document_digest(document) != whole["digest"]:
        raise VerificationError(f"{name}: the document is not that of its digest; it was changed")
    model = catalogue.load(str(document.get("scheme"))).from_document(document)
    tell_forecasts(model, whole)
    return None, model
