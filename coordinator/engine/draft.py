"""A step in the making: the state so far, the effects so far, moves by the table, and the record of a round."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

from coordinator.engine import asking
from coordinator.engine.effects import ClearRequest, Effect, Ended, Group, OpenRound, Publish, RoundClosed, SendReceipt
from coordinator.engine.learning import Collecting
from coordinator.engine.state import RoundSummary, RunState, changed
from coordinator.engine.table import TABLE
from glassfleet.contract.scheme import Server
from glassfleet.evaluation.influence import Influence
from glassfleet.private.groups import Terms
from glassfleet.private.totals import known
from schemas.messages import Outcome, PrivateGroup, Receipt, Request, Sample
from schemas.rounds import place_in_sample


class Conduct(Protocol):
    """What a step needs to know of the run's fleet and scheme."""

    @property
    def fleet(self) -> str:
        """Name of the fleet."""

    def server(self, state: RunState) -> Server:
        """Return the server half of a state's phase."""

    def server_parameters(self, state: RunState) -> Any:
        """Return what that server half starts from."""

    def most_rows(self, state: RunState) -> int | None:
        """Return how many rows the sums of a state's phase are good for; None: any number."""

    def collecting(self, state: RunState) -> Collecting:
        """Return how the answers of a state's phase become what that server half reduces."""

    def harmful(self, state: RunState) -> Influence | None:
        """Return the member of a plain run's cohort without which the others gain; None: nobody is named."""

    def terms(self, state: RunState) -> Terms:
        """Return what vehicles are told before they take part in a private run."""


class Draft:
    """A state that is replaced bit by bit, and the effects so far.

    Parameters
    ----------
    at : float
        When the event happened; time never goes back, whatever a clock does.
    """

    def __init__(self, state: RunState, at: float, conduct: Conduct) -> None:
        self.state = state
        self.at = max(at, state.at)
        self.server = conduct.server
        self.server_parameters = conduct.server_parameters
        self.most_rows = conduct.most_rows
        self.collecting = conduct.collecting
        self.harmful = conduct.harmful
        self.terms = conduct.terms
        self.fleet = conduct.fleet
        self.effects: list[Effect] = []

    def result(self) -> tuple[RunState, tuple[Effect, ...]]:
        """Return the state after the step, the same object when nothing changed, and the effects."""
        return self.state, tuple(self.effects)

    def update(self, **changes: Any) -> None:
        """Replace fields of the state; it changes now."""
        self.state = changed(self.state, {"at": self.at, **changes})

    def move(self, cause: str, detail: str = "") -> None:
        """Change the phase as the table says, with all that belongs to an end; `detail` is for the reason of one."""
        phase = TABLE.target(self.state.phase, cause, self.state)
        if phase not in TABLE.ended:
            self.update(phase=phase)
            return
        if self.state.open is not None:
            self.record(())
        reason = f"{cause}: {detail}" if phase == "failed" else detail
        if self.state.phase in ("checking", "scoring"):
            self.update(levels=self.state.levels[:-1])
            if phase == "finished":
                if self.state.spec.private is not None and not self.state.scores:
                    self.update(scores={"missing": f"{cause}: {detail}"[:400]})
                reason = ""
        self.update(phase=phase, reason=reason, open=None, store={})
        self.effects += standing(self.state)

    def receipt(self, agent: str, digest: str, outcome: Outcome, reason: str = "") -> None:
        """Tell an agent what became of its message."""
        run = self.state.run
        self.effects.append(SendReceipt(run, agent, _receipt(run, digest, outcome, reason)))

    def without_broker(self, what: str) -> str:
        """Say how much of `what` the coordinator had no broker: the vehicles are not to blame for that."""
        seconds = f"{self.state.without_broker:.1f}"
        return "" if seconds == "0.0" else f"; the coordinator had no broker for {seconds} s of {what}"

    def awaited(self) -> tuple[str, ...]:
        """Return who has neither answered the open round nor been dropped from it."""
        current = self.state.open
        assert current is not None
        answered = self.state.store.get(current.digest, {})
        return tuple(agent for agent in current.asked if agent not in answered and agent not in current.dropped)

    def record(self, missed: Iterable[str]) -> tuple[str, ...]:
        """Close the open round and add its summary to the state; return who was counted."""
        state = self.state
        summary = summary_of(state, self.at, missed)
        accepted = summary.accepted_agents
        late = {agent for agent, why in summary.dropped_agents.items() if why == "deadline"}
        silent = (state.silent - set(accepted)) | late
        self.update(open=None, rounds=(*state.rounds, summary), silent=silent, met=_met(state, accepted))
        self.effects.append(RoundClosed(state.run, summary))
        return accepted


@lru_cache(maxsize=64)
def _receipt(run: str, digest: str, outcome: Outcome, reason: str) -> Receipt:
    """Return a receipt; nearly all answers to a round get the same."""
    return Receipt(run=run, task_digest=digest, outcome=outcome, reason=reason)


def summary_of(state: RunState, at: float, missed: Iterable[str] = ()) -> RoundSummary:
    """Return the summary of the open round as it would close at `at`; whoever `missed` it is dropped."""
    current = state.open
    assert current is not None
    return RoundSummary(
        current.number,
        current.kind,
        state.levels[-1].task.kind,
        current.attempt,
        current.digest,
        current.asked,
        state.accepted,
        {**current.dropped, **dict.fromkeys(missed, "deadline")},
        current.late,
        current.duplicate,
        current.rejected,
        at - current.opened_at,
        current.size,
        current.opened_at,
        request_bytes=current.request_bytes,
    )


def _met(state: RunState, accepted: Iterable[str]) -> frozenset[bytes]:
    """Return `RunState.met` once a round is closed: a vehicle keeps roster and edition before it answers."""
    known = frozenset(accepted)
    met = [each for each in state.asked_editions if known.issuperset(each.members)]
    return state.met.union(each.digest for each in met).union(each.roster.digest for each in met)


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


def _groups(state: RunState) -> tuple[Group, ...]:
    """Return over whom each group of a private run answers the open round; none in other runs, and while it pairs."""
    groups = []
    for edition, question in zip(state.asked_editions, state.levels[-1].questions, strict=False):
        roster = edition.roster
        has_met = roster.digest in state.met
        body = PrivateGroup(
            group=edition.group,
            number=edition.number,
            members=[] if edition.digest in state.met else list(edition.members),
            question=question,
            founders=[] if has_met else [state.sealed[each] for each in roster.by_id],
            totals=[] if has_met else [each.to_value() for each in known(roster.announced, state.earlier)],
            renews=roster.renews,
        )
        groups.append(Group(edition, body))
    return tuple(groups)


def _request(state: RunState) -> OpenRound:
    """Return the effect that opens the open round (again)."""
    current, level, groups = state.open, state.levels[-1], _groups(state)
    assert current is not None
    is_sample = current.limited and not state.is_fixed
    salt = asking.salt(state, current.number) if is_sample else ""
    request = Request(
        task=level.task.to_value(),
        task_digest=level.digest,
        remaining=state.spec.rounds.deadline,
        # A fixed cohort knows who it is. One group of it has its pairs checked.
        asked=list(current.asked) if state.is_fixed and not state.asks_members else None,
        sample=Sample(salt=salt, last=max((place_in_sample(salt, agent) for agent in current.asked), default="0" * 64))
        if is_sample
        else None,
        without=list(state.spec.without) or None,
        private=[each.body for each in groups if not each.packed] if groups else None,
        window=state.spec.window,
    )
    return OpenRound(
        state.run,
        current.kind,
        current.number,
        current.attempt,
        level.task,
        request,
        current.closes_at,
        sum(state.attempts.values()),
        groups,
    )
