"""What a journal forgets by age, what stays, and that its file gets shorter."""

from __future__ import annotations

import random
from pathlib import Path

from coordinator.journal.port import Entry
from coordinator.journal.sql import SqlJournal
from tests.support.coordinator_bench import Fleet

DAY = 86400.0


def test_events_of_old_runs_go_and_all_else_stays() -> None:
    fleet = Fleet(settings={"records_days": 2.0})
    for run in ("r1", "r2"):
        fleet.begin("a", "b", run=run)
        fleet.finish("a", "b", run=run)
        fleet.pass_time(1.5 * DAY)
    fleet.begin("a", "b", run="r3")
    fleet.pass_time(1.0)
    journal = fleet.journal
    assert [bool(list(journal.records(run))) for run in ("r1", "r2", "r3")] == [False, True, True]
    assert fleet.core.runs.document("r1")["outcome"] == "finished"
    assert [model.run for model in journal.models()] == ["r1", "r2"]
    assert {each.body["version"] for each in journal.decisions() if "version" in each.body} == {1, 2}


def test_no_events_of_ended_runs_are_kept_where_nobody_audits() -> None:
    fleet = Fleet(settings={"records_days": 0.0}).begin("a", "b")
    fleet.finish("a", "b")
    fleet.pass_time(0.0)
    assert list(fleet.journal.records("r1")) == []


def test_the_file_gets_shorter_when_events_go(tmp_path: Path) -> None:
    file = tmp_path / "journal.sqlite"
    journal = SqlJournal(f"sqlite:///{file}")
    for number in range(4):
        body = random.Random(number).randbytes(50_000)
        journal.append([Entry(f"r{number}", "answer", float(number), 1.7e9, body) for _ in range(20)])
        journal.close_run(f"r{number}", {}, float(number))
    journal.close()
    before = file.stat().st_size
    journal = SqlJournal(f"sqlite:///{file}")
    while journal.forget_records(2.0):
        pass
    journal.close()
    assert before > 4_000_000
    assert file.stat().st_size < 0.3 * before
