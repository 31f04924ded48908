"""Births and wills as they become events of the runs: taken, refused or held back. No clock, no socket of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from coordinator.engine import AgentDown, AgentUp
from coordinator.fleet.directory import Fleet, offer_of, size_of
from schemas.envelope import Envelope
from schemas.messages import AgentState
from schemas.topics import Address

_log = structlog.get_logger("coordinator")

_HELD_BYTES = 4608
"""Most memory of a birth certificate or last will that is held back, without the names of columns and schemes."""


class _Held(NamedTuple):
    """What came too often: when it is due, what it is, the bytes of memory that it takes."""

    due: float
    message: Envelope | Address
    size: int


@dataclass(eq=False)
class Arrivals:
    """Who comes and goes, no faster than the coordinator can write it down.

    Parameters
    ----------
    fleet : Fleet
        Told of all that is taken.
    clock : callable
        Seconds that only go forward.
    metrics : Counter
        Counts what is held back and refused.
    """

    fleet: Fleet
    clock: Callable[[], float]
    metrics: Counter[str]
    _held: dict[str, _Held] = field(default_factory=dict, init=False)

    def event_of(self, message: Envelope | Address, at: float) -> AgentUp | AgentDown | None:
        """Return what a birth certificate or last will means to the runs; None: nothing, or nothing yet.

        Parameters
        ----------
        message : Envelope or Address
            With an `AgentState`, whose time is when the agent's process began; an address: what stood there was
            cleared.
        at : float
            The event's time, on the coordinator's time line.
        """
        agent = message.agent
        former = self._held.pop(agent, None)
        self.fleet.held -= 0 if former is None else former.size
        state, born = _state(message)
        birth = state if state is not None and state.status == "up" else None
        incarnation = None if state is None else state.incarnation
        wait = self.fleet.wait(agent, birth, incarnation, "" if state is None else state.fault)
        if wait > 0:
            self._hold(message, birth, self.clock() + wait)
            return None
        if state is not None and birth is None and state.fault:
            faulty = self.fleet.cannot(agent, state, born)
            return None if faulty is None else AgentUp(at, agent, faulty)
        if birth is None:
            software, stopped = ("", False) if state is None else (state.software, state.stopped)
            is_news = self.fleet.down(agent, incarnation, software=software, born=born, stopped=stopped)
            return AgentDown(at, agent) if is_news else None
        refused = self.fleet.refused
        offer = self.fleet.up(agent, birth, born)
        if self.fleet.refused > refused:
            self._log_refused(agent)
        if offer is None:
            return None
        return AgentUp(at, agent, offer)

    def _hold(self, message: Envelope | Address, birth: AgentState | None, due: float) -> None:
        """Keep what came too often until its time comes. A will in any case: who is down must not be taken for up."""
        size = _HELD_BYTES + (0 if birth is None else size_of(offer_of(birth)))
        if birth is not None and not self.fleet.fits(size):
            self._log_refused(message.agent)
            return
        self.metrics["births.held"] += 1
        self._held[message.agent] = _Held(due, message, size)
        self.fleet.held += size

    def _log_refused(self, agent: str) -> None:
        self.metrics["births.refused"] += 1
        if self.metrics["births.refused"] == 1:
            _log.error("fleet-full", agent=agent, hint="raise max_agents or fleet_bytes, or find out who floods")

    def released(self, at: float) -> list[AgentUp | AgentDown]:
        """Return what was held back and may be taken now."""
        now = self.clock()
        due = [held.message for held in list(self._held.values()) if held.due <= now]
        return [event for message in due if (event := self.event_of(message, at)) is not None]

    def due_times(self) -> list[float]:
        """Return when what is held back may be taken, on the clock that was given."""
        return [held.due for held in self._held.values()]


def _state(message: Envelope | Address) -> tuple[AgentState | None, float]:
    """Return what an agent says of itself, None where its state was cleared; and when its process began."""
    if isinstance(message, Envelope) and isinstance(message.body, AgentState):
        return message.body, message.time
    return None, 0.0
