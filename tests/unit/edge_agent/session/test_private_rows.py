"""Which rows a vehicle answers private runs from when these come and go, and which runs it counts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.session.snapshots import keyed_digest
from glassfleet.contract.messages import Contribution
from glassfleet.data.dataset import Dataset, pool
from glassfleet.discovery import DISCOVERY
from glassfleet.errors import PrivacyError
from glassfleet.private.groups import Terms
from glassfleet.private.ledger import Limits
from schemas import codec
from schemas.messages import ContributionBody, Request
from tests.support.privacy.private_victim import FRT, SECRET, Victim, dataset, domain_task, first_task, seen, terms_of

TESTS, MORE_TESTS = dataset(9, rows=10), dataset(10, rows=40)


def part(data: Dataset, start: int, end: int | None = None) -> Dataset:
    return Dataset(data.features, data.target, data.X[start:end], data.y[start:end])


ALL = dataset(0, rows=40)
FEW = pool([part(ALL, 3), dataset(1, rows=3)])
"""Three other rows."""
MANY = pool([part(ALL, 36), dataset(1, rows=40)])
"""Four of the rows, and forty others."""


@pytest.fixture
def victim(tmp_path: Path) -> Victim:
    victim = Victim(tmp_path)
    victim.data, victim.tests = ALL, TESTS
    run(victim, 1)
    return victim


def announced(victim: Victim, number: int) -> tuple[Terms, ContributionBody, Any]:
    """Announce the vehicle for a run; return what it says of itself, too."""
    terms = terms_of(f"r{number}", f"n{number}")
    body = victim.announce(terms)
    return terms, body, Contribution.from_value(body.contribution).values


def asked(victim: Victim, number: int, renews: bool) -> tuple[Terms, Request, Any]:
    """Announce the vehicle, and make the first request to a group of which three others have new rows."""
    terms, body, own = announced(victim, number)
    founders = victim.founders(terms, body, renewed=3)
    return terms, victim.request(terms, founders, first_task(terms, seed=number), renews=renews), own


def run(victim: Victim, number: int, *, renews: bool = False) -> dict[str, Any]:
    """Let the vehicle take part in a run; return what it announced."""
    terms, request, own = asked(victim, number, renews)
    victim.answer(terms, request)
    victim.end(terms.run)
    return dict(own)


def test_run_is_answered_from_the_rows_of_the_last_one_where_few_came_or_went(victim: Victim) -> None:
    before = victim.private.files.ledger().answered[-1]
    victim.data = FEW
    for number in (2, 3):
        terms, request, own = asked(victim, number, renews=True)
        assert (own["new_rows"], own["new_digest"]) == ("", "")
        snapshot = victim.frozen(terms.run, request)
        assert np.array_equal(snapshot.data.X, ALL.X)
        victim.answer(terms, request)
        after = victim.private.files.ledger().answered[-1]
        assert after.rows.equals(before.rows)
        assert (after.era, after.anchor, own["anchor"]) == (before.era, before.anchor, before.anchor)
        victim.end(terms.run)
        victim.restart()


@pytest.mark.parametrize("renews", [True, False])
@pytest.mark.parametrize("change", ["training rows", "test rows", "both"])
def test_enough_new_rows_are_offered_and_taken_where_the_group_renews(
    victim: Victim, change: str, renews: bool
) -> None:
    first = victim.private.files.ledger().answered[-1]
    new_data = victim.data = ALL if change == "test rows" else MANY
    new_tests = victim.tests = TESTS if change == "training rows" else pool([TESTS, MORE_TESTS])
    terms, request, own = asked(victim, 2, renews)
    assert own["new_digest"] == keyed_digest(SECRET, "r2", new_data)
    assert (own["new_rows"] not in ("", own["rows"])) == (change != "test rows")
    assert (own["new_tests"] not in ("", own["tests"])) == (change != "training rows")
    assert (own["era"], own["anchor"]) == (first.era, first.anchor)
    victim.data, victim.tests = dataset(2), dataset(3)  # what comes later is for later runs
    snapshot = victim.frozen("r2", request)
    assert np.array_equal(snapshot.data.X, (new_data if renews else ALL).X)
    assert np.array_equal(victim.snapshots.tests_of_run("r2", TESTS).X, (new_tests if renews else TESTS).X)
    victim.answer(terms, request)
    noted = victim.private.files.ledger().answered[-1]
    assert noted.rows.equals(first.rows) != renews
    victim.end("r2")
    victim.restart()
    victim.data, victim.tests = new_data, new_tests
    own_later = announced(victim, 3)[2]
    for name in ("rows", "tests"):
        assert own_later[name] == own[f"new_{name}" if renews else name], "the next run is answered from the same"
    assert bool(own_later["new_rows"]) != renews
    assert own_later["era"] == first.era


def test_vehicle_alone_with_new_rows_answers_from_none_of_them(victim: Victim) -> None:
    victim.data = MANY
    terms, body, _ = announced(victim, 2)
    request = victim.request(terms, victim.founders(terms, body, renewed=1), first_task(terms), renews=True)
    with pytest.raises(PrivacyError, match=r"^single-out: "):
        victim.answer(terms, request)


@pytest.mark.parametrize("moment", ["offered", "between", "taken"])
def test_vehicle_that_is_killed_while_it_takes_new_rows_answers_from_these(victim: Victim, moment: str) -> None:
    victim.data, victim.tests = MANY, MORE_TESTS
    terms, request, _ = asked(victim, 2, renews=True)
    folder = victim.folder / "runs" / "r2"
    if moment == "between":
        (folder / "new-test.npz").replace(folder / "test.npz")
    elif moment == "taken":
        victim.private.rows(seen("r2", request), victim.data)
    victim.restart()
    victim.data, victim.tests = dataset(2), dataset(3)
    given = FRT.client.contribute(first_task(terms, seed=2), MANY, np.random.default_rng(0))
    answers = [victim.answer(terms, request), victim.answer(terms, request, given)]
    assert len({codec.encode(each.model_dump()) for each in answers}) == 1
    assert np.array_equal(victim.snapshots.tests_of_run("r2", TESTS).X, MORE_TESTS.X)
    assert sorted(path.name for path in folder.iterdir()) == ["chain", "key", "rows.npz", "test.npz"]


def test_few_new_rows_are_refused_where_those_of_the_last_run_are_gone(victim: Victim) -> None:
    shutil.rmtree(victim.folder / "private")
    victim.data = FEW
    with pytest.raises(PrivacyError, match=r"^few-new-rows: .*private lacks the rows of the last private run"):
        announced(victim, 2)
    assert not (victim.folder / "runs" / "r2").exists()
    for data in (ALL, MANY):  # the same as then, or enough others
        victim.data = data
        assert announced(victim, 2)[2]["new_rows"] == ""
        victim.end("r2")
        shutil.rmtree(victim.folder / "runs")
        victim.restart()
        ledger = victim.private.files.ledger()
        assert ledger.open is None
        victim.private.files.save_ledger(type(ledger)(ledger.answered))


@pytest.mark.parametrize(("moved", "is_offered"), [(3, False), (40, True)])
def test_row_that_goes_from_training_to_test_rows_is_another_one(tmp_path: Path, moved: int, is_offered: bool) -> None:
    victim = Victim(tmp_path)
    whole = dataset(0, rows=80)
    victim.data = whole
    run(victim, 1)
    victim.data, victim.tests = part(whole, moved), part(whole, 0, moved)
    terms, request, own = asked(victim, 2, renews=True)
    assert bool(own["new_rows"]) == is_offered
    assert victim.frozen("r2", request).data.rows == (40 if is_offered else 80)
    assert victim.snapshots.tests_of_run("r2", TESTS).rows == (40 if is_offered else 0)
    victim.answer(terms, request)


def test_first_run_needs_no_more_rows_than_make_company_however_many_columns_they_have(tmp_path: Path) -> None:
    victim = Victim(tmp_path)
    rng = np.random.default_rng(0)
    victim.data = Dataset(tuple(f"x{column}" for column in range(30)), "y", rng.random((32, 30)), rng.random(32))
    assert announced(victim, 1)[2]["anchor"] == ""
    victim.end("r1")
    victim.data = part(victim.data, 1)
    with pytest.raises(PrivacyError, match=r"^no-rows: 31 rows"):
        announced(victim, 2)


def test_few_rows_of_many_columns_are_not_told_of_by_products(tmp_path: Path) -> None:
    """Sums of products of fewer rows than twice their columns may tell what these rows span."""
    victim = Victim(tmp_path)
    rng = np.random.default_rng(0)

    def wide(rows: int) -> Dataset:
        return Dataset(tuple(f"x{column}" for column in range(30)), "y", rng.random((rows, 30)), rng.random(rows))

    victim.data = first = wide(100)
    terms, body, _ = announced(victim, 1)
    task = domain_task(terms)
    given = DISCOVERY.client.contribute(task, dataset(), rng)
    victim.answer(terms, victim.request(terms, victim.founders(terms, body), task), given)
    victim.end("r1")
    for number, more in ((2, 63), (3, 64)):  # twice as many as thirty columns, the target and a constant
        victim.data = pool([first, wide(more)])
        assert bool(announced(victim, number)[2]["new_rows"]) == (more == 64)
        victim.end(f"r{number}")


def test_runs_over_rows_that_are_gone_are_not_counted(victim: Victim) -> None:
    for number in range(2, 1 + Limits().runs):
        run(victim, number)
    victim.data, victim.tests = dataset(50), dataset(51)
    own = announced(victim, 20)[2]
    assert (own["left"], own["anchor"], own["totals"]) == (Limits().runs, "", [])
    assert [each.nonce for each in victim.private.files.ledger().answered] == ["n1", "n2", "n3", "n4"]
    victim.end("r20")
    victim.data, victim.tests = ALL, TESTS  # the source is switched back
    with pytest.raises(PrivacyError, match=r"^too-many-runs: "):
        announced(victim, 21)


def test_source_that_is_switched_to_other_rows_and_back_is_known_again(victim: Victim) -> None:
    first = victim.private.files.ledger().answered[-1]
    victim.data, victim.tests = dataset(50), dataset(51)
    assert run(victim, 2)["totals"] == []
    victim.data, victim.tests = ALL, TESTS
    victim.restart()
    own = announced(victim, 3)[2]
    assert (own["era"], own["anchor"], own["new_rows"]) == (first.era, first.anchor, "")
    assert own["totals"] == sorted(each.digest for each in first.totals)
    victim.end("r3")
    victim.data = FEW
    terms, request, own = asked(victim, 4, renews=True)
    assert own["new_rows"] == ""
    assert np.array_equal(victim.frozen(terms.run, request).data.X, dataset(50).X), "the last run is the one between"


@pytest.mark.parametrize(
    ("training", "tests", "is_offered"),
    [(1, 31, False), (1, 32, False), (31, 32, False), (0, 32, True), (32, 0, True), (32, 32, True)],
)
def test_new_training_rows_and_new_test_rows_are_counted_apart(
    victim: Victim, training: int, tests: int, is_offered: bool
) -> None:
    victim.data = pool([ALL, dataset(1, rows=training)]) if training else ALL
    victim.tests = pool([TESTS, dataset(2, rows=tests)]) if tests else TESTS
    terms, request, own = asked(victim, 2, renews=True)
    assert bool(own["new_rows"]) == is_offered
    assert victim.frozen(terms.run, request).data.rows == 40 + training * is_offered
    assert victim.snapshots.tests_of_run(terms.run, TESTS).rows == 10 + tests * is_offered


def test_test_rows_that_a_refused_request_froze_are_not_answered_from(victim: Victim) -> None:
    victim.snapshots.tests_of_run("r2", pool([TESTS, dataset(2, rows=1)]))
    with pytest.raises(PrivacyError, match=r"^not-private: the run's test rows were frozen before it was announced"):
        announced(victim, 2)
    victim.snapshots.tests_of_run("r3", TESTS)
    announced(victim, 3)


def test_kept_files_of_two_runs_after_a_kill_between_them_are_not_answered_from(victim: Victim) -> None:
    old = (victim.folder / "private" / "test.npz").read_bytes()
    victim.data, victim.tests = MANY, pool([TESTS, MORE_TESTS])
    run(victim, 2, renews=True)
    kept = victim.folder / "private" / "test.npz"
    kept.unlink()  # it shares its bytes with others
    kept.write_bytes(old)
    victim.restart()
    victim.data = pool([MANY, dataset(5, rows=1)])
    with pytest.raises(PrivacyError, match=r"^few-new-rows: .*private lacks the rows of the last private run"):
        announced(victim, 3)
    victim.data = MANY
    assert announced(victim, 3)[2]["new_rows"] == "", "the same as then"
