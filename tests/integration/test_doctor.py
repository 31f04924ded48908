"""``glassfleet doctor`` on set-ups that are really broken: each fault is named, with a way out."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link
from broker.servers.mosquitto import MosquittoProcess, agent_rules, certificate_acl, mosquitto_acl
from console.checkup import cloud, machine
from console.main import run
from coordinator.config import CoordinatorConfig
from coordinator.engine import Engine
from coordinator.journal.port import Entry, Leader
from coordinator.journal.sql import SqlJournal
from coordinator.main import assemble
from schemas.topics import Topics
from tests.support.authorities import FleetCa
from tests.support.processes import mailbox, webhook
from tests.support.scratch_journal import ScratchJournal

pytestmark = [pytest.mark.needs("mosquitto"), pytest.mark.usefixtures("own_state")]
TOPICS = Topics("fleet")


@pytest.fixture
def doctor(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, dict[str, Any]]]:
    """Calls the doctor; returns the worst finding of each check, and checks the exit code."""

    def call(*arguments: str) -> dict[str, dict[str, Any]]:
        capsys.readouterr()
        code = run(["doctor", "--state-dir", str(tmp_path / "state"), *arguments, "--json"])
        result = capsys.readouterr()
        assert result.out, result.err
        answer = json.loads(result.out)
        assert code == (1 if any(not item["ok"] for item in answer) else 0)
        order = ["ok", "warning", "wrong"]
        return {item["check"]: item for item in sorted(answer, key=lambda item: order.index(item["level"]))}

    return call


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[MosquittoProcess]:
    broker = MosquittoProcess(tmp_path / "plain")
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> FleetCa:
    """An authority, and the identity of a broker."""
    made = FleetCa(tmp_path_factory.mktemp("fleet"))
    made.identity("broker", "broker")
    return made


@pytest.fixture
def secure(fleet: FleetCa, tmp_path: Path) -> Iterator[Callable[..., MosquittoProcess]]:
    """Starts a Mosquitto with mutual TLS and some access rules."""
    started: list[MosquittoProcess] = []

    def begin(acl: str | None = None) -> MosquittoProcess:
        broker = MosquittoProcess(
            tmp_path / f"secure-{len(started)}",
            identity=fleet.folder / "broker",
            acl=acl or certificate_acl(TOPICS, coordinators=["coordinator"]),
        )
        broker.start()
        started.append(broker)
        return broker

    yield begin
    for broker in started:
        broker.stop()


Doctor = Callable[..., dict[str, dict[str, Any]]]


# The broker


def test_doctor_finds_nothing_wrong_with_a_sound_broker(doctor: Doctor, plain: MosquittoProcess) -> None:
    result = doctor("--broker", plain.url, "--agent", "v1")
    assert [name for name, item in result.items() if item["level"] == "wrong"] == []
    assert result["broker"]["says"].endswith("answers, MQTT 5")
    assert "132.0 KiB" in result["message size"]["says"]
    assert "one user for all" in result["must not publish"]["says"]
    assert "no coordinator is up" in result["coordinator"]["says"]


# TLS and certificates


def test_doctor_finds_nothing_wrong_over_mutual_tls(
    doctor: Doctor, fleet: FleetCa, secure: Callable[..., MosquittoProcess]
) -> None:
    broker = secure()
    me = fleet.identity("agent", "v-sound", days=365)
    result = doctor("--broker", broker.url, "--identity", str(me), "--agent", "v-sound")
    assert [item for item in result.values() if item["level"] == "wrong"] == []
    assert result["certificate"]["level"] == "ok"
    assert "TLSv1.3" in result["tls"]["says"]
    assert result["may publish"]["says"] == "everything that it must"
    assert result["must not publish"]["says"] == "nothing that is others' can be written"
    assert result["must not subscribe"]["level"] == "ok"
    cloud = fleet.identity("coordinator", "coordinator", days=365)
    result = doctor("--broker", broker.url, "--identity", str(cloud), "--as-coordinator")
    assert [result[check]["level"] for check in ("may publish", "must not publish", "may subscribe")] == ["ok"] * 3


def test_doctor_names_the_intake_worker_of_which_the_broker_was_not_told(
    doctor: Doctor, fleet: FleetCa, secure: Callable[..., MosquittoProcess]
) -> None:
    broker = secure()
    cloud = fleet.identity("coordinator", "coordinator", where="told")
    fleet.identity("coordinator", "coordinator-1", where="told/intake-1")
    result = doctor("--broker", broker.url, "--identity", str(cloud), "--as-coordinator")
    assert (result["may publish"]["level"], result["intake-1 may publish"]["level"]) == ("ok", "wrong")
    assert "receipt (Not authorized)" in result["intake-1 may publish"]["says"]


def test_doctor_says_when_a_certificate_has_expired_or_soon_will(
    doctor: Doctor, fleet: FleetCa, secure: Callable[..., MosquittoProcess]
) -> None:
    broker = secure()
    old = fleet.identity("agent", "v-old", days=1, ago=2)
    result = doctor("--broker", broker.url, "--identity", str(old))
    assert "has expired" in result["certificate"]["says"]
    assert "agent renew" in result["certificate"]["fix"]
    assert result["broker"]["level"] == "wrong"
    late = fleet.identity("agent", "v-late", days=5)
    result = doctor("--broker", broker.url, "--identity", str(late))
    assert (result["certificate"]["level"], "expires in 4 days" in result["certificate"]["says"]) == ("warning", True)
    assert result["broker"]["level"] == "ok"


def test_doctor_says_when_the_brokers_certificate_soon_expires_or_is_foreign(
    doctor: Doctor, fleet: FleetCa, tmp_path: Path
) -> None:
    short = fleet.identity("broker", "broker2", days=3, hosts=("localhost",))
    broker = MosquittoProcess(
        tmp_path / "short", identity=short, acl=certificate_acl(TOPICS, coordinators=["coordinator"])
    )
    broker.start()
    try:
        me = fleet.identity("agent", "v-short")
        result = doctor("--broker", broker.url, "--identity", str(me))
        assert "the broker's certificate expires in" in result["tls"]["says"]
        other = FleetCa(tmp_path / "other")
        stranger = other.identity("agent", "v-short")
        result = doctor("--broker", broker.url, "--identity", str(stranger))
        assert "from a CA that is not ours" in result["broker"]["says"]
    finally:
        broker.stop()


def test_doctor_says_when_the_own_certificate_was_revoked_and_when_the_key_is_open(
    doctor: Doctor, fleet: FleetCa
) -> None:
    me = fleet.identity("agent", "v-gone")
    fleet.authority.revoke("v-gone")
    (me / "crl.pem").write_bytes(fleet.authority.crl_pem)
    (me / "key.pem").chmod(0o644)
    result = doctor("--identity", str(me))
    assert "was revoked" in result["revocation"]["says"]
    assert "chmod 600" in result["private key"]["fix"]


# Access rules


def test_doctor_names_what_a_vehicle_is_denied(
    doctor: Doctor, fleet: FleetCa, secure: Callable[..., MosquittoProcess]
) -> None:
    rules = [rule for rule in agent_rules(TOPICS, "v-less") if "evaluation" not in rule.pattern]
    broker = secure(mosquitto_acl({"v-less": rules}))
    me = fleet.identity("agent", "v-less")
    result = doctor("--broker", broker.url, "--identity", str(me), "--agent", "v-less")
    assert result["may publish"]["level"] == "wrong"
    assert "agent/v-less/evaluation (Not authorized)" in result["may publish"]["says"]
    assert "broker config" in result["may publish"]["fix"]


def test_doctor_names_what_a_vehicle_is_wrongly_allowed(
    doctor: Doctor, fleet: FleetCa, secure: Callable[..., MosquittoProcess]
) -> None:
    broker = secure("user v-more\ntopic readwrite gf/1/#\n")
    me = fleet.identity("agent", "v-more")
    result = doctor("--broker", broker.url, "--identity", str(me), "--agent", "v-more")
    text = result["must not publish"]["says"]
    assert result["must not publish"]["level"] == "wrong"
    for part in ("/receipt", "run/doctor-", "blob/", "model/doctor-", "/contribution"):
        assert part in text
    assert "evaluation" not in text.replace("agent/doctor-", "").split("v-more")[0].split(",")[0]
    assert result["must not subscribe"]["level"] == "wrong"


# The coordinator and its clock


@pytest.mark.parametrize(
    ("ahead", "level", "words"), [(0.0, "ok", "the same"), (10.0, "warning", "behind"), (-120.0, "wrong", "ahead of")]
)
def test_doctor_tells_how_far_the_clocks_are_apart(
    doctor: Doctor, plain: MosquittoProcess, ahead: float, level: str, words: str
) -> None:
    def wall() -> float:
        return time.time() + ahead

    fleet = f"fleet{ahead:g}"  # of its own: the former case has left a coordinator with another clock
    transport = PahoTransport(Link(plain.url, fleet))
    core = assemble(CoordinatorConfig(fleet=fleet), transport, ScratchJournal(), Engine(), wall=wall)
    transport.start(Handlers(lambda message: core.handle([message]), core.connected, lambda _why: None))
    try:
        end = time.monotonic() + 20
        while not transport.is_connected:
            assert time.monotonic() < end
            time.sleep(0.01)
        with structlog.testing.capture_logs():
            result = doctor("--broker", plain.url, "--fleet", fleet, "--agent", "v1")
    finally:
        transport.stop()
    assert "answers over the broker" in result["coordinator"]["says"]
    assert (result["clock"]["level"], words in result["clock"]["says"]) == (level, True)


# Disk, folder, journal


def test_doctor_says_that_the_disk_is_nearly_full(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "LITTLE_ROOM", 2**62)
    assert doctor()["disk"]["level"] == "warning"
    monkeypatch.setattr(machine, "LEAST_ROOM", 2**62)
    assert "another disk" in doctor()["disk"]["fix"]


def test_doctor_says_how_a_journal_grows_and_when_its_disk_is_full(
    doctor: Doctor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    journal = SqlJournal(f"sqlite:///{state / 'journal.sqlite'}")
    for night in range(4):
        wall = time.time() - (4 - night) * 86400
        journal.append([Entry(f"r{night}", "answer", night * 86400.0, wall, random.randbytes(2_000_000))])
        journal.close_run(f"r{night}", {"note": "x" * 4_000_000}, night * 86400.0)
    journal.lead(Leader("1", {"settings": {"records_days": 14.0}}))
    journal.close()
    found = doctor()["growth"]
    assert found["level"] == "ok"
    assert "grows by 6.6 MiB a day; events of ended runs stay for 14 days, which comes to 30.7 MiB" in found["says"]
    monkeypatch.setattr(cloud, "WARN_DAYS", 1e9)
    found = doctor()["growth"]
    assert (found["level"], "records_days" in found["fix"]) == ("warning", True)
    assert re.search(r"is full on \d{4,}-\d\d-\d\d$", found["says"])


def test_doctor_sends_a_message_to_each_address_and_names_the_one_that_took_none(doctor: Doctor) -> None:
    with webhook() as hook, mailbox() as mail:
        assert doctor("--notify", f"{hook.url} {mail.url}")["notify"]["level"] == "ok"
        assert [len(hook), len(mail)] == [1, 1]
        mail.is_shut = True
        found = doctor("--notify", f"{hook.url} {mail.url}")["notify"]
    assert found["level"] == "wrong"
    assert found["says"].startswith("mailto://")
