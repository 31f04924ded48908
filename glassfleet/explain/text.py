"""Numbers and names as people read them."""

from __future__ import annotations

import math
import re

_LONG = re.compile(r"(?<![\w.])\d(?:\.\d+)?e\+0[0-6](?!\w)")
_NEGATIVE = re.compile(r"(?<![\w.)\]-])-(?=\.?\d)")


def number(value: float | str | None, digits: int = 4) -> str:
    """Return a number as people read it; texts as they are.

    >>> number(1234567.0), number(165795.6), number(0.00012345), number(None)
    ('1.235e+06', '165796', '0.0001234', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u202f")
    if not math.isfinite(value):
        return str(value)
    short, whole = f"{value:.{digits}g}", f"{value:.6g}"
    text = whole if "e" in short and "e" not in whole else short  # as rules write it
    return text.replace("-", "−", 1) if value < 0 else text


def signed(value: float) -> str:
    """Return a number with its sign, to one decimal.

    >>> signed(1.25), signed(-0.04), signed(-3.0)
    ('+1.2', '0.0', '−3.0')
    """
    text = f"{value:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def minus(text: str, value: float) -> str:
    """Return the text of a value with the sign that `number` writes; a category's text as it is.

    >>> minus("-0.9375 dB", -0.9375), minus("-1 to 0", 3.0)
    ('−0.9375 dB', '-1 to 0')
    """
    return text.replace("-", "−", 1) if value < 0 and text.startswith("-") else text


def signs(text: str) -> str:
    """Return a sentence with the sign that `number` writes before its negative numbers; names and dates as they are.

    >>> signs("error -3.1% over vehicle-02, 2026-03-01 to 1e-05 (-.5)")
    'error −3.1% over vehicle-02, 2026-03-01 to 1e-05 (−.5)'
    """
    return _NEGATIVE.sub("−", text)


def size(count: float) -> str:
    """Return a number of bytes as people read it.

    >>> size(900), size(25_000)
    ('900 B', '24.4 KiB')
    """
    amount = float(count)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def cut(text: str, most: int) -> str:
    """Return `text`, shortened with an ellipsis to `most` characters."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def cut_middle(text: str, most: int) -> str:
    """Return a name, shortened to `most` characters in its middle: names of inputs differ at both ends.

    >>> cut_middle("throughput_last_mbps", 11)
    'throu…_mbps'
    """
    head = most // 2
    return text if len(text) <= most else f"{text[:head]}…{text[head + 1 - most :]}"


def plain(text: str) -> str:
    """Return a text with its numbers below ten millions written out.

    >>> plain("above 8.138e+04 m"), plain("-1.5e+06"), plain("1.5e+07")
    ('above 81380 m', '-1500000', '1.5e+07')
    """
    return _LONG.sub(lambda match: f"{float(match[0]):.0f}", text)
