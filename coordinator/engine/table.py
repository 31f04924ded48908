# ruff: noqa: E501  a table is read by its columns
"""The transition table of a run: every change of phase that it can make, and nothing else.

It drives the engine: a cause leads where the table says. docs/explanation/rounds.md shows it, and a test
keeps the page equal to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from coordinator.engine.state import ENDED, RunState
from glassfleet.model.intervals import TellsRule


@dataclass(frozen=True)
class Transition:
    """One row.

    Attributes
    ----------
    source : str
        The phase before; empty: there is nothing yet.
    cause : str
        What happened.
    target : str
        The phase after.
    when : str
        The condition in words.
    effects : str
        What the shell is told to do.
    given : callable or None
        Whether the row holds for a state. Of several rows with a source and a cause, the first that holds counts.
    """

    source: str
    cause: str
    target: str
    when: str
    effects: str
    given: Callable[[Any], bool] | None = None


class TransitionTable:
    """All rows of one machine; a move that is in none cannot be made.

    Parameters
    ----------
    ended : collection of str
        The phases in which it is over.
    """

    def __init__(self, ended: Collection[str], *rows: Transition) -> None:
        self.ended = ended
        self.rows = rows

    def find(self, source: str, cause: str, state: object) -> str | None:
        """Return the phase after `cause`; None: there is no such row."""
        rows = (row for row in self.rows if (row.source, row.cause) == (source, cause))
        return next((row.target for row in rows if row.given is None or row.given(state)), None)

    def target(self, source: str, cause: str, state: object) -> Any:
        """Return the phase after `cause`; raises AssertionError when the table has none: a fault of the machine."""
        phase = self.find(source, cause, state)
        if phase is None:
            raise AssertionError(f"the transition table has no way from {source!r} by {cause!r}: a fault of the engine")
        return phase


SCHEME_ENDS: dict[str, str] = {
    "no-rows": "those who answered have no rows at all, or each too few to be told",
    "too-many-rows": "more rows than the exact sums are good for",
    "no-classes": "a class target of which no vehicle could tell a label",
    "impossible-sum": "private runs: the answers of a group do not add up to what vehicles can have, and without it too few are left",
    "no-model": "the scheme says that a model cannot be learned from these answers",
    "scheme-error": "the scheme's server half raised or repeated a task",
}
"""Ends that a server half brings about: by a ``RunFailedError`` with this `cause` (``no-model``: with any other), or by
a fault."""

_END = "ClearRequest, Ended"
_OPEN = "RoundClosed, OpenRound"
_PUBLISH = "RoundClosed, ClearRequest, Publish, Ended"


def _searches(state: RunState) -> bool:
    return state.spec.domain is None


def _private(state: RunState) -> bool:
    return state.spec.private is not None


def _searches_privately(state: RunState) -> bool:
    return _private(state) and _searches(state)


def _cohort(state: RunState) -> bool:
    return state.spec.participation == "cohort"


def _has_no_domain(state: RunState) -> bool:
    return state.domain is None


def _is_scored(state: RunState) -> bool:
    """Whether test errors are asked for: in other runs than private ones they are for the intervals of rules alone."""
    return _private(state) or (_cohort(state) and isinstance(state.model, TellsRule))


def _recruits(state: RunState) -> bool:
    return _cohort(state) and not _private(state)


TABLE = TransitionTable(
    ENDED,
    Transition("", "wanted", "gathering", "a valid spec arrives", "none"),
    Transition("gathering", "enough-agents", "pairing", "`gather_agents` able agents are up; private run", "OpenRound", _private),
    Transition("gathering", "enough-agents", "domain", "`gather_agents` able agents are up; no domain given", "OpenRound", _searches),
    Transition("gathering", "enough-agents", "recruiting", "the same; domain given, cohort participation", "OpenRound", _cohort),
    Transition("gathering", "enough-agents", "learning", "the same; domain given, elastic participation", "OpenRound"),
    Transition("gathering", "not-enough-agents", "failed", "`gather_timeout` has passed", _END),
    Transition("pairing", "paired", "domain", "the founders are told each other's keys; no domain given", _OPEN, _searches_privately),
    Transition("pairing", "paired", "learning", "the same; domain given", _OPEN),
    Transition("domain", "counted", "domain", "a histogram round closed; the search goes on", _OPEN),
    Transition("domain", "replayed", "domain", "private run: members were lost; the search begins again for those who are left", "Restarted, " + _OPEN),
    Transition("domain", "too-many-restarts", "failed", "as in learning", _END),
    Transition("domain", "domain-found", "recruiting", "the search is done; cohort participation, not a private run", _OPEN, _recruits),
    Transition("domain", "domain-found", "learning", "the search is done; private run, or elastic participation", _OPEN),
    Transition("recruiting", "cohort-fixed", "learning", "the first statistics round closed: who answered is the cohort", _OPEN),
    Transition("recruiting", "rows-limited", "recruiting", "the same, but one of five agents or more claims over five times the median's rows: all are asked again, with that limit", _OPEN),
    Transition("learning", "rows-limited", "learning", "the same in the first round of elastic participation", _OPEN),
    Transition("learning", "counted", "learning", "the round closed; nobody was lost that changes an earlier level", _OPEN),
    Transition("learning", "replayed", "learning", "members were lost and an earlier level came out differently, or the run is private and elastic, or a group is founded again: the open question is asked again", "Restarted, " + _OPEN),
    Transition("learning", "model-done", "scoring", "the scheme returned its model; private run, or a cohort's whose rules forecast a number", _OPEN, _is_scored),
    Transition("learning", "model-done", "finished", "the scheme returned its model", _PUBLISH),
    *(
        Transition(source, "does-not-add-up", "checking", "private run: the answers of a group cannot be true; it is asked whose masks fit whose", _OPEN)
        for source in ("domain", "learning")
    ),
    Transition("checking", "checked", "domain", "it goes on without those whose masks fit nobody's, or without the group; the domain was being found", _OPEN + ", or an end", _has_no_domain),
    Transition("checking", "checked", "learning", "the same; while it learned", _OPEN + ", or an end"),
    Transition("scoring", "replayed", "scoring", "private run: members were lost, the first time: the smaller groups are asked", _OPEN),
    Transition("scoring", "scored", "finished", "the scores are there: the groups', or of whoever answered in time", _PUBLISH),
    Transition("scoring", "lost-again", "finished", "private run: members were lost once more: the model has no scores", _PUBLISH),
    Transition("learning", "too-many-restarts", "failed", "more than `max_restarts` replays", _END),
    *(
        transition
        for source in ("pairing", "domain", "recruiting", "learning", "checking")
        for transition in (
            Transition(source, "extended", source, "deadline without quorum, extensions left", "OpenRound (next attempt)"),
            Transition(source, "quorum-not-met", "failed", "deadline without quorum, or nobody is left to wait for, or everybody who could answer refuses", _END),
            Transition(source, "request-too-large", "failed", "the task cannot be sent, not even in parts", _END),
        )
    ),
    *(
        Transition(source, cause, "failed", when, _END)
        for source in ("domain", "recruiting", "learning")
        for cause, when in SCHEME_ENDS.items()
    ),
    Transition("scoring", "extended", "scoring", "as in learning", "OpenRound (next attempt)"),
    *(
        Transition("scoring", cause, "finished", f"{when}: the model has no scores", _PUBLISH)
        for cause, when in {
            "quorum-not-met": "deadline without quorum",
            "request-too-large": "the task cannot be sent",
            "too-few-for-privacy": "fewer vehicles are left than those who take part ask for",
            **SCHEME_ENDS,
        }.items()
    ),
    Transition("finished", "model-unpublishable", "failed", "the model cannot be written down or sent; in the step that finished the run, before anybody is told", _END),
    *(
        Transition(source, "too-few-for-privacy", "failed", "private run: fewer vehicles than those who take part ask for", _END)
        for source in ("gathering", "pairing", "domain", "learning")
    ),
    *(
        Transition(source, "cancelled", "cancelled", "an operator cancels", _END)
        for source in ("gathering", "pairing", "domain", "recruiting", "learning", "checking", "scoring")
    ),
)  # fmt: skip
