"""What a real fleet tells of itself when a vehicle is killed: metrics, one line per round, one trace for everybody."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.servers.mosquitto import MosquittoProcess
from schemas.trace import trace_ids
from tests.support.processes import Processes

pytestmark = [pytest.mark.mosquitto, pytest.mark.acceptance, pytest.mark.slow]


def lines(log: Path) -> list[dict[str, Any]]:
    text = log.read_text() if log.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def spans(text: str) -> list[dict[str, Any]]:
    """Return what the console exporter wrote: documents one after the other."""
    decoder, at, found = json.JSONDecoder(), 0, []
    while (begin := text.find("{", at)) >= 0:
        span, at = decoder.raw_decode(text, begin)
        found.append(span)
    return found


def scraped(url: str) -> dict[tuple[str, str], float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    return {
        (sample.name, ",".join(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


NAMES = ("v1", "v2", "v3")
LOGS = {"cloud": "coordinator-0.log"} | {name: f"agent-{number}.log" for number, name in enumerate(NAMES, 1)}


def told_by_a_fleet(folder: Path) -> tuple[list[dict[str, Any]], dict[tuple[str, str], float], str]:
    """Let three vehicles learn, the third of them stopped; the coordinator's log, a scrape, and its spans."""
    rng = np.random.default_rng(0)
    for name in NAMES:
        X = rng.random((80, 3))
        rows = np.column_stack([X, X[:, 0] + X[:, 1] * X[:, 2]])
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header="a,b,c,y", comments="", fmt="%.5f")
    fleet, broker = Processes(folder), MosquittoProcess(folder / "broker")
    broker.start()
    fleet.environment |= {"GLASSFLEET_BROKER": broker.url, "GLASSFLEET_LOG_FORMAT": "json"}
    try:
        cloud = fleet.start("coordinator", "--traces", "console", "--api-port", "0")
        agents = [fleet.start("agent", "--id", name, "--data", str(folder / f"{name}.csv")) for name in NAMES]
        fleet.wait_for("api-url", cloud)
        fleet.until(lambda: all(lines(folder / log) for log in LOGS.values()), cloud)
        os.kill(agents[2].pid, signal.SIGSTOP)  # it has said that it is up, and will answer nothing
        fleet.call(
            *("run", "start", "--run", "r1", "--scheme", "frt", "--param", "max_depth=2"),
            *("--min-agents", "2", "--deadline", "2", "--gather-agents", "3"),
        )
        # The gate's lines may follow: it waits for the score of the vehicle that is stopped.
        fleet.until(lambda: "run-ended" in {each["event"] for each in lines(folder / LOGS["cloud"])}, cloud)
        metrics = scraped(fleet.note("api-url"))
        os.kill(agents[2].pid, signal.SIGKILL)
        cloud.terminate()
        cloud.wait(30)
        return lines(folder / LOGS["cloud"]), metrics, fleet.said(cloud, "out")
    finally:
        fleet.end()
        broker.stop()


def test_fleet_tells_its_rounds_once_and_in_one_trace_when_a_vehicle_is_killed(tmp_path: Path) -> None:
    trace, root = trace_ids("fleet", "r1")
    cloud_lines, metrics, told = told_by_a_fleet(tmp_path)
    closed = [line for line in cloud_lines if line["event"] == "round-closed"]
    opened = [line for line in cloud_lines if line["event"] == "round-opened"]
    assert [line["outcome"] for line in cloud_lines if line["event"] == "run-ended"] == ["finished"]
    assert Counter((line["phase"], line["round"]) for line in closed) == Counter(
        (line["phase"], line["round"]) for line in opened
    ), "one line for each round"
    assert max(Counter((line["phase"], line["round"]) for line in closed).values()) == 1
    assert any(line["dropped"].get("v3") for line in closed)
    for name in ("cloud", *NAMES):
        of_run = [line for line in lines(tmp_path / LOGS[name]) if "run" in line]
        assert {(line["run"], line["trace_id"], line["fleet"]) for line in of_run} <= {("r1", trace, "fleet")}
        assert all(isinstance(line["round"], int) for line in of_run)
        assert all(name == "cloud" or line["agent"] == name for line in of_run)
    assert {line["trace_id"] for line in lines(tmp_path / LOGS["v1"]) if "run" in line} == {trace}
    made = spans(told)
    assert {span["context"]["trace_id"] for span in made} == {f"0x{trace}"}
    assert Counter(span["parent_id"] for span in made) == {None: 1, f"0x{root}": len(closed)}

    ends = Counter((line["phase"], line["end"]) for line in closed)
    assert ends["domain", "partial"] + ends["statistics", "partial"] >= 1
    for (phase, end), count in ends.items():
        assert metrics["glassfleet_rounds_total", f"{end},{phase}"] == count
    accepted = sum(line["accepted"] for line in closed)
    assert metrics["glassfleet_answers_total", "accepted"] == accepted
    assert metrics["glassfleet_round_seconds_count", "statistics"] == sum(
        line["phase"] == "statistics" for line in closed
    )
    assert metrics["glassfleet_received_bytes_total", ""] >= sum(line["bytes"] for line in closed) > 0
    assert metrics["glassfleet_runs_ended_total", "finished"] == 1
    assert metrics["glassfleet_models_published_total", ""] == 1
    assert metrics["glassfleet_journal_bytes", ""] > 0
    assert metrics["glassfleet_journal_append_seconds_count", ""] > 0
    assert ("glassfleet_nullified_cells_total", "") in metrics
    assert all(re.fullmatch(r"[a-z][a-z_]*", name) for name, _ in metrics)
