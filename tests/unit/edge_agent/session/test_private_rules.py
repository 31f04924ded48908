"""What a vehicle lets out of itself in private runs, whatever coordinator and broker ask: its files and rules together.

The coordinator here plays several honest vehicles' `PrivateAnswers` against a hostile one's wishes; what a vehicle does
not answer cannot be added up.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glassfleet.contract.scheme import private_parameters
from glassfleet.data.dataset import Dataset
from glassfleet.errors import PrivacyError, TaskError
from glassfleet.private.ledger import Limits, row_hashes
from schemas import codec
from schemas.envelope import Envelope
from schemas.messages import Request
from tests.support.privacy.private_victim import (
    FRT,
    OTHERS,
    PARAMETERS,
    SECRET,
    Victim,
    dataset,
    domain_task,
    first_task,
    keys_task,
    seen,
    terms_of,
)


def refused(code: str) -> Any:
    return pytest.raises(PrivacyError, match=f"^{code}: ")


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    return Victim(tmp_path)


@pytest.mark.parametrize("same_run", [True, False])
def test_a_run_that_was_answered_is_not_met_again_when_its_chain_is_gone(victim: Victim, same_run: bool) -> None:
    """Else the chain would begin anew: all 11 answer, then 10 of them, and the difference is the eleventh."""
    terms, founders = victim.met()
    victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    for number in range(20):  # any request makes a snapshot; the oldest folders give way, with key and chain
        victim.snapshots.of_run(f"other-{number}", victim.data)
    assert not (victim.folder / "runs" / "r1" / "chain").exists()
    again = terms if same_run else terms_of(run="r2")
    with pytest.raises(PrivacyError):
        victim.announce(again)
    with pytest.raises(PrivacyError):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))


def test_a_run_that_was_answered_stays_over_though_its_nonce_was_pushed_out(victim: Victim) -> None:
    terms, founders = victim.met()
    victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    victim.end("r1")
    ledger = victim.private.files.ledger()
    victim.private.files.save_ledger(replace(ledger, ended=tuple(f"forged-{number}" for number in range(1024))))
    with refused("run-over"):
        victim.announce(terms)


def test_an_old_snapshot_does_not_make_a_vehicle_forget_runs_over_its_present_rows(victim: Victim) -> None:
    """Any request freezes rows; a run over them, much later, would be one over none of the present ones."""
    present, victim.data = victim.data, dataset(99)
    victim.snapshots.of_run("old", victim.data)
    victim.data = present
    terms, founders = victim.met()
    victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    victim.end("r1")
    for _ in range(2):
        with refused("not-private"):
            victim.announce(terms_of("old", "n2"))
        victim.restart()
    after = terms_of("r3", "n3")
    founders = victim.founders(after, victim.announce(after), absent=1)
    with refused("single-out"):
        victim.answer(after, victim.request(after, founders, first_task(after)))


def test_answers_are_of_all_rows_of_each_vehicle(victim: Victim) -> None:
    """Sums over at most k and at most k + 1 rows of each differ by one row, of whoever has the most rows."""
    terms, founders = victim.met()
    for most in (20, 21):
        with refused("not-private"):
            victim.answer(terms, victim.request(terms, founders, first_task(terms, max_rows_each=most)))


def test_a_vehicle_with_few_rows_left_is_no_company(victim: Victim) -> None:
    """A task may leave rows out; who has none left would make the others' sum that of one vehicle."""
    terms, founders = victim.met()
    request = victim.request(terms, founders, first_task(terms))
    few = FRT.client.contribute(first_task(terms), dataset(rows=31), np.random.default_rng(0))
    with pytest.raises(TaskError, match="too few to be company"):
        victim.answer(terms, request, few)


def test_small_numbers_are_not_withheld_for_then_a_refusal_would_tell_of_them(victim: Victim) -> None:
    nullifying = FRT.Parameters(max_depth=2, min_rows=5)
    assert private_parameters(FRT, nullifying) != nullifying
    terms = terms_of(parameters=nullifying)
    founders = victim.founders(terms, victim.announce(terms))
    with refused("not-private"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms, nullifying)))
    honest = victim.request(terms, founders, domain_task(terms))
    counted = {**honest.task, "body": {**honest.task["body"], "min_count": 5}}
    with pytest.raises(TaskError, match="do not add up"):
        victim.answer(terms, honest.model_copy(update={"task": counted}))


def test_who_could_not_answer_a_task_answers_no_other_one(victim: Victim) -> None:
    """Else each task that fails on some rows would ask a vehicle for one bit of its own."""
    terms, founders = victim.met()
    victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    victim.private.leave("r1")
    for _ in range(2):
        for task in (first_task(terms), first_task(terms, PARAMETERS)):
            with refused("run-left"):
                victim.answer(terms, victim.request(terms, founders, task))
        victim.restart()


@pytest.mark.parametrize("answers", [0, 1])
def test_runs_that_a_vehicle_could_not_answer_count_as_well(victim: Victim, answers: int) -> None:
    """Whether it can may depend on its rows: else run after run would ask for one bit of them each."""
    for number in range(Limits().runs):
        terms = terms_of(f"r{number}", f"n{number}")
        founders = victim.founders(terms, victim.announce(terms))
        for _ in range(answers):  # that it answers one that it answered before does not hide the next
            victim.answer(terms, victim.request(terms, founders, domain_task(terms)))
        victim.frozen(terms.run, victim.request(terms, founders, first_task(terms, seed=number)))
        victim.private.leave(terms.run)
        victim.end(terms.run)
        victim.restart()
    with refused("too-many-runs"):
        victim.announce(terms_of("next", "next"))


def test_what_is_asked_counts_before_it_is_answered(victim: Victim) -> None:
    terms = replace(terms_of(), max_questions=1)
    founders = victim.founders(terms, victim.announce(terms))
    first = victim.request(terms, founders, domain_task(terms))
    victim.frozen("r1", first)
    victim.restart()
    with refused("too-many-questions"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    assert victim.answer(terms, first)


def test_refusal_names_the_member_and_nothing_else_and_another_group_is_met_afterwards(victim: Victim) -> None:
    terms, founders = victim.met()
    bad = Envelope.from_bytes(founders[-1], fleet=terms.fleet).agent
    stale = victim.founders(terms_of(nonce="n0"), victim.announce(terms))
    with pytest.raises(PrivacyError) as caught:
        victim.answer(terms, victim.request(terms, [*founders[:-1], stale[-1]], first_task(terms)))
    assert caught.value.reason == f"bad-member: {bad}"
    victim.restart()
    assert victim.answer(terms, victim.request(terms, founders[:-1], first_task(terms)))
    with refused("other-roster"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))


def test_a_request_that_tells_nothing_again_is_answered_from_what_the_vehicle_keeps(victim: Victim) -> None:
    def short(request: Request, **changes: Any) -> Request:
        [group] = request.private or []
        return request.model_copy(update={"private": [group.model_copy(update={"founders": [], **changes})]})

    terms, founders = victim.met()
    whole = victim.request(terms, founders, domain_task(terms))
    for members in ([], (whole.private or [])[0].members):
        with refused("not-member"):  # it has met nobody
            victim.answer(terms, short(whole, members=members))
    first = victim.answer(terms, whole)
    victim.restart()
    assert codec.encode(victim.answer(terms, short(whole, members=[])).model_dump()) == codec.encode(first.model_dump())
    after = victim.request(terms, founders, first_task(terms), members=["v00", *OTHERS[3:]], number=1)
    with refused("other-edition"):  # who is in it?
        victim.answer(terms, short(after, members=[]))
    assert victim.answer(terms, short(after))
    with refused("not-member"):
        victim.answer(terms, short(after, members=[], group=1))


def test_a_vehicle_that_missed_the_end_of_a_run_takes_part_in_the_next(victim: Victim) -> None:
    terms, after = terms_of(), terms_of("r2", "n2")
    founders = victim.founders(terms, victim.announce(terms))
    victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    with refused("too-many-runs"):
        victim.announce(after)
    victim.restart()  # the run ended meanwhile: its request is not retained any more
    assert victim.announce(after)
    with refused("run-over"):
        victim.answer(terms, victim.request(terms, founders, first_task(terms)))
    assert not (victim.folder / "runs" / "r1" / "key").exists()


def test_a_request_that_is_refused_takes_nothing_from_the_open_run(victim: Victim) -> None:
    """A broker that was killed publishes an older state again: the keys request of a run that ended comes first."""
    former = terms_of()
    victim.announce(former)
    victim.end("r1")
    terms = terms_of(run="r2", nonce="n2")
    founders = victim.founders(terms, victim.announce(terms))
    victim.private.connected()
    with refused("run-over"):
        victim.announce(former)
    assert victim.answer(terms, victim.request(terms, founders, first_task(terms)))


def test_the_end_of_a_run_whose_chain_was_never_written_lets_the_next_begin(victim: Victim) -> None:
    terms = terms_of()
    victim.announce(terms)
    (victim.folder / "runs" / "r1" / "chain").unlink()
    victim.end("r1")
    assert victim.announce(terms_of("r2", "n2"))


@pytest.mark.parametrize("choice", ["only", "never"])
def test_the_choice_stands_before_rows_are_read(tmp_path: Path, choice: Any) -> None:
    victim = Victim(tmp_path, choice)
    terms = terms_of()
    plain, keys = first_task(terms), keys_task(terms)
    for task, answered in ((plain, choice != "only"), (keys, choice != "never")):
        request = Request(task=task.to_value(), task_digest=task.digest, remaining=1.0)
        if answered:
            victim.private.choose(seen("r1", request))
        else:
            with refused("not-private"):
                victim.private.choose(seen("r1", request))


def test_a_new_category_does_not_make_other_rows_of_the_same_rows() -> None:
    """Positions among categories shift when one comes that sorts before others; the rows are the same."""
    kinds, more, numbers = ("north", "south"), ("east", "north", "south"), np.arange(4.0)
    X = np.column_stack([numbers % 2, numbers])
    before = Dataset(("kind", "number"), "y", X, np.zeros(4), categories={"kind": kinds})
    shifted = Dataset(("kind", "number"), "y", X + np.array([1.0, 0.0]), np.zeros(4), categories={"kind": more})
    others = Dataset(("kind", "number"), "y", X, np.zeros(4), categories={"kind": more})
    assert np.array_equal(row_hashes(SECRET, before), row_hashes(SECRET, shifted))
    assert not np.isin(row_hashes(SECRET, others), row_hashes(SECRET, before)).any()
