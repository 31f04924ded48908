"""Fleets of processes under faults; the audit finds fault. Long ones: see docs/explanation/failure-model.md."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.identity import load_identity
from lab.chaos import breaches
from lab.chaos.audit import Evidence, examine, gather
from lab.chaos.certificate_office import StolenIdentity
from lab.chaos.conduct import Played
from lab.chaos.faulty_transport import VARIABLE
from lab.chaos.fleet import Fleet, write_data
from lab.chaos.report import lines
from lab.chaos.schedule import COORDINATOR, MORE_KINDS, make_schedule
from schemas.envelope import Envelope
from schemas.messages import AgentState, CoordinatorState
from schemas.topics import Topics
from schemas.trust.signing import Signer
from tests.support.authorities import FleetCa
from tests.support.processes import glassfleet, python

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]
SEED, FAULTS = 5, 16
AGENTS = [f"vehicle-{number:02d}" for number in range(4)]


def chaos(*arguments: str, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    return glassfleet("lab", "chaos", *arguments, timeout=timeout)


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
        result = database.execute(statement, values).fetchall()
    database.close()
    return result


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


@pytest.mark.slow
def test_fleet_survives_the_embedded_broker_forgetting_everything() -> None:
    done = chaos("--faults", "8", "--seed", "3", "--vehicles", "3", "--kind", "embedded", "--json")
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
@pytest.mark.parametrize(
    ("faults", "more"),
    [(8, ()), pytest.param(60, (), marks=pytest.mark.timeout(900)), (12, ["--secure"]), (12, ["--private"])],
)
def test_fleet_loses_nothing_and_counts_nothing_twice_when_intake_workers_are_killed(
    faults: int, more: Sequence[str]
) -> None:
    done = chaos("--workers", *more, "--faults", str(faults), "--seed", "3", "--json", timeout=800)
    assert done.returncode == 0, done.stderr[-6000:]
    report = json.loads(done.stdout)
    assert (report["ok"], report["replay"].endswith("--workers")) == (True, True)
    assert set(MORE_KINDS["workers"]) <= set(report["faults"]["by_kind"])
    assert report["digests"]["equal"] == report["runs"]["finished"] == report["runs"]["started"] > 0


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


def test_schedule_is_a_function_of_the_seed_and_begins_alike_when_more_faults_are_asked_for() -> None:
    assert make_schedule(7, 60, AGENTS) == make_schedule(7, 200, AGENTS)[:60]
    assert make_schedule(7, 60, AGENTS) != make_schedule(8, 60, AGENTS)


def test_deployed_processes_know_no_faults() -> None:
    code = (
        "import sys, os; import coordinator.process.link, coordinator.main, edge_agent.runner, console.main;"
        f"assert 'lab.chaos.faulty_transport' not in sys.modules; assert {VARIABLE!r} in os.environ;"
        "print(coordinator.process.link.PahoTransport.__module__)"
    )
    result = python(code, environment={VARIABLE: "anything"})
    assert result.stdout.strip() == "broker.paho_transport"


TOPICS = Topics("chaos")


@pytest.mark.needs("mosquitto")
@pytest.mark.slow
def test_fleet_with_identities_survives_renewal_and_revocation_and_shuts_the_thief_out(tmp_path: Path) -> None:
    done = chaos("--secure", "--faults", "6", "--seed", "4", "--vehicles", "4", "--json", "--keep", str(tmp_path / "w"))
    assert done.returncode == 0, done.stderr[-6000:]
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["ok"]
    assert report["replay"].endswith("--secure")
    assert set(MORE_KINDS["secure"]) <= set(report["faults"]["by_kind"])
    assert report["digests"]["equal"] == report["runs"]["finished"] == report["runs"]["started"] > 0
    security = report["security"]
    assert security["revoked"] == security["refused_by_broker"] > 0
    assert "stolen identities refused" in "\n".join(lines(report))


@pytest.mark.needs("mosquitto")
@pytest.mark.slow
def test_audit_asks_a_broker_that_lives_when_it_had_died_by_itself(tmp_path: Path) -> None:
    files = write_data(tmp_path / "data", 2, 1)
    limits = dict.fromkeys((COORDINATOR, *files), 128 * 1024)
    fleet = Fleet(tmp_path, files, "mosquitto", limits, {"secure"})
    assert fleet.office is not None
    try:
        for name in fleet.processes:
            fleet.start(name)
        fleet.wait_until_all_work(60.0)
        stolen = fleet.office.steal("vehicle-00")
        fleet.broker.kill()
        played = Played(recoveries=fleet.recoveries)
        evidence = gather(played, fleet, 5.0)
    finally:
        fleet.close()
    assert played.broker_died > 0
    assert "was revoked" in stolen.answer
    assert TOPICS.agent_state("vehicle-01") in evidence.retained


def log(folder: Path, *text: dict[str, Any]) -> Path:
    path = folder / "coordinator.log"
    path.write_text("".join(json.dumps(line) + "\n" for line in text), encoding="utf-8")
    return path


def test_audit_finds_an_answer_of_a_revoked_vehicle_and_a_thief_that_was_let_in(tmp_path: Path) -> None:
    answer = {"event": "answered", "agent": "v1", "outcome": "accepted"}
    path = log(tmp_path, answer, answer, {**answer, "agent": "v2"})
    size = path.stat().st_size
    first = len(json.dumps(answer)) + 1
    shut_out = "broker: our certificate was revoked: ask for a new token"
    assert breaches.intrusions([StolenIdentity("v1", tmp_path, 2 * first, size, shut_out)], path) == []
    assert breaches.intrusions([StolenIdentity("v1", tmp_path, None, size, shut_out)], path) == []
    assert len(breaches.intrusions([StolenIdentity("v1", tmp_path, first, size, shut_out)], path)) == 1
    assert "welcome" in breaches.intrusions([StolenIdentity("v1", tmp_path, size, size)], path)[0]


def test_audit_finds_whoever_was_refused_with_a_good_certificate() -> None:
    line = {"event": "message-refused", "topic": TOPICS.agent_state("v1"), "code": "revoked-certificate", "reason": "r"}
    result: list[tuple[str, dict[str, Any]]] = [
        ("coordinator", line),
        ("coordinator", {**line, "since_last": 3}),
        ("v2", {"event": "receipt"}),
    ]
    assert breaches.refusals(result, TOPICS, {"v1"}) == ({"revoked-certificate": 4}, [])
    assert len(breaches.refusals(result, TOPICS, {"v2"})[1]) == 2
    assert len(breaches.refusals([("v1", {**line, "code": "bad-signature"})], TOPICS, {"v1"})[1]) == 1


def test_audit_finds_a_retained_state_that_its_owner_did_not_seal_again(tmp_path: Path) -> None:
    ca = FleetCa(tmp_path)
    identity = load_identity(ca.identity("agent", "v1"))
    topic = TOPICS.agent_state("v1")
    state = Envelope(fleet="chaos", body=AgentState(status="up", incarnation="i"), agent="v1").to_bytes()
    retained = {topic: Signer(identity.key, identity.certificate).seal(topic, state), TOPICS.revoked(): b"PEM"}
    authority = ca.authority
    assert breaches.stale(retained, TOPICS, (authority.ca_pem, authority.crl_pem)) == []
    authority.revoke("v1")
    assert "was revoked" in breaches.stale(retained, TOPICS, (authority.ca_pem, authority.crl_pem))[0]
