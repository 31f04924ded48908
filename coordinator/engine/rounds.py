"""The open round: whether to wait, extend it, close it or fail."""

from __future__ import annotations

from coordinator.engine import asking, counting, opening, pairing, regrouping
from coordinator.engine.draft import Draft
from coordinator.engine.learning import SchemeFaultError
from coordinator.engine.state import Round


def settle(draft: Draft) -> None:
    """Close the open round if it is time; a loop, because what follows may be complete at once."""
    while (current := draft.state.open) is not None:
        state, policy = draft.state, draft.state.spec.policy
        # Numbers only, for this runs at every event: who answered or was dropped is always among those asked.
        accepted = len(state.store.get(current.digest, {}))
        waiting = len(current.asked) - accepted - len(current.dropped)
        quorum = asking.quorum(state, current)
        has_target = policy.target is not None and current.kind == "statistics" and not state.is_fixed
        is_due = draft.at >= current.closes_at + policy.grace
        is_complete = is_due or not waiting
        refusals = regrouping.blaming(state, current)
        # Those who have answered cannot be in a group that is founded again: it waits until all have said something.
        if is_complete and (blamed := pairing.blamed(state.editions, refusals)):
            regrouping.pair_again(draft, current, blamed, refusals)
        elif has_target and accepted >= max(policy.target or 0, quorum):
            _close(draft, missed=())
        elif is_due and accepted >= quorum and regrouping.is_worth_waiting(draft, current):
            opening.extend(draft, current)
            return
        elif accepted >= quorum and (is_due or (not waiting and not counting.waits_for_former(draft, current))):
            _close(draft, missed=draft.awaited())
        elif state.is_fixed and accepted + waiting < quorum and (is_complete or not refusals):
            _fail_round(draft, f"{accepted + waiting} members are left of the {quorum} that must answer")
        elif not accepted and _all_refused(draft, current):
            _fail_round(draft, f"each of the {len(current.dropped)} asked has refused")
        elif not is_due:
            return
        elif policy.on_missed_quorum == "extend" and current.extensions < policy.extensions:
            opening.extend(draft, current)
            return
        else:
            asked = len(current.asked)
            _fail_round(draft, f"{accepted} of {asked} asked had answered at the deadline, {quorum} must")


def _close(draft: Draft, missed: tuple[str, ...]) -> None:
    """Count the round: everyone who answered, nobody else."""
    dropped = {} if draft.state.open is None else draft.state.open.dropped
    digest = draft.state.levels[-1].digest
    members = draft.record(missed)
    try:
        if draft.state.phase == "pairing":
            counting.pair(draft, members)
            return
        server = draft.server(draft.state)
        if not draft.state.editions and not any(draft.state.store[digest][member].rows for member in members):
            kind = "test" if draft.state.phase == "scoring" else "training"
            draft.move("no-rows", f"the {len(members)} agents that answered have no {kind} rows")
            return
        counting.count(draft, server, members, {**dropped, **dict.fromkeys(missed, "deadline")})
    except SchemeFaultError as fault:
        if fault.group is None or draft.state.phase == "scoring":
            draft.move(fault.cause, str(fault))
        else:
            counting.ask_pairs(draft, fault.group, fault)


def _all_refused(draft: Draft, current: Round) -> bool:
    """Whether everybody who could answer has said that it cannot: asked again, they would say the same."""
    if (
        not current.dropped
        or len(current.dropped) < len(current.asked)
        or not all(why.startswith(asking.REFUSED) for why in current.dropped.values())
    ):
        return False
    asked = current.asked if current.limited else {*current.asked, *asking.able(draft.state)}
    return set(asked) <= set(current.dropped)


def _fail_round(draft: Draft, detail: str) -> None:
    state, current = draft.state, draft.state.open
    assert current is not None
    waiting = draft.awaited()
    others = state.lost if state.is_fixed else asking.unable(state)
    is_due = draft.at >= current.closes_at + state.spec.policy.grace
    silent = dict.fromkeys(waiting, "deadline") if is_due else {}
    why = draft.without_broker("this round") if is_due else ""
    draft.record(waiting)
    draft.move("quorum-not-met", detail + why + asking.why_not({**others, **current.dropped, **silent}))
