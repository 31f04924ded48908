"""Groups of private runs, who may take part, what a masked vector holds, and on how many rows its sums must rest."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glassfleet.conformance import CHECKS, Bench
from glassfleet.contract import catalogue
from glassfleet.contract.messages import Contribution
from glassfleet.contract.scheme import Purpose, private_parameters
from glassfleet.discovery import DISCOVERY, DiscoveryParameters
from glassfleet.errors import PrivacyError, TaskError
from glassfleet.private.groups import Announcement, Edition, Roster, Terms, cut_groups, missing, next_edition, place
from glassfleet.private.layout import MOST_MEMBERS, Layout, layout_of
from glassfleet.private.totals import Member, Total, singled_out
from schemas.codec import decode, encode
from schemas.errors import UsageError, WireError

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


def test_who_is_in_which_group_depends_on_the_nonce_and_nobody_changes_it_by_trying_keys() -> None:
    there = founders(200)
    cut = [set(roster.by_id) for roster in cut_groups(TERMS, there)]
    assert cut == [set(roster.by_id) for roster in cut_groups(TERMS, there)]
    assert cut != [set(roster.by_id) for roster in cut_groups(replace(TERMS, nonce="other"), there)]
    there[7] = replace(there[7], key=b"k" * 32)
    assert cut == [set(roster.by_id) for roster in cut_groups(TERMS, there)]
    by_id = {each.agent: each for each in there}
    places = [[place(TERMS, by_id[agent]) for agent in group] for group in cut]
    assert all(max(before) < min(after) for before, after in pairwise(places))


def grown(*sizes: int, new: int = 0) -> list[Announcement]:
    """Announcements of groups of an earlier run, and of new vehicles."""
    anchors = [f"group {group}" for group, size in enumerate(sizes) for _ in range(size)] + [""] * new
    return [replace(each, anchor=anchor) for each, anchor in zip(founders(len(anchors)), anchors, strict=True)]


@pytest.mark.parametrize(
    ("sizes", "new", "cut"),
    [
        ([40, 12], 0, [12, 40]),
        ([40, 12], 5, [17, 40]),
        ([40, 12], 31, [40, 43]),
        ([40, 12], 32, [12, 32, 40]),
        ([12, 12], 70, [12, 12, 35, 35]),
        ([5], 3, [8]),
    ],
)
def test_group_of_an_earlier_run_stays_together_and_few_new_vehicles_join_the_smallest(
    sizes: list[int], new: int, cut: list[int]
) -> None:
    there = grown(*sizes, new=new)
    rosters = cut_groups(TERMS, reversed(there))
    assert sorted(len(roster.founders) for roster in rosters) == cut
    assert [roster.group for roster in rosters] == list(range(len(cut)))
    for roster in rosters:
        old = {each.anchor for each in roster.founders if each.anchor}
        assert len(old) <= 1
        assert {each for each in there if each.anchor in old} <= set(roster.founders)
        assert roster.anchor in old or not old, "who joins is of the same group after that"
    ends = [sorted({place(TERMS, each) for each in there if bool(each.anchor) is old}) for old in (True, False)]
    assert len(ends[0]) == len(sizes)
    assert len(ends[1]) == new
    assert not new or ends[0][-1] < ends[1][0], "new vehicles stand behind"


def test_groups_that_met_have_the_lower_anchor_and_a_new_one_draws_its_own() -> None:
    roster = Roster(TERMS, 0, tuple(grown(8, 8, new=3)))
    assert roster.anchor == "group 0"
    drawn = Roster(TERMS, 0, tuple(founders(9)))
    assert drawn.anchor == drawn.digest.hex()[:16]


def test_founders_answer_from_new_rows_all_of_them_or_none() -> None:
    there = founders(9)
    there[2] = replace(there[2], era="era", rows="old", new_rows="new", new_digest="new digest")
    roster, renewed = (Roster(TERMS, 0, tuple(there), renews) for renews in (False, True))
    assert roster.digest != renewed.digest
    assert roster.members["v002"] == Member("v002", "era", "old")
    assert renewed.members["v002"] == Member("v002", "era", "new")
    assert renewed.members["v003"] == roster.members["v003"]
    assert [there[place].digest(renews=renews) for place in (2, 3) for renews in (False, True)] == [
        *("rows", "new digest", "rows", "rows")
    ]
    assert Roster.from_value(decode(encode(renewed.to_value()))) == renewed


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


def test_a_member_with_a_higher_floor_ends_the_group_sooner() -> None:
    there = founders(15)
    there[14] = replace(there[14], floor=13)
    [roster] = cut_groups(TERMS, there)
    assert next_edition(roster.first(), roster.first().members[:3]).edition is None


def test_more_go_where_an_earlier_total_would_tell_of_few_of_the_lost() -> None:
    [roster] = cut_groups(TERMS, founders(21))
    edition = roster.first()
    ids = edition.members
    earlier = [Total(edition.total.founders, edition.total.members[3:]), edition.total]
    assert not singled_out(earlier, 3)
    assert next_edition(edition, ids[:3], before=earlier).company == ()
    assert next_edition(edition, ids[:4]).company == ()
    shrunk = next_edition(edition, ids[:4], before=earlier)
    assert len(shrunk.company) == 2, "the earlier total less the next one is not about v003 alone"
    assert shrunk == next_edition(edition, ids[:4], before=earlier)


@given(st.data())
def test_what_goes_with_the_lost_keeps_every_combination_about_company(data: st.DataObject) -> None:
    [roster] = cut_groups(TERMS, founders(data.draw(st.integers(15, 24))))
    chain = [roster.first()]
    earlier = [roster.first().total]
    for _ in range(2):
        members = data.draw(st.sets(st.sampled_from(roster.first().members), min_size=9))
        more = Total(earlier[0].founders, tuple(roster.members[agent] for agent in sorted(members)))
        earlier += [] if singled_out([*earlier, more], 3) else [more]
    for _ in range(3):
        lost = data.draw(st.sets(st.sampled_from(chain[-1].members), min_size=1, max_size=4))
        shrunk = next_edition(chain[-1], lost, before=earlier)
        assert set(shrunk.lost) == lost
        if shrunk.edition is None:
            break
        chain.append(shrunk.edition)
        earlier.append(shrunk.edition.total)
        assert not singled_out(earlier, 3)
        assert not lost & set(shrunk.edition.members)


@pytest.mark.parametrize(("count", "floor", "more"), [(0, 8, 8), (5, 8, 3), (8, 8, 0), (20, 24, 4), (30, 24, 0)])
def test_missing_says_how_many_vehicles_more_are_needed(count: int, floor: int, more: int) -> None:
    assert missing(TERMS, founders(count, floor)) == more


@pytest.mark.parametrize(
    "change", [{"floor": 7}, {"company": 2}, {"support": -1}, {"run": ""}, {"floor": 8.0}, {"more": 1}, {"nonce": 3}]
)
def test_terms_that_no_run_may_have_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(WireError, match="malformed"):
        Terms.from_value({**TERMS.to_value(), **change})


OWN = Announcement("a", bytes(32), "d", totals=(b"1" * 32, b"2" * 32))
CHANGES: list[dict[str, Any]] = [
    *({"key": b"short"}, {"floor": 0}, {"floor": True}, {"left": 0}, {"left": None}, {"more": 1}),
    *({name: value} for name in ("era", "rows", "new_rows", "anchor") for value in ("x" * 17, None, 3)),
    *({"new_digest": value} for value in ("x" * 201, None)),
    *({"totals": value} for value in (None, "text", [b"short"], [3], [b"2" * 32, b"1" * 32], [b"1" * 32] * 2)),
    {"totals": [number.to_bytes(32, "big") for number in range(257)]},
]


@pytest.mark.parametrize("value", [None, {}, {"agent": "a"}, *({**OWN.to_value(), **each} for each in CHANGES)])
def test_announcements_that_cannot_be_are_refused(value: object) -> None:
    assert Announcement.from_value(decode(encode(OWN.to_value()))) == OWN
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


LAYOUT = Layout("leaves", (("a", (2, 2)), ("b", ())))


def test_a_vector_is_rows_vehicles_and_the_sums_by_name() -> None:
    sums = {"b": np.array(9, dtype=np.int64), "a": np.array([[1, -2], [3, 4]], dtype=np.int64)}
    vector = LAYOUT.flatten(Contribution("leaves", 7, sums))
    assert vector.tolist() == [7, 1, 1, -2, 3, 4, 9]
    assert LAYOUT.size == 7
    read = LAYOUT.read(3 * vector, 9)
    assert (read.kind, read.rows, read.vehicles) == ("leaves", 21, 3)
    assert read.sums["a"].tolist() == [[3, -6], [9, 12]]
    assert read.sums["b"].tolist() == 27


@pytest.mark.parametrize(
    "given",
    [
        Contribution("leaves", 7, {"a": np.zeros((2, 2), dtype=np.int64)}),
        Contribution("leaves", 7, {"a": np.zeros((4,), dtype=np.int64), "b": np.array(0)}),
        Contribution("other", 7, {"a": np.zeros((2, 2), dtype=np.int64), "b": np.array(0)}),
        Contribution("leaves", 7, {"a": np.zeros((2, 2), dtype=np.int64), "b": np.array(0)}, {"text": "own"}),
        Contribution("leaves", 7, {"a": np.zeros((2, 2), dtype=np.int64), "b": np.array(0)}, nullified=1),
    ],
    ids=["less", "shape", "kind", "values", "nullified"],
)
def test_nothing_but_the_sums_of_the_layout_is_masked(given: Contribution) -> None:
    with pytest.raises(PrivacyError, match="other-layout"):
        LAYOUT.flatten(given)


@pytest.mark.parametrize("head", [(-1, 0), (5, 10), (2, 3), (2**31, 3), (5, 0), (0, 1)])
def test_sums_that_cannot_be_are_noise(head: tuple[int, int]) -> None:
    with pytest.raises(PrivacyError, match="impossible-sum"):
        LAYOUT.read(np.array([*head, 0, 0, 0, 0, 0]), 9)
    with pytest.raises(PrivacyError, match="impossible-sum"):
        LAYOUT.read(np.zeros(3, dtype=np.int64), 9)


@given(st.sampled_from([1, 3, 26, 1_000_000]), st.integers(1, 40), st.data())
def test_counts_share_words_and_add_up_by_themselves(most: int, count: int, data: st.DataObject) -> None:
    layout = Layout("support", (("rows", (count,)),), most)
    one = data.draw(st.lists(st.integers(0, most), min_size=count, max_size=count))
    vector = layout.flatten(Contribution("support", 5, {"rows": np.array(one, dtype=np.int64)}))
    assert vector.shape == (layout.size,)
    words = np.add.reduce([vector.view(np.uint64)] * MOST_MEMBERS).view(np.int64)
    assert layout.read(words, MOST_MEMBERS).sums["rows"].tolist() == [MOST_MEMBERS * each for each in one]
    with pytest.raises(PrivacyError, match="impossible-sum"):
        layout.read(words, MOST_MEMBERS + 1)


def test_the_first_of_the_counts_in_a_word_is_lowest() -> None:
    layout = Layout("support", (("rows", (7,)),), 2)  # 13 bits each, four in a word
    vector = layout.flatten(Contribution("support", 5, {"rows": np.array([1, 2, 0, 0, 0, 0, 2])}))
    assert vector.tolist() == [5, 1, 1 + (2 << 13), 2 << 26]


@pytest.mark.parametrize("count", [-1, 4])
def test_counts_beyond_what_is_told_are_not_masked(count: int) -> None:
    layout = Layout("support", (("rows", (2,)),), 3)
    with pytest.raises(PrivacyError, match="other-layout"):
        layout.flatten(Contribution("support", 5, {"rows": np.array([0, count])}))


def test_layouts_of_other_names_or_shapes_have_other_digests() -> None:
    others = [LAYOUT, Layout("level", LAYOUT.shapes), Layout("leaves", (("a", (4,)), ("b", ())))]
    assert len({each.digest for each in (*others, replace(LAYOUT, most=3))}) == 4


def test_each_scheme_with_private_runs_has_support_or_needs_none() -> None:
    """Those named rest on all rows of a vehicle, or have noise: whoever adds one says why."""
    without = {"dp_tree", "fedavg_mlp"}
    for name in catalogue.names():
        scheme: Any = catalogue.load(name)
        try:
            private_parameters(scheme, scheme.Parameters())
        except UsageError:
            continue
        assert ("support" in scheme.Parameters.model_fields) != (name in without), name


def test_what_is_no_sum_is_refused_with_a_reason() -> None:
    frbc: Any = catalogue.load("frbc")
    with pytest.raises(UsageError, match="weights="):
        private_parameters(frbc, frbc.Parameters(weights="owners"))
    asked = {"features": ("a",), "target": "y"}
    with pytest.raises(UsageError, match="declare them"):
        DISCOVERY.private(DiscoveryParameters(**asked, labels=True))
    for texts in ({"labels": True}, {"either": True}, {"categories": True}):
        begin = DISCOVERY.server.start(DiscoveryParameters(**asked, **texts))
        with pytest.raises(TaskError, match="no sums"):
            layout_of(DISCOVERY, begin.task)
    for texts in ({"either": True}, {"categories": True}):  # columns are numbers; who has text there refuses
        numbers = DISCOVERY.private(DiscoveryParameters(**asked, **texts))
        assert layout_of(DISCOVERY, DISCOVERY.server.start(numbers).task).size > 2
    assert DISCOVERY.private(DiscoveryParameters(**asked, labels=True, classes=("u", "v"))).min_count == 0


SMALL: dict[str, dict[str, Any]] = {
    "frt": {"max_depth": 2},
    "tree": {"max_rules": 2},
    "tsk": {"n_clusters": 6, "max_rounds": 4},
    "frbc": {},
}


@pytest.mark.parametrize("name", SMALL)
def test_a_scheme_with_support_is_a_sound_one(name: str) -> None:
    scheme: Any = catalogue.load(name)
    parameters = private_parameters(scheme, scheme.Parameters(**SMALL[name]), 3)
    purpose: Purpose = (
        "regression" if "regression" in scheme.purpose else "classification"
    )  # tree has no support for classes
    for check in sorted(set(CHECKS) - {"equality"}):  # which holds under the record of what was withheld
        bench = Bench.of(scheme, parameters, purpose)
        if name == "tree":  # each vehicle is a group here, and of one row no rule can be told
            bench = replace(bench, fleet={agent: data for agent, data in bench.fleet.items() if data.rows != 1})
        CHECKS[check](bench)
    assert not scheme.equals_central(parameters)
    assert "support" not in scheme.Parameters().model_dump(mode="json")
