"""Who needs somebody, and why: one list, which pages, API, command and messages show. Pure but for `look`.

Of each vehicle a cause comes before what follows from it: its rows lie outside the limits, and so its error is large.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from coordinator.core import Coordinator
from coordinator.fleet.differences import changed, differences, far_out
from coordinator.fleet.directory import KnownAgent
from coordinator.models.central import is_reference
from coordinator.runs.attendance import Attendance, Recent, reason_words
from coordinator.runs.earlier import quarantined
from coordinator.specification.rollout import GATE
from glassfleet.evaluation.paired import in_words, relative
from schemas.messages import ModelPointer

KINDS: Final = (
    "false-answers",
    "refuses",
    "bad-data",
    "differs",
    "stands-out",
    "changed",
    "far-out",
    "down",
    "missed",
    "behind",
    "worse-than-alone",
)
"""Of causes, the most urgent first."""

STOPPED: Final = "down: it was stopped"
BROKE_OFF: Final = "down: its connection broke off (power, coverage or a crash)"


class Cause(NamedTuple):
    """Why a vehicle needs somebody: how urgent (0 is the most), in words, and the page that tells more."""

    rank: int
    words: str
    page: str = ""

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        return KINDS[self.rank]

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"kind": self.kind, "rank": self.rank, "words": self.words, "page": self.page}


def _cause(kind: str, words: str, page: str = "") -> Cause:
    return Cause(KINDS.index(kind), words, page)


class Held(NamedTuple):
    """The version of a model that a vehicle has: the one in use, or the one that it scored last.

    `worse` is how much worse it is than what the vehicle learns alone, relative to that; negative: better; None: it did
    not say, as in private runs.
    """

    name: str
    version: int
    is_current: bool
    worse: float | None


@dataclass(frozen=True)
class Look:
    """All vehicles at one moment.

    Attributes
    ----------
    rows : Mapping of str to int
        Training rows that a vehicle told of in the newest of the last runs that it told any in.
    held : Mapping of str to list of Held
        By vehicle.
    causes : Mapping of str to list of Cause
        Of those that need somebody, the most urgent first.
    """

    known: Mapping[str, KnownAgent]
    rows: Mapping[str, int]
    held: Mapping[str, list[Held]]
    causes: Mapping[str, list[Cause]]

    def worse(self, agent: str) -> float | None:
        """How much worse the models in use are than what a vehicle learns alone, of the worst; None: not known."""
        held = (each.worse for each in self.held.get(agent, ()) if each.is_current)
        return max((worse for worse in held if worse is not None), default=None)

    def urgency(self, agent: str) -> tuple[Any, ...]:
        """Return the key that puts vehicles first that need somebody most."""
        causes = self.causes.get(agent, ())
        return not causes, causes and causes[0].rank, -len(causes), -(self.worse(agent) or 0.0), agent

    def document(self) -> list[dict[str, Any]]:
        """Return what the API tells of all vehicles, by id."""
        offers = {offer: offer.to_value() for offer in {known.offer for known in self.known.values()}}
        return [
            {
                "agent": agent,
                "status": known.status,
                "since": known.since,
                "causes": [each.to_document() for each in self.causes.get(agent, ())],
                "worse": self.worse(agent),
                "incarnation": known.incarnation,
                "software": known.software,
                **offers[known.offer],
            }
            for agent, known in sorted(self.known.items())
        ]


def look(coordinator: Coordinator, recent: Recent) -> Look:
    """Look at the fleet; from any thread."""
    known, runs = coordinator.fleet.known(), recent.of(coordinator.runs)
    return look_at(known, runs, coordinator.aliases.current)


def look_at(known: Mapping[str, KnownAgent], runs: Sequence[Attendance], current: Mapping[str, ModelPointer]) -> Look:
    """Return what is to be said of each vehicle.

    Parameters
    ----------
    known : mapping of str to KnownAgent
        By id.
    runs : sequence of Attendance
        The last ones, the newest first.
    current : mapping of str to ModelPointer
        The versions in use, by model.
    """
    learned = {name: each for name, each in current.items() if not is_reference(name)}
    held, of_models = _of_models(known, learned)
    causes: defaultdict[str, list[Cause]] = defaultdict(list)
    # Those that are down too: their certificates told it before.
    offers = {agent: each.offer for agent, each in known.items()}
    differ = ((agent, _cause("differs", words)) for agent, words in differences(offers))
    down = ((agent, _why_down(each)) for agent, each in known.items() if each.status != "up")
    for agent, cause in (*_of_runs(known, runs), *differ, *of_models, *down):
        causes[agent].append(cause)
    for each in causes.values():
        each.sort()
    rows: dict[str, int] = {}
    for run in reversed(runs):
        rows |= run.rows
    return Look(known, rows, held, dict(causes))


def _why_down(known: KnownAgent) -> Cause:
    if known.offer.fault:
        return _cause("bad-data", f"cannot use its data: {known.offer.fault}")
    return _cause("down", STOPPED if known.stopped else BROKE_OFF)


def _of_runs(known: Mapping[str, Any], runs: Sequence[Attendance]) -> Iterator[tuple[str, Cause]]:
    """Yield who gave false answers; who stood out, refused, was late or was dropped in the newest run that asked it."""
    private = [run.about for run in runs if run.about["spec"].get("private") is not None]
    false = quarantined(private, ()) & known.keys()
    words = "gave false answers, or ended private runs by refusing: these leave it out"
    yield from ((agent, _cause("false-answers", words)) for agent in sorted(false))
    asked: set[str] = set()
    for run in runs:
        page = f"/runs/{run.run}"
        for agent, words in run.stands_out:
            if agent in known and agent not in asked | false:
                yield agent, _cause("stands-out", words, page)
        for agent in (run.missed.keys() & known.keys()) - asked:
            status, reason = run.missed[agent]
            has_refused = run.has_refused(agent)
            words = reason_words(reason) if has_refused else f"{status}: {reason_words(reason)}"
            yield agent, _cause("refuses" if has_refused else "missed", words[:160], page)
        asked |= run.asked


def _of_models(
    known: Mapping[str, KnownAgent], current: Mapping[str, ModelPointer]
) -> tuple[dict[str, list[Held]], list[tuple[str, Cause]]]:
    """Return which models vehicles have, and who is behind or forecasts badly with the one in use."""
    last: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in current}
    sent: dict[str, defaultdict[str, list[dict[str, Any]]]] = {name: defaultdict(list) for name in current}
    for agent, each in known.items():
        for (name, version), scores in each.evaluations.items():
            if (pointer := current.get(name)) is None:
                continue
            sent[name][agent].append(scores)
            before = last[name].get(agent)  # the version in use, else the highest
            is_next = before is None or (before["digest"] != pointer.digest and before["version"] < version)
            if is_next or scores["digest"] == pointer.digest:
                last[name][agent] = scores
    held: dict[str, list[Held]] = {}
    causes: list[tuple[str, Cause]] = []
    for name, of_name in last.items():
        pointer = current[name]
        own = {agent: scores for agent, scores in of_name.items() if scores["digest"] == pointer.digest}
        page = f"/models/{name}/{pointer.version}"
        for agent, scores in of_name.items():
            # Where nobody has scored the version in use (it is of a private run, say), nobody is behind.
            if not own:
                held.setdefault(agent, []).append(Held(name, pointer.version, True, None))
                continue
            worse = relative(scores["metric"], scores["federated"], scores["local"])
            held.setdefault(agent, []).append(Held(name, scores["version"], agent in own, worse))
            if agent not in own:
                words = f"scored {name} v{scores['version']} last, in use is v{pointer.version}"
                causes.append((agent, _cause("behind", words, page)))
            elif worse >= GATE.vehicle_worse:
                causes.append((agent, _cause("worse-than-alone", f"{in_words(worse)} than alone with {name}", page)))
        causes += [(agent, _cause("far-out", words, page)) for agent, words in far_out(own)]
        causes += [(agent, _cause("changed", f"{name}: {words}", page)) for agent, words in changed(sent[name])]
    return held, causes
