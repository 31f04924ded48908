"""Words with a meaning: marks and numbers where there is no value, texts that tell who or what a vehicle is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


def words_of(name: str) -> list[str]:
    """Return the words of a column's name, in lower case."""
    return [part.lower() for part in re.split(r"[\W_]+|(?<=[a-z])(?=[A-Z])", name) if part]


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


FAR: Final = 2.0
"""So many times the range of all the others a value is away from them when it hardly is one."""

SENTINELS: Final = frozenset(
    {float(1 << bits) for bits in (8, 10, 12, 15, 16, 24, 31, 32, 63, 64)}
    | {999.0, 9999.0, 99999.0, 999999.0, 99.0, 65534.0}
)
"""Numbers that say "no value" on many buses, or that are one above such a number."""


def is_sentinel(value: float, nearest: float | None, other: float, count: int, rows: int) -> bool:
    """Whether a column's greatest or least value is hardly one: far from all the others, repeated, and round in bits.

    Parameters
    ----------
    value : float
        The greatest or the least one.
    nearest : float or None
        The one next to it.
    other : float
        The one at the other end.
    count : int
        Rows with `value`.
    rows : int
    """
    if nearest is None or nearest == other or count > 0.5 * rows:
        return False
    is_known = abs(value) in SENTINELS or abs(value) + 1 in SENTINELS
    return (
        abs(value - nearest) > FAR * abs(nearest - other)
        and abs(value) > abs(nearest)
        and count >= (1 if is_known else 2)
    )


_NAMES: Final = words(
    "driver drivers name names firstname lastname surname vin fin plate plates licence license registration "
    "kennzeichen fahrer fahrername person user username owner halter customer kunde address addr street strasse "
    "straße email mail phone telefon tel mobile imei imsi iccid msisdn mac serial sn uuid guid passenger "
    "operator"
)
_FORMS: Final = (
    (re.compile(r"[A-HJ-NPR-Z0-9]{17}$"), "vehicle identification numbers"),
    (re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}$"), "e-mail addresses"),
    (re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}$"), "ids"),
    (re.compile(r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}$"), "addresses of devices"),
    (re.compile(r"[A-ZÄÖÜ]{1,3}[- ][A-Z]{1,2}[- ]?\d{1,4}[EH]?$"), "number plates"),
    (re.compile(r"\+\d[\d ()/-]{6,}$"), "telephone numbers"),
    (re.compile(r"(?:\d{1,3}\.){3}\d{1,3}$"), "addresses of devices"),
    (
        re.compile(r"[A-ZÄÖÜ][a-zäöüßéèáó]+(?: [A-Z]\.)?[ ,]+[A-ZÄÖÜ][a-zäöüßéèáó]+(?:-[A-Z][a-z]+)?$"),
        "names of persons",
    ),
)


def personal(name: str, texts: Sequence[str]) -> str:
    """Return why a column of text looks like persons, plates or ids; empty: it does not.

    Parameters
    ----------
    name : str
        Of the column.
    texts : sequence of str
        Its different cells, some at least.

    >>> personal("gear", ["P", "R"]), personal("driver", ["A", "B"]), personal("who", ["Ada Lovelace", "Al Gore"])
    ('', "its name says 'driver'", 'they look like names of persons')
    """
    word = next((word for word in words_of(name) if word in _NAMES), "")
    if word:
        return f"its name says {word!r}"
    for form, what in _FORMS:
        if texts and 2 * sum(bool(form.match(text)) for text in texts) > len(texts):
            return f"they look like {what}"
    return ""
