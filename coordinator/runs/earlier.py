"""What earlier private runs mean for the next one: what can be combined with its sums, and who is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from coordinator.engine.asking import REFUSED
from glassfleet.private.totals import Total

ENDED_RUNS = 2
"""So many private runs that a vehicle ended, by refusing what others answered, and later ones leave it out."""

CANNOT = f"{REFUSED}cannot-answer"

MOST_TOTALS = 4096
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


def quarantined(documents: Sequence[Mapping[str, Any]], readmit: Iterable[str]) -> frozenset[str]:
    """Return the vehicles that gave false answers, or ended runs by refusing, and were not readmitted since.

    Parameters
    ----------
    documents : sequence of Mapping
        As above.
    readmit : iterable of str
        Who is readmitted by the run to come.
    """
    out: set[str] = set()
    ended: Counter[str] = Counter()
    readmitted = set(readmit)
    for document in documents:
        out |= set(document["false_answers"]) - readmitted
        ended.update(_ended_by(document) - readmitted)
        readmitted |= set(document["spec"].get("readmit", ()))
    return frozenset(out | {agent for agent, times in ended.items() if times >= ENDED_RUNS})


def _ended_by(document: Mapping[str, Any]) -> set[str]:
    """Return who said in a run that failed that it cannot answer; in a private one it says no more."""
    if document["outcome"] != "failed":
        return set()
    return {agent for agent, each in document["agents"].items() if each["reason"] == CANNOT}
