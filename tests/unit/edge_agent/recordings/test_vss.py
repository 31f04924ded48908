"""Names, units and limits of a catalogue of VSS."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edge_agent.recordings import Signal, units, vss
from schemas.errors import DataError

TREE = {
    "Vehicle": {
        "type": "branch",
        "children": {
            "Speed": {"type": "sensor", "datatype": "float", "unit": "km/h", "description": "Vehicle  speed."},
            "Coolant": {"type": "sensor", "datatype": "int16", "unit": "Celsius", "min": -50, "max": 200},
            "Level": {"type": "sensor", "datatype": "uint8", "unit": "percent", "max": 100},
            "IsMoving": {"type": "sensor", "datatype": "boolean"},
            "Mode": {"type": "sensor", "datatype": "string", "allowed": ["ECO", "SPORT_PLUS"]},
            "Rain": {"type": "sensor", "datatype": "uint8", "enum": {"NONE": 0, "RAIN": 2}},
            "List": {"type": "sensor", "datatype": "float[]"},
        },
    }
}
WORDS = [{"from": "P", "to": 126}, {"from": "D", "to": 1}]
OVERLAY = {
    "Vehicle": {
        "children": {
            "Speed": {"dbc2vss": {"signal": "VehSpd"}},
            "Gear": {
                "type": "sensor",
                "datatype": "int8",
                "dbc": {
                    "signal": "GearSt",
                    "transform": {"mapping": [{"from": "P", "to": 126}, {"from": "D", "to": 1}]},
                },
            },
        }
    }
}


@pytest.fixture
def catalogue(tmp_path):
    (tmp_path / "vss.json.gz").write_bytes(gzip.compress(json.dumps(TREE).encode()))
    (tmp_path / "overlay.json").write_text(json.dumps(OVERLAY))
    return vss.Catalogue([tmp_path / "vss.json.gz", tmp_path / "overlay.json"])


def column(values: Sequence[Any], unit: str = "", name: str = "column", **more: Any) -> Signal:
    value = np.array(values, dtype=object if any(isinstance(each, str) for each in values) else float)
    return Signal(name, unit, np.arange(float(len(values))), value, **more)


def test_columns_are_found_by_their_path_and_by_an_overlay_and_not_guessed(catalogue):
    names = ["VehSpd", "Vehicle.Speed", "vehicle/coolant", "GearSt", "speed", "Speed"]
    assert [catalogue.find(name) for name in names] == [
        "Vehicle.Speed", "Vehicle.Speed", "Vehicle.Coolant", "Vehicle.Gear", None, None,
    ]  # fmt: skip
    with pytest.raises(DataError, match=r"no signal 'Vehicle.Sped'. Did you mean Vehicle.Speed"):
        catalogue.leaf("Vehicle.Sped")


def test_numbers_get_the_unit_and_limits_of_the_catalogue(catalogue):
    fitted = vss.fitted(column([10, np.nan, 20], "m/s", low=0.0, high=50.0), catalogue.leaf("Vehicle.Speed"))
    np.testing.assert_allclose(fitted.value, [36.0, np.nan, 72.0])
    assert (fitted.name, fitted.unit, fitted.low, fitted.high) == ("Vehicle.Speed", "km/h", 0.0, 180.0)
    assert fitted.description == "Vehicle speed."
    fitted = vss.fitted(column([212.0, 32.0], "K"), catalogue.leaf("Vehicle.Coolant"), "degF", "coolant")
    np.testing.assert_allclose(fitted.value, [100.0, 0.0], atol=1e-9)
    assert (fitted.name, fitted.unit, fitted.low, fitted.high) == ("coolant", "Celsius", -50.0, 200.0)


def test_words_get_those_of_the_catalogue(catalogue):
    fitted = vss.fitted(column(["eco", None, "Sport plus"]), catalogue.leaf("Vehicle.Mode"))
    assert fitted.value.tolist() == ["ECO", None, "SPORT_PLUS"]
    assert vss.fitted(column([0.0, 2.0]), catalogue.leaf("Vehicle.Rain")).value.tolist() == ["NONE", "RAIN"]
    fitted = vss.fitted(column(["On", None, "off"]), catalogue.leaf("Vehicle.IsMoving"))
    np.testing.assert_array_equal(fitted.value, [1.0, np.nan, 0.0])
    assert vss.fitted(column(["P", "D"]), catalogue.leaf("Vehicle.Gear")).value.tolist() == [126.0, 1.0]


@pytest.mark.parametrize(
    ("values", "unit", "path", "why"),
    [
        ([10.0], "bar", "Speed", "bar is a unit of pressure, and km/h one of speed"),
        ([10.0], "parsec", "Speed", "unit 'parsec' is not known"),
        (
            [10.0, 655.35, 655.35],
            "",
            "Level",
            "2 of its 3 values are not at least 0 percent, at most 100 percent: 2 tim",
        ),
        ([300.0], "", "Coolant", "1 of its 1 values are not at least -50 Celsius, at most 200 Celsius: 300 Celsius"),
        ([0.0, 2.0], "", "IsMoving", "1 of its 2 values are not 0 or 1: 2"),
        (["fast"], "", "Speed", r"it holds words \(fast\), and the signal is a float"),
        (["fast"], "", "Mode", r"fast is none of its words \(ECO, SPORT_PLUS\)"),
        ([1.0], "", "Mode", r"it holds numbers, and the signal is one of words \(ECO, SPORT_PLUS\)"),
        ([1.0], "", "Rain", "1.0 stands for none of its words"),
        ([1.0], "", "List", "the signal is a list of values in each sample"),
        (["R"], "", "Gear", "R is none of the words that the overlay translates"),
    ],
)
def test_what_the_signal_cannot_be_is_refused_by_name(catalogue, values, unit, path, why):
    with pytest.raises(DataError, match=f"column 'column' cannot be Vehicle.{path}: {why}"):
        vss.fitted(column(values, unit), catalogue.leaf(f"Vehicle.{path}"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"Vehicle:\n  type: branch\n", "is no catalogue of VSS in JSON"),
        (gzip.compress(b"{}")[:-9], "is no catalogue of VSS in JSON"),
        (gzip.compress(bytes(65 << 20), 1), "more than 64 MB"),
        (b"[" * 100_000, "is no catalogue of VSS in JSON"),
        (b"{}", "is a catalogue without signals"),
        (b'{"Vehicle": 1}', "Vehicle is no object"),
        (b'{"Vehicle": {"children": [1]}}', "a branch is no object"),
        (b'{"Speed": {"datatype": "float", "min": "low"}}', "Speed cannot be understood"),
        (b'{"Speed": {"datatype": "float", "dbc": {"transform": {"math": "x*2"}}}}', "computed by a formula"),
    ],
)
def test_catalogues_that_are_none_are_refused(tmp_path, content, why):
    (tmp_path / "vss.json").write_bytes(content)
    with pytest.raises(DataError, match=why):
        vss.Catalogue([tmp_path / "vss.json"])


@pytest.mark.parametrize(
    ("given", "wanted", "number", "expected"),
    [
        ("km/h", "m/s", 36.0, 10.0),
        ("mph", "km/h", 1.0, 1.609344),
        ("°F", "Celsius", 212.0, 100.0),
        ("K", "degC", 273.15, 0.0),
        ("C", "K", 0.0, 273.15),
        ("psi", "kPa", 1.0, 6.894757293168),
        ("[1/min]", "rpm", 5.0, 5.0),
        ("rpm", "degrees/s", 1.0, 6.0),
        ("PS", "kW", 1.0, 0.73549875),
        ("mpg", "km/l", 1.0, 0.425143707430272),
        ("MPa", "bar", 1.0, 10.0),
        ("ms", "s", 1.0, 0.001),
        ("ratio", "%", 0.5, 50.0),
    ],
)
def test_units_are_converted(given, wanted, number, expected):
    factor, offset = units.conversion(given, wanted)
    assert number * factor + offset == pytest.approx(expected, rel=1e-12, abs=1e-9)
    back, offset_back = units.conversion(wanted, given)
    assert (number * factor + offset) * back + offset_back == pytest.approx(number, rel=1e-12, abs=1e-9)
