"""What the documents of all models share: ``{scheme, format, parameters, domain, model}``, read without trust."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from glassfleet.data.domain import Domain
from schemas.errors import DocumentError
from schemas.text import text_of

MEMBERS = frozenset({"scheme", "format", "parameters", "domain", "model"})
"""What a model document has, and nothing else."""

P = TypeVar("P", bound=BaseModel)


class Strict(BaseModel):
    """What a document holds: nothing unknown, nothing infinite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RunParameters(Strict):
    """What a run can be told. A scheme names the options that it lacked at first: runs without them keep digests."""

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _published(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out the options of :attr:`later` where they have their defaults."""
        values: dict[str, Any] = write(self)
        for name in self.later:
            if getattr(self, name) == type(self).model_fields[name].default:
                values.pop(name, None)
        return values


def document_of(scheme: str, number: int, parameters: BaseModel, domain: Domain, model: Any) -> dict[str, Any]:
    """Return the document of a model in format `number`; `model` are the scheme's own JSON values."""
    return {
        "scheme": scheme,
        "format": number,
        "parameters": parameters.model_dump(mode="json"),
        "domain": domain.to_document(),
        "model": model,
    }


@contextmanager
def document_errors() -> Iterator[None]:
    """Turn what malformed values raise into a :class:`DocumentError` that names the place, or the reason."""
    try:
        yield
    except ValidationError as fault:
        first = fault.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DocumentError(f"{fault.title.strip('_')} {where}: {text_of(first)}") from fault
    except (ValueError, OverflowError, TypeError) as fault:
        raise DocumentError(str(fault)) from fault


def read_document_head(document: Any, scheme: str, number: int, Parameters: type[P]) -> tuple[P, Domain, Any]:
    """Read what every document has; return parameters, domain, and ``model`` as it is.

    Raises
    ------
    DocumentError
        Anything is missing, unknown or of another scheme or format.
    """
    if not isinstance(document, Mapping):
        raise DocumentError("a model document is a JSON object")
    if set(document) != MEMBERS:
        raise DocumentError(f"a model document has exactly the members {sorted(MEMBERS)}")
    named, written = document["scheme"], document["format"]
    # What is neither text nor number is not shown: to write down what is nested deeply fails, too.
    if not isinstance(named, str) or named != scheme:
        shown = repr(named) if isinstance(named, str) else "that is no text"
        raise DocumentError(f"this is a document of scheme {shown}, not {scheme!r}")
    # JSON does not tell 1 from 1.0.
    if isinstance(written, bool) or not isinstance(written, int | float) or written != number:
        shown = f" {written!r}" if isinstance(written, int | float | str) else ""
        raise DocumentError(f"the format{shown} is not known; this version reads format {number}")
    with document_errors():
        return (
            Parameters.model_validate(document["parameters"]),
            Domain.model_validate(document["domain"]),
            document["model"],
        )
