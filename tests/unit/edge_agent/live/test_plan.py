"""A plan does to samples what it does to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from console.main import run
from edge_agent.live.plan import LivePlan
from edge_agent.live.port import LiveSample
from edge_agent.live.rows import LiveRows, Samples
from edge_agent.sources import read_table
from edge_agent.sources.readers import locate
from edge_agent.sources.window import WindowStore
from glassfleet.data.cells import MISSING, is_empty
from schemas.errors import DataError, UsageError

COLUMNS = """
[csv]
decimal = ","
thousands = "."
missing = ["---"]

[clock]
from = "ms"
scale = 0.001
cut = "ms"

[columns]
speed = { take = "number", from = "Speed" }
load = { take = "number", cut = "%", unit = "%" }
code = { take = "hex" }
open = { take = "truth", true = ["yes"], false = ["no"] }
gear = { take = "text", missing = ["SNA"] }
other = { take = "nothing" }
"""
TIME = """
[time]
column = "t"
drive = ""
rows = "speed"
start = 0

[time.inputs]
speed = { signal = "speed", seconds = 1 }
mean = { signal = "speed", take = "mean", seconds = 3 }
slope = { signal = "load", take = "slope", seconds = 3 }
gear = { signal = "gear", seconds = 2 }
open = { signal = "open", seconds = 5 }
"""
ROWS = [
    ("1000,5 ms", "1.234,5", "5%", "1E5", "yes", "P"),
    (2000, "2,5", "7,5 %", "ff", "", "SNA"),
    (3000, "---", "8%", "0x10", "no", "D"),
    (4000, "−3", "", "1f", "", ""),
    (9000, "7", "9%", "", "yes", "R"),
]
NAMES = ("ms", "Speed", "load", "code", "open", "gear")


def known(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: None if is_empty(cell) or cell == MISSING else cell for name, cell in row.items()} for row in rows]


def followed(live: LivePlan, source: Path) -> list[dict[str, Any]]:
    rows = LiveRows(live)
    return [row for sample in Samples(live.request(str(source), speed=0.0)) for row in rows.push(sample)] + rows.flush()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", [COLUMNS, f'{COLUMNS}\n[time]\ncolumn = "at"\ndrive = ""', COLUMNS + TIME], ids=["plain", "told", "in-time"]
)
def test_samples_become_what_the_importer_makes_of_the_same_file(text: str, tmp_path: Path) -> None:
    plan, log, out = tmp_path / "plan.toml", tmp_path / "drive.csv", tmp_path / "drive.parquet"
    plan.write_text(text)
    log.write_text("\n".join([";".join(NAMES), *(";".join(map(str, row)) for row in ROWS)]) + "\n")
    plan.write_text(text.replace("[csv]", '[csv]\nseparator = ";"'))
    assert run(["data", "import", str(log), "--plan", str(plan), "--out", str(out), "--quiet"]) == 0
    table = read_table(out, missing=None)
    imported = [
        dict(zip(table.names, cells, strict=True))
        for cells in zip(*(table.column(name).tolist() for name in table.names), strict=True)
    ]

    lines = tmp_path / "drive.jsonl"
    # As a program would send it: an empty cell is no field, or null.
    objects = [
        {name: cell or None for name, cell in zip(NAMES, row, strict=True) if cell or name != "code"} for row in ROWS
    ]
    lines.write_text("".join(json.dumps(each) + "\n" for each in objects))
    live = LivePlan.read(str(plan))
    for source in (lines, log):  # live samples, and the file itself, replayed
        made = followed(live, source)
        assert known([{name: row.get(name) for name in table.names} for row in made]) == known(imported)
    store = WindowStore(tmp_path / "drive.window", columns=live.names)
    assert store.append(made) == []
    assert len(store.read()[1]) == len(made)
    named = ["--plan", str(plan), "--store", str(tmp_path / "b.window"), "--quiet"]
    assert run(["data", "collect", "--source", str(lines), *named]) == 0
    assert WindowStore.open(tmp_path / "b.window").read() == store.read()
    place = locate(tmp_path / "b.window")
    units = {name: unit for name, unit in place.reader.origin(place).units.items() if unit}
    assert units == ({"slope": "%/s"} if "inputs" in text else {"load": "%"})


LONG = """
target = "quality"
long = { signal = "name", value = "value" }
clock = { from = "timestamp" }
columns = { speed = {}, quality = {} }
[time]
column = "timestamp"
rows = "quality"
drive = ""
start = 0
inputs = { speed = { signal = "speed", seconds = 2 }, quality = { signal = "quality", seconds = 2 } }
"""


def test_lines_of_one_signal_each_become_the_same_rows_live_and_as_files(tmp_path: Path) -> None:
    plan, lines, table, out = (tmp_path / name for name in ("plan.toml", "drive.jsonl", "drive.csv", "drive.parquet"))
    plan.write_text(LONG)
    samples = [(at + part, name, at * 1.5) for at in range(6) for part, name in ((0.0, "speed"), (0.5, "quality"))]
    lines.write_text("".join(f'{{"timestamp": {at}, "name": "{name}", "value": {v}}}\n' for at, name, v in samples))
    table.write_text("timestamp,name,value\n" + "".join(f"{at},{name},{value}\n" for at, name, value in samples))
    assert run(["data", "import", str(lines), "--plan", str(plan), "--out", str(out), "--quiet"]) == 0
    columns, live = read_table(out), LivePlan.read(str(plan))
    for source in (lines, table):
        made = followed(live, source)
        assert [[row[name] for row in made] for name in columns.names] == [each.tolist() for each in columns.columns]
    assert columns.rows == 6


CATALOGUE = {
    "Vehicle": {
        "type": "branch",
        "description": "A car.",
        "children": {
            "Speed": {"type": "sensor", "datatype": "float", "unit": "m/s", "max": 100, "description": "Speed."},
            "Gear": {"type": "sensor", "datatype": "string", "allowed": ["PARK", "DRIVE"], "description": "Gear."},
        },
    }
}
PATHS = """
[columns]
"Vehicle.Speed" = { from = "v", unit = "km/h", vss = "Vehicle.Speed" }
"Vehicle.Gear" = { from = "g", take = "text", vss = "Vehicle.Gear" }
y = {}
"""


def test_values_get_the_units_and_words_of_a_catalogue_as_in_the_importer(tmp_path: Path) -> None:
    plan, vss, log, out = (tmp_path / name for name in ("plan.toml", "vss.json", "drive.csv", "drive.parquet"))
    plan.write_text(PATHS)
    vss.write_text(json.dumps(CATALOGUE))
    speeds, gears = (36.0, 7.3, 123.4), ("Park", "drive", "PARK")
    log.write_text(
        "".join(f"{v},{g},{y}\n" for v, g, y in [("v", "g", "y"), *zip(speeds, gears, range(3), strict=True)])
    )
    assert run(["data", "import", str(log), "--plan", str(plan), "--vss", str(vss), "--out", str(out), "--quiet"]) == 0
    table = read_table(out, missing=None)
    rows = LiveRows(LivePlan.read(str(plan), [vss]))
    made = [
        row
        for v, g, y in zip(speeds, gears, range(3), strict=True)
        for row in rows.push(LiveSample({"v": v, "g": g, "y": y}))
    ]
    assert made[0] == {"Vehicle.Speed": 10.0, "Vehicle.Gear": "PARK", "y": 0.0}
    for name in table.names:
        assert [row[name] for row in made] == table.column(name).tolist()
    for odd, words in (({"v": 720.0}, "not at most 100 m/s"), ({"g": "Reverse"}, "none of its words")):
        with pytest.raises(ValueError, match=words):
            rows.push(LiveSample(odd))
    with pytest.raises(UsageError, match="name that with --vss"):
        LivePlan.read(str(plan))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"Speed": "fast"}, "'speed' is 'fast', no number as the plan says"),
        ({"Speed": "1,234.5"}, "no number"),
        ({"code": "xyz"}, "no hex"),
        ({"open": "maybe"}, "no truth"),
        ({"load": [1]}, "neither a number nor a text"),
        ({"ms": "noon"}, "is no time"),
    ],
)
def test_value_that_is_not_what_the_plan_says_is_refused_by_name(
    values: dict[str, Any], words: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(COLUMNS)
    rows = LiveRows(LivePlan.read(str(tmp_path / "plan.toml")))
    with pytest.raises(ValueError, match=words):
        rows.push(LiveSample({"ms": 1, **values}))
    with pytest.raises(ValueError, match="does not tell its time, 'ms'"):
        rows.push(LiveSample({"Speed": 1}))


@pytest.mark.parametrize(
    ("clock", "sample", "seconds"),
    [
        ('from = "at"\nform = "dmy"', {"at": "01.03.2026 08:00"}, 1772352000),
        ('from = "at"\nform = "mdy"', {"at": "3/1/2026 8:00 PM"}, 1772395200),
        ('from = "at"\nof_day = "of"\nform = "date dmy"', {"at": "01.03.2026", "of": "08:00:05"}, 1772352005),
        ('from = "at"\nform = "ymd"', {"at": "2026-03-01T08:00:00+01:00"}, 1772348400),
        ('from = "at"\nform = "dmy"', {"at": "2026/03/01"}, None),
        ('from = "at"\nof_day = "of"\nform = "date dmy"', {"at": "01.03.2026"}, None),
    ],
)
def test_clock_is_read_as_in_files(clock: str, sample: dict[str, Any], seconds: float | None, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(f"[clock]\n{clock}\n[columns]\na = {{}}\n")
    live = LivePlan.read(str(tmp_path / "plan.toml"))
    if seconds is None:
        with pytest.raises(ValueError, match="is no time as the plan says"):
            live.taken(LiveSample({**sample, "a": 1}))
    else:
        assert live.taken(LiveSample({**sample, "a": 1})).time == seconds


def test_values_in_another_unit_than_the_plans_are_converted(tmp_path: Path) -> None:
    c = 'c = { from = "C [m/s]", unit = "km/h" }'
    plan = f'[columns]\na = {{ from = "Speed", unit = "km/h" }}\nb = {{ unit = "K" }}\n{c}\n'
    (tmp_path / "plan.toml").write_text(plan)
    units = {"Speed": "mph"}
    rows = LiveRows(LivePlan.read(str(tmp_path / "plan.toml")), units=units)
    units["b"] = "degC"  # told by a later sample
    (row,) = rows.push(LiveSample({"Speed": 100, "b": 20, "C [m/s]": 10}))
    assert row == pytest.approx({"a": 160.9344, "b": 293.15, "c": 36.0})
    assert rows.units == {"a": "km/h", "b": "K", "c": "km/h"}
    units["b"] = "bar"
    with pytest.raises(ValueError, match="'b' is in bar here, and the plan says K"):
        rows.push(LiveSample({"b": 20}))


@pytest.mark.parametrize(
    ("text", "fault", "words"),
    [
        ("target = 1", DataError, "not a plan"),
        ("", UsageError, "names neither columns nor"),
        ('[clock]\nfrom = "t"\nform = "clock"\n[columns]\na = {}', UsageError, "its clock tells no date"),
        ('[columns]\na = { take = "?" }', UsageError, "decide these lines first: columns.a"),
        (
            '[time]\nrows = "a"\n[time.inputs]\na = { signal = "a", seconds = 1 }\n[columns]\nb = {}',
            UsageError,
            "'a', which",
        ),
    ],
)
def test_plan_that_makes_no_rows_of_samples_is_told(
    text: str, fault: type[Exception], words: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(fault, match=words):
        LivePlan.read(str(tmp_path / "plan.toml"))
