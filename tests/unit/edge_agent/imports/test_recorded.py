"""Recordings become a table: by a plan that is proposed, with the names and units of a catalogue where there is one."""

from __future__ import annotations

import json
import math
from functools import partial

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from console.vehicle.data import import_
from edge_agent.presence import kinds_of
from edge_agent.recordings import RECORDINGS
from edge_agent.recordings.process import read_here
from edge_agent.sources import read_source
from tests.support.vehicle.recordings import DBC, engine, message, mf4, write_log

TREE = {
    "Vehicle": {
        "children": {
            "Speed": {"datatype": "float", "unit": "m/s", "max": 60, "dbc2vss": {"signal": "Speed"}},
            "Inside": {"datatype": "float", "unit": "Celsius", "dbc2vss": {"signal": "Inside"}},
        }
    }
}


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Return a runner of the command in a folder with a database, a catalogue, and one drive in two recordings."""
    monkeypatch.chdir(tmp_path)
    # Here: that a process reads the same, `recordings.test_broken` says.
    here = {ending: partial(read_here, "mf4" if ending == ".mf4" else "bus") for ending in RECORDINGS}
    monkeypatch.setattr("edge_agent.imports.recorded.RECORDINGS", here)
    (tmp_path / "bus.dbc").write_text(DBC, encoding="utf-8")
    (tmp_path / "vss.json").write_text(json.dumps(TREE))
    frames = []
    for number in range(200):
        time = 1.7e9 + number / 20
        frames.append(engine(72 + 18 * math.sin(number / 9), 15 if number == 7 else 1 + number % 2, time=time))
        if number % 20 == 0:
            frames.append(message(0x18FF0A3E, bytes([0, 90, 0, 0, 0, 0, 0, 0]), time=time + 0.01))
    write_log(tmp_path / "first.blf", frames[:100])
    write_log(tmp_path / "second.log", frames[100:])
    return lambda *words: CliRunner().invoke(import_, [str(word) for word in words], catch_exceptions=False)


def test_recordings_of_one_vehicle_become_one_table(world, tmp_path):
    given = ("--database", "bus.dbc", "--plan", "p.toml", "--out", "d.parquet")
    done = world("second.log", "first.blf", "--target", "Speed", *given)
    assert done.exit_code == 0, done.output
    table = parquet.read_table(tmp_path / "d.parquet").to_pylist()
    assert len(table) == 200
    times = [row["time"] for row in table]
    assert times == sorted(times)
    assert table[9]["Speed"] == pytest.approx(72 + 18 * math.sin(1), abs=0.005)
    assert (table[7]["Gear"], table[8]["Gear"], table[0]["Inside"], table[1]["Inside"]) == (None, "Drive", None, 25.0)
    assert "'SNA (a word of the database)'" in done.output
    plan = (tmp_path / "p.toml").read_text()
    assert 'rows = "Speed"' in plan
    assert 'Inside = { take = "number", unit = "°C" }' in plan
    assert world("first.blf", *given).exit_code == 0
    first = parquet.read_table(tmp_path / "d.parquet").to_pylist()
    assert first == table[: len(first)]


def test_names_and_units_come_from_a_catalogue(world, tmp_path):
    given = ("first.blf", "--database", "bus.dbc", "--vss", "vss.json", "--plan", "p.toml", "--out", "d.parquet")
    done = world(*given, "--target", "Speed")
    assert done.exit_code == 0, done.output
    table = parquet.read_table(tmp_path / "d.parquet")
    assert table.column_names[-1] == "Vehicle.Speed"
    assert table.column("Vehicle.Speed")[0].as_py() == pytest.approx(20.0)
    units = json.loads(table.schema.metadata[b"glassfleet_units"])
    assert (units["Vehicle.Speed"], units["Vehicle.Inside"], units["Torque"]) == ("m/s", "Celsius", "Nm")
    plan = (tmp_path / "p.toml").read_text()
    short = plan.replace('"Vehicle.Speed"', '"speed"').replace('vss = "speed"', 'vss = "Vehicle.Speed"')
    (tmp_path / "p.toml").write_text(short)
    assert world(*given).exit_code == 0
    assert parquet.read_table(tmp_path / "d.parquet").column_names[-1] == "speed"
    with pytest.raises(Exception, match=r"the plan has paths of a catalogue: name it with --vss"):
        world(*given[:3], "--plan", "p.toml")


def test_a_text_gets_names_and_units_of_a_catalogue_too(world, tmp_path):
    (tmp_path / "a.csv").write_text("t,x,Speed [km/h]\n0,1,36\n1,2,72\n2,4,90\n")
    done = world("a.csv", "--vss", "vss.json", "--plan", "p.toml", "--out", "a.parquet")
    assert done.exit_code == 0, done.output
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column("Vehicle.Speed").to_pylist() == pytest.approx([10.0, 20.0, 25.0])
    assert json.loads(table.schema.metadata[b"glassfleet_units"]) == {"Vehicle.Speed": "m/s"}
    (tmp_path / "a.csv").write_text("t,x,Speed [km/h]\n0,1,36\n1,2,72\n2,4,900\n")
    with pytest.raises(Exception, match=r"column 'Speed \[km/h\]' cannot be Vehicle.Speed: .* are not at most 60 m/s"):
        world("a.csv", "--vss", "vss.json", "--plan", "p.toml")


def test_a_vehicle_whose_files_tell_another_unit_gets_the_plans(world, tmp_path):
    """A recording, and a text with its units under the names."""
    given = ("--target", "Speed", "--plan", "p.toml", "--out", "d.csv")
    assert world("first.blf", "--database", "bus.dbc", *given).exit_code == 0
    usual = (tmp_path / "d.csv").read_text()
    (tmp_path / "mph.dbc").write_text(DBC.replace('[0|250] "km/h"', '[0|250] "mph"'), encoding="utf-8")
    done = world("first.blf", "--database", "mph.dbc", *given)
    assert "Speed converted from mph to km/h" in done.output
    speeds = [
        [float(line.split(",")[-1]) for line in text.splitlines()[1:]]
        for text in (usual, (tmp_path / "d.csv").read_text())
    ]
    assert speeds[1] == pytest.approx([speed * 1.609344 for speed in speeds[0]])
    (tmp_path / "bar.dbc").write_text(DBC.replace('[0|250] "km/h"', '[0|250] "bar"'), encoding="utf-8")
    with pytest.raises(Exception, match="'Speed' is in bar here, and the plan says km/h: bar is a unit of pressure"):
        world("first.blf", "--database", "bar.dbc", *given)

    rows = "".join(f"{n},{n % 7},{n % 5 * 36}\n" for n in range(40))
    for name, unit in (("a.csv", "km/h"), ("b.csv", "m/s")):
        (tmp_path / name).write_text(f"t,x,Speed\ns,-,{unit}\n{rows}")
        assert world(name, "--plan", "q.toml", "--out", name.replace(".csv", ".parquet")).exit_code == 0
    one, two = (parquet.read_table(tmp_path / name).column("Speed").to_pylist() for name in ("a.parquet", "b.parquet"))
    assert two == pytest.approx([3.6 * speed for speed in one])
    (tmp_path / "c.csv").write_text(f"t,x,Speed [m/s]\n{rows}")
    world("c.csv", "--plan", "r.toml")
    (tmp_path / "r.toml").write_text((tmp_path / "r.toml").read_text().replace('unit = "m/s"', 'unit = "km/h"'))
    assert "Speed converted from m/s to km/h" in world("c.csv", "--plan", "r.toml", "--out", "c.parquet").output
    assert parquet.read_table(tmp_path / "c.parquet").column("Speed").to_pylist() == two


def test_rows_take_statistics_of_signals_over_time(world, tmp_path):
    """What [time.inputs] may take of a signal, of a text with one signal a row; nothing comes from a row's future."""
    lines = [(n / 2, "v", n * n) for n in range(9)] + [(n + 0.75, "y", n) for n in range(4)]
    (tmp_path / "a.csv").write_text("t,signal,value\n" + "".join(f"{t},{s},{v}\n" for t, s, v in sorted(lines)))
    takes = ("last", "interpolated", "mean", "min", "max", "slope", "count")
    (tmp_path / "p.toml").write_text(
        'target = "y"\nlong = { signal = "signal", value = "value" }\nclock = { from = "t" }\n'
        '[time]\ncolumn = "t"\nrows = "y"\ndrive = ""\nstart = 0\n[time.inputs]\n'
        + "".join(f'{take} = {{ signal = "v", take = "{take}", seconds = 1.25 }}\n' for take in takes)
        + 'y = { signal = "y", seconds = 1 }\n[columns]\nv = { unit = "m" }\ny = {}\n'
    )
    assert world("a.csv", "--plan", "p.toml", "--out", "a.parquet").exit_code == 0
    table = parquet.read_table(tmp_path / "a.parquet")
    rows = table.to_pylist()
    assert [row["t"] for row in rows] == [0.75, 1.75, 2.75, 3.75]
    assert {take: rows[2][take] for take in takes} == pytest.approx(
        {"last": 25, "interpolated": 9, "mean": 20.5, "min": 16, "max": 25, "slope": 18, "count": 2}
    )
    assert rows[0]["interpolated"] is None
    units = json.loads(table.schema.metadata[b"glassfleet_units"])
    assert (units["last"], units["slope"], "count" in units) == ("m", "m/s", False)


def test_measurements_need_no_database(world, tmp_path):
    (tmp_path / "m.mf4").write_bytes(mf4([(number / 10, 50 + number % 30, number) for number in range(100)]))
    done = world("m.mf4", "--target", "speed", "--out", "m.csv")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "m.csv").read_text().splitlines()[:2] == ["time,rpm,speed", "1700000000.0,0.0,50.0"]


def test_the_agent_tells_kinds_units_and_plan_of_its_rows(world, tmp_path):
    given = ("first.blf", "--database", "bus.dbc", "--vss", "vss.json", "--target", "Speed")
    assert world(*given, "--out", "d.parquet").exit_code == 0
    source = read_source(tmp_path / "d.parquet", categories=True, missing=True)
    kinds = dict(zip((*source.train.features, source.train.target), kinds_of(source), strict=True))
    assert (kinds["Vehicle.Speed"], kinds["Torque"], kinds["Gear"]) == ("numbers in m/s", "numbers in Nm", "words")
    assert len(source.origin.plan) == 64


def test_a_value_far_from_all_others_is_named(tmp_path):
    rows = "".join(f"{65535 if number % 50 == 0 else number % 30},{number},{number % 7}\n" for number in range(200))
    (tmp_path / "a.csv").write_text(f"speed,n,y\n{rows}")
    source = read_source(tmp_path / "a.csv")
    assert source.far == ("speed",)
    assert any("'speed' has 65535 in some rows, far from all its other values" in text for text in source.warnings)
    assert kinds_of(source) == []
