"""Whom a combination of totals is about: the search against an exact one that tries all sets of few vehicles."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.private import totals
from glassfleet.private.totals import Member, Total, known, lacking, singled_out, tells_few_rows
from schemas.codec import decode, encode
from schemas.errors import WireError
from tests.support.privacy.private_rules import least_told, rank

NAMES = [f"v{number:02d}" for number in range(12)]


def total(names: Iterable[str], founders: Iterable[str] | None = None, *, era: str = "e", rows: str = "r") -> Total:
    members = tuple(Member(name, era, rows) for name in sorted(names))
    return Total(tuple(Member(name, era, rows) for name in sorted(founders)) if founders else members, members)


def of(members: Collection[Member]) -> Total:
    return Total(tuple(sorted(members)), tuple(sorted(members)))


def is_told(sets: Sequence[Collection[Any]], about: Collection[str]) -> bool:
    """Whether a combination of sums over `sets`, of tuples that begin with a vehicle, is about `about` alone."""
    every = sorted(frozenset().union(*sets))
    whole, others = ([[int(each in part) for each in chosen] for part in sets] for chosen in (
        every, [each for each in every if each[0] not in about]
    ))  # fmt: skip
    return rank(others) < rank(whole)


TIMES = (("e", "r", "t"), ("e", "s", "t"), ("f", "u", "u"), ("e", "r", "v"))
"""Era, training and test rows: at first, with other training rows, with all others, with other test rows."""


def views(sets: Sequence[Collection[Member]]) -> list[list[set[Any]]]:
    """Return the sets of members as each of what they count as."""
    return [[{each.views[view] for each in members} for members in sets] for view in range(3)]


@st.composite
def families(draw: st.DrawFn) -> list[frozenset[Member]]:
    """Draw sets of vehicles in a few groups, so that some are about few and some are not; rows come anew, too."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=5, max_size=5))
    result = []
    for _ in range(draw(st.integers(1, 5))):
        groups = draw(st.sets(st.integers(0, 4), min_size=1))
        time = {group: draw(st.sampled_from([0, 0, 0, 1, 2, 3])) for group in groups}
        odd = draw(st.sampled_from([(), (), (0, 1), (0, 2), (3, 1), (0, 3)]))
        result.append(
            frozenset(
                Member(f"g{group}-{number}", *TIMES[odd[1] if odd and odd[0] == group == number else time[group]])
                for group in groups
                for number in range(sizes[group])
            )
        )
    return result


@settings(max_examples=100, deadline=None)
@given(families(), st.integers(2, 4))
def test_search_agrees_with_one_that_tries_all_few(sets: list[frozenset[Member]], company: int) -> None:
    *earlier, last = sets
    sets = [last]
    for each in earlier:  # those of which a combination is about few by themselves are not looked for
        if not any(least_told(way, company) for way in views([*sets[:-1], each])):
            sets.insert(-1, each)
    found = singled_out([*map(of, sets)], company)
    ways = views(sets)
    assert bool(found) == any(least_told(way, company) for way in ways)
    if found:
        assert len(found) < company
        assert any(is_told(way, found) for way in ways)


@pytest.mark.parametrize(
    ("sets", "company", "found"),
    [
        (["abc", "abcd"], 2, "d"),
        (["abc", "abcde"], 3, "de"),
        (["abc", "abcdef"], 3, ""),
        (["abcdefgh", "abcd", "efg"], 3, "h"),  # two that are disjoint, and both with somebody else
        (["abcd", "cdef", "efab"], 3, "ab"),  # only with a half: ab + ab + cd + ef less cd and ef is twice ab
        (["abcd", "cdef", "efghi", "ghia"], 2, "b"),
        (["ab"], 3, "ab"),
        ([], 3, ""),
        (["abc", "abcd", "abcdefg"], 2, ""),  # the first two tell of d; the last one adds three others
        (["abc", "abcd", "abce"], 2, "e"),
        (["abcdef", "abcde", "abcdef"], 3, ""),  # the last one adds nothing
        (["abcdefgh", "abcdefg", "h"], 3, ""),
    ],
)
def test_few_are_found_by_whatever_factors(
    sets: list[str], company: int, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = singled_out([*map(total, sets)], company)
    if found == "ab":
        assert len(result) == 2
    else:
        assert result == set(found)
    monkeypatch.setattr(totals, "PRIMES", (2, 3, *totals.PRIMES))
    assert singled_out([*map(total, sets)], company) == result, (
        "modulo a prime by which the rank is smaller is not looked"
    )


def test_vehicle_with_other_rows_counts_as_the_same_and_as_another() -> None:
    before = of([Member(name, "e", "r") for name in "abcdef"])
    same = [Member(name, "e", "r") for name in "bcdef"]
    assert singled_out([before, of([Member("a", "e", "s"), *same])], 3) == {"a"}, "its new rows less the old ones"
    assert singled_out([before, of(same)], 3) == {"a"}
    renewed_tests = of([Member("a", "e", "r", "s"), *same])
    assert singled_out([before, renewed_tests], 3) == {"a"}, "its new test rows less the old ones"
    # Other training rows of three, and of these and a fourth other test rows: taken for test rows, one is alone.
    training = of([*(Member(name, "e", "s", "u") for name in "abc"), Member("d", "e", "r", "u"), *same[3:]])
    assert not singled_out([before, training], 3)
    assert singled_out([before, of([Member(name, "e", "s", "u" if name == "a" else "") for name in "abcdef"])], 3)
    # Taken for others, six vehicles come or go; taken for the same ones, it is one that leaves.
    renewed = of([Member(name, "e", "s") for name in "bcdef"])
    assert singled_out([before, renewed], 3) == {"a"}
    assert not singled_out([before, of([Member(name, "e", "s") for name in "abcdef"])], 3)
    assert not singled_out([before, of([Member(name, "f", "s") for name in "bcdef"])], 3), "these have begun anew"


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_search_that_takes_too_long_ends_as_if_few_were_told_of(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    sets = [total(name for name in NAMES if rng.random() < 0.7) for _ in range(5)]
    many = [of([Member(f"{each.agent}{copy}") for each in one.members for copy in "xyzw"]) for one in sets]
    rows = [np.flatnonzero(rng.random(60) < 0.5).astype(np.uint64) for _ in range(2)]
    assert not singled_out(many, 4)
    assert not tells_few_rows(rows, 8)
    monkeypatch.setattr(totals, "MOST_STEPS", steps)
    assert singled_out(many, 4) or steps == 5
    assert tells_few_rows(rows, 8) or steps == 5


def test_search_of_many_runs_of_a_large_group_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run left out three others: no combination is about few, and few steps show it."""
    names = [f"v{number:03d}" for number in range(63)]
    sets = [total(set(names) - set(names[3 * run : 3 * run + 3])) for run in range(16)]
    monkeypatch.setattr(totals, "MOST_STEPS", 2_000)
    assert not singled_out(sets, 3)
    assert singled_out([*sets, total(names[1:])], 3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=1, max_size=5), st.integers(1, 4))
def test_few_rows_are_told_of_where_some_combination_is_about_them(sets: list[set[int]], least: int) -> None:
    *earlier, last = [{str(row) for row in each} for each in sets]
    runs: list[set[str]] = []
    for each in earlier:
        if least_told([*runs, each], least) is None:
            runs.append(each)
    runs.append(last)
    expected = least_told(runs, least) is not None
    assert tells_few_rows([np.array(sorted(map(int, each)), dtype=np.uint64) for each in runs], least) == expected


@pytest.mark.parametrize(
    ("founders", "company", "there", "lacks"),
    [(15, 3, 9, 0), (15, 3, 8, 1), (16, 3, 9, 1), (16, 3, 10, 0), (15, 5, 0, 10)],
)
def test_a_later_set_has_most_of_the_founders_of_an_earlier_one(
    founders: int, company: int, there: int, lacks: int
) -> None:
    names = [f"v{number:02d}" for number in range(founders)]
    earlier = total(names[:12], names)
    present = [Member(name, "e", "other rows") for name in names[founders - there :]]
    assert lacking(earlier, [*present, Member("new", "e", "r")], company) == lacks
    assert lacking(earlier, [Member(name, "f", "r") for name in names], company) == -(-(founders + company) // 2)


def test_a_total_is_the_same_after_its_travel_and_its_digest_is_of_all_that_it_says() -> None:
    given = total(NAMES[2:9], NAMES, era="0123456789abcdef")
    assert Total.from_value(decode(encode(given.to_value()))) == given
    others = [total(NAMES[2:8], NAMES, era="0123456789abcdef"), total(NAMES[2:9], NAMES), total(NAMES[2:9])]
    digests = [each.digest for each in (given, *others)]
    assert len(set(digests)) == 4
    assert known(digests[:2], [others[2], others[0], given, given]) == tuple(
        sorted([given, others[0]], key=lambda each: each.digest)
    )


FOUNDERS = [["a", "e", "r", "t"], ["b", "e", "r", "t"], ["c", "e", "r", "t"]]
NO_FOUNDERS: list[Any] = [
    *(None, 3, [3], [["a", "e", "r", 3]], [["a", "e", "r", "t", "x"]], [["a", "e", "r", "t" * 65]]),
    *(FOUNDERS[::-1], [*FOUNDERS, FOUNDERS[-1]]),
]
NO_MEMBERS: list[Any] = [
    *(None, 3, "x", [3], [-1], [1, 0], [1, 1], [[]], [None]),
    *([float("inf")], [float("nan")], [2**70]),
]


@pytest.mark.parametrize(
    "value",
    [
        *(None, 3, "text", [], {}, {"founders": FOUNDERS}, {"members": []}),
        *({"founders": each, "members": [0]} for each in NO_FOUNDERS),
        *({"founders": FOUNDERS, "members": each} for each in NO_MEMBERS),
    ],
)
def test_what_is_no_total_is_malformed(value: object) -> None:
    with pytest.raises(WireError, match="malformed: total"):
        Total.from_value(value)
