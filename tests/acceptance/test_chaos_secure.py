"""Chaos in a fleet with identities: certificates renewed and revoked on the way, a stolen vehicle shut out.

The long one is ``glassfleet chaos --secure --faults 150 --seed 2``; see docs/explanation/failure-model.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.identity import load_identity
from lab.chaos import signatures
from lab.chaos.audit import gather
from lab.chaos.certificate_office import StolenIdentity
from lab.chaos.conduct import Played
from lab.chaos.fleet import Fleet
from lab.chaos.report import lines
from lab.chaos.rows import write_data
from lab.chaos.schedule import COORDINATOR, KINDS, SECURE_KINDS, make_schedule
from schemas.envelope import Envelope
from schemas.messages import AgentState
from schemas.topics import Topics
from schemas.trust.signing import Signer
from tests.acceptance.test_chaos import chaos
from tests.support.fleet import FleetCa

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]
TOPICS = Topics("chaos")
VEHICLES = ("v0", "v1", "v2")


@pytest.mark.mosquitto
@pytest.mark.slow
def test_fleet_with_identities_survives_renewal_and_revocation_and_shuts_the_thief_out(tmp_path: Path) -> None:
    done = chaos("--secure", "--faults", "6", "--seed", "4", "--vehicles", "4", "--json", "--keep", str(tmp_path / "w"))
    assert done.returncode == 0, done.stderr[-6000:]
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["ok"]
    assert report["replay"].endswith("--secure")
    assert set(SECURE_KINDS) <= set(report["faults"]["by_kind"])
    assert report["digests"]["equal"] == report["runs"]["finished"] == report["runs"]["started"] > 0
    security = report["security"]
    assert security["revoked"] == security["refused_by_broker"] > 0
    assert "stolen identities refused" in "\n".join(lines(report))


@pytest.mark.mosquitto
@pytest.mark.slow
def test_audit_asks_a_broker_that_lives_when_it_had_died_by_itself(tmp_path: Path) -> None:
    files = write_data(tmp_path / "data", 2, 1)
    limits = dict.fromkeys((COORDINATOR, *files), 128 * 1024)
    fleet = Fleet(tmp_path, files, "mosquitto", limits, secure=True)
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


def test_chaos_with_identities_needs_mosquitto() -> None:
    done = chaos("--secure", "--broker-kind", "embedded", "--faults", "0", timeout=60)
    assert done.returncode == 2
    assert "the embedded broker has no TLS" in done.stderr


def test_schedule_with_identities_is_another_and_the_one_without_stays_as_it_was() -> None:
    plain, secure = make_schedule(7, 60, VEHICLES), make_schedule(7, 60, VEHICLES, secure=True)
    assert {fault.kind for fault in plain} <= set(KINDS)
    assert {fault.kind for fault in secure[: len(SECURE_KINDS)]} == set(SECURE_KINDS)
    assert {fault.kind for fault in secure[len(SECURE_KINDS) : len(SECURE_KINDS) + len(KINDS)]} == set(KINDS)
    # Certificates have dates, and are good for two days.
    jumps = [fault.strength for fault in make_schedule(7, 900, VEHICLES, secure=True) if fault.kind == "clock-jump"]
    assert jumps
    assert all(-300 < jump <= 86400 for jump in jumps)


def log(folder: Path, *said: dict[str, Any]) -> Path:
    path = folder / "coordinator.log"
    path.write_text("".join(json.dumps(line) + "\n" for line in said), encoding="utf-8")
    return path


def test_audit_finds_an_answer_of_a_revoked_vehicle_and_a_thief_that_was_let_in(tmp_path: Path) -> None:
    answer = {"event": "answered", "agent": "v1", "outcome": "accepted"}
    path = log(tmp_path, answer, answer, {**answer, "agent": "v2"})
    size = path.stat().st_size
    first = len(json.dumps(answer)) + 1
    shut_out = "broker: our certificate was revoked: ask for a new token"
    assert signatures.intrusions([StolenIdentity("v1", tmp_path, 2 * first, size, shut_out)], path) == []
    assert signatures.intrusions([StolenIdentity("v1", tmp_path, None, size, shut_out)], path) == []
    assert len(signatures.intrusions([StolenIdentity("v1", tmp_path, first, size, shut_out)], path)) == 1
    assert "welcome" in signatures.intrusions([StolenIdentity("v1", tmp_path, size, size)], path)[0]


def test_audit_finds_whoever_was_refused_with_a_good_certificate() -> None:
    line = {"event": "message-refused", "topic": TOPICS.agent_state("v1"), "code": "revoked-certificate", "reason": "r"}
    told: list[tuple[str, dict[str, Any]]] = [
        ("coordinator", line),
        ("coordinator", {**line, "since_last": 3}),
        ("v2", {"event": "receipt"}),
    ]
    assert signatures.refusals(told, TOPICS, {"v1"}) == ({"revoked-certificate": 4}, [])
    assert len(signatures.refusals(told, TOPICS, {"v2"})[1]) == 2
    assert len(signatures.refusals([("v1", {**line, "code": "bad-signature"})], TOPICS, {"v1"})[1]) == 1


def test_audit_finds_a_retained_state_that_its_owner_did_not_seal_again(tmp_path: Path) -> None:
    ca = FleetCa(tmp_path)
    identity = load_identity(ca.identity("agent", "v1"))
    topic = TOPICS.agent_state("v1")
    state = Envelope(fleet="chaos", body=AgentState(status="up", incarnation="i"), agent="v1").to_bytes()
    retained = {topic: Signer(identity.key, identity.certificate).seal(topic, state), TOPICS.revoked(): b"PEM"}
    authority = ca.authority
    assert signatures.stale(retained, TOPICS, (authority.ca_pem, authority.crl_pem)) == []
    authority.revoke("v1")
    assert "was revoked" in signatures.stale(retained, TOPICS, (authority.ca_pem, authority.crl_pem))[0]
