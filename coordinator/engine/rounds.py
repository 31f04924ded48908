"""Rounds that are opened: of a new phase, of the next level, the same once more, or of smaller groups.

The latter in private runs that go on without some of their members: who must go with them, what was counted of former
editions, and which answers count on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal

from pydantic import ValidationError

from coordinator.engine import asking, learning, pairing
from coordinator.engine.draft import Draft, standing
from coordinator.engine.effects import OpenRound, Restarted
from coordinator.engine.learning import Privately, SchemeFaultError
from coordinator.engine.packing import packed
from coordinator.engine.state import CountedRows, Level, Round, RunState, Store, Stored, share
from glassfleet.contract.messages import COUNTS, Task
from glassfleet.private.between import COMPANY
from glassfleet.private.groups import Edition, next_edition, round_digest
from glassfleet.private.totals import Total, known
from schemas.errors import RunFailedError
from schemas.text import first_fault


def begin(draft: Draft, cause: str) -> None:
    """Enter the phase that `cause` leads to, start its server half and open its first round, unless it is an end."""
    draft.move(cause)
    if draft.state.is_ended:
        return
    spec = draft.state.spec
    if spec.domain is not None:
        draft.update(domain=spec.domain)
    state = draft.state
    if state.phase == "pairing":
        draft.update(levels=(pairing.keys_level(draft.terms(state)),))
        open_round(draft)
        return
    # Discovery is answered from all rows, see `drawn_for`; scores from test rows.
    domain = None if state.phase == "domain" else state.domain
    most = 0 if state.phase in ("domain", "scoring") else state.max_rows_each
    before = state.levels if state.phase == "scoring" else ()  # what was learned stays, for displays
    try:
        server, parameters = draft.server(state), draft.server_parameters(state)
        level = learning.start(server, parameters, domain, spec.seed, spec.nonce, most, draft.collecting(state))
    except SchemeFaultError as fault:
        draft.move(fault.cause, str(fault))
    except ValidationError as fault:  # discovery's: bounds of a column that nobody has
        draft.move("scheme-error", first_fault(fault)[:400])
    except Exception as fault:  # noqa: BLE001  a named end, not a crash
        draft.move("scheme-error", f"{type(fault).__name__}: {fault}"[:400])
    else:
        draft.update(levels=(*before, replace(level, number=len(before) + level.number)))
        open_round(draft)


def open_round(draft: Draft) -> None:
    """Open a round for the last level."""
    state, policy = draft.state, draft.state.spec.rounds
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
            asked = asking.sample(asked, policy.sample, asking.salt(state, level.number))
    key = f"{kind}/{level.number}"
    attempt = state.attempts.get(key, 0) + 1
    opened = Round(kind, level.number, attempt, level.digest, asked, limited, draft.at, draft.at + policy.deadline)
    store = packed(state.store, level.digest)
    given = sum(stored.rows for stored in store.get(level.digest, {}).values())
    attempts = {**state.attempts, key: attempt}
    draft.update(attempts=attempts, open=replace(opened, rows=given), without_broker=0.0, store=store)
    _ask(draft)


def extend(draft: Draft, current: Round) -> None:
    """Give the open round another deadline."""
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
            closes_at=draft.at + state.spec.rounds.deadline,
        ),
    )
    _ask(draft)


def _ask(draft: Draft) -> None:
    current = draft.state.open
    assert current is not None
    effects = standing(draft.state)
    size = sum(each.size(draft.fleet) for each in effects if isinstance(each, OpenRound))
    draft.update(open=replace(current, request_bytes=current.request_bytes + size))
    draft.effects += effects


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
    state, policy = draft.state, draft.state.spec.rounds
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
    quorum = share(state.spec.rounds.min_agents, state.founders)
    if len(left) < quorum:
        cause, detail = end or ("quorum-not-met", f"{len(left)} members are left of the {quorum} that must answer")
        draft.move(cause, detail + asking.why_not(out))
    elif draft.state.restarts > state.spec.rounds.max_restarts:
        draft.move("too-many-restarts", f"members were lost in {draft.state.restarts} rounds")
    else:
        draft.effects.append(Restarted(state.run, state.levels[-1].number, tuple(sorted(out))))
        ask_smaller(draft)


def ask_smaller(draft: Draft) -> None:
    """Ask the open question again, of the groups as they are now; what was summed before stands."""
    levels = draft.state.levels
    draft.update(levels=(*levels[:-1], *learning.root(levels[-1:], draft.collecting(draft.state))))
    draft.move("replayed")
    open_round(draft)


def shrink(
    editions: Iterable[Edition], lost: Mapping[str, str], away: Collection[str], before: Sequence[Total]
) -> tuple[tuple[Edition, ...], dict[str, str]]:
    """Return the groups without `lost` and those who must go with them, and why each of all these is out.

    In a group that loses members those that are away go, too, if enough stay: they would be lost next, and a loss costs
    others. A group that loses nobody waits for them.

    Parameters
    ----------
    editions : iterable of Edition
        As they stand.
    lost : mapping of str to str
        Why, by agent.
    away : collection of str
        Who is not up.
    before : sequence of Total
        Of this run and earlier ones.
    """
    left: list[Edition] = []
    out: dict[str, str] = {}
    for edition in editions:
        gone = [agent for agent in edition.members if agent in lost]
        if not gone:
            left.append(edition)
            continue
        met = met_before(edition, before)
        shrunk = next_edition(
            edition, [agent for agent in edition.members if agent in lost or agent in away], before=met
        )
        if shrunk.edition is None:
            shrunk = next_edition(edition, gone, away, met)
        out |= {agent: lost.get(agent, "away: it was not connected when others were lost") for agent in shrunk.lost}
        out |= dict.fromkeys(shrunk.company, f"{COMPANY}: nobody leaves a group alone")
        if shrunk.edition is None:
            why = "too-few-for-privacy: the group is too small to go on"
            out = {agent: out.get(agent, why) for agent in edition.members} | out
        else:
            left.append(shrunk.edition)
    return tuple(left), out


def met_before(edition: Edition, totals: Sequence[Total]) -> tuple[Total, ...]:
    """Return what members of a group look at besides its present edition; none where there was no earlier run."""
    earlier = known(edition.roster.announced, totals)
    founders = edition.total.founders
    return (*earlier, *(each for each in totals if each.founders == founders)) if earlier else ()


def counted(collecting: Privately, levels: Iterable[Level], store: Store) -> CountedRows:
    """Return on how many rows something rests in each group's edition, as far as it was opened at `levels`.

    What a next edition is asked rests on the difference to this one, too; so it is kept when a group shrinks, of those
    that do not as well, as they may later.
    """
    rows = dict(collecting.counted_rows)
    for level in levels:
        answers = store.get(level.digest, {}) if level.task.kind in COUNTS else {}
        for edition in collecting.editions:
            if not answers or not all(member in answers for member in edition.members):
                continue
            alone = replace(collecting, editions=(edition,), counted_rows={})
            with suppress(RunFailedError):  # a false answer hides the others as a mask does
                (sums,) = alone.collect(level.task, edition.members, answers)
                rows[edition.group, edition.number, level.task.digest] = (level.task, sums)
    return rows


def carried(
    before: Privately, after: Privately, tasks: Iterable[Task], store: Mapping[str, Mapping[str, Stored]]
) -> dict[str, dict[str, Stored]]:
    """Return the answers that still count: those of groups whose edition is what it was, under the new digests."""
    same = {agent for edition in after.editions if edition in before.editions for agent in edition.members}
    if not same:
        return {}
    return {
        round_digest(after.questions(task)): {
            agent: stored
            for agent, stored in store.get(round_digest(before.questions(task)), {}).items()
            if agent in same
        }
        for task in tasks
    }
