"""What a closed round does: who is a founder, who is lost, how the learning goes on."""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from immutables import Map

from coordinator.engine import asking, learning, pairing, rounds
from coordinator.engine.draft import Draft
from coordinator.engine.effects import InfluenceUnknown, Restarted, WaitsForFormer
from coordinator.engine.learning import MASKED, Collecting, Growth, Privately, SchemeFaultError
from coordinator.engine.state import Level, Round, RunState, share
from glassfleet.contract.scheme import Server
from glassfleet.discovery.guard import usual_rows
from glassfleet.private import pairs
from glassfleet.private.layout import layout_of, question_digest


def ask_pairs(draft: Draft, group: int, fault: SchemeFaultError) -> None:
    """Ask the members of a group whose answers do not add up whose masks fit whose."""
    draft.move("does-not-add-up")
    levels = draft.state.levels
    edition = next(each for each in draft.state.editions if each.group == group)
    task = pairs.task_of(edition)
    question = question_digest(edition, task.digest, layout_of(pairs.PAIRS, task).digest)
    draft.update(
        levels=(*levels, Level(len(levels) + 1, {"cause": fault.cause, "why": str(fault)}, task, question, (question,)))
    )
    rounds.open_round(draft)


def _count_pairs(draft: Draft, members: tuple[str, ...], dropped: dict[str, str]) -> None:
    """Go on without those whose masks fit nobody's; if there are none, without the group."""
    state, level = draft.state, draft.state.levels[-1]
    [edition] = state.asked_editions
    answers = {agent: stored.contribution for agent, stored in state.store[level.digest].items()}
    words = {agent: given.sums[MASKED] for agent, given in answers.items()}
    verdict = pairs.judged(edition, words)
    draft.move("checked")
    draft.update(levels=state.levels[:-1], false_answers=(*state.false_answers, *verdict.false))
    cause, why = str(level.state["cause"]), str(level.state["why"])
    lost = _lost(edition.members, members, dropped)
    lost |= dict.fromkeys(verdict.false, f"{pairs.FALSE}: its masks fit nobody's")
    if not lost:
        unclear = "; ".join(f"{one} or {other} answers falsely" for one, other in verdict.unclear[:3])
        why += f"; {unclear or 'all of them answer a check of pairs rightly'}"
        if cause != "impossible-sum":
            draft.move(cause, why)
            return
        lost = dict.fromkeys(edition.members, f"impossible-sum: the answers of group {edition.group} do not add up")
    go_on = _go_on_without if _is_replayed(draft.state) else _ask_those_left
    go_on(draft, lost, (cause, why))


def pair(draft: Draft, members: tuple[str, ...]) -> None:
    """Fix the founders of a private run and their groups."""
    state = draft.state
    paired = _founders(draft, members)
    if paired.lacking:
        assert state.spec.private is not None, "only private runs pair"
        draft.move(
            "too-few-for-privacy",
            f"{len(paired.sealed)} vehicles take part, {paired.lacking} more are needed; "
            + asking.asked_for(state.spec.private)
            + asking.why_not({**asking.unable(state), **paired.left_out}),
        )
        return
    cohort = tuple(sorted(paired.sealed))
    draft.update(
        editions=paired.editions,
        summed=tuple(each.total for each in paired.editions),
        runs_left={one.agent: one.left for each in paired.editions for one in each.roster.founders},
        sealed=paired.sealed,
        cohort=cohort,
        founders=len(cohort),
        lost=paired.left_out,
        store={},
    )
    rounds.begin(draft, "paired")


def _founders(draft: Draft, members: Sequence[str]) -> pairing.Paired:
    state = draft.state
    answers = state.store.get(state.levels[-1].digest, {})
    return pairing.founders(draft.terms(state), members, state.frozen, answers, state.earlier)


def waits_for_former(draft: Draft, current: Round) -> bool:
    """Whether a private run waits with its founders: with those of an earlier run, fewer would be left out."""
    state = draft.state
    if state.phase != "pairing" or not state.earlier:
        return False
    awaited = _founders(draft, state.accepted).awaited - set(current.dropped) - set(state.spec.without)
    if awaited and set(current.former) != awaited:
        former = tuple(sorted(awaited))
        draft.update(open=replace(current, former=former))
        draft.effects.append(WaitsForFormer(state.run, former))
    return bool(awaited)


def count(draft: Draft, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
    """Count a round over `members`; `dropped` says why others did not answer. Raises SchemeFaultError."""
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
        _forget(draft, state.levels[-1:])
        *former, last = growth.levels
        growth = replace(growth, levels=(*former[:-1], *map(_forgotten, former[-1:]), last))
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
    if state.phase == "domain" or state.editions or level.number > 1 or state.max_rows_each:
        return False
    rows = {member: state.store[level.digest][member].rows for member in members}
    most = usual_rows(list(rows.values()))
    if not most or max(rows.values()) <= most:
        return False
    _forget(draft, (level,))
    many = {agent: count for agent, count in rows.items() if count > most}
    _limit(draft, most, {**state.guard, "rows": many})
    rounds.begin(draft, "rows-limited")
    return True


def _limit(draft: Draft, most: int, guard: Mapping[str, Any]) -> None:
    kept = {agent: (min(rows, most) if most else rows, digest) for agent, (rows, digest) in draft.state.frozen.items()}
    draft.update(max_rows_each=most, guard=guard, frozen=Map(kept))


def _count_fixed(draft: Draft, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
    """Count a round of a fixed cohort; who did not answer is lost, and the run is evaluated without it."""
    state = draft.state
    lost = _lost(state.cohort, members, dropped)
    if lost:
        _go_on_without(draft, lost)
    else:
        growth = learning.grow(server, state.levels, members, state.store, draft.collecting(state))
        _grown(draft, growth, "counted")


def _go_on_without(draft: Draft, lost: dict[str, str], end: tuple[str, str] | None = None) -> None:
    """Take members of a fixed cohort out, and in private runs those who must go with them; evaluate the run again.

    Parameters
    ----------
    lost : dict of str to str
        Why, by agent.
    end : tuple of (str, str) or None
        Cause and detail of the end if too few are left; None: what is missing says it.
    """
    state = draft.state
    collecting = draft.collecting(state)
    server = draft.server(state)
    if isinstance(collecting, Privately):
        lost = rounds.shrink_groups(draft, lost, state.levels, end)
        if draft.state.is_ended:
            return
        collecting = draft.collecting(draft.state)
    members = tuple(member for member in state.cohort if member not in lost)
    draft.update(cohort=members, lost={**state.lost, **lost})
    quorum = share(state.spec.rounds.min_agents, state.founders)
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
    if restarts > state.spec.rounds.max_restarts:
        draft.move("too-many-restarts", f"{restarts} losses changed the course of the run")
        return
    draft.effects.append(Restarted(state.run, growth.levels[-1].number, tuple(sorted(lost))))
    _grown(draft, growth, "replayed")


def _is_replayed(state: RunState) -> bool:
    """Whether the phase is over one set of vehicles, and evaluated again when some of it are lost."""
    return state.phase == "domain" or state.spec.participation == "cohort"


def _count_present(draft: Draft, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
    """Count a round of a private run of elastic participation: it is over who answered, and no former one is replayed.

    The sums of a round need all members of a group, so a group that lost some is asked once more without them.
    """
    state = draft.state
    lost = _lost(state.waited_for, members, dropped)
    if lost:
        _ask_those_left(draft, lost)
        return
    growth = learning.advance(server, state.levels, members, state.store, draft.collecting(state))
    draft.update(cohort=tuple(sorted({*state.cohort, *members})))
    _grown(draft, growth, "counted")


def _ask_those_left(draft: Draft, lost: Mapping[str, str], end: tuple[str, str] | None = None) -> None:
    """Take members out, and those who must go with them; ask the others the open question again. `_go_on_without`'s."""
    out = rounds.shrink_groups(draft, lost, draft.state.levels[-1:], end)
    if not draft.state.is_ended:
        rounds.ask_again(draft, out, end)


def _count_scores(draft: Draft, server: Server, members: tuple[str, ...], dropped: dict[str, str]) -> None:
    """Count the round of scores. The model is learned: who is lost now changes neither it nor its cohort.

    In a private run the smaller groups are asked once; whoever is lost then costs the scores, not the model.
    """
    state = draft.state
    lost = _lost(state.waited_for, members, dropped)
    if not lost or not state.editions:
        growth = learning.advance(server, state.levels, members, state.store, draft.collecting(state))
        assert growth.done is not None
        scores = dict(growth.done.summary)
        # Of other than private runs each vehicle tells its own scores.
        beside = {name: scores.pop(name, {}) for name in ("errors", "drift")}
        draft.update(**beside, scores=scores if state.editions else {})
        draft.move("scored")
        return
    if sum(summary.kind == state.levels[-1].task.kind for summary in state.rounds) > 1:
        draft.move("lost-again", asking.named(lost))
        return
    rounds.shrink_groups(draft, lost, state.levels[-1:])
    if not draft.state.is_ended:
        rounds.ask_smaller(draft)


def _lost(asked: Iterable[str], members: Iterable[str], dropped: Mapping[str, str]) -> dict[str, str]:
    """Return who was asked and did not answer, and why."""
    answered = set(members)
    return {agent: dropped.get(agent, "deadline") for agent in asked if agent not in answered}


def _forget(draft: Draft, levels: Sequence[Level]) -> None:
    """Let go of the answers to rounds that are never replayed; their summaries have who gave them."""
    gone = {level.digest for level in levels}
    draft.update(store={digest: answers for digest, answers in draft.state.store.items() if digest not in gone})


def _forgotten(level: Level) -> Level:
    """Return what is looked at of a closed level that is never replayed: memory stays bounded in long elastic runs."""
    return replace(level, state={}, task=replace(level.task, body={}), members=())


def _domain_grown(draft: Draft, growth: Growth, members: tuple[str, ...], cause: str = "counted") -> None:
    # In a private run the sums of whoever was lost are taken out of the search, too.
    before = () if draft.state.editions else draft.state.domain_contributors
    contributors = tuple(sorted({*before, *members}))
    joined = sum(level.nullified for level in growth.levels)
    draft.update(levels=growth.levels, domain_contributors=contributors, joined_bins=joined)
    if growth.done is None:
        draft.move(cause)
        rounds.open_round(draft)
        return
    summary = growth.done.summary
    draft.update(domain=growth.done.model)
    most = int(summary.get("max_rows_each", 0)) or draft.state.max_rows_each
    # Vehicles of a private run answer from all their rows: with a limit, the one row that is left out would be told.
    _limit(draft, most if draft.state.spec.private is None else 0, summary.get("guard", {}))
    rounds.begin(draft, "domain-found")


def _grown(draft: Draft, growth: Growth, cause: str) -> None:
    if draft.state.phase == "domain":  # of a private run: its cohort is fixed already
        _domain_grown(draft, growth, draft.state.cohort, cause)
        return
    draft.update(levels=growth.levels, nullified=sum(level.nullified for level in growth.levels))
    if growth.done is None:
        draft.move(cause)
        rounds.open_round(draft)
        return
    draft.update(model=growth.done.model, summary=dict(growth.done.summary))
    if draft.state.spec.private is not None:
        draft.update(private=_protection(draft.state, draft.collecting(draft.state)))
    else:
        if draft.state.spec.participation == "cohort":
            _look_for_harm(draft)
        _forget(draft, growth.levels)
    rounds.begin(draft, "model-done")


def _look_for_harm(draft: Draft) -> None:
    try:
        draft.update(harmful=draft.harmful(draft.state))
    except Exception as fault:  # noqa: BLE001  what is only told must not end a run, whatever sums a peer sent
        where = traceback.extract_tb(fault.__traceback__)[-1]
        reason = f"{type(fault).__name__}: {fault} ({Path(where.filename).name}, line {where.lineno})"
        draft.effects.append(InfluenceUnknown(draft.state.run, reason))


def _protection(state: RunState, collecting: Collecting) -> dict[str, Any]:
    """Return what protected the answers that the model rests on.

    ``floor`` and ``company`` as in the terms; the ``support`` of the scheme's sums, 0 where it has none. How many
    ``groups``, in how many ``editions`` in all (one for each group, and one more for each time that it shrank), of how
    many ``vehicles`` in the end, and their ``rows``: those of the last sums. Inputs ``without_slopes``, if any.
    """
    private, last, names = state.spec.private, state.levels[-1], state.summary.get("without_slopes")
    assert private is not None
    sums = collecting.collect(last.task, last.members, state.store[last.digest])
    return {
        "floor": private.floor,
        "company": private.company,
        "support": getattr(state.parameters, "support", 0),
        "groups": len(state.editions),
        "editions": sum(1 + edition.number for edition in state.editions),
        "vehicles": len(state.waited_for),
        "rows": sum(each.rows for each in sums),
        **({"without_slopes": names} if names else {}),
    }
