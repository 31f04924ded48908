"""A coordinator on stand-by: what it waits for, what it says meanwhile, and who is told that it is set up otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from coordinator.config import CoordinatorConfig
from coordinator.http.waiting import waiting_app
from coordinator.journal import Entry
from coordinator.journal.port import Leader
from coordinator.journal.sql import SqlJournal
from coordinator.process import standby
from coordinator.process.standby import Standby, StoppedError, about
from coordinator.telemetry.metrics import standby_page
from schemas.envelope import Envelope
from schemas.errors import StorageError, UsageError
from schemas.messages import CoordinatorState
from tests.support.coordinator_bench import TOPICS, Fleet
from tests.support.coordinator_http import ask
from tests.support.scratch_journal import ScratchJournal

Set = Callable[..., CoordinatorConfig]


@pytest.fixture
def config(tmp_path: Path) -> Set:
    return lambda **flags: CoordinatorConfig.load(state_dir=tmp_path, **flags)


def leader(config: CoordinatorConfig, incarnation: str = "first", **other: Any) -> Leader:
    result = about(config, "glassfleet 1")
    return Leader(incarnation, {**result, "host": "cloud-1", "settings": {**result["settings"], **other}})


def waiting(config: CoordinatorConfig, *, rounds: int = 3) -> Standby:
    """Return a stand-by that is told to stop after so many looks."""
    left = iter(range(rounds))
    return Standby(config, "glassfleet 1", lambda: next(left, None) is None, lambda: None)


def test_leader_names_all_nodes_of_its_broker_and_no_password(config: Set) -> None:
    result = about(config(broker="mqtts://user:secret@one:1,mqtts://two"), "glassfleet 1")
    assert result["settings"]["broker"] == "mqtts://one:1,mqtts://two:8883"


def test_standby_waits_until_the_journal_is_free_and_is_not_in_the_way(
    config: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "LOOK", 0.0)
    first = SqlJournal(config().journal_url)
    first.lead(leader(config()))
    looks: list[str] = []

    def again(why: str) -> bool:
        looks.append(why)
        first.append([Entry("r", "answer", float(len(looks)), 1.7e9, b"x")])
        if len(looks) == 3:
            first.close()
        return one(why)

    one = waiting(config(), rounds=100)
    with capture_logs() as logs:
        second = SqlJournal(config().journal_url, again=again)
        one.leads(second.leader())
    assert (looks, second.last_time()) == (["", "", ""], 3.0)
    assert [line["event"] for line in logs] == ["standing-by", "taking-its-place"]
    assert logs[1]["host"] == "cloud-1"
    with pytest.raises(StorageError):
        first.append([Entry("r", "answer", 9.0, 1.7e9, b"x")])
    second.close()


def test_standby_that_is_told_to_stop_waits_no_longer(config: Set, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "LOOK", 0.0)
    first = SqlJournal(config().journal_url)
    with pytest.raises(StoppedError):
        SqlJournal(config().journal_url, again=waiting(config()))
    first.append([Entry("r", "answer", 1.0, 1.7e9, b"x")])
    first.close()


def test_standby_names_each_setting_that_is_otherwise_once_for_each_leader(config: Set) -> None:
    own = config(broker="mqtt://user:secret@127.0.0.1:1", retained_versions=3)
    one = waiting(own)
    with capture_logs() as logs:
        one("")
        one.leads(leader(config(broker="mqtt://127.0.0.1:2")))
        one.leads(leader(config(broker="mqtt://127.0.0.1:2")))
        one.leads(leader(own, "second", records_days=0))
    result = [(each["setting"], each["here"], each["leader"]) for each in logs if each["event"] == "set-up-otherwise"]
    assert result == [
        ("broker", "mqtt://127.0.0.1:1", "mqtt://127.0.0.1:2"),
        ("retained_versions", 3, 10),
        ("records_days", 7.0, 0.0),
    ]


def test_standby_of_another_fleet_refuses_when_it_begins_to_wait(config: Set) -> None:
    first = SqlJournal(config().journal_url)
    first.lead(leader(config(fleet="a")))
    with pytest.raises(
        UsageError, match=r"of fleet 'b', and the journal that it waits for is of fleet 'a' .*--fleet a"
    ):
        SqlJournal(config().journal_url, again=waiting(config(fleet="b")))
    first.append([Entry("r", "answer", 1.0, 1.7e9, b"x")])
    first.close()


def test_standby_says_once_that_the_journals_server_is_away_and_once_that_it_is_back(
    config: Set, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "LOOK", 0.0)
    one = waiting(config(), rounds=100)
    with capture_logs() as logs:
        for why in ("", "server closed the connection", "connection refused", "", ""):
            one(why)
    assert [line["event"] for line in logs if "journal" in line["event"]] == ["journal-away", "journal-back"]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/health", 200, '"status":"stand-by"'),
        ("/metrics", 200, "glassfleet_leading 0.0"),
        ("/api/ready", 503, "stand-by: ask the one on cloud-1 that leads"),
        ("/api/runs", 503, "nothing was done here"),
        ("/runs/r1", 503, "stand-by"),
    ],
)
def test_standby_says_that_it_lives_and_that_another_one_leads(path: str, status: int, words: str) -> None:
    app = waiting_app("fleet", "glassfleet 1", lambda: "cloud-1", standby_page(), loopback_only=True)
    for method in ("GET", "POST"):
        answer = ask(app, method, path)
        assert (answer.status_code, words in answer.text) == (status, True), answer.text
    foreign = ask(app, "GET", path, headers={"Host": "evil.example.org"})
    assert foreign.status_code == 421


def test_coordinator_that_lost_its_journal_answers_nobody_and_ends_by_that_name() -> None:
    fleet = Fleet()
    question = Envelope(fleet="f", body=CoordinatorState(status="down", incarnation="other", software="x")).to_bytes()
    fleet.publish(TOPICS.coordinator_state(), question)
    journal = fleet.core.journal
    assert isinstance(journal, ScratchJournal)
    journal.close()
    with pytest.raises(StorageError, match="is gone"):
        fleet.publish(TOPICS.coordinator_state(), question)
