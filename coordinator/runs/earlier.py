"""What earlier private runs mean for the next one: what can be combined with its sums, and who is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from glassfleet.private.totals import Total

MOST_TOTALS = 1024
"""So many different sums of earlier runs are looked at when vehicles are paired, the newest first."""


def earlier(documents: Iterable[Mapping[str, Any]]) -> tuple[Total, ...]:
    """Return over whom the newest runs summed.

    Parameters
    ----------
    documents : iterable of Mapping
        Of private runs that have ended, the newest first.
    """
    totals = (Total.from_value(value) for document in documents for value in document["totals"])
    return tuple(islice(dict.fromkeys(totals), MOST_TOTALS))


def quarantined(documents: Iterable[Mapping[str, Any]], readmit: Iterable[str]) -> frozenset[str]:
    """Return the vehicles that gave false answers and were not readmitted since.

    Parameters
    ----------
    documents : iterable of Mapping
        As above.
    readmit : iterable of str
        Who is readmitted by the run to come.
    """
    out: set[str] = set()
    readmitted = set(readmit)
    for document in documents:
        out |= set(document.get("false_answers", ())) - readmitted
        readmitted |= set(document["spec"].get("readmit", ()))
    return frozenset(out)
