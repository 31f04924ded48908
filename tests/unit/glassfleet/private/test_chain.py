"""What a vehicle refuses in a private run, by code, and what it keeps."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.messages import Task
from glassfleet.data.dataset import Dataset
from glassfleet.errors import REFUSALS, PrivacyError, TaskError
from glassfleet.private.chain import Chain, admit, answered, follow, lay_out, meet
from glassfleet.private.groups import MOST_TOTALS, Announcement, Roster, Terms
from glassfleet.private.ledger import KEPT_RUNS, Ledger, Limits, Rows, hashed, row_hashes
from glassfleet.private.totals import Member, Total
from schemas.codec import canonical_json, decode, digest_of, encode
from schemas.errors import WireError

BODY: dict[str, Any] = {"parameters": {"depth": 3}, "domain": {"a": 1}}
TERMS = Terms("fleet", "run", "nonce", "frt", digest_of(BODY["parameters"]), max_questions=3)
FOUNDERS = tuple(Announcement(f"v{i:02d}", i.to_bytes(32, "big"), "rows", era="era", rows="tag") for i in range(15))
ROSTER = Roster(TERMS, 0, FOUNDERS)
IDS = tuple(ROSTER.by_id)


def rows_from(first: int, count: int = 100, tests: int = 0) -> Rows:
    """Return training rows counted from `first`, and the first `tests` test rows."""
    return Rows(np.arange(first, first + count, dtype=np.uint64), np.arange(tests, dtype=np.uint64))


ROWS = rows_from(0)
LAST = rows_from(99)
FRESH = rows_from(100)


def begun(
    *earlier: Total,
    founders: Sequence[Announcement] = FOUNDERS,
    terms: Terms = TERMS,
    met: Sequence[Total] | None = None,
) -> Chain:
    """Meet a group one of whose founders, not the vehicle itself, answered in earlier totals, or in those of `met`."""
    digests = tuple(sorted(each.digest for each in (earlier if met is None else met)))
    roster = Roster(terms, 0, (*founders[:-1], replace(founders[-1], totals=digests)))
    return meet(roster.founders[0], terms, roster, [*earlier, total("w1", "w2")])


def total(*ids: str, founders: Sequence[str] = (), rows: Mapping[str, str] | None = None) -> Total:
    """Return an earlier sum over vehicles, some of which had other rows."""
    known, summed = (
        tuple(Member(agent, "era", (rows or {}).get(agent, "tag")) for agent in sorted(each))
        for each in (founders or ids, ids)
    )
    return Total(known, summed)


MODEL = {"scheme": "frt", **BODY, "rules": []}


def task(level: int = 0, *, scheme: str = "frt", nonce: str = "nonce", **body: Any) -> Task:
    return Task(scheme, "level", {**BODY, "level": level, **body}, nonce)


def refused(code: str) -> Any:
    assert code in REFUSALS
    return pytest.raises(PrivacyError, match=f"^{code}: ")


def test_a_vehicle_meets_the_group_that_has_it_as_it_announced_itself() -> None:
    with refused("not-private"):
        meet(FOUNDERS[0], TERMS, replace(ROSTER, terms=replace(TERMS, floor=9)))
    with refused("not-member"):
        meet(Announcement("w", b"w" * 32, "rows"), TERMS, ROSTER)
    for changed in (replace(FOUNDERS[0], key=b"k" * 32), replace(FOUNDERS[0], data_digest="other")):
        with refused("not-member"):
            meet(changed, TERMS, ROSTER)
    with refused("too-few"):
        meet(FOUNDERS[0], TERMS, Roster(TERMS, 0, FOUNDERS[:7]))
    picky = replace(FOUNDERS[0], floor=16)
    with refused("too-few"):
        meet(picky, TERMS, Roster(TERMS, 0, (picky, *FOUNDERS[1:])))


@pytest.mark.parametrize(
    ("earlier", "code"),
    [
        (total(*IDS[1:]), "single-out"),
        (total(*IDS, "w1", "w2"), "single-out"),
        (total(*IDS[1:], "w1"), "single-out"),
        (total(*IDS, rows={"v03": "other"}), "single-out"),
        (total(*IDS[2:], founders=IDS), "single-out"),
        (total(*IDS), ""),
        (total(*IDS[3:]), ""),
        (total(*IDS[3:], founders=IDS), ""),
        (total(*IDS, rows=dict.fromkeys(IDS[:3], "other")), ""),
        (total(*IDS, founders=[*IDS, *(f"w{number:02d}" for number in range(12))]), ""),
        (total(*IDS, founders=[*IDS, *(f"w{number:02d}" for number in range(13))]), "too-few"),
    ],
)
def test_a_group_is_met_that_any_earlier_total_lets_tell_of_no_few(earlier: Total, code: str) -> None:
    if code:
        with refused(code):
            begun(earlier)
    else:
        assert begun(earlier).totals == (earlier, ROSTER.first().total) or earlier == ROSTER.first().total


def test_totals_are_looked_at_together_and_what_a_founder_knows_must_be_told() -> None:
    first, second = total(*IDS[:9]), total(*IDS[9:14], founders=IDS)
    for one in (first, second):
        assert begun(one)
    with refused("single-out"):  # both taken from all: v14
        begun(first, second)
    own = replace(FOUNDERS[0], totals=(first.digest,))
    roster = Roster(TERMS, 0, (own, *FOUNDERS[1:]))
    for relayed in ((), (second,)):
        with refused("unknown-run"):
            meet(own, TERMS, roster, relayed)
    assert meet(own, TERMS, roster, [second, first]).known == (first,), "others that nobody knows are not looked at"


def test_no_edition_tells_of_few_with_an_earlier_total() -> None:
    chain = begun(total(*IDS[:12], founders=IDS))
    with refused("single-out"):
        follow(chain, 1, IDS[:11])
    chain, edition = follow(chain, 1, IDS[:12])
    assert chain.totals[-1] == edition.total
    assert len(chain.totals) == 3
    chain = begun(total(*IDS[3:], founders=IDS))
    assert follow(chain, 1, (*IDS[:3], *IDS[6:]))[1].members
    with refused("single-out"):  # v00 is in it alone, and v03 in the earlier one
        follow(chain, 1, (IDS[0], *IDS[4:]))


def test_founders_with_new_rows_are_met_with_them_where_the_group_renews() -> None:
    earlier = total(*IDS)
    for count, code in ((1, "single-out"), (2, "single-out"), (3, "")):
        founders = tuple(
            replace(each, new_rows="new", new_digest="new rows") if place < count else each
            for place, each in enumerate(FOUNDERS)
        )
        own = replace(founders[0], totals=(earlier.digest,))
        roster = Roster(TERMS, 0, (own, *founders[1:]))
        assert meet(own, TERMS, roster, [earlier])
        renewed = replace(roster, renews=True)
        if code:
            with refused(code):
                meet(own, TERMS, renewed, [earlier])
        else:
            assert [each.rows for each in meet(own, TERMS, renewed, [earlier]).totals[-1].members[:4]] == [
                *("new", "new", "new", "tag")
            ]


def test_editions_only_shrink_by_company_along_one_chain() -> None:
    chain = begun()
    for lost in (1, 2):
        with refused("single-out"):
            follow(chain, 1, IDS[:-lost])
    with refused("too-few"):
        follow(chain, 1, IDS[:8])
    with refused("not-member"):
        follow(chain, 1, IDS[3:])
    with refused("other-edition"):
        follow(chain, 0, IDS[:12])
    chain, second = follow(chain, 2, IDS[:12])
    assert follow(chain, 2, IDS[:12]) == (chain, second)
    with refused("other-edition"):
        follow(chain, 0, IDS)
    with refused("other-edition"):
        follow(chain, 3, (*IDS[:9], *IDS[13:]))
    with refused("other-edition"):
        follow(chain, 2, IDS[:9])
    chain, third = follow(chain, 3, IDS[:9])
    assert [each.number for each in chain.editions] == [0, 2, 3]
    assert third.members == IDS[:9]


def test_only_tasks_of_the_announced_run_are_admitted() -> None:
    chain = admit(begun(), task(scheme="domain"))
    chain = admit(chain, task())
    assert admit(chain, task()) is chain, "the same task does not count twice"
    for other in (task(scheme="tree"), task(nonce="older"), task(1, parameters={"depth": 4}), task(1, scheme="domain")):
        with refused("not-private"):
            admit(chain, other)
    with refused("other-domain"):
        admit(chain, task(1, domain={"a": 2}))
    scored = admit(chain, task(scheme="scores", model=MODEL))
    with refused("not-private"):
        admit(scored, task(1))
    chain = admit(chain, task(1))
    with refused("too-many-questions"):
        admit(chain, task(2))


def test_check_of_pairs_is_admitted_in_any_part_of_its_run_and_counts_as_a_task() -> None:
    chain = admit(begun(), task(scheme="pairs"))
    chain = admit(admit(chain, task()), task(1, scheme="pairs"))
    with refused("not-private"):
        admit(chain, task(2, scheme="pairs", nonce="older"))
    with refused("too-many-questions"):
        admit(chain, task(2, scheme="pairs"))


def test_scores_are_told_once() -> None:
    chain = admit(admit(begun(), task()), task(scheme="scores", model=MODEL))
    with refused("too-many-questions"):
        admit(chain, task(1, scheme="scores", model=MODEL))


def test_scores_are_told_of_the_run_s_own_model_alone() -> None:
    with refused("other-model"):
        admit(begun(), task(scheme="scores", model=MODEL))
    chain = admit(begun(), task())
    for other in ({"scheme": "tree"}, {"parameters": {"depth": 4}}, {"domain": {"a": 2}}):
        with refused("other-model"):
            admit(chain, task(scheme="scores", model=MODEL | other))
    with refused("other-model"):
        admit(chain, task(scheme="scores"))
    with pytest.raises(TaskError):
        admit(chain, task(scheme="scores", model=MODEL | {"domain": b"bytes"}))
    admit(chain, task(scheme="scores", model=json.loads(canonical_json(MODEL))))


def test_a_question_is_answered_with_the_same_words_or_not_again() -> None:
    words = np.arange(4, dtype=np.uint64)
    chain = answered(begun(), "question", words)
    assert answered(chain, "question", words.copy()) is chain
    with refused("other-answer"):
        answered(chain, "question", words + np.uint64(1))


def test_a_task_keeps_its_layout_for_the_masks_do_not_know_it() -> None:
    asked = admit(begun(), task())
    chain = lay_out(asked, task().digest, "layout")
    assert lay_out(chain, task().digest, "layout") is chain
    with refused("other-layout"):
        lay_out(chain, task().digest, "other")


def test_a_chain_is_the_same_after_a_restart() -> None:
    chain, _ = follow(begun(total(*IDS, "w1", "w2", "w3")), 1, IDS[:12])
    chain = answered(admit(chain, task()), "question", np.zeros(2, dtype=np.uint64))
    value = decode(encode(chain.to_value()))
    assert Chain.from_value(value) == chain
    del value["roster"]
    with pytest.raises(WireError, match="malformed: chain"):
        Chain.from_value(value)


def ledger(**changes: Any) -> Ledger:
    return Ledger().join(replace(TERMS, **changes), ROWS, Limits())


def test_a_vehicle_joins_one_run_at_a_time_that_suits_it_and_none_that_ended() -> None:
    with refused("no-rows"):
        Ledger().join(TERMS, rows_from(0, 31), Limits())
    with refused("company-too-small"):
        Ledger().join(TERMS, ROWS, Limits(company=5))
    with refused("no-rows"):  # equal rows are one
        Ledger().join(TERMS, ROWS, Limits(), distinct=31)
    joined = ledger()
    assert joined.join(TERMS, ROWS, Limits()) == joined
    with refused("not-private"):
        joined.join(replace(TERMS, run="other"), ROWS, Limits())
    with refused("too-many-runs"):
        joined.join(replace(TERMS, nonce="other"), ROWS, Limits())
    with refused("run-over"):
        joined.close("nonce").join(TERMS, ROWS, Limits())
    assert joined.close("nonce").join(replace(TERMS, nonce="other"), ROWS, Limits()).open is not None


def test_a_ledger_remembers_runs_as_long_as_one_of_their_rows_is_there() -> None:
    earlier = total(*IDS, "w1", "w2", "w3")
    kept = ledger().note(chain := begun(earlier), ROWS).close("nonce")
    tags = {"rows": "new tag", "tests": "tests tag"}
    new = {"era": "new tag", **tags, "anchor": "", "totals": (), "heard": ()}
    for now in (kept, Ledger.from_value(decode(encode(kept.to_value())))):
        known = {"totals": (ROSTER.first().total.digest,), "heard": (earlier.digest,)}
        expected = {"era": "era", **tags, "anchor": chain.roster.anchor, **known}
        assert now.stands(LAST, "new tag", "tests tag", "later") == expected
        assert now.stands(ROWS, "new tag", "tests tag", "nonce") == new, "its own run is none before it"
        assert now.stands(FRESH, "new tag", "tests tag", "later") == new
        assert now.has_some(LAST)
        assert not now.has_some(FRESH)
        assert now.has(ROWS)
        assert not now.has(LAST)
        assert now.has_answered("nonce")
        assert now.ended == ("nonce",)
    assert kept.forget(LAST) is kept
    with pytest.raises(WireError, match="malformed: ledger"):
        Ledger.from_value({"answered": [{}]})


def test_a_ledger_keeps_the_newest_runs_whose_rows_are_gone_as_they_may_come_back() -> None:
    kept = noted(Ledger(), "first", task())
    for number in range(KEPT_RUNS):
        kept = noted(kept, f"{number}", task(), rows=rows_from(1000 * (number + 1)))
    assert kept.forget(ROWS) is kept
    forgotten = kept.forget(rows_from(500))
    assert [each.nonce for each in forgotten.answered] == [f"{number}" for number in range(KEPT_RUNS)]
    assert not forgotten.has_some(ROWS)
    assert forgotten.has_some(rows_from(1000)), "known again"
    assert forgotten.forget(rows_from(500)) is forgotten


def test_a_vehicle_passes_on_what_founders_answered_and_not_what_they_heard_themselves() -> None:
    first, second = total(*IDS, "w1", "w2", "w3"), total(*IDS, "x1", "x2", "x3")
    founder = replace(FOUNDERS[3], heard=(second.digest,))
    chain = begun(first, second, founders=(*FOUNDERS[:3], founder, *FOUNDERS[4:]), met=(first,))
    assert set(chain.known) == {first, second}, "they are looked at together"
    stands = ledger().note(chain, ROWS).stands(ROWS, "tag", "", "later")
    assert (stands["totals"], stands["heard"]) == ((ROSTER.first().total.digest,), (first.digest,))


def test_a_total_that_several_runs_know_is_on_the_disk_once() -> None:
    kept = Ledger()
    for nonce in "abc":
        kept = noted(kept, nonce, task())
    value = kept.to_value()
    assert [len(each["totals"]) for each in value["answered"]] == [1, 1, 1]
    assert len(value["totals"]) == 1
    again = Ledger.from_value(decode(encode(value)))
    assert again.stands(ROWS, "tag", "tests", "d") == kept.stands(ROWS, "tag", "tests", "d")


def test_a_vehicle_that_was_asked_and_did_not_answer_knows_what_the_others_announced_and_no_more() -> None:
    earlier = total(*IDS, "w1", "w2", "w3")
    chain = admit(begun(earlier), task())
    stands = ledger().asked(chain, ROWS).stands(ROWS, "tag", "", "later")
    assert (stands["totals"], stands["heard"]) == ((), (earlier.digest,))
    chain, _ = follow(answered(chain, "question", np.zeros(1, dtype=np.uint64)), 1, IDS[:12])
    stands = ledger().asked(chain, ROWS).stands(ROWS, "tag", "", "later")
    assert stands["totals"] == tuple(sorted(each.total.digest for each in chain.editions))
    assert stands["heard"] == (earlier.digest,)
    assert len(stands["totals"]) == 2


def noted(kept: Ledger, nonce: str, *tasks: Task, rows: Rows = ROWS, cost: float = 0.0) -> Ledger:
    """Answer a run over the same vehicles."""
    terms = replace(TERMS, nonce=nonce)
    kept = kept.join(terms, rows, Limits())
    chain = begun(terms=terms)
    for each in tasks:
        asked = replace(each, nonce=nonce)
        chain = answered(admit(chain, asked), asked.digest, np.zeros(1, dtype=np.uint64), cost)
    return kept.note(chain, rows).close(nonce)


def test_only_so_many_runs_are_answered_over_one_row() -> None:
    kept = Ledger()
    for number in range(4):
        assert kept.left(ROWS, Limits()) == 4 - number
        kept = noted(kept, f"{number}", task(number))
    with refused("too-many-runs"):
        kept.join(TERMS, ROWS, Limits())
    with refused("too-many-runs"):
        kept.join(TERMS, rows_from(99, 1), Limits(least_rows=1))
    assert kept.join(TERMS, FRESH, Limits()).open == TERMS


def test_runs_that_ask_nothing_new_over_these_rows_are_not_counted() -> None:
    kept = noted(noted(Ledger(), "1", task()), "2", task(1))
    for number in range(3, 9):
        kept = noted(kept, f"{number}", task(), task(1), task(scheme="pairs"))
        assert kept.left(ROWS, Limits()) == 2
    assert noted(kept, "new", task(), task(2)).left(ROWS, Limits()) == 1
    assert noted(kept, "noise", task(), cost=0.5).left(ROWS, Limits()) == 1, "noise is drawn anew in each run"
    assert noted(kept, "fresh", task(), rows=FRESH).left(FRESH, Limits()) == 3, "over these it is new"


def test_a_vehicle_that_knows_too_many_totals_joins_no_run() -> None:
    many = tuple(total(f"w{number:03d}", "x") for number in range(MOST_TOTALS + 1))
    [run] = ledger().note(begun(), ROWS).answered
    terms = replace(TERMS, nonce="later")
    assert Ledger((replace(run, totals=many[1:]),)).join(terms, ROWS, Limits())
    for knowing in (replace(run, totals=many), replace(run, heard=many)):
        with refused("too-many-runs"):
            Ledger((knowing,)).join(terms, ROWS, Limits())


def test_few_rows_that_came_or_went_since_any_run_are_told() -> None:
    kept = noted(noted(Ledger(), "1", task()), "2", task(1), rows=rows_from(50))
    assert not kept.tells_few(ROWS, 32)
    assert not kept.tells_few(FRESH, 32), "none of these was in the first run"
    assert kept.tells_few(rows_from(1), 32)
    assert kept.tells_few(rows_from(49), 32)
    assert not kept.tells_few(rows_from(1000), 32)


def test_training_and_test_rows_that_came_are_counted_apart() -> None:
    kept = noted(Ledger(), "1", task(), rows=rows_from(0, 100, 50))
    assert not kept.tells_few(rows_from(0, 100, 82), 32)
    assert not kept.tells_few(rows_from(0, 132, 82), 32)
    assert kept.tells_few(rows_from(0, 100, 81), 32)
    assert kept.tells_few(rows_from(0, 101, 81), 32), "one training row beside 31 test rows"
    assert kept.tells_few(rows_from(0, 101, 90), 32)
    assert kept.tells_few(rows_from(0, 150, 51), 32)
    mixed = Rows(np.arange(50, dtype=np.uint64), np.arange(50, 100, dtype=np.uint64))
    assert noted(Ledger(), "1", task()).tells_few(mixed, 51), "a row that goes over is another one"
    assert not Rows(ROWS.training).shares(Rows(FRESH.training, ROWS.training))


def test_row_hashes_are_keyed_and_know_a_row_again_wherever_it_stands() -> None:
    X = np.arange(12.0).reshape(6, 2)
    data = Dataset(("a", "b"), "y", X, np.arange(6.0))
    moved = Dataset(("a", "b"), "y", X[::-1], np.arange(6.0)[::-1])
    hashes = row_hashes(b"secret", data)
    assert np.array_equal(hashes, row_hashes(b"secret", moved))
    assert not np.isin(hashes, row_hashes(b"other", data)).any()
    changed = Dataset(("a", "b"), "y", X, np.array([9.0, *np.arange(1, 6.0)]))
    assert np.isin(hashes, row_hashes(b"secret", changed)).sum() == 5
    labels = Dataset(("a", "b"), "y", X, np.array(list("uvuvuv")))
    assert row_hashes(b"secret", labels).size == 6


def test_equal_rows_are_counted_as_often_as_they_are_there() -> None:
    def rows(*values: float) -> Dataset:
        return Dataset(("a",), "y", np.array(values)[:, None], np.zeros(len(values)))

    twice, distinct = hashed(b"secret", rows(1.0, 2.0, 1.0))
    assert (twice.size, distinct) == (3, 2)
    assert (np.diff(twice.astype(object)) > 0).all()
    assert np.isin(row_hashes(b"secret", rows(1.0, 2.0)), twice).all()
    assert np.isin(twice, row_hashes(b"secret", rows(1.0, 1.0, 1.0, 2.0))).all()
