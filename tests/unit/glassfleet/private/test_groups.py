"""Groups are cut by hash, shrink with company, and dissolve in time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassfleet.errors import PrivacyError
from glassfleet.private.groups import (
    Announcement,
    Edition,
    Roster,
    Terms,
    cut_groups,
    missing,
    next_edition,
)
from schemas.codec import decode, encode
from schemas.errors import WireError

TERMS = Terms("fleet", "run", "nonce", "frt", "digest")


def founders(count: int, floor: int = 8) -> list[Announcement]:
    return [Announcement(f"v{i:03d}", i.to_bytes(32, "big"), "rows", floor) for i in range(count)]


@pytest.mark.parametrize(
    ("vehicles", "sizes"), [(8, [8]), (63, [63]), (64, [32, 32]), (100, [33, 33, 34]), (1000, [32] * 23 + [33] * 8)]
)
def test_groups_have_32_to_63_founders_each_in_one(vehicles: int, sizes: list[int]) -> None:
    rosters = cut_groups(TERMS, reversed(founders(vehicles)))
    assert sorted(len(roster.founders) for roster in rosters) == sizes
    assert [roster.group for roster in rosters] == list(range(len(sizes)))
    assert sorted(agent for roster in rosters for agent in roster.by_id) == [each.agent for each in founders(vehicles)]


@pytest.mark.parametrize("terms", [replace(TERMS, floor=40), replace(TERMS, company=40), TERMS])
def test_groups_are_larger_where_the_run_or_a_founder_asks_for_more(terms: Terms) -> None:
    there = founders(100)
    there[3] = replace(there[3], floor=40 if terms == TERMS else 8)
    assert [len(roster.founders) for roster in cut_groups(terms, there)] == [50, 50]


def test_who_is_in_which_group_depends_on_the_nonce_and_on_every_key() -> None:
    there = founders(200)
    cut = [set(roster.by_id) for roster in cut_groups(TERMS, there)]
    assert cut == [set(roster.by_id) for roster in cut_groups(TERMS, there)]
    assert cut != [set(roster.by_id) for roster in cut_groups(replace(TERMS, nonce="other"), there)]
    there[7] = replace(there[7], key=b"k" * 32)
    assert cut != [set(roster.by_id) for roster in cut_groups(TERMS, there)]


@given(st.integers(8, 70), st.data())
def test_nobody_leaves_alone_and_no_two_editions_of_a_group_can_branch(count: int, data: st.DataObject) -> None:
    [edition] = cut_groups(TERMS, founders(count), size=70)
    chain = [edition.first()]
    while True:
        lost = data.draw(st.sets(st.sampled_from(chain[-1].members), min_size=1))
        shrunk = next_edition(chain[-1], lost)
        assert shrunk == next_edition(chain[-1], lost)
        assert set(shrunk.lost) == lost
        assert not set(shrunk.company) & lost
        if len(lost) >= 3:
            assert not shrunk.company
        if shrunk.edition is None:
            break
        left = set(chain[-1].members) - set(shrunk.edition.members)
        assert left == {*shrunk.lost, *shrunk.company}
        assert len(left) >= 3
        assert shrunk.edition.number == chain[-1].number + 1
        chain.append(shrunk.edition)
        assert 2 * len(chain[-1].members) >= count + 3
        assert len(chain[-1].members) >= 8


def test_a_third_of_fifteen_may_be_lost_in_two_editions_and_no_more() -> None:
    [roster] = cut_groups(TERMS, founders(15))
    assert roster.least == 9
    second = next_edition(roster.first(), roster.first().members[:3]).edition
    assert second is not None
    third = next_edition(second, second.members[:2])
    assert len(third.company) == 1
    assert third.edition is not None
    assert len(third.edition.members) == 9
    assert next_edition(third.edition, third.edition.members[:1]).edition is None


def test_a_member_with_a_higher_floor_ends_the_group_sooner() -> None:
    there = founders(15)
    there[14] = replace(there[14], floor=13)
    [roster] = cut_groups(TERMS, there)
    assert next_edition(roster.first(), roster.first().members[:3]).edition is None


@pytest.mark.parametrize(("count", "floor", "more"), [(0, 8, 8), (5, 8, 3), (8, 8, 0), (20, 24, 4), (30, 24, 0)])
def test_missing_says_how_many_vehicles_more_are_needed(count: int, floor: int, more: int) -> None:
    assert missing(TERMS, founders(count, floor)) == more


def test_terms_announcements_and_rosters_travel() -> None:
    [roster] = cut_groups(TERMS, founders(9))
    read = Roster.from_value(decode(encode(roster.to_value())))
    assert read == roster
    assert read.digest == roster.digest
    assert Terms.from_value(decode(encode(TERMS.to_value()))) == TERMS


@pytest.mark.parametrize(
    "change", [{"floor": 7}, {"company": 2}, {"support": -1}, {"run": ""}, {"floor": 8.0}, {"more": 1}, {"nonce": 3}]
)
def test_terms_that_no_run_may_have_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="malformed"):
        Terms.from_value({**TERMS.to_value(), **change})


@pytest.mark.parametrize(
    "value", [None, {}, {"agent": "a"}, {"agent": "a", "key": b"short", "data_digest": "d", "floor": 8}]
)
def test_announcements_that_cannot_be_are_refused(value: object) -> None:
    with pytest.raises(WireError, match="malformed"):
        Announcement.from_value(value)


def test_every_change_of_terms_roster_or_edition_is_another_digest() -> None:
    [roster] = cut_groups(TERMS, founders(12))
    digests = {
        Edition(replace(roster, terms=terms, group=group), number, members).digest
        for terms in (TERMS, replace(TERMS, company=4))
        for group in (0, 1)
        for number in (0, 1)
        for members in (tuple(roster.by_id), tuple(roster.by_id)[1:])
    }
    assert len(digests) == 16


@pytest.mark.parametrize("members", [("v001", "v000"), ("v000", "v000"), ("v000", "x")])
def test_editions_are_of_founders_in_order(members: tuple[str, ...]) -> None:
    [roster] = cut_groups(TERMS, founders(9))
    with pytest.raises(PrivacyError, match="other-edition"):
        Edition(roster, 0, members)
