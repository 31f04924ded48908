"""``glassfleet data import``: plans, several files, clocks, sentinels, names, and the agent's door."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from console.main import run
from edge_agent.imports import engine
from edge_agent.imports.plan import Plan, read_plan
from edge_agent.sources import read_source
from edge_agent.sources.table import held_back
from schemas.errors import DataError


def table(rows: int = 40, start: float = 0.0, separator: str = ",", **columns: Any) -> str:
    """Write a drive: time, and columns by functions of the row."""
    given = {"time": lambda row: f"{start + row * 0.5:.1f}", **columns} if columns.pop("timed", True) else columns
    lines = [separator.join(given)]
    lines += [separator.join(str(column(row)) for column in given.values()) for row in range(rows)]
    return "\n".join(lines) + "\n"


def speed(row: int) -> str:
    return f"{row * 7 % 30 + 0.25:.2f}"


def fuel(row: int) -> str:
    return f"{row * 11 % 17 + 0.125:.3f}"


@pytest.mark.needs("recordings")
def test_files_of_vehicles_come_out_as_their_truths(imported):
    differ = {}
    for truth in sorted(Path(os.environ["GLASSFLEET_VEHICLE"], "csv").glob("*.truth.json")):
        expected = json.loads(truth.read_text())
        try:
            columns, _ = imported(truth.with_name(truth.name.removesuffix(".truth.json")))
        except DataError as refusal:
            columns = {"REFUSE": str(refusal)} if "line" in str(refusal) else {"fault": str(refusal)}
            expected = {"REFUSE": columns["REFUSE"]} if "REFUSE" in expected and "REFUSE" in columns else expected
        found = {name: columns.get(name) for name in expected}
        if found != expected:
            differ[truth.name] = (found, expected)
    assert not differ


def test_words_as_frequent_as_counts_are_categories_and_a_rare_one_is_to_decide(imported):
    columns, _ = imported(table(children=lambda row: ("1", "2", "3", "more")[row % 4], fuel=fuel))
    assert columns["children"][:4] == ["1", "2", "3", "more"]
    with pytest.raises(DataError, match=r"'more' .* is no number, where the others are"):
        imported(table(children=lambda row: "more" if row == 7 else str(row % 3), fuel=fuel))


def test_what_is_to_decide_is_written_into_the_plan_and_decided_there(tmp_path, capsys):
    source, plan, out = tmp_path / "drive.csv", tmp_path / "fleet.toml", tmp_path / "drive.parquet"
    text = table(separator=";", rpm=lambda row: f"{row % 9 + 1}.{row + 100}", fuel=lambda row: f"{row},5")
    source.write_text(text)
    call = ["data", "import", str(source), "--plan", str(plan), "--out", str(out)]
    assert run(call) == 3
    output = capsys.readouterr().err
    for words in (
        "rpm: '1.100' is 1.1 or 1100",
        'columns.rpm: decimal = "."',
        'thousands = "."',
        "with the lines to decide",
    ):
        assert words in output
    assert not out.exists()
    assert run(call) == 3
    assert "the plan has lines to decide (columns.rpm)" in capsys.readouterr().err
    plan.write_text(plan.read_text().replace('decimal = "?"', 'decimal = ",", thousands = "."'))
    assert run(call) == 0
    assert "1100 | 2101 | 3102" in capsys.readouterr().out
    assert read_source(out).train.X[:3, 1].tolist() == [1100.0, 2101.0, 3102.0]


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"speed": speed, "fuel": fuel}, ""),
        ({"road": lambda row: ("city", "rural")[row % 2], "fuel": fuel}, " --categories"),
        ({"speed": lambda row: "" if row == 5 else str(row), "fuel": fuel}, " --missing"),
        ({"speed": speed, "road": lambda row: ("city", "rural")[row % 2]}, " --labels"),
    ],
)
def test_command_that_comes_next_takes_the_table(tmp_path, capsys, columns, options):
    (tmp_path / "drive.csv").write_text(table(**columns))
    assert run(["data", "import", str(tmp_path / "drive.csv"), "--out", str(tmp_path / "drive.parquet")]) == 0
    assert capsys.readouterr().out.endswith(f"drive.parquet{options}\n")


def test_plan_names_no_file_and_its_digest_tells_two_plans_apart(imported):
    _, report = imported(table(speed=speed, fuel=fuel))
    again = Plan.model_validate(tomllib.loads(report.plan.to_toml()))
    assert (again, again.digest) == (report.plan, report.plan.digest)
    assert "drive-0" not in report.plan.to_toml(report.why)
    assert again.model_copy(update={"target": "speed"}).digest != again.digest


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ("target = ", "not a plan"),
        ("x = 1", "x: Extra"),
        ('[csv]\nseparator = ";;"', "csv.separator"),
        ('[columns]\na = { take = "numbers" }', "columns.a.take"),
        ('[clock]\nfrom = "t"\nform = "dd.mm"', "form 'dd.mm' is none of number"),
        ('[time]\nrows = "a"\nevery_ms = 5\n[time.inputs]\na = { signal = "a", seconds = 1 }', "give rows or every_ms"),
    ],
)
def test_plan_that_cannot_be_meant_is_refused(tmp_path, document, words):
    path = tmp_path / "plan.toml"
    path.write_text(document)
    with pytest.raises(DataError) as fault:
        read_plan(path)
    assert words in str(fault.value)


def test_plan_with_other_marks_refuses_another_vehicles_file_and_never_reads_it_wrongly(imported):
    german = table(
        separator=";", speed=lambda row: speed(row).replace(".", ","), fuel=lambda row: fuel(row).replace(".", ",")
    )
    _, report = imported(german.replace("7,25", "1.007,25"))
    assert (report.plan.csv.decimal, report.plan.csv.thousands) == (",", ".")
    with pytest.raises(DataError, match=r"column 'speed': '0\.25' \(lines 2, .*the plan says decimal = \",\""):
        imported(table(separator=";", speed=speed, fuel=fuel), plan=report.plan)


def test_mark_that_the_plan_does_not_name_is_refused_and_the_line_of_the_plan_named(imported):
    _, report = imported(table(speed=speed, fuel=fuel))
    with pytest.raises(DataError, match=r"'ERR' \(line 2\) is no number.*missing = \[\"err\"\] under \[csv\]"):
        imported(table(speed=speed, fuel=fuel).replace(",0.25,", ",ERR,", 1), plan=report.plan)


def test_odd_cell_far_behind_all_that_was_looked_at_is_met(imported):
    rows = [f"{row * 0.5:.1f},{speed(row)},{fuel(row)}" for row in range(30_000)]
    rows[7_777] = "3888.5,ERR,1.125"
    columns, report = imported("time,speed,fuel\n" + "\n".join(rows) + "\n")
    assert columns["speed"][7_777] is None
    assert report.missing == {"speed": {"ERR": 1}}
    assert report.plan.csv.missing == ("err",)
    rows[7_778] = "3889.0,fast,1.125"
    with pytest.raises(DataError, match=r"speed: 'fast' \(line 7780\)"):
        imported("time,speed,fuel\n" + "\n".join(rows) + "\n")


def test_files_of_a_vehicle_become_one_table_in_the_order_of_time(imported):
    early, late = (table(30, start, speed=speed, fuel=fuel) for start in (1_794_000_000.0, 1_794_086_400.0))
    columns, report = imported(late, early)
    assert columns["time"] == sorted(columns["time"])
    assert columns["drive"] == [1.0] * 30 + [2.0] * 30
    assert report.rows == 60
    one, _ = imported(
        table(30, 1_794_000_000.0, speed=speed, fuel=fuel), table(30, 1_794_000_015.0, speed=speed, fuel=fuel)
    )
    assert "drive" not in one
    with pytest.raises(DataError, match="the plan names the column 'fuel', which no line of names has"):
        imported(early, table(speed=speed, gas=fuel))
    with pytest.raises(DataError, match=r'semicolons separate its columns, and the plan says commas.* separator = ";"'):
        imported(early, late.replace(",", ";"))
    with pytest.raises(DataError, match="line 1 cannot be a row"):
        imported(early, f"{'x' * 200_000},fuel\n1,2\n")


@pytest.mark.parametrize(
    ("times", "drives", "words"),
    [
        ([*range(20), *range(20)], [1.0] * 20 + [2.0] * 20, "the clock steps back by 19 s"),
        ([*range(20), *range(900_000, 900_020)], [1.0] * 20 + [2.0] * 20, "the clock jumps ahead by 10.4164 days"),
        ([*range(20), 19, *range(20, 39)], None, "1 row has the time of the row before"),
    ],
)
def test_clock_that_steps_back_jumps_or_repeats_is_named_and_cut_into_drives(imported, times, drives, words):
    columns, report = imported(table(timed=False, time=lambda row: times[row], speed=speed, fuel=fuel))
    assert columns.get("drive") == drives
    assert words in "; ".join(report.warnings)


def test_value_far_outside_that_is_repeated_is_named_and_missing_when_the_plan_says_so(imported):
    text = table(60, speed=lambda row: 65535 if row % 20 == 3 else speed(row), fuel=fuel)
    columns, report = imported(text)
    assert columns["speed"][3] == 65535.0
    assert "speed: 65535 is in 3 rows, far from all other values" in report.warnings[0]
    assert 'missing = ["65535"] in the line of columns.speed' in report.warnings[0]
    column = report.plan.columns["speed"].model_copy(update={"missing": ("65535",)})
    plan = report.plan.model_copy(update={"columns": {**report.plan.columns, "speed": column}})
    columns, report = imported(text, plan=plan)
    assert columns["speed"][3] is None
    assert (report.warnings, report.missing) == ([], {"speed": {"65535": 3}})


PERSONS: dict[str, Any] = {
    "driver": lambda row: "AB"[row % 2],
    "who": lambda row: ["Ada Lovelace", "Grace Hopper"][row % 2],
    "car": lambda row: ["WVWZZZ1JZXW000001", "WVWZZZ1JZXW000002"][row % 2],
    "seen": lambda row: ["M-AB 123", "B-XY 77"][row % 2],
    "trip": lambda row: f"T{row:05d}",
}


def test_texts_about_persons_and_vehicles_are_left_out_unless_asked_for_by_name(imported, tmp_path):
    text = table(**PERSONS, gear=lambda row: "PRD"[row % 3], fuel=fuel)
    columns, report = imported(text)
    assert list(columns) == ["time", "gear", "fuel"]
    assert all(report.why[name].startswith("left out") for name in PERSONS)
    source = read_source(tmp_path / "drive-0.csv", categories=True)
    assert source.train.features == ("time", "gear")
    assert all(any(name in line for line in source.notes) for name in PERSONS)
    asked = {name: report.plan.columns[name].model_copy(update={"take": "text"}) for name in PERSONS}
    columns, _ = imported(text, plan=report.plan.model_copy(update={"columns": {**report.plan.columns, **asked}}))
    assert [len(columns[name]) for name in PERSONS] == [40] * len(PERSONS)
    assert PERSONS.keys() <= read_source(tmp_path / "drive.parquet", categories=True).train.categories.keys()


def test_agent_takes_a_file_that_needs_no_decision_and_says_in_one_line_what_it_did(tmp_path):
    path = tmp_path / "german.csv"
    path.write_text(
        table(
            separator=";", speed=lambda row: speed(row).replace(".", ","), fuel=lambda row: fuel(row).replace(".", ",")
        )
    )
    source = read_source(path)
    assert source.train.X[:2].tolist() == [[0.0, 0.25], [0.5, 7.25]]
    assert source.notes[0] == f"{path}: 40 rows: columns separated by ';'; decimal ','"
    path.write_text(table(separator=";", speed=lambda row: f"1.{row + 100}", fuel=lambda row: f"{row},5"))
    with pytest.raises(DataError, match=r"speed: '1\.100' is 1\.1 or 1100\. Decide it in a plan"):
        read_source(path)
    with pytest.raises(DataError, match="a recording: its signals become rows by an import"):
        read_source(Path(tmp_path / "drive.mf4"))


@pytest.mark.parametrize("rows", [40, 40_000])
def test_torn_end_parks_no_vehicle(tmp_path, rows):
    path = tmp_path / "drive.csv"
    path.write_text(table(rows, speed=speed, fuel=fuel) + "999999.0,1")
    source = read_source(path)
    assert source.train.rows + source.test.rows > 0.9 * rows * 0.98
    assert "line" in source.notes[0]
    assert "left out" in source.notes[0]


@pytest.mark.parametrize(
    ("drives", "tests", "words"),
    [
        (None, range(80, 100), "the last 20 of 100 rows, 1 before them left out"),
        (np.repeat([1, 2, 3, 4], 25), range(75, 100), "the newest drive of 4 (25 of 100 rows)"),
        (np.repeat(np.arange(20), 5), range(80, 100), "the newest 4 drives of 20 (20 of 100 rows)"),
        (np.repeat([1, 2], [10, 90]), range(80, 100), "the last 20 of 100 rows, 1 before them left out"),
        (np.tile([1, 2], 50), range(80, 100), "the last 20 of 100 rows, 1 before them left out"),
    ],
)
def test_vehicle_holds_its_newest_drives_or_rows_back_and_never_neighbours(drives, tests, words):
    train, test, how, output = held_back(100, drives)
    assert np.flatnonzero(test).tolist() == list(tests)
    assert not (train & test).any()
    assert (how, output) == ("drives" if "newest" in words else "rows", words)
    if drives is None:
        assert np.flatnonzero(train)[-1] == tests[0] - 2


def test_import_that_is_stopped_leaves_nothing(imported, tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "POLL", 0.001)

    def stop(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        imported(table(100_000, speed=speed, fuel=fuel), progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["drive-0.csv"]
