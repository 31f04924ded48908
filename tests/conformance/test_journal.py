"""Every journal through one suite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.journal import Journal
from coordinator.journal.port import Decision, Kept, Leader, overview
from coordinator.journal.sql import SqlJournal
from coordinator.runs.view import run_document
from schemas.errors import StorageError
from tests.support.engine_bench import TOY_ENGINE, Play, toy_spec
from tests.support.postgres import PostgresServer
from tests.support.scratch_journal import checkpoint, entry

Opener = Callable[[], Journal]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same journal each time it is called."""
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url(server.database())
        return lambda: SqlJournal(url, busy_timeout=0.3)
    return lambda: SqlJournal(f"sqlite:///{tmp_path / 'state' / 'journal.sqlite'}")


def test_journal_appends_entries_with_decisions_or_nothing(opener: Opener) -> None:
    journal = opener()
    night = Decision("schedule nightly", "schedule.night", 2.0, 1.7e9, {"at": 1.7e9})
    with pytest.raises(TypeError, match="not JSON serializable"):
        journal.append([entry("a", 1)], [night, replace(night, body={"at": object()})])
    assert (journal.unfinished(), journal.decisions(), journal.last_time()) == ([], [], None)
    journal.append([entry("b", 3)], [night])
    journal.append([], [replace(night, at=4.0)])
    journal.close()
    journal = opener()
    assert list(journal.records("b")) == [entry("b", 3)]
    assert journal.decisions("schedule nightly") == [night, replace(night, at=4.0)]
    assert journal.last_time() == 4.0


def test_journal_gives_records_back_in_order_after_reopening(opener: Opener) -> None:
    journal = opener()
    journal.append([entry("b", 1), entry("a", 2), entry("b", 3)])
    journal.append([])
    journal.append([entry("a", 4)])
    journal.close()
    journal = opener()
    assert list(journal.records("b")) == [entry("b", 1), entry("b", 3)]
    assert list(journal.records("a")) == [entry("a", 2), entry("a", 4)]
    assert journal.unfinished() == ["b", "a"]
    assert journal.last_time() == 4.0


def test_journal_puts_a_checkpoint_in_place_of_all_former_records_of_its_run(opener: Opener) -> None:
    journal = opener()
    journal.append([entry("a", 1), entry("b", 2), entry("a", 3)])
    journal.append([entry("a", 4), checkpoint("a", 5), entry("b", 6), entry("a", 7)])
    journal.close()
    journal = opener()
    began = replace(checkpoint("a", 5), wall=entry("a", 1).wall)
    assert list(journal.records("a")) == [began, entry("a", 7)]
    assert list(journal.records("b")) == [entry("b", 2), entry("b", 6)]
    assert journal.unfinished() == ["a", "b"], "in the order of their start"
    assert journal.last_time() == 7.0
    journal.append([checkpoint("a", 8), checkpoint("c", 9)])
    assert list(journal.records("a")) == [replace(checkpoint("a", 8), wall=began.wall)]
    assert list(journal.records("c")) == [checkpoint("c", 9)]
    assert journal.unfinished() == ["a", "b", "c"]
    journal.close()


def test_journal_is_written_to_while_a_run_is_read(opener: Opener) -> None:
    journal = opener()
    many = [entry(run, number) for number in range(250) for run in ("a", "b")]
    journal.append(many)
    result = journal.records("a")
    first = [next(result) for _ in range(120)]
    journal.append([entry("b", 1000)])
    assert [*first, *result] == [each for each in many if each.run == "a"]


def test_journal_refuses_a_second_coordinator_until_it_is_closed(opener: Opener) -> None:
    journal = opener()
    with pytest.raises(StorageError, match="in use by another coordinator"):
        opener()
    journal.close()
    journal.close()
    opener().close()


def test_journal_says_who_led_last_also_when_it_is_opened_again(opener: Opener) -> None:
    journal = opener()
    assert journal.leader() is None
    for incarnation in ("first", "second"):
        journal.lead(Leader(incarnation, {"host": "cloud-1", "settings": {"kept_runs": 3}}))
    journal.check()
    journal.close()
    journal = opener()
    assert journal.leader() == Leader("second", {"host": "cloud-1", "settings": {"kept_runs": 3}})
    journal.close()


@pytest.mark.parametrize(("what", "other"), [("witnessed", "scores"), ("scores", "notices"), ("notices", "witnessed")])
def test_journal_keeps_values_of_so_many_vehicles(opener: Opener, what: Kept, other: Kept) -> None:
    journal = opener()
    heads = [{"n": 3, "hash": "a" * 64, "at": 1.5}]
    assert journal.keep(what, {"v1": heads, "v2": []}, most=2) == 0
    assert journal.keep(what, {"v1": heads * 2, "v3": heads}, most=2) == 1
    journal.close()
    journal = opener()
    assert journal.kept(what, ("v1", "v2", "v3")) == {"v1": heads * 2, "v2": []}
    assert journal.kept(other, ("v1",)) == {}
    journal.close()


def test_journal_closes_a_run_once_and_keeps_its_document(opener: Opener) -> None:
    journal = opener()
    journal.append([entry("r", 1), entry("s", 2)])
    journal.close_run("r", {"outcome": "finished", "n": [1, 2.5]}, 9.0)
    journal.close_run("r", {"outcome": "other"}, 9.5)
    journal.close()
    journal = opener()
    assert journal.unfinished() == ["s"]
    assert journal.ended() == ["r"]
    assert journal.document("r") == {"outcome": "finished", "n": [1, 2.5]}
    assert journal.last_time() is not None
    assert list(journal.records("r")) == [entry("r", 1)]


def test_journal_gives_overviews_as_the_documents_have_them(opener: Opener) -> None:
    journal = opener()
    state = Play(toy_spec(parameters={"levels": 3})).state
    whole = run_document(TOY_ENGINE, state, started=1.0, ended=2.0, model={"name": "m", "version": 1, "digest": "d"})
    documents = {
        "whole": {**whole, "reason": "é\u2028\"'", "rounds": [{}, {}], "cohort": ["a"]},
        "former": {"run": "former"},
        "declaring": {"run": "declaring", "spec": {"bounds": {"x": [0, 1]}, "domain": None}},
    }
    documents["odd"] = {**whole, "run": "odd", "summary": {"x": float("nan")}}  # no JSON for every database
    for run, document in documents.items():
        journal.close_run(run, document, 1.0)
    expected = {run: overview(document) for run, document in documents.items()}
    assert {run for run, each in expected.items() if each["declares"]} == {"odd", "whole", "declaring"}
    assert journal.overviews(["odd", "none", *documents]) == expected
    del expected["odd"]
    assert journal.overviews([*expected]) == expected


def test_journal_lets_the_records_of_closed_runs_go_by_age_but_not_the_time(opener: Opener) -> None:
    journal = opener()
    journal.append([entry("r", 1), entry("s", 2), entry("live", 3), entry("t", 4)])
    for run, at in (("s", 9.0), ("r", 10.0), ("t", 11.0)):
        journal.close_run(run, {"run": run}, at)

    def forget(until: float) -> tuple[bool, list[str]]:
        return journal.forget_records(until), [run for run in "srt" if list(journal.records(run))]

    assert [forget(until) for until in (8.9, 10.0, 10.0, 10.0)] == [
        (False, ["s", "r", "t"]),
        (True, ["r", "t"]),
        (True, ["t"]),
        (False, ["t"]),
    ]
    assert (journal.document("s"), journal.unfinished(), journal.last_time()) == ({"run": "s"}, ["live"], 11.0)
    journal.close()


def test_journal_keeps_what_was_among_the_newest_when_its_run_was_forgotten_and_lets_references_go(
    opener: Opener,
) -> None:
    journal = opener()
    for name, run in (("m", "Central-of-another-run"), ("m.central", "central-1"), ("m.central", "central-2")):
        journal.add_model(name, run, lambda version: ("d" * 64, b"record %d" % version))

    def finished(*numbers: int) -> None:
        for number in numbers:
            journal.append([entry(f"r{number}", number)])
            journal.add_model("m", f"r{number}", lambda version: ("d" * 64, b"record %d" % version))
            journal.close_run(f"r{number}", {}, 1.0 * number)

    finished(1, 2)
    journal.append([entry("live", 3)])
    journal.add_model("m", "live", lambda version: ("d" * 64, b"record %d" % version))
    journal.close_run("other", {}, 3.0)
    assert sorted(journal.compact(1, 3)) == ["r1", "r2"]
    stay = ["Central-of-another-run", "r1", "r2", "live"]
    assert [model.run for model in journal.models("m")] == stay
    assert [model.run for model in journal.models("m.central")] == ["central-1", "central-2"], "the newest yet"
    finished(4, 5)
    assert sorted(journal.compact(1, 1)) == ["other", "r4"]
    assert [model.run for model in journal.models("m")] == [*stay, "r5"]
    assert [model.run for model in journal.models("m.central")] == ["central-2"]
    journal.add_model("m.central", "central-3", lambda version: ("d" * 64, b"record %d" % version))
    finished(6)
    assert journal.compact(1, 1, {("m.central", 2)}) == ["r5"]
    assert [model.run for model in journal.models("m.central")] == ["central-2", "central-3"]
    journal.close()


def test_journal_puts_another_record_in_place_with_a_decision_or_changes_nothing(opener: Opener) -> None:
    journal = opener()
    for name in ("m", "n"):
        stored = journal.add_model(name, f"r-{name}", lambda version: ("d" * 64, b"record %d" % version))
    decision = Decision("n", "signed", 5.0, 6.0, {"version": 1})
    for other in ({"version": 2}, {"digest": "e" * 64}, {"name": "o"}):
        with pytest.raises(StorageError, match="no version"):
            journal.put_record(replace(stored, record=b"other", **other), [decision])
    assert journal.decisions() == []
    journal.put_record(replace(stored, record=b"signed again"), [decision])
    journal.close()
    journal = opener()
    assert [model.record for model in journal.models()] == [b"record 1", b"signed again"]
    assert [journal.model(name, 1) for name in ("m", "n")] == journal.models()
    assert journal.model("m", 2) is journal.model("o", 1) is None
    assert journal.decisions("n") == [decision]
    journal.put_record(journal.models("m")[0])
    assert len(journal.decisions()) == 1
    journal.close()


def test_journal_forgets_the_oldest_runs_when_it_is_compacted_but_not_the_newest_models(opener: Opener) -> None:
    journal = opener()
    for number in range(6):
        run = f"r{number}"
        journal.append([entry(run, number)])
        journal.add_model("often" if number else "once", run, lambda version: ("d" * 64, b"record %d" % version))
        journal.close_run(run, {"number": number}, 1.0 * number)
    journal.append([entry("open", 9)])
    assert journal.compact(10, 1) == []
    assert sorted(journal.compact(2, 3)) == ["r0", "r1", "r2", "r3"]
    assert journal.compact(2, 3) == []
    journal.close()
    journal = opener()
    assert journal.ended() == ["r4", "r5"]
    assert (journal.document("r3"), journal.document("r4")) == (None, {"number": 4})
    assert (list(journal.records("r3")), list(journal.records("r4"))) == ([], [entry("r4", 4)])
    assert (journal.newest("often", 2), journal.newest("once", 9), journal.newest("never", 9)) == ([5, 4], [1], [])
    assert (
        journal.heads()
        == [replace(model, record=b"") for model in journal.models()]
        == [*journal.heads("often"), *journal.heads("once")]
    )
    assert journal.add_model("often", "r9", lambda version: ("d" * 64, b"%d" % version)).version == 6
    assert journal.unfinished() == ["open"]
    assert journal.last_time() == 9.0


def test_journal_lets_old_rollouts_go_but_no_other_decision(opener: Opener) -> None:
    journal = opener()

    def decided(name: str, kind: str, at: float) -> Decision:
        return Decision(name, kind, at, at, {"rollout": f"{name}-{at}"})

    result = [
        decided(name, kind, 10.0 * number + place)
        for number in (1, 2, 3)
        for name in ("m", "n", "Rollout.m")
        for place, kind in enumerate(("rollout.started", "candidate", "rollout.reported", "current", "ROLLOUT.odd"))
    ]
    # An end and the next beginning may have the same time.
    result.append(decided("m", "rollout.superseded", 40.0))
    result += [decided("m", "rollout.started", 40.0), decided("m", "rollout.reported", 41.0)]
    journal.append([], result)
    assert journal.compact(9, 1) == []
    journal.compact(9, 1, (), {"m": 50.0, "unknown": 0.0})
    assert journal.decisions() == result, "no rollout began then or later: which of them live is not known"
    journal.compact(9, 1, (), {"n": 20.0})
    result = [each for each in result if each.name != "n" or each.at >= 20.0 or not each.kind.startswith("rollout.")]
    assert journal.decisions() == result
    journal.compact(9, 1, rollouts_from={"m": 40.0, "n": 0.0})
    journal.close()
    journal = opener()
    left = [each for each in result if each.name != "m" or not each.kind.startswith("rollout.")]
    assert [each for each in journal.decisions() if each not in result[-2:]] == left
    assert journal.decisions("m")[-2:] == result[-2:]
    assert journal.last_time() == 41.0
    journal.close()


def test_journal_gives_one_version_per_run(opener: Opener) -> None:
    journal = opener()

    def make(version: int) -> tuple[str, bytes]:
        return "d" * 64, b"record %d" % version

    first = journal.add_model("m", "r1", make)
    again = journal.add_model("m", "r1", make)
    second = journal.add_model("m", "r2", make)
    other = journal.add_model("n", "r3", make)
    assert first == again
    assert (first.version, second.version, other.version) == (1, 2, 1)
    journal.close()
    journal = opener()
    assert journal.models("m") == [first, second]
    assert journal.models() == [first, second, other]


def test_journal_registers_nothing_when_the_record_cannot_be_made(opener: Opener) -> None:
    journal = opener()

    def broken(version: int) -> tuple[str, bytes]:
        raise ValueError("no document")

    with pytest.raises(ValueError, match="no document"):
        journal.add_model("m", "r", broken)
    assert journal.models() == []
    journal.append([entry("r", 1)])
