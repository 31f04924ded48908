"""The fleet's page sorted and filtered, and what is known of one vehicle. Reads the coordinator, changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from coordinator.core import Coordinator
from coordinator.duty import Look
from coordinator.fleet.directory import KnownAgent
from coordinator.http.dashboard.comparison import VERSIONS
from coordinator.http.dashboard.show import ListPage, named
from coordinator.runs.attendance import reason_words
from glassfleet.evaluation.paired import relative
from schemas.rounds import missed

RUNS_PER_PAGE = 10


def counts(look: Look) -> dict[str, Any]:
    """Return how many vehicles are up, down and in need, and how many of those that are up run which software."""
    up = [each.software or "unknown" for each in look.known.values() if each.status == "up"]
    return {
        "up": len(up),
        "down": len(look.known) - len(up),
        "needs": len(look.causes),
        "software": Counter(up).most_common(6),
    }


def chosen(look: Look, *, text: str = "", status: str = "", sort: str = "needs") -> list[str]:
    """Return the vehicles whose id or software holds `text`, sorted.

    Parameters
    ----------
    status : str
        ``up``, ``down``, ``needs`` (those that need somebody); empty: all.
    sort : str
        One of `SORTS`; anything else as ``needs``.
    """
    wanted, key = text.lower(), SORTS.get(sort, SORTS["needs"])
    fitting = [
        agent
        for agent, each in look.known.items()
        if wanted in f"{agent} {each.software}".lower()
        and (status in ("", each.status) or (status == "needs" and agent in look.causes))
    ]
    return sorted(fitting, key=lambda agent: key(look, agent))


def _by_down(look: Look, agent: str) -> tuple[Any, ...]:
    known = look.known[agent]
    return known.status == "up", known.since, agent


def _by_rows(look: Look, agent: str) -> tuple[Any, ...]:
    rows = look.rows.get(agent)
    return rows is None, rows or 0, agent


def _by_worse(look: Look, agent: str) -> tuple[Any, ...]:
    worse = look.worse(agent)
    return worse is None, -(worse or 0.0), agent


SORTS: Final[Mapping[str, Callable[[Look, str], Any]]] = {
    "needs": Look.urgency,
    "id": lambda _, agent: agent,
    "down": _by_down,
    "rows": _by_rows,
    "worse": _by_worse,
}
"""How the fleet's page can be sorted: what is asked for most stands first."""


class Scored(NamedTuple):
    """What a vehicle measured with one version of a model.

    `worse` is how much worse it is than what the vehicle learns alone, `than_before` than the version that was
    in use when it came (None: it was the first).
    """

    version: int
    alone: float
    together: float
    rows: int
    worse: float
    than_before: float | None


def scored(known: KnownAgent) -> dict[tuple[str, str], list[Scored]]:
    """Return what a vehicle measured, by model and metric: its newest versions, oldest first."""
    by_model: dict[tuple[str, str], list[Scored]] = {}
    for (name, version), each in sorted(known.evaluations.items()):
        metric, together = each["metric"], each["federated"]
        lines = by_model.setdefault((name, metric), [])
        before = each["champion"]
        than_before = None if before is None else relative(metric, together, before)
        worse = relative(metric, together, each["local"])
        lines.append(Scored(version, each["local"], together, each["rows"], worse, than_before))
    return {model: lines[-VERSIONS:] for model, lines in by_model.items()}


class RunPart(NamedTuple):
    """A vehicle's part in a run: its status there (empty: none), why, which rounds it missed, its rows.

    `is_known`: the run names it; `run` holds what is told of the run itself.
    """

    status: str
    reason: str
    missed: str
    rows: int | None
    is_known: bool
    run: Mapping[str, Any]


def parts(coordinator: Coordinator, agent: str, number: int) -> ListPage[RunPart]:
    """Return a page of runs, the newest first, with a vehicle's part in each."""
    page = ListPage.of(coordinator.runs.newest(), number, RUNS_PER_PAGE)
    shown = [_part(document, agent) for document in coordinator.runs.documents(page.items)]
    return ListPage(shown, page.number, page.last, page.total)


def _part(document: Mapping[str, Any], agent: str) -> RunPart:
    part = document["agents"].get(agent, {"status": "", "reason": ""})
    status, reason = part["status"], reason_words(part["reason"])
    if agent in document["spec"].get("without", ()):
        reason = "left out by the operator"
    elif agent in document["false_answers"]:
        reason = "left out: it gave false answers, or ended private runs by refusing"
    elif not status:
        reason = "it was not up"
    rounds = [f"{row['phase']} {row['number']}" for row in document["rounds"] if agent in missed(row)]
    rows = document["rows"].get(agent)
    # Not the document: those of a large fleet are not all kept until the page is drawn.
    run = {name: document[name] for name in ("run", "state", "outcome", "model", "started")}
    status = "" if status == "idle" else status
    return RunPart(status, reason, named([*dict.fromkeys(rounds)]), rows, agent in document["agents"], run)
