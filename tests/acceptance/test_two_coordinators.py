"""Two coordinators with different journals on one fleet: real processes, real Mosquitto."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.paho_transport import PahoTransport
from broker.port import Handlers, Link, Message
from broker.servers.launch import launch
from coordinator.messages import birth
from schemas.envelope import Envelope
from schemas.messages import CoordinatorState
from schemas.topics import Topics
from tests.support.cloud import CoordinatorProcess, Start
from tests.support.processes import eventually

pytestmark = pytest.mark.needs("mosquitto")
TOPICS = Topics("fleet")
"""Nobody asks these: one starts in half the time without its HTTP side."""
AHEAD = time.time() + 10 * 365 * 24 * 3600.0


class Watch:
    """Reads the coordinator's topic."""

    def __init__(self, url: str) -> None:
        self.states: list[CoordinatorState] = []
        self.transport = PahoTransport(Link(url, "watch", session_expiry=0))
        self.transport.subscribe(TOPICS.coordinator_state())
        self.transport.start(Handlers(self._take, lambda: None, lambda _why: None))

    def _take(self, message: Message) -> None:
        if message.payload:
            body = Envelope.from_bytes(message.payload, fleet="fleet").body
            assert isinstance(body, CoordinatorState)
            self.states.append(body)

    def up(self) -> str:
        """Incarnation that is up according to the last message; empty: none."""
        return self.states[-1].incarnation if self.states and self.states[-1].status == "up" else ""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    running = launch("mosquitto", state_dir=tmp_path_factory.mktemp("broker"))
    yield running.url
    running.stop()


@pytest.fixture
def watch(broker: str) -> Iterator[Watch]:
    watch = Watch(broker)
    yield watch
    watch.transport.publish(TOPICS.coordinator_state(), b"", retain=True)
    watch.transport.flush(10.0)
    watch.transport.stop()


def ends(process: CoordinatorProcess) -> tuple[int | None, str]:
    return process.reap(30), process.logged()


def test_second_coordinator_refuses_and_the_first_is_not_disturbed(start: Start, watch: Watch, tmp_path: Path) -> None:
    first = start(tmp_path / "one")
    eventually(watch.up)
    incarnation = watch.up()
    seen = len(watch.states)
    code, result = ends(start(tmp_path / "two"))
    assert code == 7, result
    assert "another coordinator of fleet 'fleet' is up" in result
    assert "--take-over" in result
    assert watch.up() == incarnation
    # The question and the answer to it. Had the first been thrown out, its will would be among them.
    statuses = [(each.status, each.incarnation == incarnation) for each in watch.states[seen:]]
    assert statuses == [("down", False), ("up", True)]
    assert first.end() == 0


def test_coordinator_takes_over_when_told_and_the_other_stops(start: Start, watch: Watch, tmp_path: Path) -> None:
    first = start(tmp_path / "one")
    eventually(watch.up)
    incarnation = watch.up()
    second = start(tmp_path / "two", "--take-over")
    code, result = ends(first)
    assert code == 7, result
    assert "has taken over" in result
    eventually(lambda: watch.up() not in ("", incarnation))
    taker = watch.up()
    time.sleep(1.0)
    assert watch.up() == taker, "the one that stopped left no goodbye over the other's birth"
    assert second.is_running
    assert second.end() == 0


def test_coordinator_starts_over_a_state_that_nobody_stands_behind_whatever_its_clock_said(
    start: Start, watch: Watch, tmp_path: Path
) -> None:
    dead = birth(TOPICS, "dead", "glassfleet", "up", term=AHEAD)
    watch.transport.publish(dead.topic, dead.payload, retain=True)
    assert watch.transport.flush(10.0)
    living = start(tmp_path / "one")
    eventually(lambda: watch.up() not in ("", "dead"))
    incarnation = watch.up()
    # A broker that is killed before it saved brings the dead one back, more than once.
    for _ in range(3):
        watch.transport.publish(dead.topic, dead.payload, retain=True)
        time.sleep(0.4)
    eventually(lambda: watch.up() == incarnation)
    assert living.is_running
    assert living.end() == 0


@pytest.mark.slow
def test_frozen_coordinator_stops_when_it_thaws_after_another_took_its_place(
    start: Start, watch: Watch, tmp_path: Path
) -> None:
    frozen = start(tmp_path / "one")
    eventually(watch.up)
    incarnation = watch.up()
    frozen.freeze()
    second = start(tmp_path / "two")
    eventually(lambda: watch.up() not in ("", incarnation))
    frozen.thaw()
    code, result = ends(frozen)
    assert code == 7, result
    assert "has taken over" in result
    eventually(lambda: watch.up() not in ("", incarnation))
    assert second.is_running
    assert second.end() == 0
