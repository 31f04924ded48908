"""Rounds: opening, extending and closing them, and what a closed round does to the learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from coordinator.engine import asking, learning
from coordinator.engine.effects import OpenRound, Publish, Restarted
from coordinator.engine.learning import Growth, SchemeFaultError
from coordinator.engine.ledger import Ledger
from coordinator.engine.state import Level, Round, RunState
from glassfleet.discovery.guard import usual_rows
from glassfleet.scheme import Server

REFUSED = "refused: "
"""What the reason of a drop begins with when the agent said itself that it cannot answer."""


class Rounds(Ledger):
    """The part of a step that moves a run on."""

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
        spec = self.state.spec
        try:
            server, parameters = self.engine.server(self.state)
            # Discovery is answered from all rows, see `drawn_for`.
            domain, most = (None, 0) if self.state.phase == "domain" else (self.state.domain, self.state.max_rows_each)
            level = learning.plant(server, parameters, domain, spec.seed, spec.nonce, most)
        except SchemeFaultError as fault:
            self._end(fault.cause, "failed", str(fault))
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
            able = asking.able(state)
            asked = tuple(agent for agent in able if agent not in state.silent) or able
            limited = kind == "statistics" and policy.sample is not None
            if limited:
                asked = asking.sample(asked, policy.sample, f"{state.spec.seed}/{state.run}/{level.number}")
        key = f"{kind}/{level.number}"
        attempt = state.attempts.get(key, 0) + 1
        self._update(
            attempts={**state.attempts, key: attempt},
            open=Round(kind, level.number, attempt, level.digest, asked, limited, self.at, self.at + policy.deadline),
            without_broker=0.0,
        )
        self.effects.append(request(self.state))

    def _settle(self) -> None:
        """Close the open round if it is time; a loop, because what follows may be complete at once."""
        while (current := self.state.open) is not None:
            state, policy = self.state, self.state.spec.policy
            # Numbers only, for this runs at every event: who answered or was dropped is always among those asked.
            accepted = len(state.store.get(current.digest, {}))
            waiting = len(current.asked) - accepted - len(current.dropped)
            quorum = asking.quorum(state, current)
            has_target = policy.target is not None and current.kind == "statistics" and not self._is_fixed
            is_due = self.at >= current.closes_at + policy.grace
            if has_target and policy.target is not None and accepted >= max(policy.target, quorum):
                self._close(missed=())
            elif accepted >= quorum and (is_due or not waiting):
                self._close(missed=self._waiting())
            elif self._is_fixed and accepted + waiting < quorum:
                self._fail_round(f"{accepted + waiting} members are left of the {quorum} that must answer")
            elif not accepted and self._all_refused(current):
                self._fail_round(f"each of the {len(current.dropped)} asked has refused")
            elif not is_due:
                return
            elif policy.on_missed_quorum == "extend" and current.extensions < policy.extensions:
                self._extend(current)
                return
            else:
                self._fail_round(
                    f"{accepted} of {len(current.asked)} asked had answered at the deadline, {quorum} must"
                )

    def _all_refused(self, current: Round) -> bool:
        """Whether everybody who could answer has said that it cannot: asked again, they would say the same."""
        if not current.dropped or not all(why.startswith(REFUSED) for why in current.dropped.values()):
            return False
        asked = current.asked if current.limited else {*current.asked, *asking.able(self.state)}
        return set(asked) <= set(current.dropped)

    def _extend(self, current: Round) -> None:
        state = self.state
        key = f"{current.kind}/{current.number}"
        attempt = state.attempts[key] + 1
        asked = current.asked if current.limited else tuple(sorted({*current.asked, *asking.able(state)}))
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
        self.effects.append(request(self.state))

    def _close(self, missed: tuple[str, ...]) -> None:
        """Count the round: everyone who answered, nobody else."""
        dropped = {} if self.state.open is None else self.state.open.dropped
        digest = self.state.trail[-1].digest
        members = self._record(missed)
        rows = sum(self.state.store[digest][member].rows for member in members)
        try:
            server, _ = self.engine.server(self.state)
            learning.check_rows(rows, len(members))
            self._count_round(server, members, {**dropped, **dict.fromkeys(missed, "deadline")})
        except SchemeFaultError as fault:
            self._end(fault.cause, "failed", str(fault))

    def _fail_round(self, detail: str) -> None:
        current = self.state.open
        assert current is not None
        waiting = self._waiting()
        others = self.state.lost if self._is_fixed else asking.unable(self.state)
        is_due = self.at >= current.closes_at + self.state.spec.policy.grace
        silent = dict.fromkeys(waiting, "deadline") if is_due else {}
        why = self._without_broker("this round") if is_due else ""
        self._record(waiting)
        self._end("quorum-not-met", "failed", detail + why + asking.why_not({**others, **current.dropped, **silent}))

    def _count_round(self, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
        state = self.state
        if self._limit_rows(members):
            self._plant_and_open()
        elif state.phase == "recruiting":
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

    def _limit_rows(self, members: tuple[str, ...]) -> bool:
        """Find what is to count of a vehicle's rows, when its first statistics show that one claims far more than most.

        With a given domain nothing was asked before. Who has so many rows is asked again, with the limit, as all are:
        whoever then still claims more is refused.
        """
        state, level = self.state, self.state.trail[-1]
        if state.phase == "domain" or level.number > 1 or state.max_rows_each or not state.spec.guarded:
            return False
        rows = {member: state.store[level.digest][member].rows for member in members}
        most = usual_rows(list(rows.values()))
        if not most or max(rows.values()) <= most:
            return False
        self._move("rows-limited", state.phase)
        self._forget(level)
        many = {agent: count for agent, count in rows.items() if count > most}
        self._limit(most, {**state.guard, "rows": many})
        return True

    def _limit(self, most: int, guard: Mapping[str, Any]) -> None:
        kept = {
            agent: (min(rows, most) if most else rows, digest) for agent, (rows, digest) in self.state.frozen.items()
        }
        self._update(max_rows_each=most, guard=guard, frozen=kept)

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
        joined = self.state.joined_bins + growth.trail[self._last_closed(growth)].nullified
        self._update(trail=growth.trail, domain_contributors=contributors, joined_bins=joined)
        if growth.done is None:
            self._move("counted", "domain")
            self._open()
            return
        found = growth.done.summary
        self._update(domain=growth.done.model)
        self._limit(int(found.get("max_rows_each", 0)) or self.state.max_rows_each, found.get("guard", {}))
        self._begin_statistics("domain-found")

    @staticmethod
    def _last_closed(growth: Growth) -> int:
        return -1 if growth.done is not None else -2

    def _grown(self, growth: Growth, cause: str) -> None:
        self._update(trail=growth.trail, nullified=sum(level.nullified for level in growth.trail))
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


def request(state: RunState) -> OpenRound:
    """Return the effect that opens the open round (again)."""
    current, level = state.open, state.trail[-1]
    assert current is not None
    asked = current.asked if current.limited else None
    if state.spec.without and asked is None:
        # "Every agent that can" would ask those too that the run leaves out.
        asked = asking.able(state)
    return OpenRound(
        state.run,
        current.kind,
        current.number,
        current.attempt,
        level.task,
        level.digest,
        asked,
        current.closes_at,
        state.spec.policy.deadline,
        sum(state.attempts.values()),
    )
