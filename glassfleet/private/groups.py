"""Who is added to whom: the terms of a private run, its groups, and the editions in which a group shrinks.

Vehicles that announced themselves for a run are cut into groups. A group's sums are over all members of its present
*edition*. When members are lost, the group goes on as a smaller edition, and its members answer again. The difference
of two editions' sums is the sum of those who left, whatever the cryptography; so nobody leaves alone, see
:func:`next_edition`.

Nothing here needs cryptography beyond SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, partial
from itertools import groupby, pairwise
from typing import Any, TypeVar

from glassfleet.contract.messages import Summed
from glassfleet.errors import PrivacyError
from glassfleet.private.between import apart
from glassfleet.private.totals import TAG, Member, Total
from schemas.codec import Value, digest_of, encode
from schemas.errors import WireError

LEAST_FLOOR = 8
"""Fewest members that any run may let a group have."""

LEAST_COMPANY = 3
"""Fewest vehicles that any run may let leave together."""

LEAST_GROUP = 32
"""A group has at least so many founders, unless the whole fleet is smaller, and less than twice as many; more where
floor or company ask for more."""

SUPPORT_ROWS = 3
"""Fewest rows on which a number rests that a private run opens, unless the run says otherwise; sums of products need
more, see `glassfleet.private.support`."""

MOST_QUESTIONS = 1000
"""Most different tasks that any run may ask: each is one more chance to ask about few rows."""

MOST_TOTALS = 256
"""Most earlier totals that a vehicle may know."""

KEY_BYTES = 32
"""Length of an X25519 key."""

T = TypeVar("T")

_TEXT, _NUMBER = 200, 2**31 - 1


@dataclass(frozen=True)
class Terms:
    """What a vehicle is told before it announces itself, and what then holds for the whole run.

    Attributes
    ----------
    fleet, run, nonce : str
        Which run; `nonce` is drawn anew for each.
    scheme : str
        Name of the scheme.
    parameters : str
        Digest (SHA-256, hex) of the scheme's parameters as they stand in tasks, see :func:`parameters_digest`.
    floor : int
        Fewest members of an edition, at least :data:`LEAST_FLOOR`.
    company : int
        An edition shrinks by at least so many, at least :data:`LEAST_COMPANY`.
    support : int
        Fewest rows on which a statistic that is asked for may rest; 0: not looked at.
    max_questions : int
        Most different tasks of the run, domain discovery included; 1 to :data:`MOST_QUESTIONS`.
    """

    fleet: str
    run: str
    nonce: str
    scheme: str
    parameters: str
    floor: int = LEAST_FLOOR
    company: int = LEAST_COMPANY
    support: int = 0
    max_questions: int = MOST_QUESTIONS

    def __post_init__(self) -> None:
        """Raise ValueError for what no run may have."""
        for name in ("fleet", "run", "nonce", "scheme", "parameters"):
            _check_text(name, getattr(self, name))
        _check_number("floor", self.floor, LEAST_FLOOR)
        _check_number("company", self.company, LEAST_COMPANY)
        _check_number("support", self.support, 0)
        _check_number("max_questions", self.max_questions, 1, MOST_QUESTIONS)

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the terms, 32 bytes. It is part of every edition, so other terms are other masks."""
        return _hash("glassfleet-terms/1", self.to_value())

    def to_value(self) -> dict[str, Value]:
        """Return the terms as a codec value."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_value(cls, value: object) -> Terms:
        """Read :meth:`to_value`; raises WireError, whatever it holds."""
        return _read(cls, value)


def parameters_digest(parameters: Any) -> str:
    """Return the digest of a scheme's parameters (a pydantic model), as :attr:`Terms.parameters` has it."""
    return digest_of(parameters.model_dump(mode="json"))


@dataclass(frozen=True)
class Announcement:
    """What a vehicle tells of itself for one run. It travels under the vehicle's seal, which says whose it is.

    Attributes
    ----------
    agent : str
        Who.
    key : bytes
        Its X25519 public key for this run, 32 bytes.
    data_digest : str
        Keyed digest of the rows that it has frozen for this run; tells whether they changed, nothing else.
    floor : int
        Fewest members of an edition in which it will answer.
    era, rows, tests : str
        As in :class:`~glassfleet.private.totals.Member`: the same in each run over the same rows.
    new_rows, new_tests, new_digest : str
        What `rows`, `tests` and `data_digest` would be with the rows that it has now, where many came or went since the
        last run; empty: it has no others to answer from.
    anchor : str
        Tells its group from others in the next runs over some of these rows, :attr:`Roster.anchor`; empty: it has none.
    left : int
        How many private runs over some of these rows it joins, this one included.
    totals, heard : tuple of bytes
        Digests of the totals over some of these rows in which it answered, and of those in which vehicles had answered
        that it met in these runs; increasing, at most :data:`MOST_TOTALS` each.
    """

    agent: str
    key: bytes
    data_digest: str
    floor: int = LEAST_FLOOR
    era: str = ""
    rows: str = ""
    tests: str = ""
    new_rows: str = ""
    new_tests: str = ""
    new_digest: str = ""
    anchor: str = ""
    left: int = 1
    totals: tuple[bytes, ...] = ()
    heard: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for what cannot be an announcement."""
        _check_text("agent", self.agent)
        _check_text("data_digest", self.data_digest)
        if type(self.key) is not bytes or len(self.key) != KEY_BYTES:
            raise ValueError(f"key must be {KEY_BYTES} bytes")
        _check_number("floor", self.floor, 1)
        _check_number("left", self.left, 1)
        for name in ("era", "rows", "tests", "new_rows", "new_tests", "new_digest", "anchor"):
            most = _TEXT if name == "new_digest" else TAG
            if not isinstance(text := getattr(self, name), str) or len(text) > most:
                raise ValueError(f"{name} must be a text of at most {most} characters")
        for totals in (self.totals, self.heard):
            if type(totals) is not tuple or not all(type(each) is bytes and len(each) == 32 for each in totals):
                raise ValueError("totals must be digests of 32 bytes")
            if len(totals) > MOST_TOTALS or list(totals) != sorted(set(totals)):
                raise ValueError(f"totals must be in order, each once, at most {MOST_TOTALS}")

    def member(self, *, renews: bool) -> Member:
        """Return the vehicle with the rows that it answers from; `renews`: with those of now where it has others."""
        if renews and self.new_rows:
            return Member(self.agent, self.era, self.new_rows, self.new_tests)
        return Member(self.agent, self.era, self.rows, self.tests)

    @property
    def known(self) -> frozenset[bytes]:
        """Digests of all totals that it knows."""
        return frozenset((*self.totals, *self.heard))

    def digest(self, *, renews: bool) -> str:
        """Return the digest of the rows that it answers from, as for `member`."""
        return self.new_digest if renews and self.new_digest else self.data_digest

    def to_value(self) -> dict[str, Value]:
        """Return the announcement as a codec value, to be sealed."""
        value: dict[str, Value] = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**value, "totals": list(self.totals), "heard": list(self.heard)}

    @classmethod
    def from_value(cls, value: object) -> Announcement:
        """Read :meth:`to_value`; raises WireError, whatever it holds."""
        if isinstance(value, Mapping):
            value = {name: tuple(each) if isinstance(each, list) else each for name, each in value.items()}
        return _read(cls, value)


@dataclass(frozen=True)
class Roster:
    """The founders of one group: all who may ever be added up there.

    Attributes
    ----------
    terms : Terms
    group : int
        Number of the group, from 0.
    founders : tuple of Announcement
        In the order of id; ids and keys differ.
    renews : bool
        Whether those who have new rows answer from these: all in the group, or none.
    """

    terms: Terms
    group: int
    founders: tuple[Announcement, ...]
    renews: bool = False

    def __post_init__(self) -> None:
        """Raise PrivacyError ``bad-member`` when an id or a key stands twice, or ids are not in order."""
        ids = [each.agent for each in self.founders]
        if ids != sorted(set(ids)):
            raise PrivacyError("bad-member", "founders must be in the order of their ids, each once")
        if len({each.key for each in self.founders}) != len(ids):
            raise PrivacyError("bad-member", "two founders have one key")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of terms, group and founders, 32 bytes."""
        founders = [each.to_value() for each in self.founders]
        return _hash("glassfleet-roster/1", [self.terms.digest, self.group, founders, self.renews])

    @cached_property
    def by_id(self) -> Mapping[str, Announcement]:
        """The founders by id."""
        return {each.agent: each for each in self.founders}

    @cached_property
    def members(self) -> Mapping[str, Member]:
        """The founders with the rows that they answer from, by id."""
        return {each.agent: each.member(renews=self.renews) for each in self.founders}

    @property
    def least(self) -> int:
        """Fewest members of a later edition: the floor, and enough that any two editions have company in common.

        With 2 |E| >= |founders| + company two editions share at least `company` members, each of whom lets them only
        be nested. Without that, two disjoint editions could be asked whose sum lacks one vehicle of a third.
        """
        return least_members(len(self.founders), self.terms.floor, self.terms.company)

    @cached_property
    def anchor(self) -> str:
        """Tells the group from others in later runs: what its founders have already, else drawn from the roster."""
        return min((each.anchor for each in self.founders if each.anchor), default=self.digest.hex()[:TAG])

    @cached_property
    def announced(self) -> frozenset[bytes]:
        """Digests of all earlier totals that a founder knows."""
        return frozenset().union(*(each.known for each in self.founders))

    @cached_property
    def answered(self) -> frozenset[bytes]:
        """Digests of those in which one answered."""
        return frozenset(digest for each in self.founders for digest in each.totals)

    def first(self) -> Edition:
        """Return edition 0: all founders."""
        return Edition(self, 0, tuple(each.agent for each in self.founders))

    def to_value(self) -> dict[str, Value]:
        """Return the roster as a codec value, e.g. for a vehicle's disk. Seals are not kept: they were verified."""
        founders = [each.to_value() for each in self.founders]
        return {"terms": self.terms.to_value(), "group": self.group, "founders": founders, "renews": self.renews}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Roster:
        """Read :meth:`to_value`; raises WireError or PrivacyError."""
        founders = tuple(Announcement.from_value(each) for each in value["founders"])
        return cls(Terms.from_value(value["terms"]), value["group"], founders, value["renews"])


@dataclass(frozen=True)
class Edition:
    """A group at a time: over whose vectors a sum is.

    Attributes
    ----------
    roster : Roster
    number : int
        From 0; it rises.
    members : tuple of str
        Ids, in order, all of the roster.
    """

    roster: Roster
    number: int
    members: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise PrivacyError ``other-edition`` for members that are not founders, or out of order, or twice."""
        if type(self.number) is not int or not 0 <= self.number <= _NUMBER:
            raise PrivacyError("other-edition", "the number of an edition is a non-negative integer")
        if list(self.members) != sorted(set(self.members)) or not set(self.members) <= set(self.roster.by_id):
            raise PrivacyError("other-edition", "members must be founders, in the order of their ids, each once")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of roster, number and members, 32 bytes. It is part of every mask's key."""
        return _hash("glassfleet-edition/1", [self.roster.digest, self.number, list(self.members)])

    @property
    def group(self) -> int:
        """Number of the group."""
        return self.roster.group

    @cached_property
    def total(self) -> Total:
        """The sum over its members."""
        founders = self.roster.members
        return Total(tuple(founders.values()), tuple(founders[agent] for agent in self.members))

    @property
    def summed(self) -> Summed:
        """What a scheme is told of whose sum it gets. Company is for at most company - 2 who work together."""
        return Summed(self.group, self.number, len(self.members) - (self.roster.terms.company - 2))


@dataclass(frozen=True)
class Shrunk:
    """What becomes of a group that lost members.

    Attributes
    ----------
    edition : Edition or None
        The next one; None: too few would be left, so the group is dissolved and its sums are taken out.
    lost : tuple of str
        Who was lost, in the order of id.
    company : tuple of str
        Who goes with them so that nobody leaves alone, in the order of id.
    lacking : int
        How many vehicles more would have had to stay; 0 when there is a next edition.
    """

    edition: Edition | None
    lost: tuple[str, ...]
    company: tuple[str, ...]
    lacking: int


def least_members(founders: int, floor: int, company: int) -> int:
    """Return the fewest members of a later edition of a group, see :attr:`Roster.least`."""
    return max(floor, -(-(founders + company) // 2))


def cut_groups(terms: Terms, founders: Iterable[Announcement], size: int = LEAST_GROUP) -> tuple[Roster, ...]:
    """Return the groups: those of earlier runs as they were, and new vehicles in groups of `size` to 2 `size` - 1.

    A group stays together: who has an anchor is in one group with all who have the same. Fewer new vehicles than `size`
    join the smallest group that is large enough; if there is no group, they are one. Each group of new vehicles is what
    lies between two places, see :func:`place`: its members find it by that. The order is by a hash of terms and id, so
    nobody who has its id chooses it. (Who may decide who is a founder can still try many; the floor is what protects
    against that.)

    Parameters
    ----------
    terms : Terms
    founders : iterable of Announcement
        Ids and keys differ; see :func:`glassfleet.private.masks.usable_key` for what else to check before.
    size : int
        Fewest founders of a new group: the larger, the more are hidden in a sum, and the more answer again after a
        loss. It is larger where the run, or one of the founders, asks for more.

    Returns
    -------
    tuple of Roster
        By number, from 0. Some may be smaller than asked for, see :func:`missing`.

    Raises
    ------
    PrivacyError
        ``bad-member``: an id or a key stands twice.
    """
    whole = Roster(terms, 0, tuple(sorted(founders, key=lambda each: each.agent)))
    by_place = sorted(whole.founders, key=partial(place, terms))
    parts = [list(group) for anchor, group in groupby(by_place, key=lambda each: each.anchor) if anchor]
    new = [each for each in by_place if not each.anchor]
    least = max(size, _needed(terms, new))
    if parts and len(new) < least:
        # The smallest in which they would not be too few by themselves; a stray of an earlier group is none.
        large = [part for part in parts if len(part) >= _needed(terms, part)]
        (min(large, key=len) if large else max(parts, key=len)).extend(new)
    else:
        count = max(1, len(new) // least)
        ends = [len(new) * group // count for group in range(count + 1)]
        parts += [new[start:end] for start, end in pairwise(ends)]
    ordered = (sorted(part, key=lambda each: each.agent) for part in parts)
    return tuple(Roster(terms, group, tuple(part)) for group, part in enumerate(ordered))


def missing(terms: Terms, founders: Collection[Announcement]) -> int:
    """Return how many vehicles more are needed before anybody of `founders` would answer; 0: none."""
    return max(0, _needed(terms, founders) - len(founders))


def _needed(terms: Terms, founders: Iterable[Announcement]) -> int:
    """Return the fewest founders of a group in which all of `founders` would answer.

    With fewer than `company`, no edition would be large enough, see :attr:`Roster.least`.
    """
    return max((terms.floor, terms.company, *(each.floor for each in founders)))


def next_edition(
    edition: Edition, lost: Collection[str], away: Collection[str] = (), before: Sequence[Total] = ()
) -> Shrunk:
    """Return the group without `lost`, and without those who must go with them.

    At least ``company`` vehicles leave at a time. If fewer were lost, further members go: first those that are away,
    which would be lost next and cost others their place, then by a hash of the edition. They are told why and take part
    in the next run. More go where an earlier run demands it. A function of its arguments: a coordinator that was killed
    finds the same.

    Parameters
    ----------
    edition : Edition
        The present one.
    lost : collection of str
        Members that will not answer, at least one.
    away : collection of str
        Who is not connected now, members or not.
    before : sequence of Total
        That members know, of this group and of earlier runs; none: those of the group alone, which need no look.
    """
    gone = sorted(set(lost) & set(edition.members))
    if not gone:
        raise ValueError("nobody of the edition was lost")
    roster, least = edition.roster, edition.roster.terms.company
    rest = [agent for agent in edition.members if agent not in set(gone)]
    short = max(0, least - len(gone))
    drawn = sorted(drawn_order(edition.digest, rest), key=lambda agent: agent not in away)
    company = set(drawn[:short])
    if before:
        left = {agent: roster.members[agent] for agent in rest if agent not in company}
        company |= set(apart(left, lambda _: before, least, drawn).reasons)
    kept = tuple(agent for agent in rest if agent not in company)
    floor = max((roster.least, *(roster.by_id[agent].floor for agent in kept)))
    short_of = max(0, floor - len(kept))
    smaller = None if short_of else Edition(roster, edition.number + 1, kept)
    return Shrunk(smaller, tuple(gone), tuple(sorted(company)), short_of)


def round_digest(questions: Sequence[str]) -> str:
    """Return the identity of a round that asks `questions` (SHA-256, hex): the one, or the digest of all groups'."""
    return questions[0] if len(questions) == 1 else hashlib.sha256("".join(questions).encode()).hexdigest()


def drawn_order(seed: bytes, agents: Iterable[str]) -> list[str]:
    """Return `agents` in an order that nobody chooses alone: that of a hash of `seed` and each id."""
    return sorted(agents, key=partial(_drawn, seed))


def place(terms: Terms, founder: Announcement) -> int:
    """Return where a vehicle stands in the order in which groups are cut, 0 to 2^48 - 1.

    All of one group that was founded in an earlier run have one place; new vehicles stand in the upper half.
    """
    drawn = int.from_bytes(_drawn(terms.digest, founder.anchor or founder.agent)[:6], "big") >> 1
    return drawn if founder.anchor else drawn | 1 << 47


def _drawn(seed: bytes, agent: str) -> bytes:
    return hashlib.sha256(seed + agent.encode()).digest()


def _hash(label: str, value: Value) -> bytes:
    return hashlib.sha256(label.encode() + b"\x00" + encode(value)).digest()


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= _TEXT:
        raise ValueError(f"{name} must be a text of 1 to {_TEXT} characters")


def _check_number(name: str, value: object, least: int, most: int = _NUMBER) -> None:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name} must be an integer from {least} to {most}, got {value!r}"[:200])


def _read(cls: Callable[..., T], value: object) -> T:
    what = cls.__name__.lower()
    if not isinstance(value, Mapping):
        raise WireError("malformed", f"{what}: not a map")
    try:
        return cls(**value)
    except (ValueError, TypeError) as fault:
        raise WireError("malformed", f"{what}: {fault}"[:200]) from fault
