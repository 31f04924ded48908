"""``glassfleet forecast run``: a line for each forecast, and who has none."""

from __future__ import annotations

import json
import shutil

import pytest

from edge_agent.forecast.log import ForecastLog
from tests.support.agent_bench import rows, write_rows
from tests.support.coordinator_http import record_of, small_document
from tests.support.processes import Call, Processes


@pytest.fixture
def vehicle(processes: Processes) -> tuple[str, ...]:
    """A forecast of two rows, the model not there yet."""
    (processes.folder / "rows.csv").write_text("a,b\n0.1,0.2\n0.9,0.8\n")
    source = str(processes.folder / "rows.csv")
    return ("forecast", "run", "--id", "v", "--source", source, "--speed", "0", "--alert", "1000")


def test_forecast_run_prints_a_line_for_each_forecast(
    processes: Processes, vehicle: tuple[str, ...], call: Call
) -> None:
    models = processes.folder / "agents" / "fleet" / "v" / "models"
    models.mkdir(parents=True)
    (models / "m.json").write_bytes(record_of(small_document()).to_bytes())
    done = call(*vehicle)
    assert done.returncode == 0, done.stderr
    assert "no-such-agent" not in done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        time_, _value, rule = line.split("  ")[:3]
        assert time_.endswith("+00:00")
        assert rule.startswith("rule ")
        assert line.endswith("  ALERT")


def test_forecast_verify_says_which_records_are_proved_by_whom(
    processes: Processes, vehicle: tuple[str, ...], call: Call
) -> None:
    models = processes.folder / "agents" / "fleet" / "v" / "models"
    models.mkdir(parents=True)
    (models / "m.json").write_bytes(record_of(small_document()).to_bytes())
    assert call(*vehicle).returncode == 0
    whole = json.loads(call("forecast", "verify", "--json").stdout)
    assert (whole["last"], whole["keyed"], whole["witnessed"]) == (2, True, None)
    log = models.parent / "forecasts"
    first = json.loads((log / "00000001.jsonl").read_bytes().splitlines()[0])
    saw = processes.folder / "saw.json"

    def verify(*heads: tuple[int, str]) -> tuple[int, list[str]]:
        saw.write_text(json.dumps([{"n": n, "hash": digest, "at": 0.0} for n, digest in heads]))
        asked = ("--witness", str(saw)) if heads else ()
        done = call("forecast", "verify", *asked)
        return done.returncode, [line.strip() for line in (done.stdout + done.stderr).splitlines()]

    code, lines = verify()
    assert code == 0
    assert lines[1] == "records 1 to 2: written with the vehicle's secret, but seen by no witness"
    assert lines[2].startswith("an old copy put back in place of the log looks like this, too")
    code, lines = verify((1, first["hash"]))
    seen = "records 1 to 1: vouched for by the head that the witness saw at 1970-01-01T00:00:00.000+00:00"
    assert (code, lines[1:]) == (0, [seen, "records 2 to 2: written with the vehicle's secret, but seen by no witness"])
    code, lines = verify((3, "0" * 64))
    assert (code, "the log ends with record 2: an old copy was put back" in lines[-1]) == (8, True)
    (log / "secret").unlink()
    code, lines = verify((1, first["hash"]))
    assert code == 0
    assert "whole in itself" in lines[0]
    assert lines[1:] == [seen, "records 2 to 2: the vehicle's secret is not here, so nothing is proved"]
    assert call("forecast", "verify", "--witness", "http://127.0.0.1:9", "--log", str(log)).returncode == 2
    saw.write_text('[{"n": 1e400, "hash": "", "at": 1e300}]')
    assert call("forecast", "verify", "--witness", str(saw), "--log", str(log)).returncode == 2
    saw.write_text("[]")
    assert call("forecast", "verify", "--witness", str(saw)).returncode == 9


def test_coordinator_is_witness_of_a_log_that_is_put_back_to_an_old_copy(processes: Processes, call: Call) -> None:
    folder = processes.folder
    write_rows(folder / "rows.csv", rows())
    forecasts = folder / "agents" / "fleet" / "v" / "forecasts"

    def write(count: int) -> None:
        log = ForecastLog(forecasts)
        for _ in range(count):
            log.append({"kind": "note", "time": 1.0, "text": "x"})
        log.close()

    write(5)
    shutil.copytree(forecasts, folder / "old")
    write(5)
    broker = processes.start("broker", "--port", "0", "--kind", "embedded")
    processes.until(lambda: (folder / "broker-url").exists() or broker.has_ended)
    processes.start("coordinator", "--api-port", "0")
    processes.start(
        "agent", "--id", "v", "--data", str(folder / "rows.csv"), environment={"GLASSFLEET_AGENT_EVALUATE": "false"}
    )
    processes.until((folder / "api-url").exists)
    verify = ("forecast", "verify", "--id", "v", "--witness", (folder / "api-url").read_text().strip())
    processes.until(lambda: call(*verify).returncode == 0)
    write(1)
    text = call(*verify).stdout
    assert "records 1 to 10: vouched for by the head that the witness saw at 20" in text
    assert "records 11 to 11: written with the vehicle's secret, but seen by no witness" in text
    shutil.rmtree(forecasts)
    shutil.copytree(folder / "old", forecasts)
    found = call(*verify)
    assert (found.returncode, "has seen record 10 at 20" in found.stderr) == (8, True)


def test_forecast_run_names_the_agents_that_are_there_when_its_own_never_was(
    processes: Processes, vehicle: tuple[str, ...], call: Call
) -> None:
    fleet = processes.folder / "agents" / "fleet"
    for folder in ("v7/models", "v8/models", "v9/forecasts"):
        (fleet / folder).mkdir(parents=True, exist_ok=True)
    for _again in range(2):  # its own log in that agent's folder makes it none that was here
        done = call(*("vehicle-99" if word == "v" else word for word in vehicle))
        assert (done.returncode, done.stdout) == (9, "")
        assert "no agent 'vehicle-99' of fleet 'fleet' was ever in" in done.stderr
        assert "there are: v7, v8. Waiting" in done.stderr
        assert "the source ended, and not one forecast was made" in done.stderr.splitlines()[-1]
