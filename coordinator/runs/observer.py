"""Who watches a coordinator: metrics hear of every performed effect, and can change nothing.

Neither the engine nor `core` knows Prometheus; a simulator runs thousands of coordinators without it.
"""

from __future__ import annotations

from typing import Any

from coordinator.engine import Effect, RunState
from coordinator.engine.state import RoundSummary


class Observer:
    """Who is told, and ignores it. All calls come from the coordinator's thread; they must return at once."""

    def performed(self, effect: Effect, state: RunState | None, now: float) -> None:
        """Hear of an effect that was performed, perhaps not for the first time.

        Parameters
        ----------
        state : RunState or None
            The run after the step that caused the effect; None when the run is not live.
        now : float
            The coordinator's own time, seconds.
        """

    def appended(self, seconds: float, records: int) -> None:
        """Hear how long one journal transaction with so many records took."""

    def resumed(self, seconds: float, runs: int) -> None:
        """Hear how long reading the journal took at the start, and how many runs go on."""


def end_of(summary: RoundSummary, state: RunState | None) -> str:
    """Return how a round ended: ``complete``, ``partial`` (somebody was dropped) or ``missed`` (too few answers)."""
    if state is not None and state.reason.startswith("quorum-not-met") and state.rounds[-1:] == (summary,):
        return "missed"
    return "partial" if summary.dropped_agents else "complete"


def place(state: RunState | None, task_digest: str = "") -> dict[str, Any]:
    """Return where a run stands, for log lines about it.

    Parameters
    ----------
    state : RunState or None
        None: the run is over, or not known.
    task_digest : str
        The task that the line is about, when it is about one; it may belong to an earlier round.

    Returns
    -------
    dict
        ``phase`` and ``round`` of the task, else of the open round, else of the last one that closed; empty when there
        is none.
    """
    if state is None:
        return {}
    current = state.open
    if task_digest and (current is None or current.digest != task_digest):
        for summary in reversed(state.rounds):
            if summary.task_digest == task_digest:
                return {"phase": summary.phase, "round": summary.number}
    if current is not None:
        return {"phase": current.kind, "round": current.number}
    if state.rounds:
        return {"phase": state.rounds[-1].phase, "round": state.rounds[-1].number}
    return {}


def canonical(summary: RoundSummary, state: RunState | None) -> dict[str, Any]:
    """Return the fields of the one log line that says everything about a round."""
    return {
        "scheme": "" if state is None else state.spec.scheme,
        "phase": summary.phase,
        "round": summary.number,
        "attempt": summary.attempt,
        "kind": summary.kind,
        "end": end_of(summary, state),
        "asked": len(summary.asked_agents),
        "accepted": len(summary.accepted_agents),
        "late": summary.late,
        "duplicate": summary.duplicate,
        "rejected": summary.rejected,
        "dropped": dict(summary.dropped_agents),
        "seconds": round(summary.seconds, 3),
        "bytes": summary.bytes,
    }
