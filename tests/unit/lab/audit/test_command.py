"""``glassfleet lab audit leakage`` on the journal of a real run in this process, and on simulated fleets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from console.main import run
from coordinator.engine import Engine
from coordinator.engine.events import from_value
from coordinator.journal.sql import SqlJournal
from coordinator.runs.transaction import entry_of
from coordinator.specification.run import RoundPolicy, RunSpec
from edge_agent.sources import read_source
from schemas import codec
from schemas.leakage import place_of
from schemas.topics import DEFAULT_FLEET
from tests.support.agent_bench import write_rows
from tests.support.privacy.private_bench import PrivateStage, rows_of
from tests.support.simulation import Simulation

AGENTS = ("v1", "v2", "v3")


def write(folder: Path, seed: int = 0, rows: int = 50) -> Path:
    folder.mkdir()
    for number, agent in enumerate(AGENTS):
        values = np.random.default_rng(seed + number).random((rows, 3)).round(4)
        lines = [
            f"{a},{b},{c},{a + b:.4f},{'test' if not line % 5 else 'train'}" for line, (a, b, c) in enumerate(values)
        ]
        (folder / f"{agent}.csv").write_text("\n".join(["a,b,c,y,split", *lines]) + "\n")
    return folder


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder whose journal holds a default run and an exact one, and the rows beside it."""
    folder = tmp_path_factory.mktemp("audit")
    data = write(folder / "data")
    fleet = Simulation({agent: read_source(data / f"{agent}.csv", target="y") for agent in AGENTS}, folder / "agents")
    fleet.heal_everything()
    policy = RoundPolicy(min_agents=3, deadline=5, gather_agents=3)
    small = {"max_rules": 8}
    for name, more in (("hidden", {}), ("open", {"min_rows": 1})):
        spec = RunSpec(run=name, scheme="tree", parameters={**small, **more}, rounds=policy, model="m")
        assert fleet.run_until_ended(fleet.start_run(spec), within=600)["outcome"] == "finished"
    journal = SqlJournal(f"sqlite:///{folder / 'journal.sqlite'}")
    for name in ("hidden", "open"):
        journal.append(list(fleet.journal.records(name)))
    journal.close()
    return folder


def private_run(folder: Path, fleet: str, **spec: Any) -> Path:
    """Leave in `folder` the journal of a private run of fourteen vehicles, one of them lost late, and the rows."""
    agents = [f"v{number:02d}" for number in range(14)]
    stage = PrivateStage(agents, Engine(fleet=fleet), **spec)
    stage.finish(*agents, leaves={"v03": 6})
    assert (stage.phase, len(stage.state.cohort)) == ("finished", 11)
    events = [from_value(codec.decode(body)) for body in stage.journal]
    journal = SqlJournal(f"sqlite:///{folder / 'journal.sqlite'}")
    journal.append([entry_of("r1", event, 0.0) for event in events])
    journal.close()
    (folder / "data").mkdir()
    for agent in agents:
        write_rows(folder / "data" / f"{agent}.csv", rows_of(agent))
    return folder


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return private_run(tmp_path_factory.mktemp("private"), DEFAULT_FLEET)


def audit(there: Path, *more: str) -> int:
    return run(["lab", "audit", "leakage", "--state-dir", str(there), *more])


def report(there: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    assert audit(there, "--data", str(there / "data"), "--json", *more) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def test_audit_reads_rows_of_an_exact_run_and_says_whose(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = report(there, capsys, "last")
    assert (result["run"], result["scheme"], result["vehicles"], result["rows"]) == ("open", "tree", 3, 120)
    bins = next(line for line in result["lines"] if (line["attack"], line["seen"]) == ("bins", "each vehicle"))
    assert bins["protection"] == "exact"
    assert bins["read"] > 12
    assert bins["false"] == bins["chance"] == 0
    assert sum(read for read, _ in bins["owners"].values()) == bins["read"]
    assert {rows for _, rows in bins["owners"].values()} == {40}
    assert result["models"][0]["rows"] == 120
    assert result["models"][0]["others"] == 30


def test_audit_reads_no_row_of_a_default_run(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = report(there, capsys, "hidden")
    assert {line["protection"] for line in result["lines"]} == {"condensed"}
    assert [line for line in result["lines"] if line["read"]] == []


def test_audit_of_a_private_run_attacks_sums_of_groups_and_of_who_left(
    masked: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = report(masked, capsys, "r1")
    assert (result["scheme"], result["vehicles"], result["rows"]) == ("frt", 14, 14 * 12)
    assert all(line["protection"].startswith("private") for line in result["lines"])
    assert {line["seen"] for line in result["lines"]} == {"each group", "who left", "all that was opened"}
    assert all(line["owners"] == {} for line in result["lines"])
    by_seen = {line["seen"]: line["rows"] for line in result["lines"]}
    assert by_seen == {"each group": 14 * 12, "who left": 3 * 12, "all that was opened": 14 * 12}
    assert result["models"][0]["rows"] == 11 * 12


def test_audit_of_a_private_run_refuses_rows_that_do_not_add_up_to_what_was_opened(
    masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    others = tmp_path / "others"
    shutil.copytree(masked / "data", others)
    text = (others / "v07.csv").read_text().splitlines()
    (others / "v07.csv").write_text("\n".join([text[0], *text[2:], text[2]]) + "\n")
    assert audit(masked, "r1", "--data", str(others)) == 3
    assert "have other values than those of the answers" in capsys.readouterr().err


def test_saved_report_has_counts_and_no_vehicle(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = report(there, capsys, "open", "--save")
    saved = json.loads((there / place_of("open")).read_text())
    assert [line["read"] for line in saved["lines"]] == [line["read"] for line in whole["lines"]]
    assert not any(agent in json.dumps(saved) for agent in AGENTS)
    assert audit(there, "--scheme", "frt", "--save", "--data", str(there / "data")) == 2
    assert "--save goes with RUN" in capsys.readouterr().err


def test_audit_simulates_private_runs_where_there_are_enough_vehicles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "data", rows=300)
    one = ("--data", str(folder / "v1.csv"), "--vehicles", "12")
    assert audit(tmp_path, "--scheme", "frt", "--param", "max_depth=2", *one, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    protections = list(dict.fromkeys(line["protection"] for line in result["lines"]))
    assert protections == ["condensed", "exact", "private", "private, support 3"]
    assert {line["seen"] for line in result["lines"] if line["protection"] == "private"} == {
        "each group", "who left", "all that was opened",
    }  # fmt: skip
    assert [line for line in result["lines"] if line["protection"] == "private, support 3" and line["read"]] == []
    assert result["left_out"] == {}


def test_audit_simulates_a_fleet_with_and_without_protection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path / "data")
    assert audit(tmp_path, "--scheme", "frt", "--data", str(folder), "--param", "max_depth=2", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["run"] == ""
    assert [each["protection"] for each in result["models"]] == ["condensed", "exact"]
    one = str(folder / "v1.csv")
    assert audit(tmp_path, "--scheme", "frt", "--param", "min_rows=1", "--data", one, "--vehicles", "2") == 0
    out = capsys.readouterr().out
    assert out.startswith("simulated: frt, 2 vehicles, 32 rows\n")
    assert "nullified" in out


def test_faults_are_told_in_one_line_with_their_code(
    there: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, empty = str(there / "data"), tmp_path / "empty"
    empty.mkdir()
    two = tmp_path / "two"
    shutil.copytree(there / "data", two)
    (two / "v2.csv").unlink()
    for code, text, more in [
        (9, "no events of run 'nosuch'; it has events of open, hidden", ("nosuch", "--data", data)),
        (9, "there is no journal", ("open", "--data", data, "--state-dir", str(empty))),
        (3, "no such file or folder", ("open", "--data", str(tmp_path / "nosuch"))),
        (3, "holds no .csv", ("open", "--data", str(empty))),
        (3, "has no file of v2", ("open", "--data", str(two))),
        (3, "v1 answered from 40 rows, --data has 24", ("open", "--data", str(write(tmp_path / "fewer", rows=30)))),
        (3, "have other values", ("open", "--data", str(write(tmp_path / "others", seed=9)))),
        (3, "have other values", ("hidden", "--data", str(tmp_path / "others"))),
        (2, "RUN or --scheme", ("--data", data)),
        (2, "RUN or --scheme", ("open", "--scheme", "tree", "--data", data)),
        (2, "go with --scheme", ("open", "--vehicles", "3", "--data", data)),
        (9, "no scheme 'nosuch'", ("--scheme", "nosuch", "--data", data)),
        (3, "too few for 900 vehicles", ("--scheme", "tree", "--vehicles", "900", "--data", f"{data}/v1.csv")),
    ]:
        assert audit(there, *more) == code, more
        out, err = capsys.readouterr()
        assert out == ""
        assert text in err
        assert err.count("\n") == 1
