"""What a flood of birth certificates makes a real coordinator hold, in resident memory and not in letters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link
from broker.servers.launch import launch
from schemas.envelope import Envelope
from schemas.limits import MAX_FEATURES
from schemas.messages import AgentState
from schemas.topics import Topics
from tests.support.cloud import CoordinatorProcess
from tests.support.processes import eventually

TOPICS = Topics("fleet")
FLOOD = 200
BOUND = 16
"""MiB that are set; what Python and the messages on their way need comes to it."""
SLACK = 48


def resident(pid: int) -> float:
    return float(psutil.Process(pid).memory_info().rss / 2**20)


def names(number: int) -> list[str]:
    """As many columns as there may be, of one wide letter each, in an order of their own."""
    return [chr(0x4E00 + (number + index) % 20_000) for index in range(MAX_FEATURES)]


@pytest.fixture
def sender(broker_url: str) -> Iterator[PahoTransport]:
    transport = PahoTransport(Link(broker_url, "flood"))
    transport.start(Handlers(lambda message: None, lambda: None, lambda why: None))
    yield transport
    transport.stop()


@pytest.fixture
def broker_url(tmp_path: Path) -> Iterator[str]:
    broker = launch(state_dir=tmp_path / "broker")
    yield broker.url
    broker.stop()


@pytest.mark.slow
def test_coordinator_holds_no_more_memory_than_it_was_given_when_births_with_many_columns_flood_it(
    tmp_path: Path, broker_url: str, sender: PahoTransport
) -> None:
    hasty = "from coordinator.fleet import directory; directory.BIRTHS_BURST = 2; from console.main import main; main()"
    bound = ("--fleet-bytes", str(BOUND * 2**20))
    coordinator = CoordinatorProcess(broker_url, tmp_path / "coordinator", *bound, program=("-c", hasty))

    def say(agent: str, columns: list[str], incarnation: str) -> None:
        body = AgentState(status="up", incarnation=incarnation, schemes=["frt"], features=columns, target="y")
        sender.publish(TOPICS.agent_state(agent), Envelope(fleet="fleet", agent=agent, body=body).to_bytes())

    try:
        with coordinator.api() as api:

            def taken() -> int:
                return int(api.get("/api/metrics").json().get("messages", 0))

            def offer(columns: list[str]) -> bool:
                return [each["features"] for each in api.get("/api/agents").json()] == [columns] * FLOOD

            eventually(lambda: api.get("/api/health").json()["connected"], seconds=20)
            for columns in (["x"], ["x", "z"]):
                for number in range(FLOOD):
                    say(f"known-{number}", columns, "1")
                eventually(partial(offer, columns))
            before, count = resident(coordinator.process.pid), taken()
            # Those that are known change what they offer too often, and are held back; others are new.
            for number in range(FLOOD):
                say(f"known-{number}", names(number), "2")
                say(f"new-{number}", names(FLOOD + number), "1")
            eventually(lambda: taken() >= count + 2 * FLOOD, seconds=20)
            after, metrics = resident(coordinator.process.pid), api.get("/api/metrics").json()
            known = {each["agent"] for each in api.get("/api/agents").json()}
    finally:
        coordinator.end()
        coordinator.process.kill()
    assert after - before < BOUND + SLACK
    assert metrics["births.refused"] > FLOOD
    assert {f"known-{number}" for number in range(FLOOD)} <= known, "nobody who was there is lost by it"
