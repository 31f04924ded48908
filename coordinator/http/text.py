"""Characters that nobody sees: a vehicle's text must not turn a line around or hide a part of itself."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.responses import JSONResponse

from schemas.errors import UsageError

HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Controls (C0 without tab and line ends, DEL, C1), marks that set the direction of writing, lone surrogates."""


def show_hidden(text: str) -> str:
    r"""Return a text with its hidden characters as JSON writes them; of JSON the meaning stays.

    >>> print(show_hidden("gnp.\u202egpj"))
    gnp.\u202egpj
    """
    return HIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def check_characters(value: Any) -> None:
    r"""Raise UsageError for JSON with lone surrogates, ``"\ud800"``: no file and no message can hold them."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError(r"a text holds half a character (\ud800 to \udfff alone): send whole ones") from None


class ShownJson(JSONResponse):
    """JSON in which no character is hidden."""

    def render(self, content: Any) -> bytes:
        """Return the body."""
        return show_hidden(json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))).encode()
