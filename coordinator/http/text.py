"""JSON as it comes and goes: no text that cannot be written down, none that is shown otherwise than it is."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import to_json
from starlette.responses import JSONResponse

from schemas.errors import UsageError
from schemas.text import show_hidden


def check_characters(value: Any) -> None:
    r"""Raise UsageError for JSON with lone surrogates, ``"\ud800"``: no file and no message can hold them."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise UsageError(r"a text holds half a character (\ud800 to \udfff alone): send whole ones") from None


class ShownJson(JSONResponse):
    """JSON in which no character is hidden."""

    def render(self, content: Any) -> bytes:
        """Return the body; what is not finite is null."""
        try:
            text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        except ValueError:
            text = to_json(content, inf_nan_mode="null").decode()
        return show_hidden(text).encode()
