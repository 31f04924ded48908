"""Marks that loggers and spreadsheets write where there is no value."""

from __future__ import annotations

from typing import Final


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


MARKS: Final = words(
    "na n/a n.a. n.a nan null none nil nodata no-data nd n.d. n.d #n/a #na #value! #ref! #div/0! #name? #num! "
    "#null! err error #err #error invalid inval inv unavailable unavail notavailable not-available sna undef "
    "undefined missing unknown unk void blank empty k.a. k.a fehler ungültig 1.#qnan 1.#inf -1.#ind 1.#ind inf "
    "-inf +inf infinity -infinity overflow ovf ovl timeout ? ?? ??? . .. ... * ** *** x xx xxx xxxx"
) | {"no data", "not available", "not a number", "no value", "no signal", "out of range", "bad input", "i/o timeout"}
"""Words, in lower case, that stand for no value in a column of numbers."""

NO_WORDS: Final = words("x xx xxx xxxx unknown unk inv error err timeout overflow empty blank")
"""Those of them that are words like any other in a column of words."""


def is_mark(cell: str, *, among_words: bool = False) -> bool:
    """Whether a cell stands for no value: empty, a known word, or nothing but dashes, dots, stars or question marks.

    >>> is_mark("---"), is_mark("NoData"), is_mark("0"), is_mark("error", among_words=True)
    (True, True, False, False)
    """
    text = cell.strip().lower()
    if not text or not text.strip("-–—_"):
        return True
    inner = text.strip("<>[]()\"'")
    known = text in MARKS or inner in MARKS
    return known and not (among_words and inner in NO_WORDS)
