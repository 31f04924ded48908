"""Characters that nobody sees: a vehicle's text must not turn a line around or hide a part of itself."""

from __future__ import annotations

import re

HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Controls (C0 without tab and line ends, DEL, C1), marks that set the direction of writing, lone surrogates."""


def show_hidden(text: str) -> str:
    r"""Return a text with its hidden characters as JSON writes them, so that JSON stays the same values.

    >>> print(show_hidden("gnp.\u202egpj"))
    gnp.\u202egpj
    """
    return HIDDEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text)
