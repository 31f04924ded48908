"""What pydantic found, in words."""

from __future__ import annotations

from pydantic import ValidationError


def first_fault(fault: ValidationError) -> str:
    """Return the first fault of a document: ``place: text``, or the text alone where it concerns the whole."""
    error = fault.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in error["loc"])
    text = error["msg"].removeprefix("Value error, ")
    return f"{where}: {text}" if where else text
