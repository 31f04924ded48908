"""Who is left out of a private run so that everybody else may answer, and what they are told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glassfleet.errors import PrivacyError
from glassfleet.private import chain
from glassfleet.private.between import Apart, apart
from glassfleet.private.groups import Announcement, Roster, Terms
from glassfleet.private.totals import Member, Total, singled_out
from glassfleet.private.words import protection

FLEET = [f"v{number:02d}" for number in range(15)]
TERMS = Terms("fleet", "run", "nonce", "frt", "digest")


def total(ids: Iterable[str], founders: Iterable[str] | None = None) -> Total:
    members = tuple(Member(agent, "era", "rows") for agent in sorted(ids))
    return Total(tuple(Member(agent, "era", "rows") for agent in sorted(founders)) if founders else members, members)


def parted(
    ids: Iterable[str], *totals: Total, renewed: Collection[str] = (), company: int = 3, knowers: Collection[str] = ()
) -> Apart:
    """Return who is left out of a run of vehicles that know the totals of which they are founders, or of `knowers`."""
    members = {agent: Member(agent, "era", "new rows" if agent in renewed else "rows") for agent in ids}

    def known(agents: Collection[str]) -> Sequence[Total]:
        return [each for each in totals if not {*knowers, *(one.agent for one in each.founders)}.isdisjoint(agents)]

    result = apart(members, known, company, sorted(members))
    assert result == apart(dict(reversed(members.items())), known, company, sorted(members))
    assert list(result.reasons) == sorted(result.reasons)
    return result


def test_nobody_is_left_out_of_a_fleet_that_is_new_or_stayed_or_changed_by_many() -> None:
    for totals in ([], [total(FLEET)], [total(FLEET[3:])], [total(FLEET), total(FLEET[:12], FLEET)]):
        assert parted(FLEET, *totals) == Apart()
    assert parted(FLEET[3:], total(FLEET)) == Apart()
    assert parted(FLEET, total(FLEET), renewed=FLEET[:3]) == Apart()
    assert parted(FLEET, total([f"w{number}" for number in range(9)])) == Apart(), "no vehicle of it is here"


OTHERS = [f"w{number:02d}" for number in range(20)]
NEW = "waits for company: too few vehicles are new with it; it joins when "
ALONE = "company: an earlier run over the same rows had v00{}, too, and nobody leaves alone"
GROUP = (
    "waits for its group: of the 15 vehicles of an earlier run {} more are needed, with rows of then; or it joins "
    "once none of its own is of then"
)


@pytest.mark.parametrize(
    ("there", "totals", "how", "reasons", "missing"),
    [
        ([*FLEET, "new"], [total(FLEET)], {}, {"new": f"{NEW}2 more come"}, []),
        ([*FLEET, "a", "b"], [total(FLEET)], {}, dict.fromkeys("ab", f"{NEW}one more comes"), []),
        ([*FLEET, *"abc"], [total(FLEET)], {}, {}, []),
        (FLEET[1:], [total(FLEET)], {}, dict.fromkeys(["v01", "v02"], ALONE.format("")), ["v00"]),
        (FLEET[2:], [total(FLEET)], {}, {"v02": ALONE.format(", v01")}, ["v00", "v01"]),
        ([*FLEET[:8], *OTHERS], [total(FLEET)], {}, dict.fromkeys(FLEET[:8], GROUP.format(1)), FLEET[8:]),
        ([*FLEET[:9], *OTHERS], [total(FLEET)], {}, {}, []),
        (OTHERS, [total(FLEET)], {"knowers": OTHERS[:2]}, dict.fromkeys(OTHERS[:2], GROUP.format(9)), FLEET),
        (OTHERS, [total(FLEET)], {}, {}, []),
    ],
)
def test_who_waits_is_told_for_whom(
    there: list[str], totals: list[Total], how: dict[str, Any], reasons: dict[str, str], missing: list[str]
) -> None:
    assert parted(there, *totals, **how) == Apart(reasons, frozenset(missing))


def test_one_with_new_rows_waits_for_two_others() -> None:
    result = parted(FLEET, total(FLEET), renewed=["v04"])
    assert result.reasons["v04"] == (
        "waits for company: too few vehicles have new rows as it; it joins when 2 more come"
    )
    assert set(result.reasons) == {"v00", "v01", "v04"}, "and two go with it: nobody leaves alone"


def test_who_was_in_the_same_runs_as_too_few_waits_for_those() -> None:
    waiting = parted(FLEET, total(FLEET[:8]), total(FLEET[6:]))
    assert [why for why in waiting.reasons.values() if "were in the same runs as it" in why]


def test_fleet_that_had_shrunk_stays_as_it_was() -> None:
    result = parted(FLEET[1:], total(FLEET), total(FLEET[3:], FLEET))
    assert set(result.reasons) == {"v01", "v02"}


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Total], list[Announcement]]:
    """Draw totals, most of which tell of nobody, and who is there for the next run, some with other rows."""
    names = [*FLEET, "w0", "w1", "w2"]
    totals: list[Total] = []
    for _ in range(draw(st.integers(0, 4))):
        founders = draw(st.just(set(FLEET)) | st.sets(st.sampled_from(names), min_size=9))
        gone = draw(st.just(set[str]()) | st.sets(st.sampled_from(sorted(founders)), min_size=3, max_size=6))
        more = total(founders - gone or founders, founders)
        if not singled_out([*totals, more], 3) or draw(st.integers(0, 9)) == 0:
            totals.append(more)
    there = []
    absent = draw(st.sets(st.sampled_from(names), max_size=5))
    for place, agent in enumerate(names):
        own = [each for each in totals if any(agent == one.agent for one in each.founders)]
        era, rows = draw(st.sampled_from([("era", "rows")] * 9 + [("era", "new"), ("other", "new")]))
        digests = tuple(sorted({each.digest for each in own})) if era == "era" else ()
        there.append(Announcement(agent, place.to_bytes(32, "big"), "rows", era=era, rows=rows, totals=digests))
    return totals, [each for each in there if each.agent not in absent]


def refusals(founders: Iterable[Announcement], totals: Sequence[Total]) -> list[PrivacyError]:
    """Return why vehicles refuse to meet these."""
    roster = Roster(TERMS, 0, tuple(founders))
    result = []
    looked = lru_cache(maxsize=None)(singled_out)  # all look at the same totals
    with patch.object(chain, "singled_out", lambda sums, company: looked(tuple(sums), company)):
        for each in roster.founders:
            try:
                chain.meet(each, TERMS, roster, totals)
            except PrivacyError as fault:
                result.append(fault)
    return result


@settings(max_examples=40, deadline=None)
@given(histories(), st.data())
def test_each_who_stays_may_answer_and_nobody_is_left_out_where_all_may(
    history: tuple[list[Total], list[Announcement]], data: st.DataObject
) -> None:
    totals, there = history
    members = {each.agent: each.member(renews=False) for each in there}

    def known(agents: Collection[str]) -> Sequence[Total]:
        digests = {digest for each in there if each.agent in agents for digest in each.totals}
        return [each for each in totals if each.digest in digests]

    order = data.draw(st.permutations(sorted(members)))
    result = apart(members, known, 3, order)
    assert result == apart(members, known, 3, order)
    left = [each for each in there if each.agent not in result.reasons]
    assert set(result.reasons) <= set(members)
    assert all(reason.startswith(("waits for company: ", "company: ", "waits for its group: "))
               for reason in result.reasons.values())  # fmt: skip
    assert not result.missing & set(members)
    if len(left) >= TERMS.floor:
        assert not refusals(left, totals)
    if len(there) >= TERMS.floor:
        assert bool(result.reasons) == bool(refusals(there, totals))


RUN = {"floor": 8, "company": 3, "support": 3, "groups": 1, "editions": 2, "vehicles": 12, "rows": 900}


def test_inputs_without_slopes_are_named_and_many_are_counted() -> None:
    assert "slope" not in protection(RUN)
    some, many = (protection({**RUN, "without_slopes": [f"x{n}" for n in range(count)]}) for count in (2, 11))
    assert some.endswith("; rules have no slopes of x0, x1, as rows are alike there or in the target, or too few")
    assert "of x0, x1, x2, x3, x4, x5, x6, x7 and 3 more, as" in many
