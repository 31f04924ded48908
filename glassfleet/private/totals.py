"""Totals that private runs may have opened, and whom a combination of them is about.

A total is the sum of the answers of a set of vehicles. Whoever has several totals over the same rows can add and
subtract them, with any factors. A combination is *about* the vehicles whose numbers do not cancel out in it. No
combination of totals may be about fewer than `company` vehicles; that is decided here, by exact linear algebra over the
sets of members.

A vehicle whose rows change counts in several ways, and the rule must hold in each. Taken for the same before and after
(few rows changed, so its numbers are nearly what they were), it must not be alone in joining or leaving. Taken for
another one, it must not be alone in having other training rows, or other test rows: the difference would be these.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from schemas.codec import Value, encode
from schemas.errors import WireError

PRIMES = (2**31 - 1, 2147483629, 2147483587, 2147483579, 2147483563, 2147483549)
"""Combinations are searched modulo two of these with which the rank is that over the rationals. All are found but those
in which the last total's factor is a multiple of both."""

MOST_CELLS, MOST_STEPS = 16_384, 2_000
"""Totals times ways to count, and steps of a search, at most: seven seconds of a server's core, for each of three views
(measured with drawn sets); beyond, the rule is not kept."""

TAG = 16
"""Characters of what tells rows apart, see :class:`Member`."""

Pattern: TypeAlias = tuple[int, ...]
"""In which totals something is: 1 or 0 for each."""


@dataclass(frozen=True, order=True)
class Member:
    """A vehicle with the rows that it answers from.

    Attributes
    ----------
    agent : str
    era : str
        As `rows` was in the first run of an unbroken series: each has rows in common with an earlier one.
    rows, tests : str
        Keyed digests of its training and of its test rows, so that others see whether these changed and nothing else;
        :data:`TAG` characters.
    """

    agent: str
    era: str = ""
    rows: str = ""
    tests: str = ""

    @property
    def as_before(self) -> tuple[str, str]:
        """Who it is as long as some of its rows stay."""
        return self.agent, self.era

    @property
    def views(self) -> tuple[tuple[str, ...], ...]:
        """All that it counts as: the same, with these training rows, with these test rows."""
        return (self.as_before, (*self.as_before, self.rows), (*self.as_before, self.tests))


@dataclass(frozen=True)
class Total:
    """A sum that was answered, and so may be open.

    Attributes
    ----------
    founders : tuple of Member
        Of the group, in order.
    members : tuple of Member
        Over whom the sum is: some of the founders, in order.
    """

    founders: tuple[Member, ...]
    members: tuple[Member, ...]

    @cached_property
    def digest(self) -> bytes:
        """SHA-256, 32 bytes: what vehicles announce."""
        return hashlib.sha256(b"glassfleet-total/1\x00" + encode(self.to_value())).digest()

    def to_value(self) -> dict[str, Value]:
        """Return it as a codec value; members by their places among the founders."""
        chosen = set(self.members)
        places = [place for place, founder in enumerate(self.founders) if founder in chosen]
        return {"founders": [list(astuple(each)) for each in self.founders], "members": places}

    @classmethod
    def from_value(cls, value: object) -> Total:
        """Read :meth:`to_value`; raises WireError, whatever it holds."""
        try:
            given: Any = value
            founders = tuple(Member(*map(_text, each)) for each in given["founders"])
            places = [int(each) for each in given["members"]]
            in_order = list(founders) == sorted(set(founders)) and places == sorted(set(places))
            members = tuple(founders[place] for place in places if place >= 0)
        except (KeyError, TypeError, ValueError, OverflowError, IndexError) as fault:
            raise WireError("malformed", f"total: {fault}"[:200]) from fault
        if not in_order or len(members) < len(places):
            raise WireError("malformed", "total: founders and members must be in order, each once")
        return cls(founders, members)


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 64:
        raise ValueError("a member is three short texts")
    return value


def lacking(total: Total, members: Collection[Member], company: int) -> int:
    """Return how many founders of an earlier total a set lacks; 0: it has enough.

    Two sets that both have more than half of its founders, by company, share company members. Each of these has told
    what it knew when it announced itself: so whoever answers in the later set knows the earlier one.
    """
    there = {each.as_before for each in members} & {each.as_before for each in total.founders}
    return max(0, -(-(len(total.founders) + company) // 2) - len(there))


def singled_out(totals: Sequence[Total], company: int) -> frozenset[str]:
    """Return the vehicles, fewer than `company`, that a combination of totals with the last one in it is about.

    None if there is none. What the others tell by themselves is not looked at: it cannot be helped any more.

    Parameters
    ----------
    totals : sequence of Total
        The last one is new.
    company : int
        At least 1.
    """
    for view in range(3):
        found = _about_few([frozenset(each.views[view] for each in total.members) for total in totals], company)
        if found:
            return found
    return frozenset()


def patterns(sets: Sequence[Collection[Any]]) -> dict[str, frozenset[Pattern]]:
    """Return by vehicle in which of the sets it is; one pattern for each of what it counts as.

    Parameters
    ----------
    sets : sequence of collection of tuple
        The first of each tuple is the vehicle.
    """
    result: dict[str, set[Pattern]] = defaultdict(set)
    for each in dict.fromkeys(one for members in sets for one in sorted(members)):
        result[each[0]].add(tuple(int(each in members) for members in sets))
    return {agent: frozenset(found) for agent, found in result.items()}


def _about_few(sets: Sequence[Collection[Any]], company: int) -> frozenset[str]:
    """Vehicles in the same sets have the same factor in each combination: these are looked through as one."""
    alike: dict[frozenset[Pattern], list[str]] = defaultdict(list)
    for agent, found in patterns(sets).items():
        alike[found].append(agent)
    classes = [(sorted(found), len(agents)) for found, agents in alike.items()]
    members = list(alike.values())
    return frozenset(agent for place in _few(classes, company - 1) or () for agent in members[place])


def tells_few_rows(runs: Sequence[NDArray[np.uint64]], least: int) -> bool:
    """Whether a combination of sums over a vehicle's rows, as they were in some runs, is about fewer than `least` rows.

    Of those with the last run in it. As :func:`singled_out`, with the rows of one vehicle in place of vehicles.

    Parameters
    ----------
    runs : sequence of ndarray of uint64
        Different hashes of the rows of each run.
    least : int
        At least 1.
    """
    every = np.unique(np.concatenate([*runs, np.empty(0, np.uint64)]))
    seen = np.array([np.isin(every, rows, assume_unique=True) for rows in runs], dtype=np.int64).reshape(len(runs), -1)
    found, counts = np.unique(seen, axis=1, return_counts=True)
    classes = [([tuple(line)], int(count)) for line, count in zip(found.T.tolist(), counts, strict=True)]
    return _few(classes, least - 1) is not None


def _few(classes: Sequence[tuple[Sequence[Pattern], int]], most: int) -> tuple[int, ...] | None:
    """Return classes with `most` in all or fewer that a combination with the last total is about; None: there are none.

    For each class that does not cancel out in all combinations that are left, either only those in which it does are
    looked at, or it is one of these. A search that is too large, or takes too long, ends with the smallest class.

    Parameters
    ----------
    classes : sequence of (sequence of Pattern, int)
        In which totals each is, and how many are in it.
    most : int
    """
    order = sorted(range(len(classes)), key=lambda place: -classes[place][1])
    if not order:
        return None
    lines = np.array([line for place in order for line in classes[place][0]], dtype=np.int64).T
    if lines.size > MOST_CELLS:
        return (order[-1],)
    rank = _rank(lines.tolist())
    if _rank(lines[:-1].tolist()) == rank:  # it adds nothing to the others
        return None
    # The last column is the factor of the last total.
    lines = np.column_stack([lines, np.arange(len(lines)) == len(lines) - 1])
    spans = ((prime, _reduced(lines, range(lines.shape[1] - 1), prime)) for prime in PRIMES)
    whole = list(islice((each for each in spans if len(each[1]) == rank), 2))
    if len(whole) < 2:
        return (order[-1],)
    ends = np.cumsum([len(classes[place][0]) for place in order]).tolist()
    columns = dict(zip(order, map(range, [0, *ends], ends), strict=False))
    sizes = {place: classes[place][1] for place in order}
    return next(filter(None, (_searched(span, columns, sizes, most, prime) for prime, span in whole)), None)


def _searched(
    span: NDArray[np.int64], columns: Mapping[int, range], sizes: Mapping[int, int], most: int, prime: int
) -> tuple[int, ...] | None:
    """Search a basis, modulo `prime`, of what each line is multiplied with in a combination; see :func:`_few`."""
    order = list(columns)
    todo: list[tuple[NDArray[np.int64], int, int, tuple[int, ...]]] = [(span, 0, most, ())]
    for _ in range(MOST_STEPS):
        if not todo:
            return None
        vectors, at, left, chosen = todo.pop()
        while vectors[:, -1].any() and at < len(order):
            place, at = order[at], at + 1
            if vectors[:, columns[place]].any():
                if sizes[place] <= left:
                    todo.append((vectors, at, left - sizes[place], (*chosen, place)))
                vectors = _reduced(vectors, columns[place], prime, keep=False)
        if vectors[:, -1].any():
            return chosen
    return (order[-1],)


def _reduced(rows: NDArray[np.int64], columns: Iterable[int], prime: int, *, keep: bool = True) -> NDArray[np.int64]:
    """Return a basis of what `rows` span, modulo `prime`; without `keep`, of what of it is zero in `columns`.

    Without `keep` rows must be independent.
    """
    rows, found = rows % prime, 0
    for column in columns:
        pivots = np.flatnonzero(rows[found:, column])
        if not pivots.size:
            continue
        first = found + int(pivots[0])
        rows[[found, first]] = rows[[first, found]]
        rows[found] = rows[found] * pow(int(rows[found, column]), -1, prime) % prime
        others = np.flatnonzero(rows[:, column])
        others = others[others != found]
        rows[others] = (rows[others] - rows[others, column, None] * rows[found]) % prime
        found += 1
        if found == len(rows):
            break
    return rows[:found] if keep else rows[found:]


def _rank(rows: list[list[int]]) -> int:
    """Return the rank over the rationals, without fractions (Bareiss 1968)."""
    found, before = 0, 1
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((place for place in range(found, len(rows)) if rows[place][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        lead = rows[found]
        for place in range(found + 1, len(rows)):
            row = rows[place]
            rows[place] = [(lead[column] * a - row[column] * b) // before for a, b in zip(row, lead, strict=True)]
        before = lead[column]
        found += 1
    return found


def known(digests: Collection[bytes], table: Iterable[Total]) -> tuple[Total, ...]:
    """Return the totals of `table` that have one of `digests`, each once, in the order of these."""
    found = {each.digest: each for each in table if each.digest in digests}
    return tuple(found[digest] for digest in sorted(found))
