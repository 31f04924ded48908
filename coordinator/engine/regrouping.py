"""Groups of private runs that go on without some of their members, and what is asked of them then."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from coordinator.engine import asking, learning, opening, pairing
from coordinator.engine.collecting import Privately, carried, counted, met_before, shrink
from coordinator.engine.draft import Draft
from coordinator.engine.effects import Restarted
from coordinator.engine.state import Level, Round, RunState
from glassfleet.private.groups import Edition, next_edition
from glassfleet.private.totals import Total


def blaming(state: RunState, current: Round) -> dict[str, str]:
    """Return who refuses to meet its group because of a member, and why; nobody once a group has told something."""
    is_first = state.phase == "domain" or (state.phase == "learning" and state.spec.domain is not None)
    if not current.dropped or not state.editions or not is_first or len(state.levels) > 1:
        return {}
    blame = asking.REFUSED + pairing.BLAMES
    return {agent: why.removeprefix(asking.REFUSED) for agent, why in current.dropped.items() if why.startswith(blame)}


def pair_again(draft: Draft, current: Round, blamed: Mapping[int, str], refusals: Collection[str]) -> None:
    """Found groups again without a member that most of them refuse, of those who refuse it; ask the question again.

    Whoever has answered has met the former founders, and answers in no other group. Other groups are as they were.
    """
    state = draft.state
    silent = draft.awaited()
    reasons = {**current.dropped, **dict.fromkeys(silent, "deadline")}
    draft.record(silent)
    editions, out = [], dict[str, str]()
    for edition in state.editions:
        whom = blamed.get(edition.group)
        if whom is None:
            editions.append(edition)
            continue
        founders = [agent for agent in edition.members if agent in refusals and agent != whom]
        others = set(edition.members) - set(founders)
        again, left_out = pairing.founded_again(edition.roster, founders, state.earlier)
        out |= {agent: reasons.get(agent, f"its group was founded again without {whom}") for agent in others}
        out |= {**left_out, whom: pairing.BLAMED}
        if again is None:
            why = "too-few-for-privacy: the group is too small to go on"
            out |= {agent: why for agent in founders if agent not in left_out}
        else:
            editions.append(again)
    end = ("too-few-for-privacy", f"{len(out)} were lost")
    _regroup(draft, editions, {**state.lost, **out}, state.levels, end)
    if not draft.state.is_ended:
        ask_again(draft, out)


def is_worth_waiting(draft: Draft, current: Round) -> bool:
    """Whether a private run does better to wait once more: losing those who have not answered ends it, or costs others.

    It would end if too few were left, as with a missed quorum. It would cost others if those are fewer than leave a
    group at a time.
    """
    state, policy = draft.state, draft.state.spec.policy
    private, missed = state.spec.private, draft.awaited()
    if private is None or not missed:
        return False
    may_extend = policy.on_missed_quorum == "extend" and current.extensions < policy.extensions
    if not state.is_fixed:
        return may_extend and len(state.accepted) < private.least_vehicles
    if not shrink(state.editions, dict.fromkeys([*missed, *current.dropped], ""), away(state), totals(state))[0]:
        return may_extend
    return not current.dropped and len(missed) < private.company and current.extensions < private.patience


def away(state: RunState) -> set[str]:
    """Return the members that are not up."""
    return set(state.cohort) - set(state.agents)


def totals(state: RunState) -> tuple[Total, ...]:
    """Return over whom was summed, in this run and in earlier ones."""
    return (*state.summed, *state.earlier)


def shrink_groups(
    draft: Draft, lost: Mapping[str, str], levels: Sequence[Level], end: tuple[str, str] | None = None
) -> dict[str, str]:
    """Go on in groups without `lost`; return who is out and why, company too. Ends the phase when no group is left.

    Answers to `levels` of groups that lost nobody count on. `end` as for `_go_on_without`.
    """
    state = draft.state
    hurt = [edition for edition in state.editions if not set(edition.members).isdisjoint(lost)]
    before = totals(state)
    lacking = min(next_edition(edition, lost, before=met_before(edition, before)).lacking for edition in hurt)
    editions, out = shrink(state.editions, lost, away(state), before)
    detail = f"{lacking} vehicles more would have had to stay; {len(out)} were lost or went with them"
    _regroup(draft, editions, out, levels, end or ("too-few-for-privacy", detail))
    return out


def _regroup(
    draft: Draft,
    editions: Sequence[Edition],
    out: Mapping[str, str],
    levels: Sequence[Level],
    end: tuple[str, str],
) -> None:
    """Let `editions` be the groups; if there are none, the phase ends as `end` says, because of `out`.

    Answers to `levels` of groups that are as they were count on.
    """
    state, before = draft.state, draft.collecting(draft.state)
    assert isinstance(before, Privately)
    new = [each.total for each in editions if each not in state.editions]
    draft.update(
        editions=tuple(editions),
        summed=(*state.summed, *new),
        counted_rows=counted(before, levels, state.store),
    )
    if not editions:
        cause, detail = end
        draft.move(cause, detail + asking.why_not(out))
        return
    after = draft.collecting(draft.state)
    assert isinstance(after, Privately)
    draft.update(store=carried(before, after, [level.task for level in levels], state.store))


def ask_again(draft: Draft, out: Mapping[str, str], end: tuple[str, str] | None = None) -> None:
    """Ask the open question of the groups as they are now, unless too few are left. `end` as for `_go_on_without`."""
    state = draft.state
    counted_before = {agent for level in state.levels for agent in level.members}
    left = state.waited_for
    draft.update(
        cohort=tuple(sorted({*counted_before, *left})), lost={**state.lost, **out}, restarts=state.restarts + 1
    )
    quorum = learning.share(state.spec.policy.min_agents, state.founders)
    if len(left) < quorum:
        cause, detail = end or ("quorum-not-met", f"{len(left)} members are left of the {quorum} that must answer")
        draft.move(cause, detail + asking.why_not(out))
    elif draft.state.restarts > state.spec.policy.max_restarts:
        draft.move("too-many-restarts", f"members were lost in {draft.state.restarts} rounds")
    else:
        draft.effects.append(Restarted(state.run, state.levels[-1].number, tuple(sorted(out))))
        ask_smaller(draft)


def ask_smaller(draft: Draft) -> None:
    """Ask the open question again, of the groups as they are now; what was summed before stands."""
    levels = draft.state.levels
    draft.update(levels=(*levels[:-1], *learning.root(levels[-1:], draft.collecting(draft.state))))
    draft.move("replayed")
    opening.open_round(draft)
