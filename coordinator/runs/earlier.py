"""What earlier private runs mean for the next one: what can be combined with its sums, and who is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from coordinator.engine import Start
from coordinator.engine.asking import REFUSED
from glassfleet.private.totals import Total

ENDED_RUNS = 2
"""So many private runs that a vehicle ended, by refusing what others answered, and later ones leave it out."""

CANNOT = f"{REFUSED}cannot-answer"
TOO_MANY = f"{REFUSED}too-many-runs"

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


def private_start(
    start: Start,
    champion: Mapping[str, Any] | None,
    formers: Iterable[Mapping[str, Any]],
    documents: Sequence[Mapping[str, Any]],
) -> Start:
    """Return the start of a private run, with what earlier ones mean for it.

    Parameters
    ----------
    champion, formers
        Documents of the model in use, and of earlier ones that the new one is compared with.
    documents : sequence of Mapping
        As above.
    """
    spec, false = start.spec, quarantined(documents, start.spec.readmit)
    return replace(
        start,
        spec=spec.model_copy(update={"without": tuple(sorted({*spec.without, *false}))}),
        false_answers=tuple(sorted(false)),
        champion=champion,
        formers=tuple(formers),
        earlier=earlier(documents),
    )


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


def least_allowing(document: Mapping[str, Any]) -> str:
    """Return the vehicle of a private run that joins the fewest more over its rows; empty: nobody said."""
    refuses = [agent for agent, each in document["agents"].items() if each["reason"] == TOO_MANY]
    left = document["runs_left"]
    return min(refuses) if refuses else min(left, key=lambda agent: (left[agent], agent), default="")


def spent_in(agent: str, document: Mapping[str, Any], past: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the private runs in which a vehicle answered over its rows of now: ``agent``, ``run`` and ``ended``.

    Parameters
    ----------
    agent : str
    document : Mapping
        Of the run that asks.
    past : sequence of Mapping
        Of private runs that have ended, the newest first. Those that asked nothing new are among what is returned,
        though the vehicle does not count them.
    """

    def eras(totals: Sequence[Mapping[str, Any]], *, answered: bool = True) -> list[str]:
        chosen = (
            each["founders"][place]
            for each in totals
            for place in (each["members"] if answered else range(len(each["founders"])))
        )
        return [era for name, era, *_ in chosen if name == agent]

    # Who refused has announced nothing: its rows are taken for those of its newest run.
    every = [document["totals"], *(each["totals"] for each in past)]
    era = next((found[0] for totals in every if (found := eras(totals, answered=False))), None)
    runs = (each for each in past if era in eras(each["totals"]))
    return [{"agent": agent, "run": each["run"], "ended": each["ended"]} for each in runs]


def _ended_by(document: Mapping[str, Any]) -> set[str]:
    """Return who said in a run that failed that it cannot answer; in a private one it says no more."""
    if document["outcome"] != "failed":
        return set()
    return {agent for agent, each in document["agents"].items() if each["reason"] == CANNOT}
