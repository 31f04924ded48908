"""JSON as it comes and goes: no text that cannot be written down, none that is shown otherwise than it is."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from pydantic_core import to_json
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from schemas.text import show_hidden


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
