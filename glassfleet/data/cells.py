"""Cells as people have them: yes and no where numbers are asked for, and cells without a value."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any, Final

PAIRS: Final = (
    ("true", "false"), ("yes", "no"), ("y", "n"), ("on", "off"), ("t", "f"), ("ja", "nein"), ("wahr", "falsch"),
    ("sim", "não"), ("sí", "no"), ("si", "no"), ("oui", "non"), ("vrai", "faux"),
)  # fmt: skip
"""Words for true and false, in lower case."""

NOTHING: Final = frozenset({"", "na", "n/a", "null", "none", "-", "?", "."})
"""Cells, in lower case, that stand for a missing value."""

MISSING: Final = "missing"
"""The category of an empty cell of a column of text."""


def truth_of(texts: Iterable[str]) -> dict[str, float] | None:
    """Return 1 or 0 for each of a column's texts; None where they are not the words of one pair of :data:`PAIRS`.

    >>> truth_of(["Yes", "no", "yes"])
    {'Yes': 1.0, 'no': 0.0, 'yes': 1.0}
    >>> truth_of(["yes", "maybe"]) is None
    True
    """
    different = dict.fromkeys(texts)
    for true, false in PAIRS:
        if different and all(text.strip().lower() in (true, false) for text in different):
            return {text: float(text.strip().lower() == true) for text in different}
    return None


_NUMBER: Final = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?")


def label_of(value: Any) -> str:
    """Return a class label: equal numbers are equal classes, however they are written; all else stays as it is.

    >>> label_of("1.0"), label_of(1), label_of(" stop "), label_of("007"), label_of("1E5")
    ('1', '1', 'stop', '007', '1E5')
    """
    text = str(value).strip()
    if not _NUMBER.fullmatch(text):
        return text
    whole, _, part = text.partition(".")
    part = part.rstrip("0")
    number = f"{whole.removeprefix('+')}.{part}" if part else whole.removeprefix("+")
    return "0" if number == "-0" else number


def as_number(value: Any) -> float:
    """Return a number, also of one that is written as text, or of a word for yes or no; raises ValueError, TypeError.

    >>> as_number("2.5"), as_number("Yes"), as_number(False)
    (2.5, 1.0, 0.0)
    """
    truth = truth_of([value]) if isinstance(value, str) else None
    return float(value) if truth is None else truth[value]


def is_empty(value: Any) -> bool:
    """Whether a cell has no value: None, NaN, or a text that stands for none.

    >>> [is_empty(value) for value in (None, math.nan, " ", "N/A", 0, "no")]
    [True, True, True, True, False, False]
    """
    if isinstance(value, str):
        return value.strip().lower() in NOTHING or value.strip().lower() == "nan"
    return value is None or (isinstance(value, float) and math.isnan(value))
