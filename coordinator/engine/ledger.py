"""The bottom of a step: the state in the making, the effects so far, moves by the table, the books and the ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, Protocol

from coordinator.engine.effects import ClearRequest, Effect, Ended, RoundClosed, SendReceipt
from coordinator.engine.state import Phase, RoundSummary, RunState
from coordinator.engine.table import MOVES
from glassfleet.scheme import Server


class Halves(Protocol):
    """Where a step finds the scheme (`machine.Engine` is one)."""

    def server(self, state: RunState) -> tuple[Server, Any]:
        """Return the server half of the present phase, and its parameters."""
        ...


class Ledger:
    """A state that is replaced bit by bit, and the effects so far.

    Parameters
    ----------
    engine : Halves
    state : RunState
    at : float
        When the event happened; time never goes back, whatever a clock does.
    """

    def __init__(self, engine: Halves, state: RunState, at: float) -> None:
        self.engine = engine
        self.before = state
        self.state = state
        self.at = max(at, state.at)
        self.effects: list[Effect] = []

    def _result(self) -> tuple[RunState, tuple[Effect, ...]]:
        if self.state is not self.before:
            self._update(at=self.at)
        return self.state, tuple(self.effects)

    def _update(self, **changes: Any) -> None:
        self.state = replace(self.state, **changes)

    def _move(self, cause: str, target: Phase) -> None:
        move = (self.state.phase, cause, target)
        if move not in MOVES:
            raise AssertionError(f"the transition table has no {move}: this is a fault of the engine")
        self._update(phase=target)

    def _without_broker(self, what: str) -> str:
        """Say how much of `what` the coordinator had no broker: the vehicles are not to blame for that."""
        seconds = f"{self.state.without_broker:.1f}"
        return "" if seconds == "0.0" else f"; the coordinator had no broker for {seconds} s of {what}"

    def _receipt(self, agent: str, digest: str, outcome: Any, reason: str) -> None:
        self.effects.append(SendReceipt(self.state.run, agent, digest, outcome, reason))

    @property
    def _is_fixed(self) -> bool:
        return self.state.is_fixed

    def _waiting(self) -> tuple[str, ...]:
        """Return who has neither answered the open round nor been dropped from it."""
        current = self.state.open
        assert current is not None
        answered = self.state.store.get(current.digest, {})
        return tuple(agent for agent in current.asked if agent not in answered and agent not in current.dropped)

    def _record(self, missed: Iterable[str]) -> tuple[str, ...]:
        """Write the open round into the books and close it; return who was counted."""
        state, current = self.state, self.state.open
        assert current is not None
        accepted = state.accepted
        dropped = {**current.dropped, **dict.fromkeys(missed, "deadline")}
        summary = RoundSummary(
            current.number,
            current.kind,
            state.trail[-1].task.kind,
            current.attempt,
            current.digest,
            current.asked,
            accepted,
            dropped,
            current.late,
            current.duplicate,
            current.rejected,
            self.at - current.opened_at,
            current.size,
            current.opened_at,
        )
        silent = (state.silent - set(accepted)) | {agent for agent, why in dropped.items() if why == "deadline"}
        self._update(open=None, rounds=(*state.rounds, summary), silent=silent)
        self.effects.append(RoundClosed(state.run, summary))
        return accepted

    def _end(self, cause: str, outcome: Literal["finished", "failed", "cancelled"], detail: str) -> None:
        if self.state.open is not None:
            self._record(())
        self._move(cause, outcome)
        reason = {"finished": "", "cancelled": detail}.get(outcome, f"{cause}: {detail}")
        self._update(reason=reason, open=None, store={})
        self.effects += [ClearRequest(self.state.run), Ended(self.state.run, outcome, reason)]
