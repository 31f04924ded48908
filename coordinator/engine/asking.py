"""Whom to ask: the columns of a run, who can answer, and the sample among them; and what a run lacks while it waits.

Functions of a run's state. Of what is lacking only what cannot be met with the agents that are up now is said: a round
that merely goes on lacks nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from coordinator.engine.events import NUMBERS, Offer
from coordinator.engine.state import Round, RunState, share
from coordinator.specification.run import PrivatePolicy
from glassfleet.data.clock import tells_when
from glassfleet.errors import REFUSALS
from schemas.rounds import place_in_sample
from schemas.text import printable

REFUSED = "refused: "
"""What the reason of a drop begins with when the agent said itself that it cannot answer."""


_NAMED = 3
"""So many reasons, and agents with each, are named when a run fails; the others are counted."""


_REASON_CHARS = 120
"""An agent's own words are cut to so many, and all reasons together to `_NAMED` times as many."""


def columns(state: RunState) -> tuple[tuple[str, ...], str]:
    """Settle the run's columns: as declared, else as most agents that can run the scheme offer them, without times."""
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
        offered = [name for name in offer.features if name != target]
        # When it was is no cause: a model that learns from the time knows no other day.
        features = spec.features or tuple([name for name in offered if not tells_when(name)] or offered)
        if features and target:
            votes[features, target] += 1
    if not votes:
        return (), ""
    most = max(votes.values())
    return min(choice for choice, count in votes.items() if count == most)


def settled(state: RunState) -> RunState:
    """Return the state of a run that gathers with its columns as they would be settled now."""
    features, target = columns(state)
    known = replace(state, features=features, target=target, kinds={})
    return replace(known, kinds=kinds(known)) if features else known


def kinds(state: RunState) -> dict[str, str]:
    """Return what the run's columns hold at most agents that have them, as far as it is not just numbers.

    Words or numbers, as most say; then the unit that most tell.
    """
    offers = _offers(state).values()
    if not any(offer.kinds for offer in offers):
        return {}
    held = [offer.kind_of for offer in offers]
    found = {}
    for name in sorted(needed_columns(state) | {state.target}):
        counts = Counter(each[name] for each in held if name in each)
        if counts["words"] > counts.total() - counts["words"]:
            found[name] = "words"
        elif units := {kind: count for kind, count in counts.items() if kind not in (NUMBERS, "words")}:
            found[name] = min(units, key=lambda kind: (-units[kind], kind))
    return found


def differs(state: RunState, offer: Offer, needed: frozenset[str] | None = None) -> str:
    """Return in which of the columns that are needed an agent holds something else than most; empty: in none."""
    if not state.kinds and not offer.kinds:
        return ""
    needed = needed_columns(state) if needed is None else needed
    return offer.odd_in({name: state.kinds.get(name, NUMBERS) for name in sorted(needed | {state.target})})


def wanted(state: RunState) -> tuple[int, str]:
    """Return how many agents that can run it must be up before the first round of a run, and who asks for as many."""
    policy, private = state.spec.rounds, state.spec.private
    if private is not None and private.least_vehicles >= policy.gather_agents:
        return private.least_vehicles, asked_for(private)
    if policy.gather_agents == 1:
        return 1, ""
    setting = "--min-agents" if policy.gather_agents == policy.min_agents else "rounds.gather_agents"
    return policy.gather_agents, f"to learn from fewer: {setting}"


def is_enough(state: RunState, able: int, wanted: int) -> bool:
    """Whether a run may begin without agents that differ from most or cannot use their data, and no others."""
    if state.spec.private is not None or not state.features:
        return False
    needed = needed_columns(state)
    left_out = (bool(offer.fault or differs(state, offer, needed)) for offer in state.agents.values())
    there = able + sum(left_out)
    return there >= wanted and able >= share(state.spec.rounds.min_agents, there)


def asked_for(private: PrivatePolicy) -> str:
    """Return in words why a private run needs as many vehicles as it does."""
    return f"the run has floor {private.floor} and company {private.company}"


def count_up(state: RunState) -> int:
    """Return how many agents are up."""
    return sum(not offer.fault for offer in state.agents.values())


def able(state: RunState) -> tuple[str, ...]:
    """Return the agents that are up and offer scheme and columns, in the order of id."""
    needed = needed_columns(state)
    return tuple(sorted(agent for agent, offer in state.agents.items() if _can(state, agent, offer, needed)))


def is_able(state: RunState, agent: str) -> bool:
    """Whether an agent is among `able`."""
    offer = state.agents.get(agent)
    return offer is not None and _can(state, agent, offer, needed_columns(state))


def needed_columns(state: RunState) -> frozenset[str]:
    """Return the columns that an agent must have to answer."""
    return frozenset(state.features)


def _can(state: RunState, agent: str, offer: Offer, needed: frozenset[str]) -> bool:
    return (
        state.spec.scheme in offer.schemes
        and agent not in state.spec.without
        and (not offer.features or needed <= set(offer.features))
        and offer.target in ("", state.target)
        and not differs(state, offer, needed)
    )


def unable(state: RunState) -> dict[str, str]:
    """Return why the agents that `able` leaves out are not asked, by agent: they are up, or cannot use their data."""
    wanted = needed_columns(state) if state.features else frozenset(state.spec.features or ())
    target = state.target or state.spec.target or ""
    reasons = {}
    for agent, offer in state.agents.items():
        if agent in state.spec.without:
            reasons[agent] = "is left out of this run"
            continue
        if offer.fault:
            reasons[agent] = f"cannot use its data: {offer.fault}"
            continue
        missing = sorted(wanted - set(offer.features)) if offer.features else []
        if state.spec.scheme not in offer.schemes:
            reasons[agent] = f"cannot run {state.spec.scheme!r}"
        elif missing:
            reasons[agent] = f"has no column {', '.join(map(repr, missing[:_NAMED]))}{_more(len(missing))}"
        elif target and offer.target not in ("", target):
            reasons[agent] = f"has the target {offer.target!r}, not {target!r}"
        elif state.features and (odd := differs(state, offer, wanted)):
            reasons[agent] = odd
        elif not state.features and not (target or offer.target):
            reasons[agent] = "offers no target, and the run names none"
        elif not state.features and not set(offer.features) - {target or offer.target}:
            reasons[agent] = "offers no columns to learn from"
    return reasons


def why_not(reasons: Mapping[str, str]) -> str:
    """Return in words why agents were not counted, the reasons that most have first; empty when there are none.

    Parameters
    ----------
    reasons : mapping of str to str
        By agent; partly the agents' own words.
    """
    groups: dict[str, list[str]] = {}
    for agent, reason in sorted(reasons.items()):
        words = "no answer by the deadline" if reason == "deadline" else reason
        if reason.startswith(REFUSED) and (code := reason.removeprefix(REFUSED).partition(":")[0]) in REFUSALS:
            words = f"{reason}: {REFUSALS[code]}"
        plain = printable(words)
        groups.setdefault(plain if len(plain) <= _REASON_CHARS else f"{plain[:_REASON_CHARS]}...", []).append(agent)
    parts = [
        f"{reason} ({named(agents)})"
        for reason, agents in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    ]
    text, more, longest = "; ".join(parts[:_NAMED]), _more(len(parts), " reasons"), _NAMED * _REASON_CHARS
    text = text if len(text) <= longest else f"{text[:longest]}..."
    return f"; not counted: {text}{more}" if parts else ""


def named(agents: Iterable[str]) -> str:
    """Return the first of some agents by name, and how many more there are."""
    known = sorted(agents)
    return ", ".join(known[:_NAMED]) + _more(len(known))


def _more(number: int, what: str = "") -> str:
    return f" and {number - _NAMED} more{what}" if number > _NAMED else ""


def salt(state: RunState, number: int) -> str:
    """Return what the sample of a round is drawn by."""
    return f"{state.spec.seed}/{state.run}/{number}"


def sample(agents: tuple[str, ...], number: float | None, salt: str) -> tuple[str, ...]:
    """Choose agents by the order of their salted hashes: even, and the same whenever it is computed again."""
    assert number is not None
    ranked = sorted(agents, key=partial(place_in_sample, salt))
    return tuple(sorted(ranked[: share(number, len(agents))]))


def _offers(state: RunState) -> dict[str, Offer]:
    return {
        agent: offer
        for agent, offer in state.agents.items()
        if state.spec.scheme in offer.schemes and agent not in state.spec.without
    }


@dataclass(frozen=True)
class Waiting:
    """What a run lacks with the agents that are up now.

    Attributes
    ----------
    lack : str
        What it needs, and what there is.
    awaited : str
        Who could help; empty: nobody.
    why_not : str
        Why those cannot that are up and do not count, see `why_not`.
    otherwise : str
        What happens at the deadline if nobody comes; empty: the run fails, after all extensions.
    """

    lack: str
    awaited: str
    why_not: str
    otherwise: str = ""

    def words(self, until: str) -> str:
        """Return one sentence.

        Parameters
        ----------
        until : str
            When the run gives up, or with `otherwise` goes on, for people.
        """
        if self.otherwise:
            return f"{self.lack}; waits until {until} for {self.awaited}; {self.otherwise}"
        hope = (
            f"waits until {until} for {self.awaited}"
            if self.awaited
            else f"cannot be met: nobody else is asked; fails at {until}"
        )
        return f"{self.lack}; {hope}{self.why_not}"


def waiting(state: RunState) -> Waiting | None:
    """Return what a run lacks; None when those that are up can bring it as far as it asks now."""
    if state.phase == "gathering":
        return _gathering(state)
    current = state.open
    if current is None:
        return None
    needed = state.quorum(current)
    answered = state.store.get(current.digest, {})
    done = {*answered, *current.dropped}
    left = [agent for agent in current.asked if agent not in done]
    if current.former and not left:
        return _former(current)
    # First without a look at everybody: nearly always nothing is amiss.
    if len(answered) + sum(agent in state.agents for agent in left) >= needed:
        return None
    if current.limited:
        return _limited(state, current, needed, left)
    left = [agent for agent in able(state) if agent not in done]
    if len(answered) + len(left) >= needed:
        return None
    cannot = {**unable(state), **current.dropped}
    return Waiting(_lack(state, needed, left, "that can answer"), "others", why_not(cannot))


def _former(current: Round) -> Waiting:
    one = len(current.former) == 1
    return Waiting(
        f"{'a vehicle' if one else 'vehicles'} of an earlier run over the same rows {_is(len(current.former))} missing",
        named(current.former),
        "",
        f"without {'it' if one else 'them'} others are left out, too",
    )


def _gathering(state: RunState) -> Waiting:
    known, up = settled(state), count_up(state)
    cannot = unable(known)
    can = len(able(known)) if known.features else 0
    needed, way_out = wanted(state)
    there = f"{up or 'no vehicle'} {_is(up)} up" + (f", {can or 'none'} can" if can < up else "")
    needs = f"needs {_count(needed, 'vehicle')} that can answer{way_out and f' ({way_out})'}: {there}"
    return Waiting(needs, "others", why_not(cannot))


def _limited(state: RunState, current: Round, needed: int, left: list[str]) -> Waiting:
    away = [agent for agent in left if agent not in state.agents]
    return Waiting(
        _lack(state, needed, left, "of the cohort" if state.is_fixed else "of those asked"),
        named(away),
        why_not({**(state.lost if state.is_fixed else {}), **current.dropped}),
    )


def _lack(state: RunState, needed: int, left: list[str], which: str) -> str:
    """Say it in a form that stays while answers come in: who has answered is still up, as a rule."""
    up = sum(agent in state.agents for agent in (*state.accepted, *left))
    gone = sum(agent not in state.agents for agent in state.accepted)
    more = f", {gone} more {'have' if gone > 1 else 'has'} answered" if gone else ""
    return f"needs {_count(needed, 'answer')}: {_count(up, 'vehicle')} {which} {_is(up)} up{more}"


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'s' if number > 1 else ''}"


def _is(number: int) -> str:
    return "are" if number > 1 else "is"


def wakes_at(state: RunState) -> float | None:
    """Return when the next `Tick` will matter; None when only a message can move the run."""
    if state.phase == "gathering":
        return state.started_at + state.spec.rounds.gather_timeout
    return None if state.open is None else state.open.closes_at + state.spec.rounds.grace


def gives_up_at(state: RunState) -> float | None:
    """Return when the run fails if nothing comes until then; None when it has ended."""
    wake, current, policy = wakes_at(state), state.open, state.spec.rounds
    if wake is None or current is None or policy.on_missed_quorum == "fail":
        return wake
    return wake + max(0, policy.extensions - current.extensions) * (policy.deadline + policy.grace)
