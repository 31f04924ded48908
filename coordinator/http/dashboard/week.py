"""The last week of the fleet, read from the coordinator; nothing is changed. Pages, API and command show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any, Final, TypedDict

from coordinator.core import Coordinator
from coordinator.duty import Look, look
from coordinator.http.dashboard import comparison
from coordinator.http.dashboard.library import Library
from coordinator.journal.port import Decision
from coordinator.models.aliases import CANDIDATE, CURRENT
from coordinator.models.central import is_reference
from coordinator.models.registry import moved_since
from coordinator.runs.attendance import Recent
from glassfleet.explain import difference
from glassfleet.explain.text import cut
from glassfleet.model.rules import Rule
from schemas.errors import GlassfleetError
from schemas.rounds import bytes_each
from schemas.text import counted

RUNS = 200
"""So many of the last runs are looked at, at most."""
SHOWN = ("run", "spec", "outcome", "reason", "rounds")
"""What the week says of a run; the rest of so many documents is not kept."""
RULES = 4
"""So many rules of a kind are written out; the others are counted."""


def week(coordinator: Coordinator, library: Library, recent: Recent, end: float) -> Week:
    """Return the week before `end`, seconds since the epoch; from any thread."""

    def compared(name: str, before: int, after: int) -> VersionChange | None:
        with suppress(GlassfleetError):  # there is none any more, or this software cannot read it
            return _change(coordinator, library, name, before, after)
        return None

    def moved(name: str, version: int) -> list[str]:
        with suppress(GlassfleetError):
            return moved_since(coordinator.registry, library.get(name, version).record)
        return []

    runs = coordinator.runs
    overviews = runs.overviews([run for run in runs.newest(RUNS) if run in runs.past])
    ended = [each["run"] for each in takewhile(lambda each: _ended(each) >= end - WEEK, overviews)]
    return week_of(
        coordinator.topics.fleet,
        end,
        decisions=coordinator.journal.decisions(),
        runs=[{name: each[name] for name in SHOWN} for each in runs.documents(ended)],
        look=look(coordinator, recent),
        compared=compared,
        moved=moved,
    )


def _ended(overview: dict[str, Any]) -> float:
    ended = overview["ended"]
    return datetime.fromisoformat(ended).timestamp() if ended else 0.0


def _change(coordinator: Coordinator, library: Library, name: str, before: int, after: int) -> VersionChange:
    old, new = library.get(name, before), library.get(name, after)
    result = comparison.versions(coordinator, old, new)
    change = difference((old.record, old.model), (new.record, new.model))
    verdict, target = "", new.model.domain.target_name
    if result is not None:
        than = comparison.against(result, f"version {before}")
        verdict = f"{than} ({counted(len(result.lines), 'vehicles')} measured both)"
    elif (alone := comparison.alone(new.record)) is not None:
        verdict = f"{comparison.against(alone, 'what each vehicle learns alone')}, by the sums of a private run"
    return {
        "verdict": verdict,
        "new": _texts(change.added, target),
        "gone": _texts(change.gone, target),
        "changed": _texts([rule for _, rule in change.changed], target),
        "kept": change.kept + len(change.restated),
    }


def _texts(rules: Sequence[Rule], target: str) -> list[str]:
    more = [f"and {len(rules) - RULES} more"] if len(rules) > RULES else []
    return [*(_text(rule, target) for rule in rules[:RULES]), *more]


def _text(rule: Rule, target: str) -> str:
    says = f"{target} = {rule.forecast.short}" if rule.forecast else cut(rule.output, 120)
    return f"IF {rule.antecedent} THEN {says}"


# --- what changed in a week: versions, rules, runs, bytes, who needs somebody. Pure -----------------------------------


WEEK: Final = 7 * 86400.0
NAMED: Final = 12
"""So many vehicles, versions and failed runs are named; the others are counted."""

WAITS: Final = "stayed a candidate"
CAME: Final = {
    "published": "became current",
    "promoted": "was promoted",
    "rolled-back": "became current again: a rollback",
    "returned": "became current again: the best on new rows",
}


class VersionChange(TypedDict):
    """How one version of a model differs from another; rules as texts, the most used first."""

    verdict: str
    new: list[str]
    gone: list[str]
    changed: list[str]
    kept: int


class Turn(TypedDict):
    """A version that became current, or stayed a candidate."""

    when: str
    version: int
    what: str
    why: str


class ModelWeek(TypedDict):
    """A model's week.

    `headline` says whether the model is better, in a sentence. `before` is the version that was in use when the week
    began, of a model that `is_new` the first that was in use at all; `now` the one in use at its end; 0: none. `change`
    is None where these are the same, or one of them cannot be read.
    """

    name: str
    headline: str
    is_new: bool
    before: int
    now: int
    change: VersionChange | None
    turns: list[Turn]


class Needs(TypedDict):
    """A vehicle that needs somebody, and why, in words; the cause first."""

    agent: str
    causes: list[str]


class Week(TypedDict):
    """A week, as JSON values.

    `bytes` are of answers that vehicles sent; `to_each` and `from_each` what learning cost a vehicle that was in all
    runs, requests and answers. `drift` are sentences.
    """

    fleet: str
    begin: str
    end: str
    models: list[ModelWeek]
    runs: dict[str, int]
    failed: list[dict[str, str]]
    bytes: int
    to_each: int
    from_each: int
    up: int
    down: int
    needs: int
    vehicles: list[Needs]
    drift: list[str]


def week_of(
    fleet: str,
    end: float,
    *,
    decisions: Iterable[Decision],
    runs: Sequence[Mapping[str, Any]],
    look: Look,
    compared: Callable[[str, int, int], VersionChange | None],
    moved: Callable[[str, int], Sequence[str]],
) -> Week:
    """Return what changed in the week before `end`, seconds since the epoch.

    Parameters
    ----------
    decisions : iterable of Decision
        About all models, in order.
    runs : sequence of mapping
        Documents of the runs that ended in the week, the newest first.
    compared : callable
        Tells how a version of a model differs from another: name, the earlier version, the later one.
    moved : callable
        Tells what has moved since a version was learned, in sentences.
    """
    begin = end - WEEK
    models: dict[str, ModelWeek] = {}
    for each in decisions:
        if each.kind not in {CURRENT, CANDIDATE} or each.wall >= end or is_reference(each.name):
            continue
        model = models.setdefault(each.name, _nothing(each.name))
        version = int(each.body["version"])
        if each.kind == CURRENT:
            model["now"] = version
            if each.wall < begin or not model["before"]:
                model["before"], model["is_new"] = version, each.wall >= begin
        if each.wall >= begin and (what := _what(each)):
            model["turns"].append(
                {"when": _iso(each.wall), "version": version, "what": what, "why": str(each.body.get("reason", ""))}
            )
    for model in models.values():
        if model["now"] != model["before"]:
            model["change"] = compared(model["name"], model["before"], model["now"])
        model["headline"] = _headline(model)
    urgent = sorted(look.causes, key=look.urgency)
    costs = [bytes_each(run["rounds"]) for run in runs]
    status = Counter(each.status for each in look.known.values())
    return {
        "fleet": fleet,
        "begin": _iso(begin),
        "end": _iso(end),
        "models": [model for _, model in sorted(models.items()) if model["now"] or model["turns"]],
        "runs": dict(Counter(str(run["outcome"]) for run in runs)),
        "failed": [
            {"run": run["run"], "model": str(run["spec"].get("model", "")), "reason": run["reason"]}
            for run in runs
            if run["outcome"] == "failed"
        ][:NAMED],
        "bytes": sum(int(row.get("bytes", 0)) for run in runs for row in run["rounds"]),
        "to_each": sum(to_each for to_each, _ in costs),
        "from_each": sum(from_each for _, from_each in costs),
        "up": status["up"],
        "down": len(look.known) - status["up"],
        "needs": len(urgent),
        "vehicles": [
            {"agent": agent, "causes": [cause.words for cause in look.causes[agent]]} for agent in urgent[:NAMED]
        ],
        "drift": [
            f"{name}: {each}"
            for name, model in sorted(models.items())
            if model["now"]
            for each in moved(name, model["now"])
        ],
    }


def _nothing(name: str) -> ModelWeek:
    return {"name": name, "headline": "", "is_new": False, "before": 0, "now": 0, "change": None, "turns": []}


def _headline(model: ModelWeek) -> str:
    """Return whether a model is better than a week ago, in a sentence."""
    now, before = model["now"], model["before"]
    waiting = sum(turn["what"] == WAITS for turn in model["turns"])
    tried = f"; {counted(waiting, 'new versions')} did not pass the gate" if waiting else ""
    if not now:
        return f"No version is in use{tried}."
    if now == before and model["is_new"]:
        return f"Version {now} is in use, the first{tried}."
    if now == before:
        back = " again" if any(turn["what"] != WAITS for turn in model["turns"]) else ""
        return f"Version {now} is in use{back}, as a week ago{tried}."
    verdict = model["change"]["verdict"] if model["change"] else ""
    better = verdict or f"no vehicle has scored it beside version {before}"
    former = f"the first was version {before}" if model["is_new"] else f"a week ago it was version {before}"
    return f"Version {now} is in use, {former}: {better}{tried}."


def _what(decision: Decision) -> str:
    """Return what became of a version; empty: it is tried, and what comes of that is told later."""
    body = decision.body
    if decision.kind == CURRENT:
        return CAME.get(str(body.get("cause")), "became current")
    trial = body.get("trial")
    return WAITS if isinstance(trial, dict) and trial.get("below") == 0 else ""


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).isoformat(timespec="seconds")
