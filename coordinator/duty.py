"""Who needs somebody, and why: one list, which pages, API, command and messages show. Pure but for `look`.

Of each vehicle a cause comes before what follows from it: its rows lie outside the limits, and so its error is large.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from coordinator.core import Coordinator
from coordinator.fleet.differences import changed, differences, far_out
from coordinator.fleet.directory import KnownAgent
from coordinator.journal.port import Decision
from coordinator.models.aliases import CURRENT
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


# --- what to tell whoever is on duty, and when: once when it came and lasts, and each cause at most once a day. Pure --


DAY: Final = 86400.0
"""Seconds between two messages about one cause. So long a run that failed, or a version that went back, counts."""

LASTS: Final = 900.0
"""Seconds after which a cause lasts: what comes with a new version has gone by then."""

LASTS_LONG: Final = 1.5 * DAY
"""The same for vehicles that are down, or were late or dropped: every fleet has some each night."""

NAMED: Final = 40
"""So many lines are in one message; the others are counted."""

FORGOTTEN: Final = 30 * DAY

EVENTS = FAILED, BACK = "run-failed", "rolled-back"
"""What happens at a moment; all else lasts until it is mended."""

_RETREATS: Final = {"rolled-back": "was rolled back", "returned": "went back to the best on new rows"}


class Key(NamedTuple):
    """What a message is about at most once a day: a vehicle or model, and the kind of cause."""

    whom: str
    kind: str


@dataclass(frozen=True)
class Sent:
    """When a cause was told, seconds since the epoch, and whether it went since."""

    at: float
    is_over: bool = False


@dataclass(frozen=True)
class NoticeMemory:
    """What is known of causes: since when those are there that were not told, and which were told.

    `sent` is kept over a restart; `since` begins anew.
    """

    since: Mapping[Key, float] = field(default_factory=dict)
    sent: Mapping[Key, Sent] = field(default_factory=dict)

    def to_values(self) -> list[dict[str, Any]]:
        """Return what is kept, as JSON values."""
        return [{**key._asdict(), "at": each.at, "over": each.is_over} for key, each in sorted(self.sent.items())]

    @classmethod
    def of(cls, values: Iterable[Mapping[str, Any]]) -> NoticeMemory:
        """Rebuild it from what was kept."""
        return cls(sent={Key(each["whom"], each["kind"]): Sent(each["at"], each["over"]) for each in values})


def conditions(
    look: Look,
    runs: Iterable[Mapping[str, Any]],
    decisions: Iterable[Decision],
    rollouts: Iterable[Mapping[str, Any]],
    now: float,
) -> dict[Key, str]:
    """Return all that may be told now, in words.

    Parameters
    ----------
    runs : iterable of mapping
        Overviews of the last runs, the oldest first.
    decisions : iterable of Decision
        By which the present versions became so.
    rollouts : iterable of mapping
        Their documents; ``ended`` in seconds since the epoch, as `now`.
    """
    found: dict[Key, str] = {}
    for run in runs:
        if run["outcome"] == "failed" and now - datetime.fromisoformat(run["ended"]).timestamp() < DAY:
            words = f"run {run['run']} of model {run['name']} failed: {run['reason']} (/runs/{run['run']})"
            found[Key(str(run["name"]), FAILED)] = words
    for each in decisions:
        retreat = _RETREATS.get(str(each.body.get("cause"))) if each.kind == CURRENT else None
        if retreat is not None and now - each.wall < DAY:
            number, reason = each.body["version"], each.body["reason"]
            words = f"model {each.name} {retreat}: version {number} is in use ({reason}) (/models/{each.name}/{number})"
            found[Key(each.name, BACK)] = words
    for rollout in rollouts:
        if rollout["phase"] == "rolled-back" and not rollout["plan"]["gate"] and now - rollout["ended"] < DAY:
            name, number, reason = (rollout[what] for what in ("model", "version", "reason"))
            words = f"version {number} of model {name} was tried and rolled back: {reason} (/models/{name}/{number})"
            found[Key(name, BACK)] = words
    for agent, causes in look.causes.items():
        for cause in causes:
            words = f"{agent}: {cause.words} ({cause.page or f'/vehicles/{agent}'})"
            found.setdefault(Key(agent, cause.kind), words)
    return found


def due(
    memory: NoticeMemory, found: Collection[Key], known: Collection[str], now: float
) -> tuple[list[Key], NoticeMemory]:
    """Return what is to be told now, and what is known once it was.

    Parameters
    ----------
    found : collection of Key
        What `conditions` returned.
    known : collection of str
        Vehicles of which something is known. What was told of others stays for `FORGOTTEN`: the coordinator has just
        begun, say.
    """
    since = {key: memory.since.get(key, now) for key in found}
    sent: dict[Key, Sent] = {}
    for key, each in memory.sent.items():
        is_away = key.kind not in EVENTS and key.whom not in known
        if key in found or now - each.at < (FORGOTTEN if is_away else DAY):
            sent[key] = each if key in found or is_away else Sent(each.at, is_over=True)
    result = [
        key
        for key in found
        if now - since[key] >= _lasts(key.kind)
        and (key not in sent or (now - sent[key].at >= DAY and (sent[key].is_over or key.kind in EVENTS)))
    ]
    # One that came again within the day waits for its turn.
    kept = {key: at for key, at in since.items() if key not in sent or sent[key].is_over}
    return sorted(result), NoticeMemory(kept, sent | {key: Sent(now) for key in result})


def message(fleet: str, words: Sequence[str]) -> tuple[str, str]:
    """Return title and text of a message."""
    first, more = words[0], f" and {len(words) - 1} more" if len(words) > 1 else ""
    rest = [f"and {len(words) - NAMED} more: glassfleet fleet"] if len(words) > NAMED else []
    return f"Fleet {fleet}: {first.partition(' (/')[0][:120]}{more}", "\n".join([*words[:NAMED], *rest])


def _lasts(kind: str) -> float:
    if kind in EVENTS:
        return 0.0
    return LASTS_LONG if kind in {"down", "missed"} else LASTS
