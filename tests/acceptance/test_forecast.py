"""A fleet learns, a vehicle forecasts from what it measures: real processes, killed, upgraded live, tampered with."""

from __future__ import annotations

import datetime as dt
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from edge_agent.forecast.model import inputs_of, load_model, vector
from edge_agent.live.plan import LivePlan
from edge_agent.live.port import LiveSample
from edge_agent.live.rows import LiveRows
from edge_agent.sources import read_source
from glassfleet.data.timeplan import QOE
from lab.qoe.simulator import simulate_vehicle, write_samples, write_vehicle
from tests.support.processes import Processes, policy_file

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]


class Vehicle(Processes):
    """A state folder shared by broker, coordinator, agents and the forecaster of vehicle v0."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.own = folder / "agents" / "fleet" / "v0"
        self.log = self.own / "forecasts"
        self.versions = 0

    def records(self) -> list[dict[str, object]]:
        rows = [
            line for path in sorted(self.log.glob("*.jsonl")) for line in path.read_bytes().splitlines(keepends=True)
        ]
        return [json.loads(row) for row in rows if row.endswith(b"\n")]

    def learn(self, **parameters: int) -> None:
        wanted = policy_file(self.folder, parameters=parameters)
        done = self.call("run", "start", "--model", "qoe", "--min-agents", "2", *wanted, "--wait")
        assert "did not pass the gate" in done.stderr, done.stderr + self.logs()
        self.versions += 1
        assert self.call("model", "promote", f"qoe@{self.versions}").returncode == 0


@pytest.fixture
def vehicle(tmp_path: Path) -> Iterator[Vehicle]:
    with Vehicle(tmp_path) as vehicle:
        broker = vehicle.start("broker", "--port", "0", "--kind", "embedded")
        vehicle.until(lambda: (tmp_path / "broker-url").exists() or broker.has_ended)
        vehicle.start("coordinator", "--api-port", "0")
        for number in range(2):
            write_vehicle(tmp_path / f"v{number}.csv", simulate_vehicle(number, 0))
            # Nothing is scored, as on a vehicle that has no time for it: an operator makes each version current.
            agent = ("agent", "--id", f"v{number}", "--data", str(tmp_path / f"v{number}.csv"))
            vehicle.start(*agent, environment={"GLASSFLEET_AGENT_EVALUATE": "false"})
        vehicle.until((tmp_path / "api-url").exists)
        # Between the note and the first answer there is a moment.
        vehicle.until(lambda: vehicle.call("run", "list").returncode == 0)
        yield vehicle


@pytest.mark.slow
def test_vehicle_forecasts_with_what_the_fleet_learned_and_its_log_outlives_kills_and_shows_tampering(  # noqa: PLR0915
    vehicle: Vehicle, tmp_path: Path
) -> None:
    vehicle.learn(max_rules=3)
    vehicle.until((vehicle.own / "models" / "qoe.json").exists)
    simulated = simulate_vehicle(0, 0)
    drive = min(simulated.test_runs)
    write_samples(tmp_path / "drive.csv", simulated, drive)

    # It forecasts from a replayed drive until it is killed outright.
    run = ("forecast", "run", "--id", "v0", "--plan", "qoe", "--alert", "0.5")
    vehicle.start("broker", "tap", "--for", "60", "--json")
    first = vehicle.start(*run, "--source", str(tmp_path / "drive.csv"), "--speed", "20", "--report", "all")
    vehicle.until(lambda: len(vehicle.records()) >= 20)
    first.kill()
    killed = vehicle.records()

    # A model to compare with comes to every vehicle, too: nobody forecasts with it unless told to by its name.
    address = (tmp_path / "api-url").read_text().strip()
    key = {"Authorization": f"Bearer {(tmp_path / 'api-token').read_text().strip()}"}
    with httpx.Client(base_url=address, headers=key, trust_env=False) as api:
        document = api.get("/api/models/qoe/1").json()["document"]
        assert api.post("/api/models/qoe/central", json={"document": document}).status_code == 201
    vehicle.until((vehicle.own / "models" / "qoe.central.json").exists)

    # Started again, it goes on with the chain, and takes over a new model between two forecasts.
    read, write = os.pipe()
    second = vehicle.start(*run, "--source", "-", stdin=read)
    lines = (tmp_path / "drive.csv").read_text().splitlines()
    names = lines[0].split(",")

    def feed(cells: str) -> None:
        row = dict(zip(names, map(float, cells.split(",")), strict=True))
        os.write(write, json.dumps(row).encode() + b"\n")

    for cells in lines[1:12]:
        feed(cells)
    vehicle.until(lambda: len(vehicle.records()) > len(killed))
    before = (vehicle.own / "models" / "qoe.json").read_bytes()
    vehicle.learn(max_rules=2, max_regressors=4)
    vehicle.until(lambda: (vehicle.own / "models" / "qoe.json").read_bytes() != before)
    time.sleep(1.0)  # the next forecast is due only then
    os.write(write, b"not a sample\n")
    feed(lines[12])
    vehicle.until(lambda: vehicle.records()[-1]["model"]["version"] == 2)  # type: ignore[index]
    assert second.end(20) == 0, vehicle.logs()
    os.close(read)
    os.close(write)

    result = vehicle.records()
    assert result[: len(killed)] == killed
    assert [record["n"] for record in result] == list(range(1, len(result) + 1))
    verified = vehicle.call("forecast", "verify", "--json")
    assert verified.returncode == 0, verified.stderr
    whole = json.loads(verified.stdout)
    assert (whole["first"], whole["last"], len(whole["models"]), whole["keyed"]) == (1, len(result), 2, True)
    assert "forecast-alert" in vehicle.logs()

    # What was served is what would have been learned from: the row of the file gives the same inputs and forecast.
    served = load_model((vehicle.log / "models" / f"{whole['models'][0]}.json").read_bytes())
    rows_of = LiveRows(LivePlan.read(QOE))
    replayed = []
    for cells in lines[1:]:
        for row in rows_of.push(LiveSample(dict(zip(names, map(float, cells.split(",")), strict=True)))):
            replayed += [inputs_of(row, served.model.domain)]
    assert [record["inputs"] for record in killed] == replayed[: len(killed)]
    assert [record["prediction"] for record in killed] == [
        served.model.predict(vector(inputs)[None, :])[0] for inputs in replayed[: len(killed)]
    ]
    rows = read_source(tmp_path / "v0.csv").test.select(served.model.domain.names)
    drawn = [vector(inputs) for inputs in replayed]
    assert min(abs(rows.X - drawn[5]).max(axis=1)) < 1e-3, "the file's rows have six digits"

    # It was published, with its explanation and its place in the chain.
    answer = [json.loads(line) for line in (tmp_path / "broker-4.out").read_text().splitlines() if '"record"' in line]
    named = {message["body"]["record"][:12] for message in answer}
    assert len(named & {str(record["hash"])[:12] for record in killed}) >= 10
    assert all(message["topic"] == "agent/v0/forecast" and message["body"]["shares"] for message in answer)

    # The auditor asks why.
    asked = killed[7]
    moment = dt.datetime.fromtimestamp(float(str(asked["time"])), dt.UTC).isoformat()
    why = vehicle.call("forecast", "explain", "--at", moment, "--id", "v0")
    assert why.returncode == 0, why.stderr
    assert "chain whole" in why.stdout
    assert "because of rule" in why.stdout
    assert "they add up to the forecast" in why.stdout
    again = json.loads(vehicle.call("forecast", "explain", "--at", moment, "--json").stdout)
    assert again["record"]["n"] == asked["n"]
    assert again["explanation"]["prediction"] == asked["prediction"]
    assert sum(again["explanation"]["shares"].values()) + again["explanation"]["base"] == pytest.approx(
        again["explanation"]["prediction"], abs=1e-9
    )
    missing = vehicle.call("forecast", "explain", "--at", "2001-01-01T00:00:00", "--id", "v0")
    assert missing.returncode == 9, missing.stderr

    # Tampering is found, also by those who ask.
    segment = min(vehicle.log.glob("*.jsonl"))
    honest = segment.read_bytes()
    segment.write_bytes(honest.replace(b'"alert":true', b'"alert":false', 1))
    for command in (("forecast", "verify"), ("forecast", "explain", "--at", "last")):
        caught = vehicle.call(*command, "--id", "v0")
        assert caught.returncode == 8, caught.stderr
        assert "was changed after it was written" in caught.stderr
    segment.write_bytes(honest)
    model = vehicle.log / "models" / f"{whole['models'][0]}.json"
    model.unlink()
    gone = vehicle.call("forecast", "verify", "--id", "v0")
    assert gone.returncode == 8
    assert "missing" in gone.stderr
