# ruff: noqa: E501  a table is read by its columns
"""The transition table of a rollout: every change of phase, and nothing else. It drives `machine`."""

from __future__ import annotations

from typing import Any, Literal

from coordinator.engine.table import Transition, TransitionTable

Phase = Literal["opening", "trying", "paused", "promoted", "rolled-back", "stopped", "superseded"]
ENDED: frozenset[str] = frozenset({"promoted", "rolled-back", "stopped", "superseded"})


def _is_open(state: Any) -> bool:
    return bool(state.is_open)


TABLE = TransitionTable(
    ENDED,
    Transition("", "started", "opening", "an operator or a run starts it", "none"),
    Transition("opening", "opened", "trying", "it is known which vehicles are up: the stage's threshold is set", "Try"),
    Transition("opening", "no-vehicles", "rolled-back", "nobody was up until the deadline", "Withdraw"),
    Transition("opening", "paused", "paused", "an operator pauses it", "none"),
    Transition("trying", "reported", "trying", "a vehicle's first report; too little to judge", "none"),
    Transition("trying", "cannot", "trying", "a vehicle says that it cannot score the candidate: it is counted out", "none"),
    Transition("trying", "widened", "opening", "none of those that were asked can: the stage is opened among the others, within the same time", "none"),
    Transition("opening", "nobody-can", "rolled-back", "no vehicle that is up can score the candidate", "Withdraw"),
    Transition("trying", "stage-passed", "opening", "all asked that are up have reported, or the deadline, with enough reports: within the thresholds; more stages", "none"),
    Transition("trying", "promoted", "promoted", "the same in the last stage", "Promote"),
    Transition("trying", "too-bad", "rolled-back", "judged: beyond a threshold, or no better than the constant; at once when too many are worse off already", "Withdraw"),
    Transition("trying", "former-better", "rolled-back", "judged, of a gate: a former version is better than the current one, and the candidate is not shown to be as good", "Withdraw, Return"),
    Transition("trying", "too-few-reports", "rolled-back", "the deadline with fewer than `min_reports`", "Withdraw"),
    Transition("trying", "paused", "paused", "an operator pauses it: the deadline stands still, reports are taken", "none"),
    Transition("paused", "reported", "paused", "a vehicle's first report: it counts when the rollout is resumed", "none"),
    Transition("paused", "cannot", "paused", "as while it is tried", "none"),
    Transition("paused", "resumed", "trying", "an operator resumes it; the stage goes on with the time that was left", "Try", _is_open),
    Transition("paused", "resumed", "opening", "an operator resumes it; no stage was open", "none"),
    *(
        transition
        for source in ("opening", "trying", "paused")
        for transition in (
            Transition(source, "stopped", "stopped", "an operator stops it", "Withdraw"),
            Transition(source, "superseded", "superseded", "another version became current meanwhile", "Withdraw"),
        )
    ),
)  # fmt: skip
