"""Which vehicles need somebody, and all that is known of one. Reads the coordinator, changes nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple

from coordinator.core import Coordinator
from coordinator.fleet.differences import differences
from coordinator.fleet.directory import KnownAgent
from coordinator.fleet.outliers import far_out
from coordinator.http.dashboard.comparison import VERSIONS, in_words
from coordinator.http.dashboard.show import Page, named, reason_words
from coordinator.models.central import reference_of
from coordinator.runs.attendance import Attendance, Recent
from coordinator.runs.earlier import quarantined
from coordinator.specification.rollout import GATE
from glassfleet.numerics.paired import relative
from schemas.rounds import missed

RUNS_PER_PAGE = 10

(QUARANTINED, REFUSES, DIFFERS, FAR_OUT, DOWN, MISSED, OLD, WORSE) = range(8)
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
    rows : int or None
        Training rows that it told of in the newest of the last runs that it took part in.
    held : sequence of Held
        By model.
    needs : sequence of Need
        The most urgent first; empty: nobody need look at it.
    worse : float or None
        How much worse the models in use are than what it learns alone, of the worst; None: not known.
    """

    agent: str
    known: KnownAgent
    rows: int | None
    held: Sequence[Held]
    needs: Sequence[Need]
    worse: float | None


@dataclass(frozen=True)
class Look:
    """All vehicles at one moment. What is said of each is put together for those only that are shown.

    Attributes
    ----------
    rows : Mapping of str to int
        As `Vehicle.rows`.
    needs : Mapping of str to list of Need
        Of those that need somebody.
    """

    known: Mapping[str, KnownAgent]
    rows: Mapping[str, int]
    held: Mapping[str, list[Held]]
    needs: Mapping[str, list[Need]]

    @classmethod
    def at(cls, coordinator: Coordinator, recent: Recent) -> Look:
        """Look at the fleet; from any thread."""
        known, runs = coordinator.fleet.known(), recent.of(coordinator.runs)
        held, of_models = _of_models(coordinator, known)
        down = ((agent, Need(DOWN, "down")) for agent, each in known.items() if each.status != "up")
        offers = {agent: each.offer for agent, each in known.items() if each.status == "up"}
        differ = ((agent, Need(DIFFERS, words)) for agent, words in differences(offers))
        needs: defaultdict[str, list[Need]] = defaultdict(list)
        for agent, need in chain(_of_runs(known, runs), differ, of_models, down):
            needs[agent].append(need)
        for each in needs.values():
            each.sort()
        rows: dict[str, int] = {}
        for run in reversed(runs):
            rows |= run.rows
        return cls(known, rows, held, dict(needs))

    def vehicle(self, agent: str) -> Vehicle | None:
        """Return all that is known of one; None: nothing."""
        known = self.known.get(agent)
        if known is None:
            return None
        return Vehicle(
            agent,
            known,
            rows=self.rows.get(agent),
            held=self.held.get(agent, ()),
            needs=self.needs.get(agent, ()),
            worse=self.worse(agent),
        )

    def worse(self, agent: str) -> float | None:
        """As `Vehicle.worse`."""
        return max((each.worse for each in self.held.get(agent, ()) if each.is_current), default=None)

    def urgency(self, agent: str) -> tuple[Any, ...]:
        """Return the key that puts vehicles first that need somebody most."""
        needs = self.needs.get(agent, ())
        return not needs, needs and needs[0].rank, -len(needs), -(self.worse(agent) or 0.0), agent

    def counts(self) -> dict[str, Any]:
        """Return how many vehicles are up, down and in need, and how many of those that are up run which software."""
        up = [each.software or "unknown" for each in self.known.values() if each.status == "up"]
        return {
            "up": len(up),
            "down": len(self.known) - len(up),
            "needs": len(self.needs),
            "software": Counter(up).most_common(6),
        }

    def chosen(self, *, text: str = "", status: str = "", sort: str = "needs") -> list[str]:
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
            for agent, each in self.known.items()
            if wanted in f"{agent} {each.software}".lower()
            and (status in ("", each.status) or (status == "needs" and agent in self.needs))
        ]
        return sorted(fitting, key=lambda agent: key(self, agent))


def _by_rows(look: Look, agent: str) -> tuple[Any, ...]:
    rows = look.rows.get(agent)
    return rows is None, rows or 0, agent


def _by_worse(look: Look, agent: str) -> tuple[Any, ...]:
    worse = look.worse(agent)
    return worse is None, -(worse or 0.0), agent


SORTS: Final[Mapping[str, Callable[[Look, str], Any]]] = {
    "needs": Look.urgency,
    "id": lambda _, agent: agent,
    "seen": lambda look, agent: (look.known[agent].seen, agent),
    "rows": _by_rows,
    "worse": _by_worse,
}
"""How the fleet's page can be sorted: what is asked for most stands first."""


def _of_runs(known: Mapping[str, Any], runs: Sequence[Attendance]) -> Iterator[tuple[str, Need]]:
    """Yield who gave false answers, and who refused, was late or was dropped in the newest run that asked it."""
    private = [run.about for run in runs if run.about["spec"].get("private") is not None]
    for agent in quarantined(private, ()) & known.keys():
        yield agent, Need(QUARANTINED, "gave false answers, or ended private runs by refusing: these leave it out")
    asked: set[str] = set()
    for run in runs:
        for agent in (run.missed.keys() & known.keys()) - asked:
            status, reason = run.missed[agent]
            has_refused = run.has_refused(agent)
            words = reason_words(reason) if has_refused else f"{status}: {reason_words(reason)}"
            yield agent, Need(REFUSES if has_refused else MISSED, words[:160], f"/runs/{run.run}")
        asked |= run.asked


def _of_models(
    coordinator: Coordinator, known: Mapping[str, KnownAgent]
) -> tuple[dict[str, list[Held]], list[tuple[str, Need]]]:
    """Return which models vehicles scored last, and who is behind or forecasts badly with the one in use."""
    pointers = coordinator.aliases.current
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
            worse = relative(scores["metric"], scores["federated"], scores["local"])
            held.setdefault(agent, []).append(Held(name, scores["version"], agent in own, worse))
            # Where nobody has scored the version in use (it is of a private run, say), nobody is behind.
            if own and agent not in own:
                words = f"scored {name} v{scores['version']} last, in use is v{pointer.version}"
                needs.append((agent, Need(OLD, words, address)))
            elif agent in own and worse >= GATE.vehicle_worse:
                needs.append((agent, Need(WORSE, f"{in_words(worse)} than alone with {name}", address)))
        needs += [(agent, Need(FAR_OUT, words, address)) for agent, words in far_out(own)]
    return held, needs


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
    by_model: dict[tuple[str, str], list[Scored]] = {}
    for (name, version), each in sorted(known.evaluations.items()):
        metric, together = each["metric"], each["federated"]
        lines = by_model.setdefault((name, metric), [])
        than_before = None
        if lines and lines[-1].rows == each["rows"]:
            than_before = relative(metric, together, lines[-1].together)
        worse = relative(metric, together, each["local"])
        lines.append(Scored(version, each["local"], together, each["rows"], worse, than_before))
    return {model: lines[-VERSIONS:] for model, lines in by_model.items()}


class Part(NamedTuple):
    """A vehicle's part in a run: its status there (empty: none), why, which rounds it missed, its rows.

    `is_known`: the run names it; `run` holds what is told of the run itself.
    """

    status: str
    reason: str
    missed: str
    rows: int | None
    is_known: bool
    run: Mapping[str, Any]


def parts(coordinator: Coordinator, agent: str, number: int) -> Page[Part]:
    """Return a page of runs, the newest first, with a vehicle's part in each."""
    page = Page.of(coordinator.runs.newest(), number, RUNS_PER_PAGE)
    shown = [_part(document, agent) for document in coordinator.runs.documents(page.items)]
    return Page(shown, page.number, page.last, page.total)


def _part(document: Mapping[str, Any], agent: str) -> Part:
    part = document["agents"].get(agent, {"status": "", "reason": ""})
    status, reason = part["status"], reason_words(part["reason"])
    if agent in document["spec"].get("without", ()):
        reason = "left out by the operator"
    elif agent in document.get("false_answers", ()):
        reason = "left out: it gave false answers, or ended private runs by refusing"
    elif not status:
        reason = "it was not up"
    rounds = [f"{row['phase']} {row['number']}" for row in document["rounds"] if agent in missed(row)]
    rows = document.get("rows", {}).get(agent)
    # Not the document: those of a large fleet are not all kept until the page is drawn.
    run = {name: document[name] for name in ("run", "state", "outcome", "model", "started")}
    status = "" if status == "idle" else status
    return Part(status, reason, named([*dict.fromkeys(rounds)]), rows, agent in document["agents"], run)
