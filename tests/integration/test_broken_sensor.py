"""A vehicle of a real fleet measures in another unit, one has far more rows: the others learn, and people are told."""

from __future__ import annotations

import csv
import gzip
import re
from html import unescape
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from broker.servers.launch import launch
from console.main import cli
from edge_agent.sources import read_source
from glassfleet import simulation
from glassfleet.contract import catalogue
from glassfleet.data.dataset import pool
from glassfleet.data.domain import Domain
from lab.demo.vehicles import simulated_files
from lab.fleet import Fleet
from schemas.codec import document_digest
from tests.support.cloud import CoordinatorProcess, ended, record_of
from tests.support.processes import eventually, policy_file

WRONG, MANY, OUT = "vehicle-03", "vehicle-04", "vehicle-05"
SCORES = "/api/models/model/1/scores"


def _damage(path: Path, *, times: int = 1, inputs: float = 1.0, target: float = 1.0) -> None:
    with gzip.open(path, "rt", newline="") as file:
        head, *rows = ([row[0], *row[10:]] for row in csv.reader(file))
    factors = [*(inputs for _ in rows[0][1:-1]), target]
    few = rows[::12]  # more would tell the same, as would more columns
    changed = [[row[0], *(repr(float(cell) * by) for cell, by in zip(row[1:], factors, strict=True))] for row in few]
    with gzip.open(path, "wt", newline="") as file:
        csv.writer(file).writerows([head, *changed * times])


def test_fleet_learns_and_names_who_stands_out_where_people_look(tmp_path: Path) -> None:
    files = simulated_files(tmp_path / "data", 6, 7)
    damaged: dict[str, dict[str, Any]] = {WRONG: {"inputs": 1e6}, MANY: {"times": 8}, OUT: {"target": 10.0}}
    for name, file in files.items():  # OUT is left out of the run, and scores its model all the same
        _damage(file, **damaged.get(name, {}))
    sources = {name: read_source(path) for name, path in files.items()}
    broker = launch(state_dir=tmp_path / "broker")
    coordinator = CoordinatorProcess(broker.url, tmp_path / "coordinator")
    try:
        with Fleet(sources, broker=broker.url, state_dir=tmp_path / "agents"), coordinator.api() as api:
            exact = catalogue.load("tree").exact(catalogue.load("tree").Parameters(max_rules=3))
            eventually(lambda: len(api.get("/api/agents").json()) == len(files))
            spec = {"run": "r1", "scheme": "tree", "parameters": exact.model_dump(mode="json"), "without": [OUT]}
            spec["rounds"] = {"gather_agents": 5, "deadline": 30}
            assert api.post("/api/runs", json=spec).status_code == 201
            ended(api, "r1")
            eventually(lambda: len(api.get(SCORES).json()["vehicles"]) == len(files), seconds=60)
            run, notes = api.get("/api/runs/r1").json(), api.get(SCORES).json()["notes"]
            assert run["outcome"] == "finished", run["reason"]
            html = [api.get(address).text for address in ("/runs/r1", "/models/model", "/")]
            pages = [unescape(re.sub(r"</?a\b[^>]*>", "", text)) for text in html]  # vehicles' names are links
            where = ["--coordinator", str(api.base_url)]
            asked = ("run show r1", "fleet", "model report r1 -o -", "model history model")
            seen = [CliRunner().invoke(cli, [*words.split(), *where]).output.replace("\\", "") for words in asked]
            wanted = policy_file(coordinator.state_dir, parameters={"max_rules": 2}, max_rows_each=100)
            without = ["--without", WRONG, "--without", OUT, "--state-dir", str(coordinator.state_dir)]
            again = CliRunner().invoke(
                cli, ["run", "start", "--run", "r2", "--model", "other", "--wait", *wanted, *without, *where]
            )
            assert again.exit_code == 0, again.output
            second = api.get("/api/runs/r2").json()
    finally:
        coordinator.end()
        broker.stop()
    wrong, many, *far = run["notes"]
    odd = far[0]
    assert notes == far
    assert odd.startswith(f"{OUT}: its RMSE is ")
    assert all(odd.partition(": ")[2] in unescape(text) for text in (*pages, *seen))
    assert wrong.startswith(f"{WRONG}: 100% of its rows lie outside the limits of 'cqi_mean'")
    assert many == f"{MANY}: at most {run['max_rows_each']} of its {sources[MANY].train.rows} rows count"
    for text in (pages[0], pages[2], seen[0], seen[1], coordinator.logged()):
        assert wrong.split(": ")[1][:40] in text
        assert many.split(": ")[1] in text
    assert max(variable["high"] for variable in run["domain"]["features"]) < 1e4
    assert OUT not in run["agents"] or run["agents"][OUT]["status"] == "idle"
    assert second["cohort"] == [name for name in files if name not in (WRONG, OUT)]
    assert set(second["rows"].values()) == {100}

    record = record_of(tmp_path / "coordinator", "r1")
    assert (record.parameters["without"], record.parameters["max_rows_each"]) == ([OUT], run["max_rows_each"])
    domain = Domain.from_document(record.document["domain"])
    rows = [simulation.counted_rows(sources[name].train, domain, run["max_rows_each"]) for name in record.cohort]
    central = simulation.central(catalogue.load("tree"), exact, domain, pool(rows)).model.to_document()
    assert document_digest(central) == record.digest
