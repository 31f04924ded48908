"""What the documents of all models share: ``{scheme, format, parameters, domain, model}``, read without trust."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, ValidationError, model_serializer

from glassfleet.data.domain import Domain
from schemas.errors import DocumentError, UsageError
from schemas.text import attributes, number_of, text_of

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


# --- parameters as people give them: which there are, how their texts are read, and what is wrong with them, in words -


@dataclass(frozen=True)
class Parameter:
    """One parameter of a scheme, or of another model, that a text can give.

    Attributes
    ----------
    name : str
    about : str
        What it is, as the docstring says; what stands between backticks is code.
    kind : str
        ``flag``, ``choice``, ``number``, ``share`` (``1`` is a number, ``1.0`` all), ``list`` or ``text``.
    values : str
        What it may be, in words: ``1 to 256``; empty: the kind says all.
    choices : tuple
        Of a choice.
    is_optional : bool
        Whether it may be left empty.
    default : str
        As a text.
    """

    name: str
    about: str
    kind: str
    values: str
    choices: tuple[Any, ...]
    is_optional: bool
    default: str

    def read(self, text: str, label: str) -> Any:
        """Return what a text gives; the model checks its range. Raises UsageError, which begins with `label`."""
        stripped = text.strip()
        if self.kind == "flag":
            return bool(stripped)
        if self.kind == "list":
            return [_item(part.strip()) for part in stripped.split(",") if part.strip()]
        if not stripped and self.is_optional:
            return None
        if self.kind == "choice":  # what is none of them the model refuses
            return next((each for each in self.choices if str(each) == stripped), stripped)
        try:
            return stripped if self.kind == "text" else number_of(stripped)
        except ValueError:
            wrong = f"must be a number, got {stripped[:40]!r}" if stripped else "is empty: write a number"
            raise UsageError(f"{label}: {wrong}") from None

    def write(self, value: Any) -> str:
        """Return a value as the text that gives it.

        >>> each = Parameter("x", "", "number", "", (), is_optional=True, default="")
        >>> each.write((5, 7)), each.write(0.25), each.write(30.0), each.write(None)
        ('5, 7', '0.25', '30', '')
        """
        if isinstance(value, bool):
            return "yes" if value else ""
        if isinstance(value, list | tuple):
            return ", ".join(map(self.write, value))
        if isinstance(value, float) and self.kind != "share":
            return str(value).removesuffix(".0")
        return "" if value is None else str(value)


def _item(text: str) -> Any:
    try:
        return number_of(text)
    except ValueError:
        return text


@cache
def parameters_of(model: type[BaseModel]) -> tuple[Parameter, ...]:
    """Return the parameters of a scheme's ``Parameters``, or of another model, in order; without what holds others."""
    about = attributes(model)
    parameters = []
    for name, schema in model.model_json_schema()["properties"].items():
        kinds = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
        first = kinds[0]
        choices = tuple(first.get("enum", (first["const"],) if "const" in first else ()))
        kind = "choice" if choices else "share" if len(kinds) > 1 else _KINDS.get(first.get("type", ""))
        if kind is None:
            continue
        values = ", ".join(map(str, choices)) or _range(first.get("items", first))
        is_optional = len(kinds) < len(schema.get("anyOf", kinds))
        made = Parameter(name, _plain(about.get(name, "")), kind, values, choices, is_optional, default="")
        parameters.append(replace(made, default=made.write(schema.get("default"))))
    return tuple(parameters)


_KINDS: Mapping[str, str] = {
    "boolean": "flag", "integer": "number", "number": "number", "array": "list", "string": "text",
}  # fmt: skip
_PLAINER = (
    (re.compile(r" ?\(:\w+:`[^`]*`\)"), ""),
    (re.compile(r":\w+:(`[^`]*`)"), r"\1"),
    (re.compile(r'``"?([^`"]*)"?``'), r"`\1`"),
    (re.compile(r"(?<=[.] )None:"), "Empty:"),
    (re.compile(r"None:"), "empty:"),
    (re.compile(r"False:"), "Not ticked:"),
    (re.compile(r"\*\*"), ""),
)
"""A docstring's words for who reads code, and those for who fills in a form."""


def _plain(text: str) -> str:
    for was, now in _PLAINER:
        text = was.sub(now, text)
    return text


def _range(kind: Mapping[str, Any]) -> str:
    """Return the values that a number may have."""
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}
    texts = {
        name: f"{int(kind[name]) if kind[name] == int(kind[name]) else kind[name]:,}" for name in words if name in kind
    }
    if texts.keys() == {"minimum", "maximum"}:
        return f"{texts['minimum']} to {texts['maximum']}"
    return ", ".join(f"{words[name]} {number}" for name, number in texts.items())


def parameter_fault(scheme: str, parameters: type[BaseModel], fault: ValidationError, before: str = "") -> str:
    """Return the first fault of parameters in words.

    Parameters
    ----------
    scheme : str
        Its name.
    parameters : type of pydantic.BaseModel
        The scheme's ``Parameters``.
    fault : pydantic.ValidationError
        Of these.
    before : str
        Stands before the name of a parameter that has a wrong value.

    Returns
    -------
    str
        For a name that the scheme does not have: the nearest one, and all it has.
    """
    first = fault.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "together"
    if first["type"] != "extra_forbidden" or len(first["loc"]) != 1:
        return f"{before}{where}: {text_of(first)}"
    known = list(parameters.model_fields)
    near = difflib.get_close_matches(where, known, 1)
    meant = f"; did you mean {near[0]}?" if near else "."
    return f"no parameter {where!r} in scheme {scheme}{meant} It has: {', '.join(known) or 'none'}"
