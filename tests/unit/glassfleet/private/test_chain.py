"""What a vehicle refuses in a private run, by code, and what it keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glassfleet.data.dataset import Dataset
from glassfleet.errors import REFUSALS, PrivacyError, TaskError
from glassfleet.private.chain import Chain, admit, answered, follow, lay_out, meet
from glassfleet.private.groups import Announcement, Roster, Terms
from glassfleet.private.ledger import Ledger, Limits, row_hashes
from glassfleet.scheme import Task
from schemas.codec import decode, digest_of, encode
from schemas.documents import canonical_json
from schemas.errors import WireError

BODY: dict[str, Any] = {"parameters": {"depth": 3}, "domain": {"a": 1}}
TERMS = Terms("fleet", "run", "nonce", "frt", digest_of(BODY["parameters"]), max_questions=3)
FOUNDERS = tuple(Announcement(f"v{i:02d}", i.to_bytes(32, "big"), "rows") for i in range(15))
ROSTER = Roster(TERMS, 0, FOUNDERS)
IDS = tuple(ROSTER.by_id)
ROWS = np.arange(100, dtype=np.uint64)


def begun(former: tuple[frozenset[str], ...] = ()) -> Chain:
    return meet(FOUNDERS[0], TERMS, ROSTER, former)


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
    for other in (task(scheme="fmt"), task(nonce="older"), task(1, parameters={"depth": 4}), task(1, scheme="domain")):
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
    for other in ({"scheme": "fmt"}, {"parameters": {"depth": 4}}, {"domain": {"a": 2}}):
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
    chain, _ = follow(begun((frozenset({*IDS, "w1", "w2", "w3"}),)), 1, IDS[:12])
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
        Ledger().join(TERMS, ROWS[:31], Limits())
    with refused("company-too-small"):
        Ledger().join(TERMS, ROWS, Limits(company=5))
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
    kept = ledger().note(begun(), ROWS).close("nonce")
    later = replace(TERMS, nonce="later")
    assert kept.former(later, ROWS[99:]) == (frozenset(IDS),)
    assert kept.former(TERMS, ROWS) == ()
    assert kept.least_founders(ROWS) == 12
    fresh = ROWS + np.uint64(100)
    assert kept.former(later, fresh) == ()
    assert kept.least_founders(fresh) == 0
    assert kept.forget(fresh).answered == ()
    read = Ledger.from_value(decode(encode(kept.to_value())))
    assert read.former(later, ROWS) == kept.former(later, ROWS)
    assert read.ended == ("nonce",)
    with pytest.raises(WireError, match="malformed: ledger"):
        Ledger.from_value({"answered": [{}]})


def test_only_so_many_runs_are_answered_over_one_row() -> None:
    kept = Ledger()
    for number in range(4):
        terms = replace(TERMS, nonce=f"{number}")
        kept = kept.join(terms, ROWS, Limits())
        chain = meet(FOUNDERS[0], terms, replace(ROSTER, terms=terms), kept.former(terms, ROWS))
        kept = kept.note(chain, ROWS).close(terms.nonce)
    with refused("too-many-runs"):
        kept.join(TERMS, ROWS, Limits())
    assert kept.join(TERMS, ROWS + np.uint64(100), Limits()).open == TERMS


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
