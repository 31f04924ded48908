"""A real broker, a coordinator process that is killed midway, vehicles that report: rollouts end by themselves."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.servers.mosquitto import MosquittoProcess
from edge_agent.fleet import Fleet
from edge_agent.sources import Source
from tests.support.cloud import SOURCES, CoordinatorProcess, has_ended, rows, spec
from tests.support.processes import Processes, eventually

pytestmark = [pytest.mark.acceptance, pytest.mark.mosquitto, pytest.mark.timeout(120)]
TESTED = {name: Source(source.train, rows(10 + n).train) for n, (name, source) in enumerate(SOURCES.items())}
PLAN = {"stages": [0.34, 1.0], "deadline": 60.0, "min_reports": 1.0}
ENDED = ("promoted", "rolled-back")


def learn(api: httpx.Client, run: str, depth: int, **more: Any) -> None:
    parameters = {"nullify": False, "min_rows": 1, "max_depth": depth}
    answer = api.post("/api/runs", json=spec(run, parameters=parameters, model="m", **more))
    assert answer.status_code == 201, answer.text
    eventually(lambda: has_ended(api, run), seconds=30)
    if "rollout" not in more:
        eventually(lambda: newest(api)["phase"] in ENDED, "the gate does not end", seconds=20)


def newest(api: httpx.Client) -> dict[str, Any]:
    told: list[dict[str, Any]] = api.get("/api/rollouts/m").json()
    return told[-1]


def end_of_newest(api: httpx.Client) -> tuple[str, int, str]:
    eventually(lambda: newest(api)["phase"] in ENDED, "the rollout does not end", seconds=20)
    current = api.get("/api/models/m/history").json()["current"]
    return newest(api)["phase"], current["version"], newest(api)["reason"]


def test_rollouts_end_by_themselves_when_the_coordinator_is_killed_midway(processes: Processes, tmp_path: Path) -> None:
    broker = MosquittoProcess(tmp_path / "broker")
    broker.start()
    cloud = CoordinatorProcess(broker.url, tmp_path / "cloud", "--api-port", "0")
    try:
        with Fleet(TESTED, broker=broker.url, state_dir=tmp_path / "agents"):
            with cloud.api() as api:
                learn(api, "first", 1)
                learn(api, "good", 3, rollout=PLAN)
                api.post("/api/rollouts/m/pause", json={"reason": "the crash is to come now"})
            url = (cloud.state_dir / "api-url").read_text().strip()
            watching = processes.start("rollout", "status", "m", "--wait", "--coordinator", url)
            cloud.end(signal.SIGKILL)
            cloud = CoordinatorProcess(broker.url, tmp_path / "cloud", "--api-port", "0")
            with cloud.api() as api:
                api.post("/api/rollouts/m/resume")
                assert end_of_newest(api)[:2] == ("promoted", 2)
                assert watching.wait(30) == 0, processes.said(watching)
                assert "m v2: promoted" in processes.said(watching, "out")
                learn(api, "bad", 0, rollout=PLAN)
                phase, current, reason = end_of_newest(api)
                assert (phase, current) == ("rolled-back", 2)
                assert reason.startswith("too-bad")
    finally:
        cloud.end()
        broker.stop()
