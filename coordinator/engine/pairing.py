"""Pairing, the first round of a private run: who takes part, and each founder's key.

Who has announced itself by the deadline is a founder. The founders are cut into groups, and told each other's
announcements as they came, each under its vehicle's own seal. A group most of whose members refuse an announcement is
founded again without it, before it has told anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from coordinator.engine.state import Former, Level, Stored
from glassfleet.errors import ContributionError
from glassfleet.private.between import Held, apart
from glassfleet.private.groups import Announcement, Edition, Roster, Terms, cut_groups, drawn_order, missing
from glassfleet.scheme import Contribution, Task

SCHEME, KIND = "private", "keys"
"""What the task is called that asks for keys."""

KEY, FLOOR, FORMER, SEALED, ROSTERS = "key", "floor", "former", "message", "rosters"
"""What an answer says, and the message that it came in, see `with_message`."""

BLAMES = "bad-member: "
"""What the reason of a refusal begins with that names a member: a vehicle meets no group with its announcement in it,
and so has answered in none."""

BLAMED = f"{BLAMES}most of its group refuse its announcement"
"""Why such a member is left out."""

_MOST_BYTES = 1 << 17
"""Most bytes of an announcement: each is sent to all founders of its group."""

_MOST_FORMER = 1024
"""Earlier runs that an announcement may name, each by a nonce of at most `_MOST_NONCE` characters."""

_MOST_NONCE = 64


@dataclass(frozen=True)
class Paired:
    """What pairing comes to.

    Attributes
    ----------
    editions : tuple of Edition
        The first ones; none when vehicles are missing.
    sealed : Mapping of str to bytes
        The founders' messages.
    lacking : int
        How many vehicles more are needed.
    left_out : Mapping of str to str
        Why somebody who announced itself is no founder.
    held : Held
        In which sets of earlier runs the founders are, over rows that they still have.
    awaited : frozenset of str
        Who was in an earlier run and is missing: without them others are left out.
    """

    editions: tuple[Edition, ...]
    sealed: Mapping[str, bytes]
    lacking: int
    left_out: Mapping[str, str]
    held: Held
    awaited: frozenset[str]


def keys_level(terms: Terms) -> Level:
    """Return the one level of pairing."""
    task = Task(SCHEME, KIND, terms.to_value(), terms.nonce)
    return Level(1, {}, task, task.digest, (task.digest,))


def with_message(contribution: Mapping[str, Any], message: bytes) -> dict[str, Any]:
    """Return an announcement with the message that it came in: its seal tells the other founders whose key it is."""
    values = contribution.get("values")
    return {**contribution, "values": {**(values if isinstance(values, Mapping) else {}), SEALED: message}}


def fetches_rosters(contribution: Mapping[str, Any]) -> bool:
    """Whether a vehicle says in its announcement that it fetches its group's roster, and keeps it."""
    values = contribution.get("values")
    return isinstance(values, Mapping) and values.get(ROSTERS) is True


def announced(contribution: Contribution, agent: str, data_digest: str, others: Mapping[str, Stored]) -> Announcement:
    """Return what an answer announces; raises ContributionError for one with which no member would pair."""
    from glassfleet.private.masks import usable_key  # noqa: PLC0415 - the cryptography, loaded where a private run is

    key = contribution.values.get(KEY)
    if contribution.kind != KIND or contribution.sums or contribution.rows or contribution.nullified:
        raise ContributionError("an announcement has a key and a floor, and no numbers of rows")
    if not isinstance(key, bytes) or not usable_key(key):
        raise ContributionError("the key is no X25519 key that others can pair with")
    if any(_values(stored).get(KEY) == key for other, stored in others.items() if other != agent):
        raise ContributionError("another vehicle has announced this key")
    message = contribution.values.get(SEALED)
    if not isinstance(message, bytes) or len(message) > _MOST_BYTES:
        raise ContributionError(f"the message itself is missing, or longer than {_MOST_BYTES} bytes")
    former = contribution.values.get(FORMER, [])
    if (
        not isinstance(former, list)
        or len(former) > _MOST_FORMER
        or not all(isinstance(each, str) and len(each) <= _MOST_NONCE for each in former)
    ):
        raise ContributionError(f"former names at most {_MOST_FORMER} earlier runs, each by its nonce")
    return _announcement(contribution, agent, data_digest)


def founders(
    terms: Terms,
    members: Sequence[str],
    frozen: Mapping[str, tuple[int, str]],
    answers: Mapping[str, Stored],
    former: Sequence[Former],
) -> Paired:
    """Return the first editions, and who is left out.

    A vehicle whose own floor is above the number of founders takes part in nothing: it is left out, the most demanding
    first, so that one alone cannot stop a run. So are those with whom a group would differ from a set of an earlier run
    by too few: its members would refuse.

    Parameters
    ----------
    members : sequence of str
        Who announced itself.
    frozen : mapping of str to (int, str)
        Rows and data digest, by agent.
    answers : mapping of str to Stored
        The announcements.
    former : sequence of Former
        Earlier runs.
    """
    announcements = [_announcement(answers[member].contribution, member, frozen[member][1]) for member in members]
    held = {member: _held(member, _values(answers[member]), former) for member in members}
    rosters, left_out, awaited = _agreed(terms, announcements, held, partial(cut_groups, terms))
    announcements = [each for each in announcements if each.agent not in left_out]
    lacking = missing(terms, announcements)
    editions = () if lacking else tuple(roster.first() for roster in rosters)
    sealed = {each.agent: _values(answers[each.agent])[SEALED] for each in announcements}
    held = {each.agent: held[each.agent] for each in announcements}
    return Paired(editions, sealed, lacking, left_out, held, awaited - set(members))


def founded_again(roster: Roster, founders: Collection[str], held: Held) -> tuple[Edition | None, dict[str, str]]:
    """Return the first edition of a group that begins anew with some of its founders, and why others are left out.

    None: too few are left. No sum over the former roster was opened, so nobody needs company.

    Parameters
    ----------
    roster : Roster
        In which none of `founders` has answered: they would answer in no other.
    held : Held
        Sets of earlier runs.
    """

    def cut(announcements: Iterable[Announcement]) -> tuple[Roster, ...]:
        return (Roster(roster.terms, roster.group, tuple(sorted(announcements, key=lambda each: each.agent))),)

    founding = [roster.by_id[agent] for agent in founders]
    [smaller], left_out, _ = _agreed(roster.terms, founding, held, cut)
    return None if missing(roster.terms, smaller.founders) else smaller.first(), left_out


def blamed(editions: Iterable[Edition], refusals: Mapping[str, str]) -> dict[int, str]:
    """Return, by group that has not shrunk, the member that more than half of its members refuse to be added up with.

    Fewer are not believed: they may lie, and cost the group none but themselves.

    Parameters
    ----------
    refusals : mapping of str to str
        Reasons, by agent.
    """
    result = {}
    for edition in editions:
        named = Counter(refusals[agent].removeprefix(BLAMES) for agent in edition.members if agent in refusals)
        whom, votes = max(named.items(), key=lambda item: item[1], default=("", 0))
        if edition.number == 0 and whom in edition.members and 2 * votes > len(edition.members):
            result[edition.group] = whom
    return result


def _agreed(
    terms: Terms,
    announcements: Collection[Announcement],
    held: Held,
    cut: Callable[[Iterable[Announcement]], tuple[Roster, ...]],
) -> tuple[tuple[Roster, ...], dict[str, str], frozenset[str]]:
    """Return rosters in which all members would answer, why others are left out, and whom earlier runs had."""
    announcements = sorted(announcements, key=lambda each: (each.floor, each.agent))
    left_out: dict[str, str] = {}
    awaited: frozenset[str] = frozenset()
    while True:
        while announcements and announcements[-1].floor > max(len(announcements), terms.floor, terms.company):
            out = announcements.pop()
            left_out[out.agent] = f"asks for {out.floor} vehicles"
        rosters = cut(announcements)
        few: dict[str, str] = {}
        for roster in rosters:
            parted = apart(roster.by_id, held, terms.company, drawn_order(roster.digest, roster.by_id))
            few |= parted.reasons
            awaited |= parted.missing
        if not few:
            return rosters, left_out, awaited
        left_out |= few
        announcements = [each for each in announcements if each.agent not in few]


def _held(agent: str, values: Mapping[str, Any], former: Sequence[Former]) -> tuple[frozenset[str], ...]:
    """Return the sets of earlier runs in which a vehicle is and whose rows it still has, by its own word.

    One that does not say (of former software) is taken to have them all.
    """
    named = values.get(FORMER)
    sets = (
        members for run in former if named is None or run.nonce in named for members in run.editions if agent in members
    )
    return tuple(dict.fromkeys(sets))


def _announcement(contribution: Contribution, agent: str, data_digest: str) -> Announcement:
    key, floor = contribution.values.get(KEY), contribution.values.get(FLOOR)
    try:
        return Announcement(agent, key, data_digest, floor)  # type: ignore[arg-type]  # it checks that
    except ValueError as fault:
        raise ContributionError(str(fault)) from fault


def _values(stored: Stored) -> Mapping[str, Any]:
    return stored.contribution.values
