"""Rounds: opening, extending and closing them, and what a closed round does to the learning."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from coordinator.engine import asking, learning, pairing, scoring
from coordinator.engine.collecting import MASKED, Privately, carried, counted, shrink
from coordinator.engine.draft import Draft, standing
from coordinator.engine.effects import Restarted
from coordinator.engine.learning import Growth, SchemeFaultError
from coordinator.engine.state import Level, Round, RunState
from glassfleet.discovery.guard import usual_rows
from glassfleet.private import pairs
from glassfleet.private.groups import next_edition
from glassfleet.private.layout import layout_of
from glassfleet.private.masks import question_digest
from glassfleet.scheme import Server

REFUSED = "refused: "
"""What the reason of a drop begins with when the agent said itself that it cannot answer."""


def begin(draft: Draft, cause: str) -> None:
    """Enter the phase that `cause` leads to, start its server half and open its first round."""
    draft.move(cause)
    spec = draft.state.spec
    if spec.domain is not None:
        draft.update(domain=spec.domain)
    state = draft.state
    if state.phase == "pairing":
        draft.update(levels=(pairing.keys_level(draft.terms(state)),))
        _open(draft)
        return
    # Discovery is answered from all rows, see `drawn_for`.
    domain, most = (None, 0) if state.phase == "domain" else (state.domain, state.max_rows_each)
    before = state.levels if state.phase == "scoring" else ()  # what was learned stays, for displays
    try:
        level = learning.start(*draft.server(state), domain, spec.seed, spec.nonce, most, draft.collecting(state))
    except SchemeFaultError as fault:
        draft.move(fault.cause, str(fault))
    except Exception as fault:  # noqa: BLE001  discovery refuses columns without bounds: a named end, not a crash
        draft.move("scheme-error", f"{type(fault).__name__}: {fault}"[:400])
    else:
        draft.update(levels=(*before, replace(level, number=len(before) + level.number)))
        _open(draft)


def _open(draft: Draft) -> None:
    """Open a round for the last level."""
    state, policy = draft.state, draft.state.spec.policy
    level = state.levels[-1]
    kind: Literal["pairing", "domain", "statistics"]
    kind = state.phase if state.phase in ("pairing", "domain") else "statistics"
    if state.is_fixed:
        asked, limited = state.waited_for, True
    else:
        able = asking.able(state)
        asked = tuple(agent for agent in able if agent not in state.silent) or able
        limited = kind == "statistics" and policy.sample is not None
        if limited:
            asked = asking.sample(asked, policy.sample, f"{state.spec.seed}/{state.run}/{level.number}")
    key = f"{kind}/{level.number}"
    attempt = state.attempts.get(key, 0) + 1
    draft.update(
        attempts={**state.attempts, key: attempt},
        open=Round(kind, level.number, attempt, level.digest, asked, limited, draft.at, draft.at + policy.deadline),
        without_broker=0.0,
    )
    draft.effects += standing(draft.state)


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
        refusals = _blaming(state, current)
        # Those who have answered cannot be in a group that is founded again: it waits until all have said something.
        if is_complete and (blamed := pairing.blamed(state.editions, refusals)):
            _pair_again(draft, current, blamed, refusals)
        elif has_target and accepted >= max(policy.target or 0, quorum):
            _close(draft, missed=())
        elif is_due and accepted >= quorum and _is_worth_waiting(draft, current):
            _extend(draft, current)
            return
        elif accepted >= quorum and (is_due or (not waiting and not _is_waiting_for_former(draft, current))):
            _close(draft, missed=draft.awaited())
        elif state.is_fixed and accepted + waiting < quorum and (is_complete or not refusals):
            _fail_round(draft, f"{accepted + waiting} members are left of the {quorum} that must answer")
        elif not accepted and _all_refused(draft, current):
            _fail_round(draft, f"each of the {len(current.dropped)} asked has refused")
        elif not is_due:
            return
        elif policy.on_missed_quorum == "extend" and current.extensions < policy.extensions:
            _extend(draft, current)
            return
        else:
            asked = len(current.asked)
            _fail_round(draft, f"{accepted} of {asked} asked had answered at the deadline, {quorum} must")


def _blaming(state: RunState, current: Round) -> dict[str, str]:
    """Return who refuses to meet its group because of a member, and why; nobody once a group has told something."""
    is_first = state.phase == "domain" or (state.phase == "learning" and state.spec.domain is not None)
    if not current.dropped or not state.editions or not is_first or len(state.levels) > 1:
        return {}
    reasons = {agent: why.removeprefix(REFUSED) for agent, why in current.dropped.items() if why.startswith(REFUSED)}
    return {agent: why for agent, why in reasons.items() if why.startswith(pairing.BLAMES)}


def _pair_again(draft: Draft, current: Round, blamed: Mapping[int, str], refusals: Collection[str]) -> None:
    """Found groups again without a member that most of them refuse, of those who refuse it; ask the question again.

    Whoever has answered has met the former founders, and answers in no other group. Other groups are as they were.
    """
    state, before = draft.state, draft.collecting(draft.state)
    assert isinstance(before, Privately)
    reasons = {**current.dropped, **dict.fromkeys(draft.awaited(), "deadline")}
    answered = set(draft.record(draft.awaited()))
    editions, out, forgotten = [], dict[str, str](), set[tuple[str, ...]]()
    for edition in state.editions:
        whom = blamed.get(edition.group)
        if whom is None:
            editions.append(edition)
            continue
        founders = [agent for agent in edition.members if agent in refusals and agent != whom]
        others = set(edition.members) - set(founders)
        again, left_out = pairing.founded_again(edition.roster, founders, state.held)
        out |= {agent: reasons.get(agent, f"its group was founded again without {whom}") for agent in others}
        out |= {**left_out, whom: pairing.BLAMED}
        if again is None:
            why = "too-few-for-privacy: the group is too small to go on"
            out |= {agent: why for agent in founders if agent not in left_out}
        else:
            editions.append(again)
        if answered.isdisjoint(edition.members):
            forgotten.add(edition.members)  # nobody holds later runs to it
    new = (each.members for each in editions if each not in state.editions)
    summed = (*(members for members in state.summed if members not in forgotten), *new)
    draft.update(editions=tuple(editions), summed=summed)
    if not editions:
        draft.move("too-few-for-privacy", f"{len(out)} were lost" + asking.why_not({**state.lost, **out}))
        return
    after = draft.collecting(draft.state)
    assert isinstance(after, Privately)
    draft.update(store=carried(before, after, [level.task for level in state.levels], state.store))
    _ask_again(draft, out)


def _is_worth_waiting(draft: Draft, current: Round) -> bool:
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
        return may_extend and len(state.accepted) < private.floor
    if not shrink(state.editions, dict.fromkeys([*missed, *current.dropped], ""), _away(state), state.held)[0]:
        return may_extend
    return not current.dropped and len(missed) < private.company and current.extensions < private.patience


def _away(state: RunState) -> set[str]:
    return set(state.cohort) - set(state.agents)


def _all_refused(draft: Draft, current: Round) -> bool:
    """Whether everybody who could answer has said that it cannot: asked again, they would say the same."""
    if not current.dropped or not all(why.startswith(REFUSED) for why in current.dropped.values()):
        return False
    asked = current.asked if current.limited else {*current.asked, *asking.able(draft.state)}
    return set(asked) <= set(current.dropped)


def _extend(draft: Draft, current: Round) -> None:
    state = draft.state
    key = f"{current.kind}/{current.number}"
    attempt = state.attempts[key] + 1
    asked = current.asked if current.limited else tuple(sorted({*current.asked, *asking.able(state)}))
    draft.move("extended")
    draft.update(
        attempts={**state.attempts, key: attempt},
        open=replace(
            current,
            attempt=attempt,
            asked=asked,
            extensions=current.extensions + 1,
            closes_at=draft.at + state.spec.policy.deadline,
        ),
    )
    draft.effects += standing(draft.state)


def _close(draft: Draft, missed: tuple[str, ...]) -> None:
    """Count the round: everyone who answered, nobody else."""
    dropped = {} if draft.state.open is None else draft.state.open.dropped
    digest = draft.state.levels[-1].digest
    members = draft.record(missed)
    try:
        if draft.state.phase == "pairing":
            _paired(draft, members)
            return
        server, _ = draft.server(draft.state)
        if not draft.state.editions and not any(draft.state.store[digest][member].rows for member in members):
            draft.move("no-rows", f"the {len(members)} agents that answered have no training rows")
            return
        _count_round(draft, server, members, {**dropped, **dict.fromkeys(missed, "deadline")})
    except SchemeFaultError as fault:
        if fault.group is None or draft.state.phase == "scoring":
            draft.move(fault.cause, str(fault))
        else:
            _ask_pairs(draft, fault.group, str(fault))


def _ask_pairs(draft: Draft, group: int, why: str) -> None:
    """Ask the members of a group whose answers do not add up whose masks fit whose."""
    draft.move("does-not-add-up")
    levels = draft.state.levels
    edition = next(each for each in draft.state.editions if each.group == group)
    task = pairs.task_of(edition)
    question = question_digest(edition, task.digest, layout_of(pairs.PAIRS, task).digest)
    draft.update(levels=(*levels, Level(len(levels) + 1, {"why": why}, task, question, (question,))))
    _open(draft)


def _count_pairs(draft: Draft, members: tuple[str, ...], dropped: dict[str, str]) -> None:
    """Go on without those whose masks fit nobody's; if there are none, without the group."""
    state, level = draft.state, draft.state.levels[-1]
    [edition] = state.asked_editions
    answers = {agent: stored.contribution for agent, stored in state.store[level.digest].items()}
    words = {agent: given.sums[MASKED] for agent, given in answers.items() if given is not None}
    found = pairs.judged(edition, words)
    draft.move("checked")
    draft.update(levels=state.levels[:-1], false_answers=(*state.false_answers, *found.false))
    why = str(level.state["why"])
    lost = {agent: dropped.get(agent, "deadline") for agent in edition.members if agent not in members}
    lost |= dict.fromkeys(found.false, f"{pairs.FALSE}: its masks fit nobody's")
    if not lost:
        unclear = "; ".join(f"{one} or {other} answers falsely" for one, other in found.unclear[:3])
        why += f"; {unclear or 'all of them answer a check of pairs rightly'}"
        lost = dict.fromkeys(edition.members, f"impossible-sum: the answers of group {edition.group} do not add up")
    go_on = _go_on_without if _is_replayed(draft.state) else _ask_those_left
    go_on(draft, lost, ("impossible-sum", why))


def _paired(draft: Draft, members: tuple[str, ...]) -> None:
    """Fix the founders of a private run and their groups."""
    state = draft.state
    paired = _founders(draft, members)
    if paired.lacking:
        draft.move(
            "too-few-for-privacy",
            f"{len(paired.sealed)} vehicles take part, {paired.lacking} more are needed"
            + asking.why_not({**asking.unable(state), **paired.left_out}),
        )
        return
    cohort = tuple(sorted(paired.sealed))
    draft.update(
        editions=paired.editions,
        summed=tuple(each.members for each in paired.editions),
        held=paired.held,
        sealed=paired.sealed,
        cohort=cohort,
        founders=len(cohort),
        lost=paired.left_out,
        store={},
    )
    begin(draft, "paired")


def _founders(draft: Draft, members: Sequence[str]) -> pairing.Paired:
    state = draft.state
    answers = state.store.get(state.levels[-1].digest, {})
    return pairing.founders(draft.terms(state), members, state.frozen, answers, state.former)


def _is_waiting_for_former(draft: Draft, current: Round) -> bool:
    """Whether a private run waits with its founders: with those of an earlier run, fewer would be left out."""
    state = draft.state
    if state.phase != "pairing" or not state.former:
        return False
    paired = _founders(draft, state.accepted)
    return bool(set(paired.awaited) - set(current.dropped) - set(state.spec.without))


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


def _count_round(draft: Draft, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
    state = draft.state
    if _limit_rows(draft, members):
        return
    if state.phase == "recruiting":
        draft.move("cohort-fixed")
        draft.update(cohort=members, founders=len(members))
        _grown(draft, learning.grow(server, state.levels, members, state.store, draft.collecting(state)), "counted")
    elif state.phase == "checking":
        _count_pairs(draft, members, dropped)
    elif state.phase == "scoring":
        _count_scores(draft, server, members, dropped)
    elif state.is_fixed and _is_replayed(state):
        _count_fixed(draft, server, members, dropped)
    elif state.is_fixed:
        _count_present(draft, server, members, dropped)
    else:
        growth = learning.advance(server, state.levels, members, state.store, draft.collecting(state))
        _forget(draft, state.levels[-1])
        if state.phase == "domain":
            _domain_grown(draft, growth, members)
        else:
            draft.update(cohort=tuple(sorted({*state.cohort, *members})))
            _grown(draft, growth, "counted")


def _limit_rows(draft: Draft, members: tuple[str, ...]) -> bool:
    """Begin again with a limit of rows, when the first statistics show that a vehicle claims far more than most.

    With a given domain nothing was asked before. All are asked again, with the limit: whoever still claims more is
    refused.
    """
    state, level = draft.state, draft.state.levels[-1]
    if state.phase == "domain" or state.editions or level.number > 1 or state.max_rows_each or not state.spec.guarded:
        return False
    rows = {member: state.store[level.digest][member].rows for member in members}
    most = usual_rows(list(rows.values()))
    if not most or max(rows.values()) <= most:
        return False
    _forget(draft, level)
    many = {agent: count for agent, count in rows.items() if count > most}
    _limit(draft, most, {**state.guard, "rows": many})
    begin(draft, "rows-limited")
    return True


def _limit(draft: Draft, most: int, guard: Mapping[str, Any]) -> None:
    kept = {agent: (min(rows, most) if most else rows, digest) for agent, (rows, digest) in draft.state.frozen.items()}
    draft.update(max_rows_each=most, guard=guard, frozen=kept)


def _count_fixed(draft: Draft, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
    """Count a round of a fixed cohort; who did not answer is lost, and the run is evaluated without it."""
    state = draft.state
    lost = {agent: dropped.get(agent, "deadline") for agent in state.cohort if agent not in members}
    if lost:
        _go_on_without(draft, lost)
    else:
        growth = learning.grow(server, state.levels, members, state.store, draft.collecting(state))
        _grown(draft, growth, "counted")


def _go_on_without(draft: Draft, lost: dict[str, str], end: tuple[str, str] | None = None) -> None:
    """Take members of a fixed cohort out, and in private runs those who must go with them; evaluate the run again.

    Parameters
    ----------
    draft : Draft
    lost : dict of str to str
        Why, by agent.
    end : tuple of (str, str) or None
        Cause and detail of the end if too few are left; None: what is missing says it.
    """
    state = draft.state
    collecting = draft.collecting(state)
    server, _ = draft.server(state)
    if isinstance(collecting, Privately):
        lost = _shrink(draft, lost, state.levels, end)
        if draft.state.is_ended:
            return
        collecting = draft.collecting(draft.state)
    members = tuple(member for member in state.cohort if member not in lost)
    draft.update(cohort=members, lost={**state.lost, **lost})
    quorum = learning.share(state.spec.policy.min_agents, state.founders)
    if len(members) < quorum:  # some went as company
        detail = f"{len(members)} members are left of the {quorum} that must answer"
        cause, detail = end or ("quorum-not-met", detail)
        draft.move(cause, detail + asking.why_not(lost))
        return
    growth = learning.grow(server, learning.root(state.levels, collecting), members, draft.state.store, collecting)
    course = [level.digest for level in growth.levels]
    if state.levels[-1].digest in course:
        _grown(draft, growth, "counted")
        return
    restarts = state.restarts + 1
    draft.update(restarts=restarts)
    if restarts > state.spec.policy.max_restarts:
        draft.move("too-many-restarts", f"{restarts} losses changed the course of the run")
        return
    draft.effects.append(Restarted(state.run, growth.levels[-1].number, tuple(sorted(lost))))
    _grown(draft, growth, "replayed")


def _shrink(
    draft: Draft, lost: Mapping[str, str], levels: Sequence[Level], end: tuple[str, str] | None = None
) -> dict[str, str]:
    """Go on in groups without `lost`; return who is out and why, company too. Ends the phase when no group is left.

    Answers to `levels` of groups that lost nobody count on. `end` as for `_go_on_without`.
    """
    state, before = draft.state, draft.collecting(draft.state)
    assert isinstance(before, Privately)
    hurt = [edition for edition in state.editions if not set(edition.members).isdisjoint(lost)]
    lacking = min(next_edition(edition, lost, held=state.held).lacking for edition in hurt)
    editions, out = shrink(state.editions, lost, _away(state), state.held)
    new = tuple(each.members for each in editions if each not in state.editions)
    draft.update(
        editions=editions,
        summed=(*state.summed, *new),
        counted_rows=counted(before, levels, state.store),
    )
    if not editions:
        detail = f"{lacking} vehicles more would have had to stay; {len(out)} were lost or went with them"
        cause, detail = end or ("too-few-for-privacy", detail)
        draft.move(cause, detail + asking.why_not(out))
        return out
    after = draft.collecting(draft.state)
    assert isinstance(after, Privately)
    draft.update(store=carried(before, after, [level.task for level in levels], state.store))
    return out


def _ask_smaller(draft: Draft) -> None:
    """Ask the open question again, of the groups as they are now; what was summed before stands."""
    levels = draft.state.levels
    draft.update(levels=(*levels[:-1], *learning.root(levels[-1:], draft.collecting(draft.state))))
    draft.move("replayed")
    _open(draft)


def _is_replayed(state: RunState) -> bool:
    """Whether the phase is over one set of vehicles, and evaluated again when some of it are lost."""
    return state.phase == "domain" or state.spec.participation == "cohort"


def _count_present(draft: Draft, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
    """Count a round of a private run of elastic participation: it is over who answered, and no former one is replayed.

    The sums of a round need all members of a group, so a group that lost some is asked once more without them.
    """
    state = draft.state
    lost = {agent: dropped.get(agent, "deadline") for agent in state.waited_for if agent not in members}
    if lost:
        _ask_those_left(draft, lost)
        return
    growth = learning.advance(server, state.levels, members, state.store, draft.collecting(state))
    draft.update(cohort=tuple(sorted({*state.cohort, *members})))
    _grown(draft, growth, "counted")


def _ask_those_left(draft: Draft, lost: Mapping[str, str], end: tuple[str, str] | None = None) -> None:
    """Take members out, and those who must go with them; ask the others the open question again. `_go_on_without`'s."""
    out = _shrink(draft, lost, draft.state.levels[-1:], end)
    if not draft.state.is_ended:
        _ask_again(draft, out, end)


def _ask_again(draft: Draft, out: Mapping[str, str], end: tuple[str, str] | None = None) -> None:
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
        _ask_smaller(draft)


def _count_scores(draft: Draft, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
    """Count the round of scores. The model is learned: who is lost now changes neither it nor its cohort.

    Smaller groups are asked once; whoever is lost then costs the scores, not the model.
    """
    state = draft.state
    lost = {agent: dropped.get(agent, "deadline") for agent in state.waited_for if agent not in members}
    if not lost:
        growth = learning.advance(server, state.levels, members, state.store, draft.collecting(state))
        assert growth.done is not None
        draft.update(scores=dict(growth.done.summary))
        draft.move("scored")
        return
    if sum(summary.kind == state.levels[-1].task.kind for summary in state.rounds) > 1:
        draft.move("lost-again", asking.named(lost))
        return
    _shrink(draft, lost, state.levels[-1:])
    if not draft.state.is_ended:
        _ask_smaller(draft)


def _forget(draft: Draft, level: Level) -> None:
    """Keep who answered a round that is never replayed, but not what: memory stays bounded in long elastic runs."""
    store = draft.state.store
    kept = {agent: replace(stored, contribution=None) for agent, stored in store[level.digest].items()}
    draft.update(store={**store, level.digest: kept})


def _domain_grown(draft: Draft, growth: Growth, members: tuple[str, ...], cause: str = "counted") -> None:
    # In a private run the sums of whoever was lost are taken out of the search, too.
    before = () if draft.state.editions else draft.state.domain_contributors
    contributors = tuple(sorted({*before, *members}))
    joined = sum(level.nullified for level in growth.levels)
    draft.update(levels=growth.levels, domain_contributors=contributors, joined_bins=joined)
    if growth.done is None:
        draft.move(cause)
        _open(draft)
        return
    summary = growth.done.summary
    draft.update(domain=growth.done.model)
    most = int(summary.get("max_rows_each", 0)) or draft.state.max_rows_each
    # Vehicles of a private run answer from all their rows: with a limit, the one row that is left out would be told.
    _limit(draft, most if draft.state.spec.private is None else 0, summary.get("guard", {}))
    begin(draft, "domain-found")


def _grown(draft: Draft, growth: Growth, cause: str) -> None:
    if draft.state.phase == "domain":  # of a private run: its cohort is fixed already
        _domain_grown(draft, growth, draft.state.cohort, cause)
        return
    draft.update(levels=growth.levels, nullified=sum(level.nullified for level in growth.levels))
    if growth.done is None:
        draft.move(cause)
        _open(draft)
        return
    draft.update(model=growth.done.model, summary=dict(growth.done.summary))
    if draft.state.spec.private is None:
        draft.move("model-done")
        return
    draft.update(private=scoring.protection(draft.state, draft.collecting(draft.state)))
    begin(draft, "model-done")
