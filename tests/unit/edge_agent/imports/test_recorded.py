"""Recordings become a table: by a plan that is proposed, with the names and units of a catalogue where there is one."""

from __future__ import annotations

import json
import math

import pytest
from click.testing import CliRunner
from pyarrow import parquet

from console.vehicle.importing import import_
from edge_agent.messages.presence import kinds_of
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
    (tmp_path / "p.toml").write_text(plan.replace('unit = "km/h"', 'unit = "m/s"'))
    with pytest.raises(Exception, match=r"column 'Speed' cannot be Vehicle.Speed: .* are not at most 60 m/s"):
        world(*given)
    with pytest.raises(Exception, match=r"the plan has paths of a catalogue: name it with --vss"):
        world(*given[:3], "--plan", "p.toml")


def test_a_text_gets_names_and_units_of_a_catalogue_too(world, tmp_path):
    (tmp_path / "a.csv").write_text("t,x,Speed [km/h]\n0,1,36\n1,2,72\n2,4,90\n")
    done = world("a.csv", "--vss", "vss.json", "--plan", "p.toml", "--out", "a.parquet")
    assert done.exit_code == 0, done.output
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column("Vehicle.Speed").to_pylist() == pytest.approx([10.0, 20.0, 25.0])
    assert json.loads(table.schema.metadata[b"glassfleet_units"]) == {"Vehicle.Speed": "m/s"}


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
