"""Whom to leave out so that no two sets over the same rows differ by few vehicles."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.private.between import apart

FLEET = [f"v{number:02d}" for number in range(15)]


def held(*sets: set[str]) -> dict[str, list[frozenset[str]]]:
    return {agent: [frozenset(each) for each in sets if agent in each] for agent in set().union(*sets)}


def test_one_newcomer_waits_for_two_others() -> None:
    parted = apart([*FLEET, "new"], held(set(FLEET)), 3, [*FLEET, "new"])
    assert parted.reasons == {"new": "waits for company: it joins when 2 more new vehicles come"}
    assert not parted.missing


def test_three_newcomers_join() -> None:
    members = [*FLEET, "x", "y", "z"]
    assert apart(members, held(set(FLEET)), 3, members).reasons == {}


def test_who_is_missing_takes_others_along_and_is_named() -> None:
    parted = apart(FLEET[1:], held(set(FLEET)), 3, FLEET[1:])
    assert set(parted.reasons) == {"v01", "v02"}
    assert parted.missing == {"v00"}
    assert "had v00, too" in parted.reasons["v01"]


def test_fleet_that_had_shrunk_stays_as_it_was() -> None:
    parted = apart(FLEET[1:], held(set(FLEET), set(FLEET[3:])), 3, FLEET[1:])
    assert set(parted.reasons) == {"v01", "v02"}
    assert not parted.missing, "nobody needs to be waited for: the fleet is what it was the last time"


def test_three_missing_take_nobody_along() -> None:
    assert apart(FLEET[3:], held(set(FLEET)), 3, FLEET[3:]).reasons == {}


def test_sets_of_vehicles_whose_rows_are_others_do_not_count() -> None:
    assert apart([*FLEET, "new"], {}, 3, [*FLEET, "new"]).reasons == {}


SETS = st.lists(st.sets(st.sampled_from(FLEET), min_size=8), max_size=4)


@settings(max_examples=300, deadline=None)
@given(st.sets(st.sampled_from(FLEET)), SETS, st.integers(1, 5))
def test_each_who_stays_may_answer_and_nobody_is_left_out_where_all_may(
    members: set[str], sets: list[set[str]], company: int
) -> None:
    there = sorted(members)
    known = held(*sets) if sets else {}
    parted = apart(there, known, company, there)

    def allows(left: set[str]) -> bool:
        gaps = [gap for agent in left for each in known.get(agent, ()) for gap in (each - left, left - each)]
        return not any(0 < len(gap) < company for gap in gaps)

    assert allows(members - set(parted.reasons))
    assert bool(parted.reasons) != allows(members)
    assert set(parted.reasons) <= members
