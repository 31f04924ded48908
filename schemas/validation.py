"""What pydantic found, in words."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, get_args

from schemas.limits import ID_PATTERN

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
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


def first_fault(fault: ValidationError, model: type[BaseModel] | None = None) -> str:
    """Return the first fault of a document: ``place: text``, or the text alone where it concerns the whole.

    With the `model` that the document was to be, a key that it does not have is told with the nearest that it has.
    """
    error = fault.errors(include_url=False, include_input=False)[0]
    *path, name = error["loc"] or ("",)
    where = ".".join(str(part) for part in error["loc"])
    text = text_of(error)
    if error["type"] == "extra_forbidden" and model is not None:
        known = list(_keys(model, path))
        near = get_close_matches(str(name), known, 1)
        text = f"there is no such key; did you mean {near[0]}?" if near else f"no such key. Known: {', '.join(known)}"
    return f"{where}: {text}" if where else text


def _keys(annotation: Any, path: list[Any]) -> Iterator[str]:
    """Yield the keys that the document has at `path`."""
    fields = getattr(annotation, "model_fields", None)
    if fields is None:
        for part in get_args(annotation):
            yield from _keys(part, path)
    elif not path:
        yield from fields
    elif path[0] in fields:
        yield from _keys(fields[path[0]].annotation, path[1:])
