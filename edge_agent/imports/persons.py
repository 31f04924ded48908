"""Texts that tell who or what a vehicle is: names are not numbers, and a published model would tell them to all."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from edge_agent.imports.marks import words
from edge_agent.imports.times import words_of

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
