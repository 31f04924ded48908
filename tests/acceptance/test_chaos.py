"""A short selection of the chaos harness: real processes, sixteen seeded faults; and that the audit can find fault.

The long ones are ``glassfleet chaos --faults 200 --seed 1`` and so on; see docs/explanation/failure-model.md.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.chaos.audit import Evidence, examine
from lab.chaos.report import lines
from schemas.envelope import Envelope
from schemas.messages import CoordinatorState
from tests.support.processes import glassfleet

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]
SEED, FAULTS = 5, 16
AGENTS = [f"vehicle-{number:02d}" for number in range(4)]


def chaos(*arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    return glassfleet("chaos", *arguments, timeout=timeout)


@pytest.fixture(scope="module")
def shaken(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Report and folder of a fleet that met sixteen faults."""
    folder = tmp_path_factory.mktemp("chaos")
    done = chaos(
        *("--faults", str(FAULTS), "--vehicles", str(len(AGENTS)), "--seed", str(SEED), "--json"),
        *("--keep", str(folder / "work"), "--report", str(folder / "report.json")),
    )
    assert done.returncode == 0, done.stderr[-6000:]
    report: dict[str, Any] = json.loads(done.stdout)
    assert report == json.loads((folder / "report.json").read_text())
    return report, folder / "work"


def test_fleet_loses_nothing_and_counts_nothing_twice_when_sixteen_faults_strike(
    shaken: tuple[dict[str, Any], Path],
) -> None:
    report, _ = shaken
    assert report["ok"]
    assert report["faults"]["injected"] == FAULTS
    assert len(report["faults"]["by_kind"]) == 16, "each kind of fault comes once before any comes twice"
    assert report["runs"]["started"] == report["runs"]["finished"] > 0
    assert (report["contributions"]["lost"], report["contributions"]["double_counted"]) == (0, 0)
    assert report["digests"]["compared"] == report["digests"]["equal"] == report["runs"]["finished"]
    assert report["died_by_themselves"] == []
    kinds = ["lost", "double_counted", "unequal", "exposed", "leaked", "intruded", "harmed"]
    assert list(report["findings"]) == kinds
    assert not any(report["findings"].values())
    assert report["security"] is None
    for kind in ("coordinator", "agent", "broker"):
        assert report["recovery_seconds"][kind]["count"] > 0
    # The faults did strike: otherwise the zeros above would say nothing.
    contributions = report["contributions"]
    assert contributions["sends"] > contributions["sent"] >= contributions["accepted"] > 50
    assert contributions["duplicate"] > 0
    assert set(report["messages"]) == {"lost", "doubled", "held"}
    assert "all held" in "\n".join(lines(report))


Left = tuple[Evidence, dict[str, Path]]


@pytest.fixture
def left(shaken: tuple[dict[str, Any], Path], tmp_path: Path) -> Left:
    """A copy of what the fleet left behind, to be tampered with, and its data."""
    _, work = shaken
    for part in ("coordinator", "logs"):
        shutil.copytree(work / part, tmp_path / part)
    runs = sorted(run for (run,) in sql(tmp_path, "SELECT run FROM runs"))
    # The retained pointer is not among what was kept; these tests are about the rest.
    return Evidence(tmp_path, AGENTS, runs), {name: work / "data" / f"{name}.csv" for name in AGENTS}


def sql(folder: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with sqlite3.connect(folder / "coordinator" / "journal.sqlite") as database:
        found = database.execute(statement, values).fetchall()
    database.close()
    return found


def test_audit_finds_nothing_in_what_the_fleet_left_behind(shaken: tuple[dict[str, Any], Path], left: Left) -> None:
    findings = examine(*left)
    assert (findings.lost, findings.double_counted, findings.unequal) == ([], [], [])
    assert findings.accepted == shaken[0]["contributions"]["accepted"]


def test_audit_finds_an_answer_that_is_in_the_journal_twice(left: Left, tmp_path: Path) -> None:
    columns = "run, kind, at, wall, body, checksum"
    sql(
        tmp_path,
        f"INSERT INTO records ({columns}) SELECT {columns} FROM records WHERE kind = 'answer' ORDER BY seq LIMIT 1",
    )
    assert len(examine(*left).double_counted) == 1


def test_audit_finds_an_accepted_answer_that_the_journal_lost(left: Left, tmp_path: Path) -> None:
    sql(tmp_path, "DELETE FROM records WHERE seq = (SELECT max(seq) FROM records WHERE kind = 'answer')")
    lost = examine(*left).lost
    assert lost
    assert all("not in the journal" in words or "no such answer" in words for words in lost)


def test_audit_finds_a_model_that_rests_on_other_rows_than_its_cohort_says(left: Left) -> None:
    evidence, files = left
    findings = examine(evidence, {**files, AGENTS[0]: files[AGENTS[1]]})
    assert findings.unequal
    assert findings.double_counted, "the rows of the cohort are not the rows that were counted"


def test_audit_finds_a_run_without_an_end_and_retained_topics_that_stand_for_nothing(left: Left) -> None:
    evidence, files = left
    state = Envelope(fleet="chaos", body=CoordinatorState(status="up", incarnation="x", software="y")).to_bytes()
    retained = {
        "gf/1/chaos/coordinator/state": state,
        "gf/1/chaos/run/chaos-0001/request": state,
        f"gf/1/chaos/blob/{'a' * 64}/0": b"part",
    }
    findings = examine(replace(evidence, runs=[*evidence.runs, "chaos-9999"], retained=retained), files)
    assert [run["reason"] for run in findings.runs if run["outcome"] is None] == ["has not ended"]
    leaked = findings.leaked
    assert any("request of an ended run" in words for words in leaked)
    assert any("a part that nothing names" in words for words in leaked)
    assert any("are not the current ones" in words for words in leaked)
    assert not any("coordinator/state" in words for words in leaked)


def test_chaos_refuses_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "something").write_text("here")
    done = chaos("--faults", "0", "--keep", str(tmp_path), timeout=60)
    assert done.returncode == 2
    assert "is not empty" in done.stderr


@pytest.mark.slow
def test_fleet_survives_the_embedded_broker_forgetting_everything() -> None:
    done = chaos("--faults", "8", "--seed", "3", "--vehicles", "3", "--broker-kind", "embedded", "--json")
    assert done.returncode == 0, done.stderr[-6000:]
    report = json.loads(done.stdout)
    assert report["ok"]
    assert report["broker"] == "embedded"


@pytest.mark.slow
def test_stand_by_takes_the_place_of_each_coordinator_that_is_killed_or_crashes() -> None:
    done = chaos("--standby", "--faults", "9", "--seed", "22", "--vehicles", "3", "--json")
    assert done.returncode == 0, done.stderr[-6000:]
    report = json.loads(done.stdout)
    assert (report["ok"], report["replay"].endswith("--standby")) == (True, True)
    assert {"coordinator-kill", "coordinator-crash", "standby-kill"} <= set(report["faults"]["by_kind"])
    assert report["recovery_seconds"]["take-over"]["count"] > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("options", [(), ("--secure",)])
def test_private_runs_lose_nothing_and_equal_central_learning_when_faults_strike(options: tuple[str, ...]) -> None:
    done = chaos("--private", "--faults", "20", "--seed", "1", "--vehicles", "13", "--json", *options, timeout=800)
    assert done.returncode == 0, done.stderr[-6000:]
    report = json.loads(done.stdout)
    assert report["ok"]
    assert report["replay"].endswith("--private")
    assert report["digests"]["equal"] == report["digests"]["compared"] > 0
    assert report["runs"]["over_the_same_rows"] > 0, "the vehicles' rule between runs was met"
