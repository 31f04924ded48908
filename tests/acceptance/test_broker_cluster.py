"""A fleet over a broker of three nodes, of which one is killed in mid-run."""

from __future__ import annotations

import secrets
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.servers.process import ChildBroker
from broker.url import parse_url
from coordinator.journal.sql import SqlJournal
from lab.fleet import Fleet
from schemas.topics import Topics
from tests.support.brokers import nats_cluster
from tests.support.cloud import SOURCES, Start, begin_run, central_digest, ended, record_of, rows, spec
from tests.support.processes import eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.needs("nats"), pytest.mark.timeout(300)]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Sequence[ChildBroker]]:
    with nats_cluster(tmp_path) as nodes:
        yield nodes


@pytest.fixture
def broker(nodes: Sequence[ChildBroker]) -> str:
    return ",".join(node.url for node in nodes)


def retained_at(node: ChildBroker, topic: str) -> bool:
    """Whether a node by itself has something retained: waits for it a moment."""
    heard: list[Message] = []
    reader = PahoTransport(Link(node.url, f"reader-{secrets.token_hex(4)}", session_expiry=0))
    reader.subscribe(topic)
    reader.start(Handlers(heard.append, lambda: None, lambda _why: None))
    try:
        eventually(lambda: heard, seconds=3.0)
    except AssertionError:
        return False
    finally:
        reader.stop()
    return heard[0].retained


@pytest.mark.parametrize("workers", ["1", "2"])
def test_run_survives_sigkill_of_the_node_that_the_coordinator_is_at(
    nodes: Sequence[ChildBroker], broker: str, workers: str, start: Start, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"broker": broker, "slow": 0.3, "resend_first": 0.5}
    state = Topics("fleet").coordinator_state()
    at = zlib.crc32(b"gf-coordinator-fleet") % len(nodes)
    with Fleet(SOURCES, state_dir=tmp_path / "agents", **settings):
        environment = {"GLASSFLEET_INTAKE_WORKERS": workers}
        cloud = start(tmp_path / "cloud", "--log-level", "info", environment=environment)
        with cloud.api() as api:
            begin_run(api, spec("r1"), 1)
            assert all(retained_at(node, state) for node in nodes)
            nodes[at].kill()
            run = ended(api, "r1")
            assert (run["outcome"], run["cohort"], run["restarts"]) == ("finished", ["va", "vb", "vc"], 0)
            # One that was never there before, in whatever node's care.
            with Fleet({"vd": rows(3)}, state_dir=tmp_path / "agents", **settings):
                more = spec("r2", rounds={"gather_agents": 4, "min_agents": 4})
                assert api.post("/api/runs", json=more).status_code == 201
                second = ended(api, "r2")
            assert second["cohort"] == ["va", "vb", "vc", "vd"]
        assert cloud.end() == 0
        (lost,) = (line for line in cloud.logged().splitlines() if "broker-lost" in line)
        assert f"broker={parse_url(nodes[at].url).public} " in f"{lost} "
    check_answers_and_model(tmp_path / "cloud")


def test_run_survives_sigkill_of_the_node_that_leads_all_sessions_while_their_clients_are_at_others(
    nodes: Sequence[ChildBroker], start: Start, tmp_path: Path
) -> None:
    first, second, third = nodes
    settings: dict[str, Any] = {"state_dir": tmp_path / "agents", "slow": 0.5, "resend_first": 0.5}
    with Fleet(SOURCES, broker=first.url, **settings):
        cloud = start(tmp_path / "cloud", "--broker", first.url)
        with cloud.api() as api:
            eventually(lambda: [each["status"] for each in api.get("/api/agents").json()] == ["up"] * 3)
        assert cloud.end() == 0
    with Fleet(SOURCES, broker=third.url, **settings):
        cloud = start(tmp_path / "cloud", "--broker", second.url)
        with cloud.api() as api:
            begin_run(api, spec("r1"), 1)
            first.kill()
            run = ended(api, "r1")
            assert (run["outcome"], run["cohort"], run["restarts"]) == ("finished", ["va", "vb", "vc"], 0)
            assert api.get("/api/metrics").json()["connected"] == 1
        assert cloud.end() == 0
    check_answers_and_model(tmp_path / "cloud")


def check_answers_and_model(folder: Path) -> None:
    """Check that each answer of a run was counted once, and that it learned the central model."""
    record = record_of(folder, "r1")
    assert record.digest == central_digest(record)
    journal = SqlJournal(f"sqlite:///{folder / 'journal.sqlite'}")
    answers = Counter(entry.body for entry in journal.records("r1") if entry.kind == "answer")
    journal.close()
    assert set(answers.values()) == {1}
