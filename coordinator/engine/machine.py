"""The round engine: ``step(state, event) -> (state, effects)``.

Theory of operation
-------------------
A run is a conversation: the coordinator asks a task, agents answer, the scheme turns the answers into the next task,
until it returns a model. Four ideas keep that simple when agents vanish, lag, repeat themselves or lie:

1. *One open round.* At any time a run has at most one open task. Whoever knows the task can answer; nobody needs to
   have seen an earlier round.
2. *Counted once.* An answer is stored under (run, agent, digest of the task). The first is kept; the same again is a
   duplicate; another one is a conflict. Nothing is ever added up on arrival.
3. *The state of learning is a function* of who counts and of the stored answers (`learning.grow`). When a member of the
   cohort is lost, its name is removed and the function is evaluated again. Levels that come out as before are already
   answered; the first that differs is the open round. There is no other replay code.
4. *Time is an event.* Nothing here reads a clock. Every open round has a deadline, every deadline leads to a closed
   round, a bounded number of extensions or a named end; so every run ends.

Phases: `gathering` agents, finding the `domain`, `recruiting` (cohort participation's first statistics round, which
fixes the cohort), `learning`; then `finished`, `failed` or `cancelled`. `table.TABLE` lists every move between them.

Rounds come in two sorts. *Open to all* (domain, recruiting, elastic learning without a sample): every agent that can
answer may, agents that come up while it is open are waited for too, and agents that missed their last deadline and have
not been heard in time since (`silent`) are not waited for. *Limited* (a fixed cohort, or a sample): only those asked
count.

What happens to an answer, in this order (first match decides):

| the task is | and the answer | outcome |
|---|---|---|
| answered by this agent before | is the same | duplicate |
| answered by this agent before | differs | rejected, `conflict` |
| of a closed round, or the run has ended | | late |
| not of this run | | rejected, `unknown-task` |
| open | comes from somebody not asked | rejected, `not-asked` |
| open | comes from somebody whom the run leaves out | rejected, `left-out` |
| open | claims more rows than the run counts of a vehicle | rejected, `impossible: ...` (dropped) |
| open | has other rows than the agent's first answer | rejected, `data-changed` (dropped) |
| open | cannot be true | rejected, `impossible: ...` (dropped) |
| open | | accepted |

A dropped agent is not waited for; it is still counted if a good answer arrives before the round closes.

Where to read on: `table` (every move), `state` (a run as data), `ledger` (the state in the making, the books, the
ends), `rounds` (open, close, count), `answers` (the table above), `asking` (whom to ask), `learning` (`grow`),
`waiting` (what a run lacks while it waits).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from coordinator.engine import asking
from coordinator.engine.answers import Answers
from coordinator.engine.effects import ClearRequest, Effect, Ended, Publish
from coordinator.engine.events import (
    AgentDown,
    AgentUp,
    Answer,
    Cancel,
    Counted,
    Event,
    Malformed,
    NoBroker,
    Refused,
    Start,
    Tick,
    TurnedAway,
    Unable,
)
from coordinator.engine.learning import Discover, Lookup
from coordinator.engine.rounds import request
from coordinator.engine.state import Offer, RunState
from coordinator.engine.table import MOVES
from coordinator.spec.run import RunSpec
from glassfleet.data.parameters import parameter_fault
from glassfleet.scheme import Server
from schemas.errors import UsageError


@dataclass(frozen=True)
class Engine:
    """The machine. Holds no state: only where to find schemes and how to search a domain.

    Parameters
    ----------
    lookup : callable
        Finds a scheme by name; raises NotFoundError.
    discover : callable
        Gives the server half and the parameters of domain discovery.
    """

    lookup: Lookup
    discover: Discover

    def step(self, state: RunState | None, event: Event) -> tuple[RunState, tuple[Effect, ...]]:
        """Return the state after `event`, and what the shell shall do.

        The same object comes back when nothing changed: such events need no place in the journal.

        Raises
        ------
        UsageError, NotFoundError
            The spec of a `Start` cannot be meant. No other event raises, whatever a peer sent.
        """
        if isinstance(event, Start):
            if state is not None:
                raise UsageError(f"run {event.spec.run!r} exists already; leave the id out to have one made up")
            return _Step.begin(self, event)
        if state is None:
            raise ValueError(f"a run begins with Start, not with {event.kind}")
        step = _Step(self, state, event.at)
        return step.note(event) if isinstance(event, NoBroker) else step.take(event)

    def parameters(self, spec: RunSpec) -> Any:
        """Check what can be checked of a spec before it is a run, and return the scheme's parameters.

        Raises
        ------
        UsageError, NotFoundError
        """
        scheme = self.lookup(spec.scheme)
        if spec.participation not in scheme.participation:
            offered = " or ".join(sorted(scheme.participation))
            raise UsageError(
                f"scheme {spec.scheme!r} does not run in {spec.participation} participation: use {offered}"
            )
        try:
            return scheme.Parameters.model_validate(spec.parameters)
        except ValidationError as fault:
            before = f"parameters of scheme {spec.scheme!r}: "
            raise UsageError(parameter_fault(spec.scheme, scheme.Parameters, fault, before)) from fault

    def server(self, state: RunState) -> tuple[Server, Any]:
        """Return the server half of the present phase, and its parameters."""
        scheme = self.lookup(state.spec.scheme)
        if state.phase == "domain":
            server, parameters = self.discover(state.features, state.target, state.spec.bounds or {}, scheme)
            if state.spec.guarded:
                guard = {"guarded": True, "max_rows_each": state.max_rows_each}
                parameters = parameters.model_copy(update=guard)
            return server, parameters if state.spec.memory is None else parameters.remembering(state.spec.memory)
        return scheme.server, state.parameters


class _Step(Answers):
    """One step in the making: the part that looks at the event first."""

    @classmethod
    def begin(cls, engine: Engine, event: Start) -> tuple[RunState, tuple[Effect, ...]]:
        parameters = engine.parameters(event.spec)
        assert ("", "wanted", "gathering") in MOVES
        agents, most = dict(event.agents), event.spec.max_rows_each or 0
        state = RunState(event.spec, parameters, "gathering", event.at, event.at, agents=agents, max_rows_each=most)
        step = cls(engine, state, event.at)
        step._gather()
        return step._result()

    def take(self, event: Event) -> tuple[RunState, tuple[Effect, ...]]:
        match event:
            case Answer():
                self._answer(event)
            case TurnedAway():
                self._turn_away(event.agent, event.task_digest, event.outcome, event.reason)
            case Counted():
                self._tally(event.counts)
            case Refused():
                self._refused(event)
            case Malformed():
                self._turn_away(event.agent, event.task_digest, "rejected", event.reason)
            case AgentUp():
                self._agent_up(event.agent, event.offer)
            case AgentDown():
                self._agent_down(event.agent)
            case Cancel() | Unable():
                self._stop(event)
            case Tick():
                pass
            case _:
                raise TypeError(f"not an event: {event!r}")
        self._gather()
        self._settle()
        return self._result()

    def note(self, event: NoBroker) -> tuple[RunState, tuple[Effect, ...]]:
        """Note for the end's reason that nobody could be heard; decides nothing, and time does not go on by it."""
        state = self.state
        self.at = state.at
        began = state.started_at if state.open is None else state.open.opened_at
        seconds = event.at - max(event.since, began)
        if seconds > 0 and not state.is_ended:
            self._update(without_broker=state.without_broker + seconds)
        return self._result()

    def _stop(self, event: Cancel | Unable) -> None:
        """End from outside. A finished run can only become unpublishable; the shell knows that it is not published."""
        if isinstance(event, Cancel):
            if not self.state.is_ended:
                self._end("cancelled", "cancelled", event.reason)
        elif (self.state.phase, event.cause, "failed") in MOVES:
            self._update(model=None)
            self._end(event.cause, "failed", event.reason)

    def _agent_up(self, agent: str, offer: Offer) -> None:
        state = self.state
        if state.is_ended:
            return
        if state.agents.get(agent) != offer:
            self._update(agents={**state.agents, agent: offer})
        self._heard(agent)

    def _agent_down(self, agent: str) -> None:
        if agent in self.state.agents and not self.state.is_ended:
            self._update(agents={name: offer for name, offer in self.state.agents.items() if name != agent})

    def _gather(self) -> None:
        state = self.state
        if state.phase != "gathering":
            return
        settled = asking.settled(state)
        able = asking.able(settled) if settled.features else ()
        wanted = state.spec.policy.gather_agents
        if len(able) >= wanted:
            self._update(features=settled.features, target=settled.target)
            self._first_round()
        elif self.at >= state.started_at + state.spec.policy.gather_timeout:
            self._end(
                "not-enough-agents",
                "failed",
                f"{len(able)} of {wanted} agents that can run {state.spec.scheme!r} were up after "
                f"{state.spec.policy.gather_timeout:g} s ({len(state.agents)} agents up in all)"
                + self._without_broker("that time")
                + asking.why_not(asking.unable(settled)),
            )


def standing(state: RunState) -> tuple[Effect, ...]:
    """Return the effects that shall hold now: performed after a restart and on every connect."""
    if state.open is not None:
        return (request(state),)
    if not state.is_ended:
        return ()
    assert state.phase in ("finished", "failed", "cancelled")
    effects: list[Effect] = [ClearRequest(state.run)]
    if state.phase == "finished":
        effects.append(
            Publish(state.run, state.spec.model, state.model, state.cohort, state.domain_contributors, state.summary)
        )
    effects.append(Ended(state.run, state.phase, state.reason))
    return tuple(effects)


def wakes_at(state: RunState) -> float | None:
    """Return when the next `Tick` will matter; None when only a message can move the run."""
    if state.phase == "gathering":
        return state.started_at + state.spec.policy.gather_timeout
    return None if state.open is None else state.open.closes_at + state.spec.policy.grace


def gives_up_at(state: RunState) -> float | None:
    """Return when the run fails if nothing comes until then; None when it has ended."""
    wake, current, policy = wakes_at(state), state.open, state.spec.policy
    if wake is None or current is None or policy.on_missed_quorum == "fail":
        return wake
    return wake + max(0, policy.extensions - current.extensions) * (policy.deadline + policy.grace)
