"""What pydantic found, in words."""

from __future__ import annotations

from typing import Final

from pydantic import ValidationError

from schemas.limits import ID_PATTERN

NO_ID: Final = "not a valid id: use 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"


def first_fault(fault: ValidationError) -> str:
    """Return the first fault of a document: ``place: text``, or the text alone where it concerns the whole."""
    error = fault.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in error["loc"])
    text = error["msg"].removeprefix("Value error, ")
    if error["type"] == "string_pattern_mismatch" and ID_PATTERN in error["ctx"]["pattern"]:
        text = NO_ID
    return f"{where}: {text}" if where else text
