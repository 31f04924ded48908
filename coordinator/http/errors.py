"""What the HTTP API answers when a request cannot be meant: one shape, ``{"detail": "..."}``, that names the field.

FastAPI's own answer to a malformed request is a list of objects that tells of its types; a person wants the field, what
is wrong with it, and what to write.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any

from fastapi.routing import APIRoute
from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemas.errors import DataError, UsageError
from schemas.text import show_hidden

if TYPE_CHECKING:
    from fastapi import Request
    from fastapi.exceptions import RequestValidationError

    from glassfleet.data.domain import Domain


SHOWN = 60
"""Characters of a wrong value that are repeated."""

Whole = Annotated[int, Field(strict=True)]
"""A whole number of a JSON body; true, ``"3"`` and 3.5 are none."""


class Number(IntegerConvertor):
    """A whole number in an address, ``{version:int}``; Python reads no number of thousands of digits."""

    regex = "[0-9]{1,18}"


register_url_convertor("int", Number())


class Fault(BaseModel):
    """Every answer that is no success.

    Attributes
    ----------
    detail : str
        What is wrong, with the name of the field, and what to do.
    """

    detail: str


def in_words(request: Request, fault: RequestValidationError) -> tuple[int, str]:
    """Return status and text for the first fault of a request: field, what is wrong with it, what to write."""
    first: dict[str, Any] = dict(fault.errors()[0])
    place, *path = first["loc"] or ("",)
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "it cannot be read")
        return 400, f"the body is not JSON, from character {path[0] if path else 0} on: {reason}"
    return 422, _field_fault(request, str(place), path, first)


def _field_fault(request: Request, place: str, path: Sequence[Any], first: Mapping[str, Any]) -> str:
    kind, given = str(first["type"]), first.get("input")
    if not path:
        if kind == "missing" or given is None:
            return "the body is missing: send a JSON object, with the header Content-Type: application/json"
        return "the body must be a JSON object, sent with the header Content-Type: application/json"
    where = ".".join(str(part) for part in path)
    # What pydantic tells of a field that is not there is the whole body.
    known = _fields(request) if place == "body" and len(path) == 1 else ()
    if kind == "missing":
        return f"{where} is missing: {'the address takes it after ?' if place == 'query' else 'the body must have it'}"
    if kind == "extra_forbidden":
        near = get_close_matches(str(path[-1]), known, 1)
        meant = f"; did you mean {near[0]}?" if near else ""
        has = f" It has: {', '.join(known)}" if known else ""
        return f"{where} is not a field of this request{meant or '.' * bool(has)}{has}"
    text = plainer(str(first["msg"]))
    if kind == "value_error":
        return f"{where}: {text}"
    return f"{where}: {text[:1].lower()}{text[1:]}, got {shown(given)}"


_PLAINER = (
    ("Input should be", "must be"),
    ("a valid integer, unable to parse string as an integer", "a whole number"),
    ("a valid integer, got a number with a fractional part", "a whole number"),
    ("a valid integer", "a whole number"),
    ("a valid number", "a number"),
    ("a valid string", "a text"),
    ("a valid list", "a list"),
    ("a valid tuple", "a list"),
    ("a valid dictionary", "a JSON object"),
)


def plainer(text: str) -> str:
    """Return a message of pydantic for people who do not know it."""
    text = text.removeprefix("Value error, ")
    for was, now in _PLAINER:
        text = text.replace(was, now)
    return text


def shown(value: Any) -> str:
    """Return a value as JSON writes it, shortened."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = type(value).__name__
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _fields(request: Request) -> tuple[str, ...]:
    """Return the fields of the body that an address takes."""
    route = request.scope.get("route")
    field = route.body_field if isinstance(route, APIRoute) else None
    kind = getattr(getattr(field, "field_info", None), "annotation", None)
    return tuple(kind.model_fields) if isinstance(kind, type) and issubclass(kind, BaseModel) else ()


def checked_row(
    row: Mapping[str, Any] | Sequence[Any], domain: Domain, field: str = "row"
) -> dict[str, Any] | list[Any]:
    """Return what a model takes of a row that came as JSON.

    Parameters
    ----------
    row : mapping of column to value, or values in the order of the inputs
        Columns that are no inputs are ignored, whatever they hold.
    domain : Domain
        The model's; where it knows empty cells, null is one.
    field : str
        Where it stood.

    Raises
    ------
    DataError
        An input is neither a number nor a text; the text names it.
    """
    gaps = {variable.name for variable in domain.features if variable.may_be_empty}

    def cell(name: str, where: str, value: Any) -> float | str | None:
        return None if value is None and name in gaps else _checked(where, value)

    if not isinstance(row, Mapping):
        names = [*domain.names, *(f"value {number}" for number in range(len(domain.names) + 1, len(row) + 1))]
        return [cell(names[index], f"{field}[{index}] ({names[index]})", value) for index, value in enumerate(row)]
    return {name: cell(name, f"{field}.{name}", row[name]) for name in domain.names if name in row}


def _checked(where: str, value: Any) -> float | str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DataError(f"{where} must be a number (or a category's text), got {shown(value)}")
    try:
        return value if isinstance(value, str) else float(value)
    except OverflowError:
        raise DataError(f"{where} is too large for a number of 64 bits, got {shown(value)}") from None


def refuse_booleans(value: Any, where: str) -> None:
    """Raise UsageError where true or false stands and only numbers and texts can be meant.

    Parameters
    ----------
    value : any
        JSON.
    where : str
        Its field, for the text.
    """
    if isinstance(value, bool):
        raise UsageError(f"{where}: {shown(value)} is no number: write one")
    if isinstance(value, Mapping):
        for name, part in value.items():
            refuse_booleans(part, f"{where}.{name}")
    elif isinstance(value, list):
        for index, part in enumerate(value):
            refuse_booleans(part, f"{where}.{index}")


class Heads:
    """ASGI middleware: an address that answers GET answers HEAD, with the same headers and no body.

    Probes and load balancers ask so. Streams of events are left out: they have no end to count.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD" or scope["path"].startswith("/events/"):
            await self._app(scope, receive, send)
            return

        async def headers_only(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, headers_only)


# --- JSON as it comes and goes: no text that cannot be written down, none that is shown otherwise than it is ----------


def check_characters(body: bytes) -> None:
    r"""Raise HTTPException for a body that is not UTF-8, and for JSON with lone surrogates, ``"\ud800"``.

    No file and no message can hold them. Python reads JSON in UTF-16 and UTF-32 as well, and surrogates in UTF-8.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise HTTPException(400, "the body is not a text in UTF-8") from None
    if "\0" in text:
        raise HTTPException(400, "the body is not a text in UTF-8: it has zeros")
    if "\\u" in text:
        # What is not JSON that can be read is told where it is read.
        with contextlib.suppress(ValueError, RecursionError):
            text = json.dumps(json.loads(text), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        detail = r"a text holds half a character (\ud800 to \udfff alone): send whole ones"
        raise HTTPException(400, detail) from None


class ShownJson(JSONResponse):
    """JSON in which no character is hidden."""

    def render(self, content: Any) -> bytes:
        """Return the body; what is not finite is null."""
        try:
            text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            text = to_json(content, inf_nan_mode="null").decode()
        return show_hidden(text).encode()
