"""Commands as processes, as in a deployment: started, killed and refused as users do it; and rollouts that end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.servers.mosquitto import MosquittoProcess
from edge_agent.sources import Source
from lab.fleet import Fleet
from lab.processes import Process
from lab.qoe.simulator import simulate_vehicle, write_vehicle
from tests.support.cloud import SOURCES, CoordinatorProcess, begin_run, ended, rows, spec
from tests.support.processes import Call, Processes, eventually, policy_file

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]


@pytest.fixture
def vehicles(tmp_path: Path) -> list[Path]:
    """Files of three vehicles, every eighth row of each."""
    files = [tmp_path / f"vehicle-{number}.csv" for number in range(3)]
    for number, path in enumerate(files):
        write_vehicle(path, simulate_vehicle(number, 0))
        head, *rows = path.read_text().splitlines(keepends=True)
        path.write_text("".join([head, *rows[::8]]))
    return files


def start_cloud(processes: Processes) -> Process:
    broker = processes.start("broker", "--port", "0", "--kind", "embedded")
    processes.until(lambda: processes.note("broker-url").startswith("mqtt://"), broker)
    coordinator = processes.start("coordinator", "--api-port", "0")
    processes.until(lambda: processes.note("api-url"), coordinator)
    return coordinator


@pytest.mark.slow
def test_run_finishes_and_its_model_is_used_when_the_coordinator_is_killed_midway(
    processes: Processes, vehicles: list[Path], call: Call
) -> None:
    coordinator = start_cloud(processes)
    for number, path in enumerate(vehicles):
        processes.start(
            "agent",
            "--id",
            f"vehicle-{number}",
            "--data",
            str(path),
            "--slow",
            "0.3",
            environment={"GLASSFLEET_AGENT_RESEND_FIRST": "0.5"},
        )
    started = call(
        *("run", "start", "--exact", "--deadline", "20", "--model", "qoe", "--run", "first", "--json"),
        *policy_file(processes.folder, parameters={"max_rules": 6}, rounds={"gather_agents": 3}),
    )
    assert started.returncode == 0, started.stderr + processes.logs()
    assert json.loads(started.stdout) == {"run": "first"}

    address = f"{processes.note('api-url')}/api/runs/first"
    processes.until(lambda: len(httpx.get(address, trust_env=False, verify=False).json()["rounds"]) >= 3, coordinator)
    coordinator.kill()
    (processes.folder / "api-url").unlink(missing_ok=True)
    again = processes.start("coordinator", "--api-port", "0")
    processes.until(lambda: processes.note("api-url"), again)
    shown = call("run", "show", "first", "--wait", "--json")
    assert shown.returncode == 0, shown.stderr + processes.logs()
    status = json.loads(shown.stdout)
    assert status["outcome"] == "finished"
    assert status["cohort"] == ["vehicle-0", "vehicle-1", "vehicle-2"]

    listed = call("model", "list", "--json")
    assert [(item["name"], item["version"], item["digest"]) for item in json.loads(listed.stdout)] == [
        ("qoe", 1, status["model"]["digest"])
    ]
    predicted = call("model", "predict", "qoe", "--data", str(vehicles[0]), "--json")
    assert len(json.loads(predicted.stdout)["predictions"]) > 300
    missing = call("model", "show", "nosuch")
    assert missing.returncode == 9
    assert "published: qoe" in missing.stderr or "no model 'nosuch'" in missing.stderr

    tapped = call("broker", "tap", "--for", "1.5", "--json")
    kinds = {json.loads(line)["kind"] for line in tapped.stdout.splitlines()}
    assert {"coordinator-state", "agent-state", "model-pointer"} <= kinds
    runs = json.loads(call("run", "list", "--json").stdout)
    assert [(item["run"], item["outcome"]) for item in runs] == [("first", "finished")]


def test_fleet_names_the_vehicle_whose_data_cannot_be_used(processes: Processes, tmp_path: Path, call: Call) -> None:
    (tmp_path / "car.csv").write_text("a,y\n1,2\n3,red\n")
    coordinator = start_cloud(processes)
    done = processes.call("agent", "--id", "car", "--target", "y", "--data", str(tmp_path / "car.csv"))
    assert done.returncode == 3, done.stderr
    cause = "cannot use its data: a plan has to say how 'y' is read"  # and no cell
    processes.until(lambda: cause in call("fleet").stdout, coordinator)


TESTED = {name: Source(source.train, rows(10 + n).train) for n, (name, source) in enumerate(SOURCES.items())}
PLAN = {"stages": [0.34, 1.0], "deadline": 60.0, "min_reports": 1.0}
ENDED = ("promoted", "rolled-back")


def learn(api: httpx.Client, run: str, depth: int, **more: Any) -> None:
    parameters = {"nullify": False, "min_rows": 1, "max_depth": depth}
    begin_run(api, spec(run, parameters=parameters, model="m", **more))
    ended(api, run)
    if "rollout" not in more:
        eventually(lambda: newest(api)["phase"] in ENDED, "the gate does not end", seconds=20)


def newest(api: httpx.Client) -> dict[str, Any]:
    result: list[dict[str, Any]] = api.get("/api/rollouts/m").json()
    return result[-1]


def end_of_newest(api: httpx.Client) -> tuple[str, int, str]:
    eventually(lambda: newest(api)["phase"] in ENDED, "the rollout does not end", seconds=20)
    current = api.get("/api/models/m/history").json()["current"]
    return newest(api)["phase"], current["version"], newest(api)["reason"]


@pytest.mark.slow
@pytest.mark.needs("mosquitto")
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
            watching = processes.start("model", "rollout", "status", "m", "--wait", "--coordinator", url)
            cloud.kill()
            cloud = CoordinatorProcess(broker.url, tmp_path / "cloud", "--api-port", "0")
            with cloud.api() as api:
                api.post("/api/rollouts/m/resume")
                assert end_of_newest(api)[:2] == ("promoted", 2)
                assert watching.reap(30) == 0, watching.logged()
                assert "m v2: promoted" in watching.printed()
                learn(api, "bad", 0, rollout=PLAN)
                phase, current, reason = end_of_newest(api)
                assert (phase, current) == ("rolled-back", 2)
                assert reason.startswith("too-bad")
    finally:
        cloud.end()
        broker.stop()
