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
not been heard since (`silent`) are not waited for. *Limited* (a fixed cohort, or a sample): only those asked count.

What happens to an answer, in this order (first match decides):

| the task is | and the answer | outcome |
|---|---|---|
| answered by this agent before | is the same | duplicate |
| answered by this agent before | differs | rejected, `conflict` |
| of a closed round, or the run has ended | | late |
| not of this run | | rejected, `unknown-task` |
| open | comes from somebody not asked | rejected, `not-asked` |
| open | has other rows than the agent's first answer | rejected, `data-changed` (dropped) |
| open | cannot be true | rejected, `impossible: ...` (dropped) |
| open | | accepted |

A dropped agent is not waited for; it is still counted if a good answer arrives before the round closes.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import ValidationError

from coordinator.engine import learning
from coordinator.engine.effects import (
    ClearRequest,
    Effect,
    Ended,
    OpenRound,
    Publish,
    Restarted,
    RoundClosed,
    SendReceipt,
)
from coordinator.engine.events import (
    AgentDown,
    AgentUp,
    Answer,
    Cancel,
    Event,
    Malformed,
    Refused,
    Start,
    Tick,
    TurnedAway,
)
from coordinator.engine.learning import Discover, Growth, Lookup, SchemeFaultError
from coordinator.engine.state import Level, Offer, Phase, Round, RoundSummary, RunState, Stored
from coordinator.engine.table import MOVES
from coordinator.spec import RunSpec
from glassfleet.scheme import ContributionError, Server
from schemas.errors import UsageError
from schemas.messages import Outcome


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
        return _Step(self, state, event.at).take(event)

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
            error = fault.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in error["loc"]) or "together"
            raise UsageError(f"parameters of scheme {spec.scheme!r}: {where}: {error['msg']}") from fault

    def server(self, state: RunState) -> tuple[Server, Any]:
        """Return the server half of the present phase, and its parameters."""
        scheme = self.lookup(state.spec.scheme)
        if state.phase == "domain":
            return self.discover(state.features, state.target, state.spec.bounds or {}, scheme)
        return scheme.server, state.parameters


class _Step:
    """One step in the making: a state that is replaced bit by bit, and the effects so far."""

    def __init__(self, engine: Engine, state: RunState, at: float) -> None:
        self.engine = engine
        self.before = state
        self.state = state
        self.at = max(at, state.at)  # time never goes back, whatever a clock does
        self.effects: list[Effect] = []

    @classmethod
    def begin(cls, engine: Engine, event: Start) -> tuple[RunState, tuple[Effect, ...]]:
        parameters = engine.parameters(event.spec)
        assert ("", "wanted", "gathering") in MOVES
        state = RunState(event.spec, parameters, "gathering", event.at, event.at, agents=dict(event.agents))
        step = cls(engine, state, event.at)
        step._gather()
        return step._result()

    def take(self, event: Event) -> tuple[RunState, tuple[Effect, ...]]:
        match event:
            case Answer():
                self._answer(event)
            case TurnedAway():
                self._turn_away(event.agent, event.task_digest, event.outcome, event.reason)
            case Refused():
                self._refused(event)
            case Malformed():
                self._turn_away(event.agent, event.task_digest, "rejected", event.reason)
            case AgentUp():
                self._agent_up(event.agent, event.offer)
            case AgentDown():
                self._agent_down(event.agent)
            case Cancel():
                if not self.state.is_ended:
                    self._end("cancelled", "cancelled", event.reason)
            case Tick():
                pass
            case _:
                raise TypeError(f"not an event: {event!r}")
        self._gather()
        self._settle()
        return self._result()

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

    # -- agents ---------------------------------------------------------------------------------------------------

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

    def _heard(self, agent: str) -> None:
        """Note a sign of life: the agent is waited for again where the round is open to all."""
        state = self.state
        if agent in state.silent:
            self._update(silent=state.silent - {agent})
        current = state.open
        if current is None or current.limited or agent in current.asked or agent not in _able(state):
            return
        self._update(open=replace(current, asked=tuple(sorted({*current.asked, agent}))))

    def _gather(self) -> None:
        state = self.state
        if state.phase != "gathering":
            return
        features, target = _columns(state)
        able = _able(replace(state, features=features, target=target)) if features else ()
        wanted = state.spec.policy.gather_agents
        if len(able) >= wanted:
            self._update(features=features, target=target)
            self._first_round()
        elif self.at >= state.started_at + state.spec.policy.gather_timeout:
            self._end(
                "not-enough-agents",
                "failed",
                f"{len(able)} of {wanted} agents that can run {state.spec.scheme!r} were up after "
                f"{state.spec.policy.gather_timeout:g} s ({len(state.agents)} agents up in all)",
            )

    # -- answers --------------------------------------------------------------------------------------------------

    def _answer(self, event: Answer) -> None:
        outcome, reason = self._judge(event)
        if outcome != "accepted":
            self._turn_away(event.agent, event.task_digest, outcome, reason)

    def _judge(self, event: Answer) -> tuple[Outcome, str]:
        """Decide about an answer, and store it when it is accepted."""
        state, current = self.state, self.state.open
        stored = state.store.get(event.task_digest, {}).get(event.agent)
        if stored is not None:
            same = stored.answer_digest == event.answer_digest
            return ("duplicate", "") if same else ("rejected", "conflict")
        if state.is_ended:
            return "late", f"the run has {state.phase}"
        if current is None or event.task_digest != current.digest:
            known = any(event.task_digest == summary.task_digest for summary in state.rounds)
            return ("late", "the round is closed") if known else ("rejected", "unknown-task")
        if current.limited and event.agent not in current.asked:
            return "rejected", "not-asked"
        if state.frozen.get(event.agent, (event.rows, event.data_digest)) != (event.rows, event.data_digest):
            return "rejected", "data-changed"
        try:
            server, _ = self.engine.server(state)
            contribution = learning.weigh(server, state.trail[-1].task, event.contribution, event.rows)
        except ContributionError as fault:
            return "rejected", f"impossible: {fault}"[:480]
        answers = dict(state.store.get(current.digest, {}))
        answers[event.agent] = Stored(event.answer_digest, event.rows, contribution.nullified, contribution)
        self._update(
            store={**state.store, current.digest: answers},
            frozen={**state.frozen, event.agent: (event.rows, event.data_digest)},
            silent=state.silent - {event.agent},
            open=replace(
                current,
                asked=current.asked if event.agent in current.asked else tuple(sorted({*current.asked, event.agent})),
                dropped={agent: why for agent, why in current.dropped.items() if agent != event.agent},
                size=current.size + event.size,
            ),
        )
        self._receipt(event.agent, event.task_digest, "accepted", "")
        return "accepted", ""

    def _turn_away(self, agent: str, digest: str, outcome: str, reason: str) -> None:
        self._count(digest, outcome)
        current = self.state.open
        if current is not None and digest == current.digest and reason.startswith(("impossible", "data-changed")):
            self._drop(agent, reason)
        if outcome in ("late", "duplicate"):
            self._heard(agent)
        self._receipt(agent, digest, outcome, reason)

    def _refused(self, event: Refused) -> None:
        state, current = self.state, self.state.open
        answered = event.agent in state.store.get(event.task_digest, {})
        if state.is_ended or current is None or event.task_digest != current.digest or answered:
            self._turn_away(event.agent, event.task_digest, "late", "the round no longer waits for this agent")
            return
        if current.limited and event.agent not in current.asked:
            self._turn_away(event.agent, event.task_digest, "rejected", "not-asked")
            return
        self._drop(event.agent, f"refused: {event.reason}"[:480])
        self._receipt(event.agent, event.task_digest, "accepted", "refusal noted")

    def _drop(self, agent: str, reason: str) -> None:
        current = self.state.open
        assert current is not None
        asked = current.asked
        if agent not in asked:
            if current.limited:
                return
            asked = tuple(sorted({*asked, agent}))
        if agent not in self.state.store.get(current.digest, {}) and current.dropped.get(agent) != reason:
            self._update(open=replace(current, asked=asked, dropped={**current.dropped, agent: reason}))

    def _count(self, digest: str, outcome: str) -> None:
        """Count an answer that was turned away, at the round that it was meant for; else at the open one."""
        state = self.state
        if state.is_ended:
            return
        current = state.open
        if current is None or digest != current.digest:
            for index in range(len(state.rounds) - 1, -1, -1):
                summary = state.rounds[index]
                if summary.task_digest == digest:
                    counted = replace(summary, **{outcome: getattr(summary, outcome) + 1})
                    self._update(rounds=(*state.rounds[:index], counted, *state.rounds[index + 1 :]))
                    return
        if current is not None:
            self._update(open=replace(current, **{outcome: getattr(current, outcome) + 1}))

    def _receipt(self, agent: str, digest: str, outcome: Any, reason: str) -> None:
        self.effects.append(SendReceipt(self.state.run, agent, digest, outcome, reason))

    # -- rounds ---------------------------------------------------------------------------------------------------

    @property
    def _is_fixed(self) -> bool:
        return self.state.phase == "learning" and self.state.spec.participation == "cohort"

    def _first_round(self) -> None:
        spec = self.state.spec
        if spec.domain is not None:
            self._update(domain=spec.domain)
            self._begin_statistics("enough-agents")
            return
        self._move("enough-agents", "domain")
        self._plant_and_open()

    def _begin_statistics(self, cause: str) -> None:
        elastic = self.state.spec.participation == "elastic"
        self._move(cause, "learning" if elastic else "recruiting")
        self._plant_and_open()

    def _plant_and_open(self) -> None:
        try:
            server, parameters = self.engine.server(self.state)
            domain = None if self.state.phase == "domain" else self.state.domain
            level = learning.plant(server, parameters, domain, self.state.spec.seed)
        except SchemeFaultError as fault:
            self._end("scheme-error", "failed", str(fault))
            return
        except Exception as fault:  # noqa: BLE001  discovery refuses columns without bounds: a named end, not a crash
            self._end("scheme-error", "failed", f"{type(fault).__name__}: {fault}"[:400])
            return
        self._update(trail=(level,))
        self._open()

    def _open(self) -> None:
        """Open a round for the last level of the trail."""
        state, policy = self.state, self.state.spec.policy
        level = state.trail[-1]
        kind: Literal["domain", "statistics"] = "domain" if state.phase == "domain" else "statistics"
        if self._is_fixed:
            asked, limited = state.cohort, True
        else:
            able = _able(state)
            asked = tuple(agent for agent in able if agent not in state.silent) or able
            limited = kind == "statistics" and policy.sample is not None
            if limited:
                asked = _sample(asked, policy.sample, f"{state.spec.seed}/{state.run}/{level.number}")
        key = f"{kind}/{level.number}"
        attempt = state.attempts.get(key, 0) + 1
        self._update(
            attempts={**state.attempts, key: attempt},
            open=Round(kind, level.number, attempt, level.digest, asked, limited, self.at, self.at + policy.deadline),
        )
        self.effects.append(_request(self.state))

    def _settle(self) -> None:
        """Close the open round if it is time; a loop, because what follows may be complete at once."""
        while (current := self.state.open) is not None:
            state, policy = self.state, self.state.spec.policy
            # Numbers only, for this runs at every event: who answered or was dropped is always among those asked.
            accepted = len(state.store.get(current.digest, {}))
            waiting = len(current.asked) - accepted - len(current.dropped)
            quorum = learning.share(policy.min_agents, state.founders if self._is_fixed else len(current.asked))
            has_target = policy.target is not None and current.kind == "statistics" and not self._is_fixed
            is_due = self.at >= current.closes_at + policy.grace
            if has_target and policy.target is not None and accepted >= policy.target:
                self._close(missed=())
            elif accepted >= quorum and (is_due or not waiting):
                self._close(missed=self._waiting())
            elif self._is_fixed and accepted + waiting < quorum:
                self._fail_round(f"{accepted + waiting} members are left of the {quorum} that must answer")
            elif not is_due:
                return
            elif policy.on_missed_quorum == "extend" and current.extensions < policy.extensions:
                self._extend(current)
                return
            else:
                self._fail_round(
                    f"{accepted} of {len(current.asked)} asked had answered at the deadline, {quorum} must"
                )

    def _waiting(self) -> tuple[str, ...]:
        """Return who has neither answered the open round nor been dropped from it."""
        current = self.state.open
        assert current is not None
        answered = self.state.store.get(current.digest, {})
        return tuple(agent for agent in current.asked if agent not in answered and agent not in current.dropped)

    def _extend(self, current: Round) -> None:
        state = self.state
        key = f"{current.kind}/{current.number}"
        attempt = state.attempts[key] + 1
        asked = current.asked if current.limited else tuple(sorted({*current.asked, *_able(state)}))
        self._move("extended", state.phase)
        self._update(
            attempts={**state.attempts, key: attempt},
            open=replace(
                current,
                attempt=attempt,
                asked=asked,
                extensions=current.extensions + 1,
                closes_at=self.at + state.spec.policy.deadline,
            ),
        )
        self.effects.append(_request(self.state))

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
        )
        silent = (state.silent - set(accepted)) | {agent for agent, why in dropped.items() if why == "deadline"}
        self._update(open=None, rounds=(*state.rounds, summary), silent=silent)
        self.effects.append(RoundClosed(state.run, summary))
        return accepted

    def _close(self, missed: tuple[str, ...]) -> None:
        """Count the round: everyone who answered, nobody else."""
        dropped = {} if self.state.open is None else self.state.open.dropped
        digest = self.state.trail[-1].digest
        members = self._record(missed)
        rows = sum(self.state.store[digest][member].rows for member in members)
        server, parameters = self.engine.server(self.state)
        most = _max_rows(server, parameters)
        if rows == 0:
            self._end("no-rows", "failed", f"the {len(members)} agents that answered have no training rows")
        elif most is not None and rows > most:
            self._end("too-many-rows", "failed", f"{rows} rows in all; the exact sums are good for {most}")
        else:
            try:
                self._count_round(server, members, {**dropped, **dict.fromkeys(missed, "deadline")})
            except SchemeFaultError as fault:
                self._end("scheme-error", "failed", str(fault))

    def _count_round(self, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
        state = self.state
        if state.phase == "recruiting":
            self._move("cohort-fixed", "learning")
            self._update(cohort=members, founders=len(members))
            self._grown(learning.grow(server, state.trail, members, state.store), "counted")
        elif self._is_fixed:
            self._count_fixed(server, members, dropped)
        else:
            growth = learning.advance(server, state.trail, members, state.store)
            self._forget(state.trail[-1])
            if state.phase == "domain":
                self._domain_grown(growth, members)
            else:
                self._update(cohort=tuple(sorted({*state.cohort, *members})))
                self._grown(growth, "counted")

    def _count_fixed(self, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
        """Count a round of a fixed cohort; who did not answer is lost, and the run is evaluated without it."""
        state = self.state
        lost = {agent: dropped.get(agent, "deadline") for agent in state.cohort if agent not in members}
        if not lost:
            self._grown(learning.grow(server, state.trail, members, state.store), "counted")
            return
        self._update(cohort=members, lost={**state.lost, **lost})
        growth = learning.grow(server, learning.root(state.trail), members, state.store)
        course = [level.digest for level in growth.trail]
        if state.trail[-1].digest in course:
            self._grown(growth, "counted")
            return
        restarts = state.restarts + 1
        self._update(restarts=restarts)
        if restarts > state.spec.policy.max_restarts:
            self._end("too-many-restarts", "failed", f"{restarts} losses changed the course of the run")
            return
        self.effects.append(Restarted(state.run, growth.trail[-1].number, tuple(sorted(lost))))
        self._grown(growth, "replayed")

    def _forget(self, level: Level) -> None:
        """Keep who answered a round that is never replayed, but not what: memory stays bounded in long elastic runs."""
        store = self.state.store
        kept = {agent: replace(stored, contribution=None) for agent, stored in store[level.digest].items()}
        self._update(store={**store, level.digest: kept})

    def _domain_grown(self, growth: Growth, members: tuple[str, ...]) -> None:
        contributors = tuple(sorted({*self.state.domain_contributors, *members}))
        nullified = self.state.nullified + growth.trail[self._last_closed(growth)].nullified
        self._update(trail=growth.trail, domain_contributors=contributors, nullified=nullified)
        if growth.done is None:
            self._move("counted", "domain")
            self._open()
            return
        self._update(domain=growth.done.model)
        self._begin_statistics("domain-found")

    @staticmethod
    def _last_closed(growth: Growth) -> int:
        return -1 if growth.done is not None else -2

    def _grown(self, growth: Growth, cause: str) -> None:
        in_domain = self.state.nullified - sum(level.nullified for level in self.state.trail)
        nullified = in_domain + sum(level.nullified for level in growth.trail)
        self._update(trail=growth.trail, nullified=nullified)
        if growth.done is None:
            self._move(cause, "learning")
            self._open()
            return
        self._update(model=growth.done.model, summary=dict(growth.done.summary))
        state = self.state
        self._end("model-done", "finished", "")
        published = Publish(
            state.run, state.spec.model, state.model, state.cohort, state.domain_contributors, state.summary
        )
        self.effects.insert(len(self.effects) - 1, published)

    # -- ends -----------------------------------------------------------------------------------------------------

    def _fail_round(self, detail: str) -> None:
        current = self.state.open
        assert current is not None
        self._record(self._waiting())
        self._end("quorum-not-met", "failed", detail)

    def _end(self, cause: str, outcome: Literal["finished", "failed", "cancelled"], detail: str) -> None:
        if self.state.open is not None:
            self._record(())
        self._move(cause, outcome)
        reason = {"finished": "", "cancelled": detail}.get(outcome, f"{cause}: {detail}")
        self._update(reason=reason, open=None, store={})
        self.effects += [ClearRequest(self.state.run), Ended(self.state.run, outcome, reason)]


def standing(state: RunState) -> tuple[Effect, ...]:
    """Return the effects that shall hold now: performed after a restart and on every connect."""
    if state.open is not None:
        return (_request(state),)
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


def _request(state: RunState) -> OpenRound:
    current, level = state.open, state.trail[-1]
    assert current is not None
    return OpenRound(
        state.run,
        current.kind,
        current.number,
        current.attempt,
        level.task,
        level.digest,
        current.asked if current.limited else None,
        current.closes_at,
        state.spec.policy.deadline,
        sum(state.attempts.values()),
    )


def _offers(state: RunState) -> dict[str, Offer]:
    return {agent: offer for agent, offer in state.agents.items() if state.spec.scheme in offer.schemes}


def _columns(state: RunState) -> tuple[tuple[str, ...], str]:
    """Settle the run's columns: as declared, else as most agents that can run the scheme offer them."""
    spec = state.spec
    if spec.domain is not None:
        return spec.domain.names, spec.domain.target_name
    if spec.features is not None and spec.target is not None:
        return spec.features, spec.target
    votes: Counter[tuple[tuple[str, ...], str]] = Counter()
    for offer in _offers(state).values():
        target = spec.target or offer.target
        if spec.target is not None and offer.target not in ("", spec.target):
            continue
        if spec.features is not None and not set(spec.features) <= set(offer.features):
            continue
        features = spec.features or tuple(name for name in offer.features if name != target)
        if features and target:
            votes[features, target] += 1
    if not votes:
        return (), ""
    most = max(votes.values())
    return min(columns for columns, count in votes.items() if count == most)


def _able(state: RunState) -> tuple[str, ...]:
    """Return the agents that are up and offer scheme and columns, in the order of id."""
    features = set(state.features)
    return tuple(
        sorted(
            agent
            for agent, offer in _offers(state).items()
            if (not offer.features or features <= set(offer.features)) and offer.target in ("", state.target)
        )
    )


def _sample(agents: tuple[str, ...], sample: float | None, salt: str) -> tuple[str, ...]:
    """Choose agents by the order of their salted hashes: even, and the same whenever it is computed again."""
    assert sample is not None
    ranked = sorted(agents, key=lambda agent: hashlib.sha256(f"{salt}/{agent}".encode()).digest())
    return tuple(sorted(ranked[: learning.share(sample, len(agents))]))


def _max_rows(server: Server, parameters: Any) -> int | None:
    limit = getattr(server, "max_rows", None)
    return None if limit is None else int(limit(parameters))
