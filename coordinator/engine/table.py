# ruff: noqa: E501  a table is read by its columns
"""The transition table: every change of phase that a run can make, and nothing else.

The machine looks up each move here and refuses one that is not listed; docs/explanation/rounds.md shows the table and
the diagram that `as_markdown` and `as_mermaid` draw from it, and a test keeps the page equal to them.
"""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.engine.state import ENDED, Phase


@dataclass(frozen=True)
class Transition:
    """One row.

    Attributes
    ----------
    source : Phase or ""
        Empty: there is no run yet.
    cause : str
        What happened; the name is unique for a source and a target.
    target : Phase
    when : str
        The condition in words.
    effects : str
        What the shell is told to do.
    """

    source: Phase | str
    cause: str
    target: Phase
    when: str
    effects: str


SCHEME_ENDS: dict[str, str] = {
    "no-rows": "those who answered have no rows at all, or each too few to be told",
    "too-many-rows": "more rows than the exact sums are good for",
    "no-classes": "a class target of which no vehicle could tell a label",
    "no-model": "the scheme says that a model cannot be learned from these answers",
    "scheme-error": "the scheme's server half raised or repeated a task",
}
"""Ends that a server half brings about: by a ``RunFailedError`` whose text begins with the name and a colon
(``no-model``: by any other), or by a fault."""

_END = "ClearRequest, Ended"
_OPEN = "RoundClosed, OpenRound"

TABLE: tuple[Transition, ...] = (
    Transition("", "wanted", "gathering", "a valid spec arrives", "none"),
    Transition("gathering", "enough-agents", "domain", "`gather_agents` able agents are up; no domain given", "OpenRound"),
    Transition("gathering", "enough-agents", "recruiting", "the same; domain given, cohort participation", "OpenRound"),
    Transition("gathering", "enough-agents", "learning", "the same; domain given, elastic participation", "OpenRound"),
    Transition("gathering", "not-enough-agents", "failed", "`gather_timeout` has passed", _END),
    Transition("domain", "counted", "domain", "a histogram round closed; the search goes on", _OPEN),
    Transition("domain", "domain-found", "recruiting", "the search is done; cohort participation", _OPEN),
    Transition("domain", "domain-found", "learning", "the search is done; elastic participation", _OPEN),
    Transition("recruiting", "cohort-fixed", "learning", "the first statistics round closed: who answered is the cohort", _OPEN),
    Transition("recruiting", "rows-limited", "recruiting", "the same, but one of five agents or more claims over five times the median's rows: all are asked again, with that limit", _OPEN),
    Transition("learning", "rows-limited", "learning", "the same in the first round of elastic participation", _OPEN),
    Transition("learning", "counted", "learning", "the round closed; nobody was lost that changes an earlier level", _OPEN),
    Transition("learning", "replayed", "learning", "members were lost and an earlier level came out differently", "Restarted, " + _OPEN),
    Transition("learning", "model-done", "finished", "the scheme returned its model", "RoundClosed, ClearRequest, Publish, Ended"),
    Transition("learning", "too-many-restarts", "failed", "more than `max_restarts` replays changed the course", _END),
    *(
        transition
        for source in ("domain", "recruiting", "learning")
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
    Transition("finished", "model-unpublishable", "failed", "the model cannot be written down or sent; in the step that finished the run, before anybody is told", _END),
    *(
        Transition(source, "cancelled", "cancelled", "an operator cancels", _END)
        for source in ("gathering", "domain", "recruiting", "learning")
    ),
)  # fmt: skip

MOVES: frozenset[tuple[str, str, str]] = frozenset((row.source, row.cause, row.target) for row in TABLE)


def as_markdown() -> str:
    """Draw the table for the docs."""
    lines = ["| from | cause | to | when | effects |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.source or '(none)'} | {row.cause} | {row.target} | {row.when} | {row.effects} |" for row in TABLE
    ]
    return "\n".join(lines)


def as_mermaid() -> str:
    """Draw the diagram for the docs; causes between the same two phases share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for row in TABLE:
        arrows.setdefault((row.source or "[*]", row.target), []).append(row.cause)
    lines = ["stateDiagram-v2"]
    lines += [f"    {source} --> {target}: {', '.join(causes)}" for (source, target), causes in arrows.items()]
    lines += [f"    {phase} --> [*]" for phase in sorted(ENDED)]
    return "\n".join(lines)
