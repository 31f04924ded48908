"""Text for people: hidden characters shown, counted things in singular or plural, typed numbers, docstrings' words."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, get_args

from schemas.limits import ID_PATTERN

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails


HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Controls (C0 without tab and line ends, DEL, C1), marks that set the direction of writing, lone surrogates.

A vehicle's text must not turn a line around or hide a part of itself.
"""


_PASSWORD = re.compile(r"^([a-z0-9+.-]+://[^:/@?#]*):([^@/]*)@", re.IGNORECASE)
_QUERY_PASSWORD = re.compile(r"([?&]password=)([^&]*)", re.IGNORECASE)


def show_hidden(text: str) -> str:
    r"""Return a text with its hidden characters as JSON writes them, so that JSON stays the same values.

    >>> print(show_hidden("gnp.\u202egpj"))
    gnp.\u202egpj
    """
    return HIDDEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def printable(text: str) -> str:
    """Return a text without what would move the cursor or change colours."""
    return "".join(sign if sign.isprintable() else " " for sign in text)


def escaped(text: str) -> str:
    """Return a text with what would move the cursor or change colours as Python writes it."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def without_password(url: str) -> str:
    """Return a URL with *** for its password, to show and to log; another text as it is.

    >>> without_password("postgresql://car:secret@127.0.0.1/drives?table=rows")
    'postgresql://car:***@127.0.0.1/drives?table=rows'
    """
    return _QUERY_PASSWORD.sub(r"\1***", _PASSWORD.sub(r"\1:***@", url))


def counted(number: float, many: str) -> str:
    """Return a number with the name of what was counted, which is given in the plural: the first word that ends in s.

    >>> counted(1, "leaves"), counted(12000, "rows"), counted(1, "lines of names between rows")
    ('1 leaf', '12,000 rows', '1 line of names between rows')
    """
    one = {"leaves": "leaf"}.get(many, re.sub(r"s\b", "", many, count=1))
    return f"{number:,} {one if number == 1 else many}"


def number_of(text: str) -> int | float:
    """Return a number that somebody typed: a count, or a share as ``0.5`` or ``50 %``; raises ValueError.

    >>> number_of("3"), number_of("1.0"), number_of("50 %")
    (3, 1.0, 0.5)
    """
    stripped = text.strip()
    if stripped.endswith("%"):
        number: int | float = float(stripped[:-1]) / 100
    else:
        number = float(stripped) if any(sign in stripped for sign in ".eE") else int(stripped)
    if not math.isfinite(number):
        raise ValueError(f"{stripped[:40]} is too large")
    return number


def attributes(owner: type[Any]) -> dict[str, str]:
    """Return what the ``Attributes`` section of a class's docstring says, by name."""
    return described_attributes(inspect.getdoc(owner) or "")


def described_attributes(text: str) -> dict[str, str]:
    """Return what the ``Attributes`` section of a numpydoc text says, by name."""
    _, _, section = text.partition("Attributes\n----------\n")
    described: dict[str, str] = {}
    names: list[str] = []
    for line in section.splitlines():
        heading = re.match(r"^([a-z_0-9, ]+) : ", line)
        if heading:
            names = [name.strip() for name in heading.group(1).split(",")]
        elif line.startswith(" "):
            for name in names:
                described[name] = f"{described.get(name, '')} {line.strip()}".strip()
    return described


NO_ID: Final = "not a valid id: use 1 to 64 letters, digits, '.', '_' or '-', a letter or digit first"


_PLAIN: Final = {"missing": "it is missing", "dict_type": "give keys and values", "model_type": "give keys and values"}


def text_of(error: ErrorDetails) -> str:
    """Return what is wrong, for whoever writes JSON and not Python."""
    text = _PLAIN.get(error["type"], error["msg"].removeprefix("Value error, "))
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
