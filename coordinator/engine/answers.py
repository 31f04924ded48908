"""Answers: judging them, storing them once, and turning the others away with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from sys import intern
from typing import Any

import numpy as np
from immutables import Map
from numpy.typing import NDArray

from coordinator.engine import asking, pairing
from coordinator.engine.draft import Draft
from coordinator.engine.events import Answer, Refused
from coordinator.engine.learning import Privately, SchemeFaultError
from coordinator.engine.state import Round, RunState, Stored, changed, holds, inserted
from glassfleet.contract.messages import Contribution, Task
from glassfleet.contract.scheme import Server
from glassfleet.errors import ContributionError
from schemas.messages import Outcome

LONG = 256
"""Arrays of fewer numbers are kept as they came while a round is open: a look at them costs more than it is worth."""


class NarrowSums(Mapping[str, NDArray[np.int64]]):
    """Sums in as little room as their numbers need; whoever asks for one gets an array of int64.

    The answers of a round wait for the last of them, and most numbers in the long ones, histograms of one vehicle's
    rows, fit a byte.
    """

    __slots__ = ("_kept",)

    def __init__(self, sums: Mapping[str, NDArray[np.int64]]) -> None:
        self._kept = {name: _narrowed(array) for name, array in sums.items()}

    def __getitem__(self, name: str) -> NDArray[np.int64]:
        """Return one of the sums."""
        return self._kept[name].astype(np.int64, copy=False)

    def __iter__(self) -> Iterator[str]:
        """Yield their names."""
        return iter(self._kept)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._kept)


def _narrowed(array: NDArray[np.int64]) -> NDArray[Any]:
    if array.size < LONG or array.min() < 0:
        return array
    dtype = np.min_scalar_type(array.max())
    return array if dtype.itemsize == array.itemsize else array.astype(dtype)


def kept(contribution: Contribution) -> Contribution:
    """Return an answer as it waits until its round is reduced."""
    if all(array.size < LONG for array in contribution.sums.values()):
        return contribution
    sums, kind = NarrowSums(contribution.sums), intern(contribution.kind)
    return Contribution(kind, contribution.rows, sums, contribution.values, contribution.nullified)


def answer(draft: Draft, event: Answer) -> None:
    """Take a contribution."""
    outcome, reason = _validated(draft, event)
    if outcome != "accepted":
        turn_away(draft, event.agent, event.task_digest, outcome, reason)


def _validated(draft: Draft, event: Answer) -> tuple[Outcome, str]:
    """Decide about an answer, and store it when it is accepted."""
    state, current = draft.state, draft.state.open
    stored = state.store.get(event.task_digest, {}).get(event.agent)
    if stored is not None:
        same = stored.answer_digest == event.answer_digest
        return ("duplicate", "") if same else ("rejected", "conflict")
    if state.is_ended:
        return "late", f"the run has {state.phase}"
    if current is None or event.task_digest != current.digest:
        return _not_open(state, event.agent, event.task_digest)
    refusal = _refusal(draft, event, current)
    if refusal:
        return "rejected", refusal
    try:
        contribution = _read(draft, event, draft.server(state))
    except ContributionError as fault:
        return "rejected", f"impossible: {fault}"[:480]
    judged = Stored(event.answer_digest, event.rows, kept(contribution))
    answers = Map(state.store.get(current.digest, {})).set(event.agent, judged)
    rows = current.rows + event.rows

    def by_agent() -> dict[str, int]:
        return {agent: each.rows for agent, each in answers.items()}

    try:
        fit = draft.most_rows(state)
    except SchemeFaultError as fault:
        draft.move(fault.cause, str(fault))
        return "late", "the run has failed"
    beyond = [] if fit is None else too_many(fit, rows, by_agent)
    out = {
        agent: f"impossible: {agent} claims {answers[agent].rows} rows; the sums are good for {fit} in all"
        for agent in beyond
    }
    if event.agent in out:
        return "rejected", out[event.agent]
    dropped = current.dropped.delete(event.agent) if event.agent in current.dropped else current.dropped
    for agent in out:
        rows -= answers[agent].rows
        answers = answers.delete(agent)
    draft.update(
        store={**state.store, current.digest: answers},
        frozen=_frozen(state, event),
        silent=state.silent - {event.agent} if event.agent in state.silent else state.silent,
        open=changed(
            current,
            {
                "asked": inserted(current.asked, event.agent),
                "dropped": dropped.update(out) if out else dropped,
                "size": current.size + event.size,
                "rows": rows,
            },
        ),
    )
    draft.receipt(event.agent, event.task_digest, "accepted")
    return "accepted", ""


def _frozen(state: RunState, event: Answer) -> Map[str, tuple[int, str]]:
    """Return from which rows each vehicle answers, this one included; test errors are of other rows."""
    answered = (event.rows, event.data_digest)
    if state.phase == "scoring" or state.frozen.get(event.agent) == answered:
        return state.frozen
    return state.frozen.set(event.agent, answered)


def _read(draft: Draft, event: Answer, server: Server) -> Contribution:
    """Check what can be seen of an answer to the open round; raises ContributionError with the reason."""
    state, task = draft.state, draft.state.levels[-1].task
    if state.phase == "pairing":
        contribution = Contribution.from_value(event.contribution)
        pairing.announced(contribution, event.agent, event.data_digest, state.store.get(task.digest, {}))
        return contribution
    collecting = draft.collecting(state)
    if isinstance(collecting, Privately):
        contribution = Contribution.from_value(event.contribution)
        collecting.check(task, contribution)
        return contribution
    if event.impossible is None:
        return validate(server, task, event.contribution, event.rows)
    if event.impossible:
        raise ContributionError(event.impossible)
    return Contribution.from_value(event.contribution)


def _refusal(draft: Draft, event: Answer, current: Round) -> str:
    """Return why an answer to the open round is not looked into: from whom it comes, or its rows; "": it is."""
    state, most = draft.state, draft.state.levels[-1].task.max_rows_each
    if unasked := _unasked(state, current, event.agent):
        return unasked
    if most and event.rows > most:
        return f"impossible: {event.agent} claims {event.rows} rows; the run counts {most} (max_rows_each)"
    rows, digest = state.frozen.get(event.agent, (event.rows, event.data_digest))
    if state.phase == "scoring":  # from test rows: how many is nobody's business before
        rows = event.rows
    # An agent that answered before the limit was found draws its rows now.
    same = (min(rows, most) if most else rows, digest) == (event.rows, event.data_digest)
    return "" if same else "data-changed"


def _not_open(state: RunState, agent: str, digest: str) -> tuple[Outcome, str]:
    """Judge an answer to a round that is not open, of which no answer of this agent is stored."""
    closed = [summary for summary in state.rounds if summary.task_digest == digest]
    if not closed:
        return "rejected", "unknown-task"
    if state.spec.private is None and any(holds(summary.accepted_agents, agent) for summary in closed):
        return "duplicate", ""
    return "late", _outside(state, agent) or "the round is closed"


def _outside(state: RunState, agent: str) -> str:
    """Return why a run asks an agent nothing more, one of `OUTSIDE`; "": it does, or may."""
    offer = state.agents.get(agent)
    if agent in state.spec.without:
        return "left-out"
    if offer is not None and (offer.kinds or state.kinds) and asking.differs(state, offer):
        return "left-out"
    is_outside = state.open is not None and state.asks_members and not state.open.asks(agent)
    return "not-asked" if is_outside else ""


def _unasked(state: RunState, current: Round, agent: str) -> str:
    """Return why the open round does not ask an agent; "": it does."""
    others = "others-asked" if current.limited and not current.asks(agent) else ""
    return _outside(state, agent) or others


def turn_away(draft: Draft, agent: str, digest: str, outcome: Outcome, reason: str) -> None:
    """Count an answer that is not accepted, and tell its agent why."""
    _count(draft, agent, digest, outcome)
    current = draft.state.open
    if current is not None and digest == current.digest and reason.startswith(("impossible", "data-changed")):
        _drop(draft, agent, reason)
    if outcome == "duplicate" or (outcome == "late" and _within_a_deadline(draft, digest)):
        heard(draft, agent)
    draft.receipt(agent, digest, outcome, reason)


def _within_a_deadline(draft: Draft, digest: str) -> bool:
    """Whether an answer that comes now took less than a deadline: had it been waited for, it would have counted.

    Only such a late answer makes its agent waited for again. One that is slower than every deadline would
    otherwise cost each round its whole deadline, and never be counted.
    """
    opened = [summary.opened_at for summary in draft.state.rounds if summary.task_digest == digest]
    return bool(opened) and draft.at <= opened[-1] + draft.state.spec.rounds.deadline


def refused(draft: Draft, event: Refused) -> None:
    """Take an agent's word that it cannot answer."""
    state, current = draft.state, draft.state.open
    answered = event.agent in state.store.get(event.task_digest, {})
    if state.is_ended or current is None or event.task_digest != current.digest or answered:
        why = _outside(state, event.agent) or "the round no longer waits for this agent"
        turn_away(draft, event.agent, event.task_digest, "late", why)
        return
    if unasked := _unasked(state, current, event.agent):
        turn_away(draft, event.agent, event.task_digest, "rejected", unasked)
        return
    _drop(draft, event.agent, f"{asking.REFUSED}{event.reason}"[:480])
    draft.receipt(event.agent, event.task_digest, "accepted", "refusal noted")


def _drop(draft: Draft, agent: str, reason: str) -> None:
    current = draft.state.open
    assert current is not None
    if not current.asks(agent) and (current.limited or agent not in draft.state.agents):
        return  # nobody waits for it; ids without end must not fill the record
    # The first reason stands: a peer that gives another each time must not fill the journal.
    if agent not in draft.state.store.get(current.digest, {}) and agent not in current.dropped:
        dropped = current.dropped.set(agent, reason)
        draft.update(open=replace(current, asked=inserted(current.asked, agent), dropped=dropped))


def tally(draft: Draft, counts: Mapping[str, Mapping[str, int]]) -> None:
    """Take over what was counted since the last record of the journal."""
    for digest, outcomes in counts.items():
        for outcome, number in outcomes.items():
            _count(draft, "", digest, outcome, number)


def _count(draft: Draft, agent: str, digest: str, outcome: str, number: int = 1) -> None:
    """Count answers that were turned away, at the round that they were meant for; else at the open one."""
    state = draft.state
    if state.is_ended:
        return
    current = state.open
    if current is None or digest != current.digest:
        for index in range(len(state.rounds) - 1, -1, -1):
            summary = state.rounds[index]
            if summary.task_digest == digest:
                counted = replace(summary, **{outcome: getattr(summary, outcome) + number})
                if outcome == "late" and (holds(summary.asked_agents, agent) or agent in state.agents):
                    counted = replace(counted, late_agents=inserted(summary.late_agents, agent))
                draft.update(rounds=(*state.rounds[:index], counted, *state.rounds[index + 1 :]))
                return
    if current is not None:
        draft.update(open=replace(current, **{outcome: getattr(current, outcome) + number}))


def heard(draft: Draft, agent: str) -> None:
    """Note a sign of life: the agent is waited for again where the round is open to all."""
    state = draft.state
    if agent in state.silent:
        draft.update(silent=state.silent - {agent})
    current = state.open
    if current is None or current.limited or current.asks(agent) or not asking.is_able(state, agent):
        return
    draft.update(open=replace(current, asked=inserted(current.asked, agent)))


def validate(server: Server, task: Task, value: Mapping[str, Any], rows: int) -> Contribution:
    """Check an answer; raises ContributionError with the reason, whatever the peer sent."""
    contribution = Contribution.from_value(value)
    if contribution.kind != task.kind:
        raise ContributionError(f"answers {contribution.kind[:40]!r}, the task is {task.kind!r}")
    if contribution.rows > rows:  # fewer are right: rows that are too few to condense are left out
        raise ContributionError(f"states {contribution.rows} rows, its envelope {rows}")
    try:
        server.check(task, contribution)
    except ContributionError:
        raise
    except Exception as fault:  # a check that trips over hostile values must not take the coordinator down
        raise ContributionError(f"cannot be checked ({type(fault).__name__}: {fault})") from fault
    return contribution


def too_many(most: int, total: int, rows: Callable[[], Mapping[str, int]]) -> list[str]:
    """Return the agents with most rows that do not fit in.

    Parameters
    ----------
    most : int
        Rows that the sums are good for.
    total : int
        Rows of all who answered.
    rows : callable
        Returns the rows by agent; asked only when they are too many.
    """
    beyond: list[str] = []
    if total <= most:
        return beyond
    each = rows()
    for agent in sorted(each, key=lambda agent: (-each[agent], agent)):
        if total <= most:
            break
        beyond.append(agent)
        total -= each[agent]
    return beyond
