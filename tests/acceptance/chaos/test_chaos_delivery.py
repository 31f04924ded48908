"""A coordinator whose reductions take their time, over a real broker, amid a flood."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.port import Link
from broker.servers.mosquitto import MosquittoProcess
from coordinator.config import CoordinatorConfig
from coordinator.main import build
from coordinator.process.service import Service
from coordinator.specification.run import RunSpec
from glassfleet.contract import catalogue
from lab.fleet import Fleet
from schemas.envelope import Envelope
from schemas.messages import CoordinatorState
from schemas.record import ModelRecord
from schemas.topics import Topics
from tests.support.cloud import DOMAIN, SOURCES, central_digest
from tests.support.processes import eventually
from tests.support.schedules import quiet
from tests.support.transports import connected

pytestmark = [pytest.mark.needs("mosquitto"), pytest.mark.timeout(120)]
TOPICS = Topics("fleet")
TINY = Path(__file__).parents[2] / "property" / "tiny"


@pytest.fixture(autouse=True)
def _with_tiny_scheme(add_schemes: Callable[[Path], None]) -> Iterator[None]:
    add_schemes(TINY)
    with quiet():
        yield


class Cloud:
    """A coordinator in a thread: the deployed service with all its queues."""

    def __init__(self, url: str, state_dir: Path, **settings: Any) -> None:
        self.service: Service = build(CoordinatorConfig.load(broker=url, state_dir=state_dir, api=False, **settings))
        self._thread = threading.Thread(target=self.service.serve_forever, daemon=True)
        self._thread.start()
        eventually(lambda: self.service.is_connected)

    def start_run(self, run: str, **parameters: Any) -> None:
        spec = RunSpec.from_document(
            {
                "run": run,
                "scheme": "federated_median",
                "parameters": parameters,
                "domain": DOMAIN.to_document(),
                "rounds": {"gather_agents": 3, "min_agents": 3, "deadline": 60},
            }
        )
        self.service.call(lambda core: core.start_run(spec))

    def finish(self, run: str) -> dict[str, Any]:
        eventually(lambda: self.service.coordinator.runs.document(run)["state"] == "ended")
        return self.service.coordinator.runs.document(run)

    def record(self) -> ModelRecord:
        return ModelRecord.from_bytes(self.service.call(lambda core: core.journal.models("model")[-1].record))

    def stop(self) -> None:
        self.service.stop()
        self._thread.join(10)


@pytest.mark.slow
def test_reduction_of_many_seconds_blocks_neither_keepalive_nor_the_fleet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheme = catalogue.load("federated_median")
    reduce = scheme.server.reduce
    entered = threading.Event()

    def slowly(state: Any, contributions: Any) -> Any:
        entered.set()
        if threading.current_thread() is not threading.main_thread():
            time.sleep(5.0)  # the broker gives up on a client that is silent for 1.5 keepalives: 3 s here
        return reduce(state, contributions)

    monkeypatch.setattr(type(scheme.server), "reduce", lambda _self, state, parts: slowly(state, parts))
    broker = MosquittoProcess(tmp_path / "broker")
    broker.start()
    tap = connected(Link(broker.url, "tap", session_expiry=0), TOPICS.coordinator_state())
    monkeypatch.setattr("coordinator.process.service.QUEUE_MESSAGES", 100)
    cloud = Cloud(broker.url, tmp_path / "coordinator", keepalive=2)
    try:
        with Fleet(SOURCES, broker=broker.url, state_dir=tmp_path / "agents", resend_first=0.3, keepalive=2) as fleet:
            cloud.start_run("r1", rounds=2)
            assert entered.wait(30)
            # Meanwhile somebody floods: what is above the bound is dropped, and costs neither memory nor the run.
            for _ in range(400):
                tap.transport.publish(TOPICS.contribution("stranger"), b"noise")
            eventually(lambda: cloud.service.metrics()["queue.dropped"] >= 250, seconds=10)
            assert cloud.service.metrics()["queue.messages"] <= 100
            run = cloud.finish("r1")
            counts = sum((agent.counts for agent in fleet.agents.values()), Counter[str]())
        metrics = cloud.service.metrics()
        record = cloud.record()
    finally:
        cloud.stop()
        tap.transport.stop()
        broker.stop()
    assert (run["outcome"], run["cohort"], run["restarts"]) == ("finished", ["va", "vb", "vc"], 0)
    assert record.digest == central_digest(record)
    assert metrics["connected"] == 1, "the connection stood all the time"
    states = [Envelope.from_bytes(each.payload, fleet="fleet").body for each in tap.messages]
    lives = [body.status for body in states if isinstance(body, CoordinatorState)]
    lived = lives[lives.index("up") :]  # before its birth a coordinator asks, with a "down", whether another one lives
    assert lived.count("down") <= 1, "the last will was never published; the goodbye at the end is no will"
    assert counts["receipt-accepted"] + counts["receipt-duplicate"] == 6, "three agents, two rounds"
