"""The last week of the fleet: what `coordinator.duty.week` is told. Reads the coordinator, changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from itertools import takewhile
from typing import Any

from coordinator.core import Coordinator
from coordinator.duty.causes import look
from coordinator.duty.week import WEEK, VersionChange, Week
from coordinator.duty.week import week as week_of
from coordinator.http.dashboard import comparison
from coordinator.http.dashboard.library import Library
from coordinator.models.registry import moved_since
from coordinator.runs.attendance import Recent
from glassfleet.explain import difference
from glassfleet.explain.text import cut
from glassfleet.model.rules import Rule
from schemas.errors import GlassfleetError
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
