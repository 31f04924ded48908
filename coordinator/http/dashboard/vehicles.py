"""Which vehicles need somebody, and all that is known of one. Reads the coordinator, changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from coordinator.core import Coordinator
from coordinator.engine.asking import REFUSED
from coordinator.fleet.directory import KnownAgent
from coordinator.fleet.outliers import far_out
from coordinator.http.dashboard.comparison import VERSIONS, in_words
from coordinator.http.dashboard.show import Page, named, said
from coordinator.models.central import reference_of
from coordinator.runs.earlier import quarantined
from coordinator.specification.rollout import GATE
from glassfleet.scores import relative
from schemas.errors import NotFoundError
from schemas.rounds import missed

RECENT_RUNS = 5
"""So many of the last runs are asked what they tell of each vehicle."""
RUNS_PER_PAGE = 10

IDLE = ("idle", "")
"""How a vehicle stands in a run that did not ask it."""
(QUARANTINED, REFUSES, FAR_OUT, DOWN, MISSED, OLD, WORSE) = range(7)
"""Why a vehicle needs somebody, the most urgent first."""


class Need(NamedTuple):
    """Why a vehicle needs somebody: how urgent (0 is the most), in words, and the page that tells more."""

    rank: int
    words: str
    address: str = ""


class Held(NamedTuple):
    """The version of a model that a vehicle has scored last, and whether it is the one in use.

    `worse` is how much worse it is than what the vehicle learns alone, relative to that; negative: better.
    """

    name: str
    version: int
    is_current: bool
    worse: float


@dataclass(frozen=True)
class Vehicle:
    """A vehicle as the fleet's page shows it.

    Attributes
    ----------
    agent, status, software : str
    since, seen : float
        When its status became so, and when it was heard last, seconds since the epoch.
    rows : int or None
        Training rows that it told of in the newest of the last runs that it took part in.
    held : tuple of Held
        By model.
    needs : tuple of Need
        The most urgent first; empty: nobody need look at it.
    """

    agent: str
    status: str
    software: str
    since: float
    seen: float
    rows: int | None
    held: tuple[Held, ...]
    needs: tuple[Need, ...]

    @property
    def worse(self) -> float | None:
        """How much worse the models in use are than what it learns alone, of the worst; None: not known."""
        return max((each.worse for each in self.held if each.is_current), default=None)


@dataclass(frozen=True)
class Told:
    """What a run tells of vehicles.

    Attributes
    ----------
    run : str
    agents : Mapping of str to (str, str)
        How each stands, and why.
    rows : Mapping of str to int
    about : Mapping
        ``spec`` and ``false_answers`` of its document.
    """

    run: str
    agents: Mapping[str, tuple[str, str]]
    rows: Mapping[str, int]
    about: Mapping[str, Any]


class Recent:
    """What the last runs tell; those that have ended are read once."""

    def __init__(self) -> None:
        self._ended: Mapping[str, Told] = {}  # replaced, never changed: several threads read it

    def of(self, coordinator: Coordinator) -> list[Told]:
        """Return the last runs, the newest first; from any thread."""
        past, found = coordinator.runs.past, []
        for run in coordinator.runs.ids()[: -RECENT_RUNS - 1 : -1]:
            with suppress(NotFoundError):  # forgotten between the two looks
                found.append(self._ended.get(run) or _told(coordinator.runs.document(run)))
        self._ended = {told.run: told for told in found if told.run in past}
        return found


def _told(document: Mapping[str, Any]) -> Told:
    agents = {agent: (each["status"], each["reason"]) for agent, each in document["agents"].items()}
    about = {"spec": document["spec"], "false_answers": document.get("false_answers", ())}
    return Told(document["run"], agents, document.get("rows", {}), about)


def vehicles(coordinator: Coordinator, recent: Recent) -> list[Vehicle]:
    """Return all vehicles, in no order."""
    known, runs = coordinator.fleet.known(), recent.of(coordinator)
    private = [told.about for told in runs if told.about["spec"].get("private") is not None]
    needs: dict[str, list[Need]] = {agent: [] for agent in known}
    for agent in quarantined(private, ()) & known.keys():
        needs[agent].append(Need(QUARANTINED, "gave false answers; private runs leave it out"))
    for agent, need in _of_runs(known, runs):
        needs[agent].append(need)
    held, found = _of_models(coordinator, known)
    for agent, need in found:
        needs[agent].append(need)
    return [
        Vehicle(
            agent=agent,
            status=each.status,
            software=each.software,
            since=each.since,
            seen=each.seen,
            rows=next((told.rows[agent] for told in runs if agent in told.rows), None),
            held=tuple(held.get(agent, ())),
            needs=tuple(sorted([*needs[agent], *([Need(DOWN, "down")] if each.status != "up" else [])])),
        )
        for agent, each in known.items()
    ]


def urgency(vehicle: Vehicle) -> tuple[Any, ...]:
    """Return the key that puts vehicles first that need somebody most."""
    ranks = tuple(need.rank for need in vehicle.needs)
    return not ranks, ranks[:1], -len(ranks), -(vehicle.worse or 0.0), vehicle.agent


def _of_runs(known: Iterable[str], runs: Sequence[Told]) -> Iterator[tuple[str, Need]]:
    """Yield who refused, was late or was dropped in the newest of the last runs that asked it."""
    for agent in known:
        asked = (told for told in runs if told.agents.get(agent, IDLE)[0] != "idle")
        told = next(asked, None)
        status, reason = IDLE if told is None else told.agents[agent]
        if told is not None and status in ("lost", "dropped", "late"):
            is_refusal = reason.startswith(REFUSED)
            words = said(reason) if is_refusal else f"{status}: {said(reason)}"
            yield agent, Need(REFUSES if is_refusal else MISSED, words[:160], f"/runs/{told.run}")


def _of_models(
    coordinator: Coordinator, known: Mapping[str, KnownAgent]
) -> tuple[dict[str, list[Held]], list[tuple[str, Need]]]:
    """Return which models vehicles scored last, and who is behind or forecasts badly with the one in use."""
    pointers = coordinator.registry.aliases.current
    names = {name: each for name, each in pointers.items() if not name.endswith(reference_of(""))}
    last: dict[str, dict[str, dict[str, Any]]] = {}  # by model and agent: the version in use, else the highest
    for agent, each in known.items():
        for (name, version), scores in each.evaluations.items():
            if (pointer := names.get(name)) is None:
                continue
            of_name = last.setdefault(name, {})
            before = of_name.get(agent)
            is_next = before is None or (before["digest"] != pointer.digest and before["version"] < version)
            if is_next or scores["digest"] == pointer.digest:
                of_name[agent] = scores
    held: dict[str, list[Held]] = {}
    needs: list[tuple[str, Need]] = []
    for name, of_name in last.items():
        pointer = names[name]
        own = {agent: scores for agent, scores in of_name.items() if scores["digest"] == pointer.digest}
        address = f"/models/{name}/{pointer.version}"
        for agent, scores in of_name.items():
            worse = relative(scores["federated"], scores["local"], higher_is_better=scores["metric"] == "f1")
            held.setdefault(agent, []).append(Held(name, scores["version"], agent in own, worse))
            # Where nobody has scored the version in use (it is of a private run, say), nobody is behind.
            if own and agent not in own:
                words = f"scored {name} v{scores['version']} last, in use is v{pointer.version}"
                needs.append((agent, Need(OLD, words, address)))
            elif agent in own and worse >= GATE.vehicle_worse:
                needs.append((agent, Need(WORSE, f"{in_words(worse)} than alone with {name}", address)))
        for note in far_out(own):
            agent, _, words = note.partition(": ")
            needs.append((agent, Need(FAR_OUT, words, address)))
    return held, needs


SORTS: Final[Mapping[str, Callable[[Vehicle], Any]]] = {
    "needs": urgency,
    "id": lambda vehicle: vehicle.agent,
    "seen": lambda vehicle: (vehicle.seen, vehicle.agent),
    "rows": lambda vehicle: (vehicle.rows is None, vehicle.rows or 0, vehicle.agent),
    "worse": lambda vehicle: (vehicle.worse is None, -(vehicle.worse or 0.0), vehicle.agent),
}
"""How the fleet's page can be sorted: what is asked for most stands first."""


def chosen(found: Iterable[Vehicle], *, text: str = "", status: str = "", sort: str = "needs") -> list[Vehicle]:
    """Return the vehicles whose id or software holds `text`, sorted.

    Parameters
    ----------
    found : iterable of Vehicle
    text : str
    status : str
        ``up``, ``down``, ``needs`` (those that need somebody); empty: all.
    sort : str
        One of `SORTS`; anything else as ``needs``.
    """
    wanted = text.lower()
    fitting = [
        each
        for each in found
        if wanted in f"{each.agent} {each.software}".lower()
        and (status in ("", each.status) or (status == "needs" and each.needs))
    ]
    return sorted(fitting, key=SORTS.get(sort, urgency))


def counts(found: Sequence[Vehicle]) -> dict[str, Any]:
    """Return how many vehicles are up, down and in need, and how many of those that are up run which software."""
    software = Counter(each.software or "unknown" for each in found if each.status == "up")
    return {
        "up": sum(each.status == "up" for each in found),
        "down": sum(each.status != "up" for each in found),
        "needs": sum(bool(each.needs) for each in found),
        "software": software.most_common(6),
    }


class Scored(NamedTuple):
    """What a vehicle measured with one version of a model.

    `worse` is how much worse it is than what the vehicle learns alone, `than_before` than the version before in the
    list, on the same test rows (None: there is none).
    """

    version: int
    alone: float
    together: float
    rows: int
    worse: float
    than_before: float | None


def scored(known: KnownAgent) -> dict[tuple[str, str], list[Scored]]:
    """Return what a vehicle measured, by model and metric: its newest versions, oldest first."""
    found: dict[tuple[str, str], list[Scored]] = {}
    for (name, version), each in sorted(known.evaluations.items()):
        lines = found.setdefault((name, each["metric"]), [])
        is_f1, together = each["metric"] == "f1", each["federated"]
        than_before = None
        if lines and lines[-1].rows == each["rows"]:
            than_before = relative(together, lines[-1].together, higher_is_better=is_f1)
        worse = relative(together, each["local"], higher_is_better=is_f1)
        lines.append(Scored(version, each["local"], together, each["rows"], worse, than_before))
    return {model: lines[-VERSIONS:] for model, lines in found.items()}


class Part(NamedTuple):
    """A vehicle's part in a run: its status there (empty: none), why, which rounds it missed, its rows, the run."""

    agent: str
    status: str
    reason: str
    missed: str
    rows: int | None
    run: Mapping[str, Any]

    @property
    def is_known(self) -> bool:
        """Whether the run names it."""
        return self.run["agents"].get(self.agent) is not None


def parts(coordinator: Coordinator, agent: str, number: int) -> Page[Part]:
    """Return a page of runs, the newest first, with a vehicle's part in each."""
    page = Page.of(coordinator.runs.ids()[::-1], number, RUNS_PER_PAGE)
    found = []
    for run in page.items:
        with suppress(NotFoundError):  # forgotten between the two looks
            found.append(_part(coordinator.runs.document(run), agent))
    return Page(found, page.number, page.last, page.total)


def _part(document: Mapping[str, Any], agent: str) -> Part:
    stands = document["agents"].get(agent, {"status": "", "reason": ""})
    status, reason = stands["status"], said(stands["reason"])
    if agent in document["spec"].get("without", ()):
        reason = "left out by the operator"
    elif agent in document.get("false_answers", ()):
        reason = "left out: it gave false answers"
    elif not status:
        reason = "it was not up"
    rounds = [f"{row['phase']} {row['number']}" for row in document["rounds"] if agent in missed(row)]
    told = document.get("rows", {}).get(agent)
    return Part(agent, "" if status == "idle" else status, reason, named([*dict.fromkeys(rounds)]), told, document)
