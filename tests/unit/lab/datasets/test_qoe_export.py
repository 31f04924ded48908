"""Raw exports of QoE measurements: the rows that the windows give, and faults by name."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from edge_agent.sources import read_source
from lab.datasets.command import datasets
from lab.datasets.qoe_export import Layout, prepare, read_export
from lab.qoe.simulator import simulate_vehicle
from lab.qoe.windows import FEATURES, HORIZON, METRICS, TARGET, WINDOW, rows_of_run
from schemas.errors import DataError

SECONDS = 40


@pytest.fixture(scope="module")
def series() -> Any:
    """Three runs of a vehicle: the simulator's metrics, once a second."""
    return [run[:SECONDS] for run in simulate_vehicle(0).series[:3]]


def export(runs: Any, *, skip: Any = (), header: str = "vehicle,run,time,metric,value") -> str:
    """Write an export; `skip` are (run, second) that were not measured."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    text.write(header + "\n")
    for number, run in enumerate(runs):
        for second, values in enumerate(run):
            if (number, second) not in skip:
                writer.writerows(
                    ["car", number, second + 0.5, name, repr(float(value))]
                    for name, value in zip(METRICS, values, strict=True)
                )
    return text.getvalue()


def test_export_gives_the_rows_that_the_windows_give(series: Any) -> None:
    runs = read_export([("e.csv", export(series))], Layout())
    tables, lost = prepare(runs, "15", test_runs=1)
    table = tables["car"]
    assert lost == 0
    assert table.names == ("split", *FEATURES, TARGET)
    expected = [rows_of_run(run) for run in series]
    result = np.array([row[1:] for row in table.rows], dtype=np.float64)
    assert result[:, :-1] == pytest.approx(np.concatenate([X for X, _ in expected]))
    assert result[:, -1] == pytest.approx(np.concatenate([y for _, y in expected]))
    count = SECONDS - WINDOW + 1 - HORIZON
    assert [row[0] for row in table.rows] == ["train"] * 2 * count + ["test"] * count


def test_windows_never_cross_a_gap(series: Any) -> None:
    whole, _ = prepare(read_export([("e.csv", export(series))], Layout()), "15", test_runs=0)
    gap, lost = prepare(read_export([("e.csv", export(series, skip={(1, 20)}))], Layout()), "15", test_runs=0)
    assert lost == 1
    # A window and its horizon are 13 seconds; all that held second 20 are gone.
    assert len(whole["car"].rows) - len(gap["car"].rows) == WINDOW + HORIZON


def test_command_prepares_files_that_an_agent_reads(series: Any, tmp_path: Path) -> None:
    text = export(series, header="vehicle,repetition,time,metric,value").replace("sinr_db", "rcvdSinr")
    (tmp_path / "export.csv").write_text(text)
    arguments = ["qoe", str(tmp_path / "export.csv"), "--out", str(tmp_path / "out"), "--test-runs", "1"]
    named = ["--column", "run=repetition", "--metric", "rcvdSinr=sinr_db"]
    assert isinstance(CliRunner().invoke(datasets, arguments).exception, DataError)
    result = CliRunner().invoke(datasets, [*arguments, *named, "--labels"])
    assert result.exit_code == 0, result.output
    source = read_source(tmp_path / "out" / "vehicle_car.csv.gz", labels=True)
    assert set(source.train.y.tolist()) <= {"Good", "Poor"}
    assert source.train.rows == 2 * source.test.rows


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("vehicle,run,time,metric\n", "no column 'value'"),
        ("vehicle,run,time,metric,value\ncar,1,x,sinr_db,1\n", "line 2: 'x' is not a finite number"),
        ("vehicle,run,time,metric,value\ncar,1,0,sinr_db,nan\n", "line 2: 'nan' is not a finite number"),
        ("vehicle,run,time,metric,value\ncar,1,0,sinr_db\n", "line 2 has 4 cells"),
        ("vehicle,run,time,metric,value\ncar,1,0,noise,1\n", "no line of the export"),
    ],
)
def test_export_reader_names_the_fault(text: str, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read_export([("e.csv", text)], Layout())


def test_preparing_names_what_was_not_measured_and_runs_that_do_not_suffice(series: Any) -> None:
    lines = [line for line in export(series).splitlines() if "cqi" not in line]
    with pytest.raises(DataError, match="vehicle car, run 0: cqi was not measured"):
        prepare(read_export([("e.csv", "\n".join(lines))], Layout()), "15", test_runs=0)
    with pytest.raises(DataError, match="lower --test-runs"):
        prepare(read_export([("e.csv", export(series))], Layout()), "15", test_runs=3)
