"""What earlier private runs mean for the next one: whose sums it must keep its distance from, and who is left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from coordinator.engine import Former

FORMER_RUNS = 16
"""So many earlier runs are looked at when vehicles are paired. A vehicle joins four over the same rows, unless its
owner allows more."""


def former(documents: Iterable[Mapping[str, Any]]) -> tuple[Former, ...]:
    """Return the newest runs in which vehicles were added up.

    Parameters
    ----------
    documents : iterable of Mapping
        Of private runs that have ended, the newest first.
    """
    runs = [
        Former(document["spec"]["nonce"], tuple(frozenset(members) for members in document["editions"]))
        for document in documents
        if document.get("editions")
    ]
    return tuple(runs[:FORMER_RUNS])


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
