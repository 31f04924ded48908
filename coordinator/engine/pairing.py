"""Pairing, the first round of a private run: who takes part, and each founder's key.

Who has announced itself by the deadline is a founder. The founders are cut into groups, and told each other's
announcements as they came, each under its vehicle's own seal. A group most of whose members refuse an announcement is
founded again without it, before it has told anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from coordinator.engine.state import Level, Stored
from glassfleet.contract.messages import Contribution, Task
from glassfleet.errors import ContributionError
from glassfleet.private.between import GROUP, Apart, apart
from glassfleet.private.groups import Announcement, Edition, Roster, Terms, cut_groups, drawn_order, missing
from glassfleet.private.totals import Total, known
from schemas.errors import WireError

SCHEME, KIND = "private", "keys"
"""What the task is called that asks for keys."""

KEY, SEALED = "key", "message"
"""What an answer says, and the message that it came in, see `with_message`."""

ANNOUNCED = (
    KEY,
    "floor",
    "era",
    "rows",
    "tests",
    "new_rows",
    "new_tests",
    "new_digest",
    "anchor",
    "left",
    "totals",
    "heard",
)
"""Fields of an announcement that an answer has."""

BLAMES = "bad-member: "
"""What the reason of a refusal begins with that names a member: a vehicle meets no group with its announcement in it,
and so has answered in none."""

BLAMED = f"{BLAMES}most of its group refuse its announcement"
"""Why such a member is left out."""

_MOST_BYTES = 1 << 17
"""Most bytes of an announcement: each is sent to all founders of its group."""

UNKNOWN = "was in a private run over these rows that this coordinator does not know: it joins once its rows are new"
"""Why a vehicle is left out whose sums cannot be looked at, as the journal of then is lost."""


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
    awaited : frozenset of str
        Who was in an earlier run and is missing: without them others are left out.
    """

    editions: tuple[Edition, ...]
    sealed: Mapping[str, bytes]
    lacking: int
    left_out: Mapping[str, str]
    awaited: frozenset[str]


def keys_level(terms: Terms) -> Level:
    """Return the one level of pairing."""
    task = Task(SCHEME, KIND, terms.to_value(), terms.nonce)
    return Level(1, {}, task, task.digest, (task.digest,))


def with_message(contribution: Mapping[str, Any], message: bytes) -> dict[str, Any]:
    """Return an announcement with the message that it came in: its seal tells the other founders whose key it is."""
    values = contribution.get("values")
    return {**contribution, "values": {**(values if isinstance(values, Mapping) else {}), SEALED: message}}


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
    return _announcement(contribution, agent, data_digest)


def founders(
    terms: Terms,
    members: Sequence[str],
    frozen: Mapping[str, tuple[int, str]],
    answers: Mapping[str, Stored],
    earlier: Sequence[Total],
) -> Paired:
    """Return the first editions, and who is left out.

    A vehicle whose own floor is above the founders of its group takes part in nothing: it is left out, the most
    demanding first, so that one alone cannot stop a run. So are those with whom a sum could be combined with earlier
    ones into one about few: its members would refuse. A group of too few waits for the next run.

    Parameters
    ----------
    members : sequence of str
        Who announced itself.
    frozen : mapping of str to (int, str)
        Rows and data digest, by agent.
    answers : mapping of str to Stored
        The announcements.
    earlier : sequence of Total
        Of earlier runs.
    """
    every = [_announcement(answers[member].contribution, member, frozen[member][1]) for member in members]
    table = {each.digest for each in earlier}
    left_out = {each.agent: UNKNOWN for each in every if not table >= each.known}
    there = [each for each in every if each.agent not in left_out]

    def cut(announcements: Iterable[Announcement]) -> tuple[Roster, ...]:
        return tuple(_renewed(roster, earlier) for roster in cut_groups(terms, announcements))

    rosters, few, awaited = _agreed(terms, there, earlier, cut)
    left_out |= few
    large = [roster for roster in rosters if not missing(terms, roster.founders)]
    for small in rosters if large else ():
        if small not in large:
            left_out |= dict.fromkeys(small.by_id, f"{GROUP}: {len(small.founders)} of it are too few")
    # Groups have numbers from 0, without gaps.
    editions = tuple(replace(roster, group=number).first() for number, roster in enumerate(large))
    sealed = {each.agent: _values(answers[each.agent])[SEALED] for each in every if each.agent not in left_out}
    lacking = 0 if large else min(missing(terms, roster.founders) for roster in rosters)
    return Paired(editions, sealed, lacking, left_out, awaited - set(members))


def founded_again(
    roster: Roster, founders: Collection[str], earlier: Sequence[Total]
) -> tuple[Edition | None, dict[str, str]]:
    """Return the first edition of a group that begins anew with some of its founders, and why others are left out.

    None: too few are left. No sum over the former roster was opened, so nobody needs company.

    Parameters
    ----------
    roster : Roster
        In which none of `founders` has answered: they would answer in no other.
    earlier : sequence of Total
        Of earlier runs.
    """

    def cut(announcements: Iterable[Announcement]) -> tuple[Roster, ...]:
        founding = tuple(sorted(announcements, key=lambda each: each.agent))
        return (replace(roster, founders=founding),)  # some may have taken their new rows already

    founding = [roster.by_id[agent] for agent in founders]
    [smaller], left_out, _ = _agreed(roster.terms, founding, earlier, cut)
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
    earlier: Sequence[Total],
    cut: Callable[[Iterable[Announcement]], tuple[Roster, ...]],
) -> tuple[tuple[Roster, ...], dict[str, str], frozenset[str]]:
    """Return rosters in which all members would answer, why others are left out, and whom earlier runs had."""
    left_out: dict[str, str] = {}
    awaited: frozenset[str] = frozenset()
    while True:
        rosters = cut([each for each in announcements if each.agent not in left_out])
        few: dict[str, str] = {}
        for roster in rosters:
            demanding = _demanding(terms, roster)
            parted = _parted(roster, earlier, demanding)
            few |= {**demanding, **parted.reasons}
            awaited |= parted.missing
        if not few:
            return rosters, left_out, awaited
        left_out |= few


def _renewed(roster: Roster, earlier: Sequence[Total]) -> Roster:
    """Return a group that answers from new rows, where some have these, unless more would be left out for it."""
    renewed = replace(roster, renews=any(each.new_rows for each in roster.founders))
    if renewed == roster or len(_parted(renewed, earlier).reasons) > len(_parted(roster, earlier).reasons):
        return roster
    return renewed


def _parted(roster: Roster, earlier: Sequence[Total], without: Collection[str] = ()) -> Apart:
    members = {agent: member for agent, member in roster.members.items() if agent not in without}
    order = drawn_order(replace(roster, renews=False).digest, roster.by_id)
    return apart(members, partial(_known, roster, earlier), roster.terms.company, order)


def _demanding(terms: Terms, roster: Roster) -> dict[str, str]:
    """Return why founders are left out whose floor is above their number, the most demanding first."""
    founders = sorted(roster.founders, key=lambda each: (each.floor, each.agent))
    out = {}
    while founders and founders[-1].floor > max(len(founders), terms.floor, terms.company):
        last = founders.pop()
        out[last.agent] = f"asks for {last.floor} vehicles"
    return out


def _known(roster: Roster, earlier: Sequence[Total], founders: Collection[str]) -> tuple[Total, ...]:
    """Return the totals that some of a group's vehicles announced."""
    return known(frozenset().union(*(roster.by_id[agent].known for agent in founders)), earlier)


def _announcement(contribution: Contribution, agent: str, data_digest: str) -> Announcement:
    values = {name: contribution.values.get(name) for name in ANNOUNCED}
    try:
        return Announcement.from_value({**values, "agent": agent, "data_digest": data_digest})
    except WireError as fault:
        raise ContributionError(fault.detail) from fault


def _values(stored: Stored) -> Mapping[str, Any]:
    return stored.contribution.values
