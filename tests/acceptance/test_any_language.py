"""Any language joins: the conformance kit passes our agent and an independent one, and finds an agent's faults."""

from __future__ import annotations

import json
import random
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.servers.process import free_port
from edge_agent.sources.table import read_source
from lab.conformance.questions import tables
from lab.processes import PROGRAM, Process
from schemas.record import ModelRecord
from tests.support.processes import ROOT, Processes, glassfleet, policy_file
from tests.support.schedules import central_digest

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(1500)]

OURS = (*PROGRAM, "agent", "--id", "{id}", "--broker", "{broker}", "--fleet", "{fleet}", "--data", "{data}",
        "--state-dir", "{state}")  # fmt: skip
MIXED = ("--labels", "--categories", "--missing")
INDEPENDENT = (sys.executable, "-m", "tests.support.independent.agent", "{broker}", "{fleet}", "{id}", "{data}")
QUICK = [part for check in ("refusals", "private-runs", "in-parts", "encoding") for part in ("--only", check)]


def checked(*arguments: str) -> dict[str, str]:
    done = glassfleet("lab", "conformance", "agent", "--id", "v1", "--json", *arguments, timeout=1400)
    assert done.returncode in (0, 8), done.stderr
    result = json.loads(done.stdout)
    assert result["ok"] == (done.returncode == 0)
    return {each["check"]: "; ".join([each["outcome"], *each["details"]]) for each in result["checks"]}


@pytest.mark.parametrize(
    "agent", [pytest.param(OURS, marks=pytest.mark.slow), INDEPENDENT], ids=["ours", "independent"]
)
def test_agents_do_what_the_protocol_says(agent: tuple[str, ...]) -> None:
    assert set(checked(*QUICK, "--", *agent).values()) == {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize("agent", [OURS, INDEPENDENT], ids=["ours", "independent"])
@pytest.mark.parametrize("mixed", [False, True], ids=["numbers", "mixed"])
def test_agents_answer_every_question_and_bear_every_fault(agent: tuple[str, ...], mixed: bool) -> None:
    agent = (*agent, *MIXED) if mixed and agent is OURS else agent
    outcomes = checked(*(["--mixed"] if mixed else []), "--", *agent)
    left_out = {"private-runs"} if mixed else set()
    assert {name for name, text in outcomes.items() if text != "ok"} == left_out, outcomes


SPOILT = """
from tests.support.independent import agent, schemes
whole = schemes.tree
def spoilt(kind, body, table, key):
    told, given = whole(kind, body, table, key)
    if kind == "bins":
        given["sums"]["scores"] = given["sums"]["scores"].copy()
        given["sums"]["scores"][0, 1, 2, 1] += 1
    return told, given
agent.tree = spoilt
agent.Agent(*sys.argv[1:4], agent.Table(sys.argv[4])).loop()
"""


@pytest.mark.slow
def test_kit_names_the_first_cell_that_differs_and_its_formula(tmp_path: Path) -> None:
    path = tmp_path / "spoilt.py"
    path.write_text(f"import sys\n\nsys.path.insert(0, {str(ROOT)!r})\n{SPOILT}")
    text = checked("--only", "exact", "--", sys.executable, str(path), *INDEPENDENT[3:])["exact"]
    assert "tree, plain, question 2 (bins): scores[0, 1, 2, 1] (leaf 0, input 1 'pressure', bin 2, sum 1) is" in text
    assert "formula: S(w), then S(w * r) of each target" in text


def mixed_fleet(processes: Processes, folder: Path, size: int, port: str) -> tuple[dict[str, Path], list[Process]]:
    """Start a broker, a coordinator and vehicles, every second of them independent; give their rows, and all of it."""
    head, *lines = tables()["rows.csv"].splitlines(keepends=True)
    files = {f"v{number}": folder / f"v{number}.csv" for number in range(size)}
    broker = processes.start("broker", "--port", port)
    processes.until(lambda: processes.note("broker-url"), broker, patience=240)
    coordinator = processes.start("coordinator", "--api-port", "0")
    processes.until(lambda: processes.note("api-url"), coordinator, patience=240)
    independent = (sys.executable, "-m", "tests.support.independent.agent", processes.note("broker-url"), "fleet")
    fleet = [broker, coordinator]
    for number, (name, path) in enumerate(files.items()):
        path.write_text(head + "".join(lines[number::size]))
        if number % 2:
            fleet.append(processes.start(name, str(path), program=independent, folder=ROOT))
        else:
            fleet.append(processes.start("agent", "--id", name, "--data", str(path)))
    return files, fleet


def begin(processes: Processes, folder: Path, agents: int, **settings: Any) -> str:
    """Begin a run of all vehicles; give its id."""
    wanted = policy_file(folder, rounds={"gather_agents": agents}, **settings)
    begun = processes.call("run", "start", *wanted, "--exact", "--deadline", "60", "--model", "m", "--json")
    assert begun.returncode == 0, begun.stderr + processes.logs()
    return str(json.loads(begun.stdout)["run"])


def check_model(address: str, version: int, files: dict[str, Path]) -> ModelRecord:
    """Check that a version is the central model of its cohort."""
    record = ModelRecord.from_bytes(httpx.get(f"{address}/api/models/m/{version}", trust_env=False).content)
    assert record.digest == central_digest(record, {name: read_source(path) for name, path in files.items()})
    return record


@pytest.mark.parametrize("scheme", ["frt", pytest.param("tree", marks=pytest.mark.slow)])
def test_fleet_of_both_learns_the_central_model(processes: Processes, tmp_path: Path, scheme: str) -> None:
    files, (_, coordinator, *vehicles) = mixed_fleet(processes, tmp_path, 4, "0")
    run, address = begin(processes, tmp_path, 4, scheme=scheme), processes.note("api-url")
    for cut in range(3):  # one is killed midway, in the cohort by then, and comes back with the same rows
        processes.until(partial(has_rounds, address, run, cut + 4), coordinator, 240)
        vehicles[1 + 2 * (cut % 2)].kill()
        vehicles[1 + 2 * (cut % 2)].start()
    processes.until(lambda: run_of(address, run)["state"] == "ended", coordinator, patience=600)
    assert run_of(address, run)["outcome"] == "finished", processes.logs()
    assert {"v0", "v2"} < set(check_model(address, 1, files).cohort)


@pytest.mark.slow
def test_fleet_of_both_learns_the_central_model_through_25_kills(processes: Processes, tmp_path: Path) -> None:
    files, fleet = mixed_fleet(processes, tmp_path, 6, str(free_port()))
    chance, kills, models = random.Random(25), 0, 0
    while kills < 25:
        processes.until(processes.is_healthy, patience=240)
        run, outcome = begin(processes, tmp_path, 6), ""
        while not outcome:
            if kills < 25:
                struck = chance.choice(fleet)
                struck.kill()
                time.sleep(chance.uniform(0, 0.5))
                struck.start()
                kills += 1
                time.sleep(chance.uniform(0.5, 3))
            processes.until(processes.is_healthy, patience=240)
            outcome = run_of(processes.note("api-url"), run)["outcome"] or ""
        assert outcome == "finished", processes.logs()
        models += 1
        check_model(processes.note("api-url"), models, files)


def has_rounds(address: str, run: str, rounds: int) -> bool:
    return len(run_of(address, run)["rounds"]) >= rounds


def run_of(address: str, run: str) -> dict[str, Any]:
    document: dict[str, Any] = httpx.get(f"{address}/api/runs/{run}", trust_env=False).json()
    return document
