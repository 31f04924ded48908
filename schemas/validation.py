"""What pydantic found, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas.limits import ID_PATTERN

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

NO_ID: Final = "not a valid id: use 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"


def text_of(error: ErrorDetails) -> str:
    """Return what is wrong, for whoever writes JSON and not Python."""
    text = error["msg"].removeprefix("Value error, ")
    if error["type"] == "string_pattern_mismatch" and ID_PATTERN in error["ctx"]["pattern"]:
        return NO_ID
    if error["type"] in ("tuple_type", "too_short", "too_long"):
        return text.replace("tuple", "list").replace("Tuple", "List")
    return text


def first_fault(fault: ValidationError) -> str:
    """Return the first fault of a document: ``place: text``, or the text alone where it concerns the whole."""
    error = fault.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in error["loc"])
    text = text_of(error)
    return f"{where}: {text}" if where else text
