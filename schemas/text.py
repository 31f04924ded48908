"""Text for people: characters that nobody sees are shown, and what is counted is named in singular or plural."""

from __future__ import annotations

import re

HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Controls (C0 without tab and line ends, DEL, C1), marks that set the direction of writing, lone surrogates.

A vehicle's text must not turn a line around or hide a part of itself.
"""


def show_hidden(text: str) -> str:
    r"""Return a text with its hidden characters as JSON writes them, so that JSON stays the same values.

    >>> print(show_hidden("gnp.\u202egpj"))
    gnp.\u202egpj
    """
    return HIDDEN.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def counted(number: float, many: str) -> str:
    """Return a number with the name of what was counted, which is given in the plural.

    >>> counted(1, "leaves"), counted(12000, "rows")
    ('1 leaf', '12,000 rows')
    """
    one = {"leaves": "leaf"}.get(many, many.removesuffix("s"))
    return f"{number:,} {one if number == 1 else many}"
