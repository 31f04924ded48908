"""One table as loggers and spreadsheets write it: it comes out right, or the refusal names line and way out."""

# ruff: noqa: E501 - a table of files, one a line
import gzip
import io
import json
import tomllib
import zipfile
from collections.abc import Callable

import numpy as np
import pytest

from edge_agent.imports.plan import Plan
from schemas.errors import DataError

ROWS = 40
_RNG = np.random.default_rng(7)
TIME = [row * 0.5 for row in range(ROWS)]
RPM = [round(float(value), 1) for value in _RNG.uniform(800, 2800, ROWS)]
SPEED = [round(float(value), 2) for value in _RNG.uniform(5, 120, ROWS)]
THROTTLE = [round(float(value), 1) for value in _RNG.uniform(1, 99, ROWS)]
FUEL = [round(float(value), 3) for value in _RNG.uniform(5, 22, ROWS)]
TRUTH = {"rpm": RPM, "speed": SPEED, "throttle": THROTTLE, "fuel": FUEL}
NAMES = ("time", "rpm", "speed", "throttle", "fuel")
DATA = list(zip(TIME, RPM, SPEED, THROTTLE, FUEL, strict=True))


def lines(separator: str = ",", form: str = "{:.3f}", decimal: str = ".", names: tuple[str, ...] = NAMES) -> list[str]:
    rows = [separator.join(form.format(value).replace(".", decimal) for value in row) for row in DATA]
    return [separator.join(names), *rows]


def text(parts: list[str], end: str = "\n") -> bytes:
    return "".join(part + end for part in parts).encode()


def with_times(write: Callable[[float], str], separator: str = ",") -> bytes:
    head, *rows = lines(separator)
    return text(
        [head, *(write(float(row.split(separator)[0])) + separator + row.partition(separator)[2] for row in rows)]
    )


def of_day(seconds: float) -> str:
    return f"13:11:{seconds:06.3f}"


def zipped(content: bytes, *names: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names or ("drive.csv",):
            archive.writestr(name, content)
    return out.getvalue()


def with_cell(row: int, column: int, cell: str, separator: str = ",") -> bytes:
    parts = lines(separator)
    cells = parts[row].split(separator)
    cells[column] = cell
    parts[row] = separator.join(cells)
    return text(parts)


def without(*rows: int) -> dict[str, list[float]]:
    return {name: [value for row, value in enumerate(values) if row not in rows] for name, values in TRUTH.items()}


def with_none(name: str, *rows: int) -> dict[str, list[float | None]]:
    return {
        **{each: [*values] for each, values in TRUTH.items()},
        name: [None if row in rows else value for row, value in enumerate(TRUTH[name])],
    }


PLAIN = text(lines())
GERMAN = text(lines(";", decimal=","))
UNITS = "s,1/min,km/h,%,l/h"
HEAD = ["# StartTime = 08/11/2026 13:11:43", "# Vehicle: demo"]


def grouped(mark: str, point: str = ".", quote: str = "") -> Callable[[float], str]:
    def write(value: float) -> str:
        number = f"{value:,.3f}".replace(",", "\0").replace(".", point).replace("\0", mark)
        return f"{quote}{number}{quote}"

    return write


def marked(separator: str, write: Callable[[float], str]) -> bytes:
    return text([separator.join(NAMES), *(separator.join(map(write, row)) for row in DATA)])


RIGHT: dict[str, tuple[bytes, dict[str, list[float]] | dict[str, list[float | None]]]] = {
    "plain": (PLAIN, TRUTH),
    "crlf": (text(lines(), "\r\n"), TRUTH),
    "old line ends": (text(lines(), "\r"), TRUTH),
    "semicolons and decimal commas": (GERMAN, TRUTH),
    "tabs": (text(lines("\t")), TRUTH),
    "tabs and decimal commas": (text(lines("\t", decimal=",")), TRUTH),
    "bars": (text(lines("|")), TRUTH),
    "circumflexes": (text(lines("^")), TRUTH),
    "spaces": (text(lines(" ")), TRUTH),
    "a space behind each comma": (text(lines(", ")), TRUTH),
    "a separator at each end": (text([line + ";" for line in lines(";")]), TRUTH),
    "a separator at the rows' ends alone": (text([lines()[0], *(line + "," for line in lines()[1:])]), TRUTH),
    "sep= above": (b"sep=;\n" + GERMAN, TRUTH),
    "utf-8 with mark": (b"\xef\xbb\xbf" + PLAIN, TRUTH),
    "utf-8 with mark and sep=": (b"\xef\xbb\xbfsep=;\r\n" + GERMAN, TRUTH),
    "utf-16": (PLAIN.decode().encode("utf-16"), TRUTH),
    "utf-16 without mark": (PLAIN.decode().encode("utf-16-le"), TRUTH),
    "utf-16 big-endian": (b"\xfe\xff" + GERMAN.decode().encode("utf-16-be"), TRUTH),
    "latin-1": ("Fahrzeug: Zoë\n".encode("cp1252") + GERMAN, TRUTH),
    "comments above": (text([*HEAD, *lines()]), TRUTH),
    "words above": (text(["Logger 3.1", "Start,08.11.2026 13:11", "", *lines()]), TRUTH),
    "a comment with a quote": (text(['# driver\'s "log', *lines()]), TRUTH),
    "names in a comment": (text(["# made by a logger", "# " + lines()[0], *lines()[1:]]), TRUTH),
    "units in names": (text(lines(names=("Time (sec)", "rpm (1/min)", "speed [km/h]", "throttle (%)", "fuel (l/h)"))), TRUTH),
    "units under names": (text([lines()[0], UNITS, *lines()[1:]]), TRUTH),
    "units under two names": (text([lines()[0], ",1/min,,,l/h", *lines()[1:]]), TRUTH),
    "units in brackets under names": (text([lines()[0], "[s],[1/min],[km/h],[%],[l/h]", *lines()[1:]]), TRUTH),
    "units and head": (text([*HEAD, lines()[0], UNITS, *lines()[1:]]), TRUTH),
    "kinds and units under names": (text([lines()[0], "float,float,float,float,float", UNITS, *lines()[1:]]), TRUTH),
    "units in cells": (marked(";", lambda value: f"{value:.3f} s".replace(".", ",")), TRUTH),
    "names again": (text([*lines()[:20], lines()[0], *lines()[20:]]), TRUTH),
    "names and units again": (text([lines()[0], UNITS, *lines()[1:20], lines()[0], UNITS, *lines()[20:]]), TRUTH),
    "all again": (text([*HEAD, *lines()[:20], *HEAD, lines()[0], *lines()[20:]]), TRUTH),
    "cut before a restart": (text([*lines()[:20], lines()[20][:12], lines()[0], *lines()[21:]]), without(19)),
    "a comment between": (text([*lines()[:20], "# marker 1", *lines()[20:]]), TRUTH),
    "empty lines": (text([*lines()[:20], "", "", *lines()[20:], ""]), TRUTH),
    "empty rows": (text([*lines()[:20], ",,,,", *lines()[20:]]), TRUTH),
    "cut in a cell": (PLAIN + b"20.000,1200.1,3", TRUTH),
    "cut in the last cell": (PLAIN + b"20.000,1200.100,3.000,4.000,8.9", TRUTH),
    "cut behind the last cell": (PLAIN[:-1], TRUTH),
    "quoted": (text([",".join(f'"{cell}"' for cell in line.split(",")) for line in lines()]), TRUTH),
    "quoted thousands": (marked(",", grouped(",", quote='"')), TRUTH),
    "apostrophes": (marked(";", grouped("'")), TRUTH),
    "typographic apostrophes": (marked(";", grouped("\u2019")), TRUTH),
    "narrow spaces": (marked(";", grouped("\u202f", ",")), TRUTH),
    "hard spaces": (marked(";", grouped("\u00a0", ",")), TRUTH),
    "spaces between thousands": (marked(";", grouped(" ", ",")), TRUTH),
    "points between thousands": (marked(";", grouped(".", ",")), TRUTH),
    "scientific": (text(lines(form="{:.6e}")), TRUTH),
    "a sign": (text(lines(form="{:+.3f}")), TRUTH),
    "nul at the end": (PLAIN + b"\0" * 500, TRUTH),
    "nul between lines": (text(lines()[:20]) + b"\0" * 64 + b"\n" + text(lines()[20:]), TRUTH),
    "nul before a line": (text(lines()[:20]) + b"\0" * 64 + text(lines()[20:]), TRUTH),
    "nul in a line": (text(lines()[:20]) + lines()[20][:8].encode() + b"\0" * 64 + text(lines()[21:]), without(19, 20)),
    "gz": (gzip.compress(PLAIN), TRUTH),
    "gz of utf-16": (gzip.compress(GERMAN.decode().encode("utf-16")), TRUTH),
    "zip": (zipped(PLAIN), TRUTH),
    "one mark": (with_cell(5, 2, "ERR"), with_none("speed", 4)),
    "a mark of a bus": (with_cell(5, 2, "SNA"), with_none("speed", 4)),
    "an error of a spreadsheet": (with_cell(5, 2, "#DIV/0!"), with_none("speed", 4)),
    "not a number": (with_cell(5, 2, "NaN"), with_none("speed", 4)),
    "an infinite number": (with_cell(5, 2, "-inf"), with_none("speed", 4)),
    "dashes": (with_cell(5, 2, "--"), with_none("speed", 4)),
    "an empty cell": (with_cell(5, 2, ""), with_none("speed", 4)),
    "dates and clocks": (with_times(lambda at: f"2026-11-08 {of_day(at)}"), TRUTH),
    "dates with zones": (with_times(lambda at: f"2026-11-08T{of_day(at)}+01:00"), TRUTH),
    "am and pm": (with_times(lambda at: f"11/25/2026 01:11:{at:06.3f} PM"), TRUTH),
    "am and pm behind narrow spaces": (with_times(lambda at: f"11/25/2026 1:11:{at:06.3f}\u202fPM"), TRUTH),
    "clocks": (with_times(of_day), TRUTH),
    "german dates": (with_times(lambda at: f"08.11.2026 {of_day(at)}", ";"), TRUTH),
    "since 1970 in ms": (with_times(lambda at: f"{1_794_000_000_000 + at * 1000:.0f}"), TRUTH),
    "json lines": (text([json.dumps(dict(zip(NAMES, row, strict=True))) for row in DATA]), TRUTH),
    "a json array": (json.dumps([dict(zip(NAMES, row, strict=True)) for row in DATA]).encode(), TRUTH),
    "json lines, the last one cut": (text([json.dumps(dict(zip(NAMES, row, strict=True))) for row in DATA]) + b'{"time": 20, "rp', TRUTH),
    "objects in json": (text([json.dumps({"time": row[0], "e": {"rpm": row[1]}, "speed": row[2], "throttle": row[3], "fuel": row[4]}) for row in DATA]),
                        {"e.rpm": RPM, "speed": SPEED, "throttle": THROTTLE, "fuel": FUEL}),
    "one signal a row": (text(["timestamp;name;value", *(f"{row[0]:.2f};{name};{value}" for row in DATA for name, value in zip(NAMES[1:], row[1:], strict=True))]), TRUTH),
    "one signal a row as vss": (text([json.dumps({"ts": row[0] + 1.7e9, "path": f"Vehicle.{name}", "value": value}) for row in DATA for name, value in zip(NAMES[1:], row[1:], strict=True)]),
                                {f"Vehicle.{name}": values for name, values in TRUTH.items()}),
    "one signal a row with units": (text(["Time,Signal,Value,Unit", *(f"{row[0]:.2f},{name},{value},x/y" for row in DATA for name, value in zip(NAMES[1:], row[1:], strict=True))]), TRUTH),
    "an index without a name": (text(["," + lines()[0], *(f"{row},{line}" for row, line in enumerate(lines()[1:]))]), TRUTH),
}  # fmt: skip

REFUSED = {
    "bare thousands": (text(["time,rpm,fuel", *(f"{row[0]},{row[1]:,.0f},{row[4]}" for row in DATA)]), ["line", "comma"]),
    "decimal commas between commas": (text(lines(decimal=",")), ["line", "decimal point"]),
    "thousand or one": (marked(";", lambda value: f"{value + 1:.3f}" if value < 700 else f"{value:.0f}"), ["decimal =", "thousands ="]),
    "thousand or one, quoted": (text(["time,rpm,fuel", *(f'{row[0]},"{row[1] + 1000:,.0f}",{row[4]}' for row in DATA)]), ["is", "or", "columns.rpm", 'thousands = ","']),
    "day or month": (with_times(lambda at: f"08/11/2026 {of_day(at)}"), ["day 8 and month 11", "day 11 and month 8", "clock: form"]),
    "a name twice": (text(lines(names=("time", "rpm", "speed", "speed", "fuel"))), ["two columns", "speed", "line 2"]),
    "a word among numbers": (with_cell(5, 2, "fast"), ["'fast'", "line 6", "missing"]),
    "two units": (text(["a;b", *(f"{value} {'km/h' if row % 2 else 'mph'};1" for row, value in enumerate(SPEED))]), ["line 2", "mph"]),
    "two decimal marks": (text([*lines(";", "{:.4f}")[:5], "2.0;1.5;12,5;3.25;4.5", *lines(";", "{:.4f}")[6:]]), ["12,5", "line 6"]),
    "bare hexadecimal": (text(["id;fuel", *(f"{row + 16:X}{row:X}0;{value}" for row, value in enumerate(FUEL))]), ["hexadecimal", "columns.id"]),
    "powers or hexadecimal": (text(["id;fuel", *(f"{row % 9 + 1}E{row % 7};{value}" if row % 2 else f"{row + 100};{value}" for row, value in enumerate(FUEL))]), ["hexadecimal", "columns.id"]),
    "no names": (text(lines()[1:]), ["names"]),
    "a longer row": (text([*lines()[:9], lines()[9] + ",1.0", *lines()[10:]]), ["10", "6 cells"]),
    "a shorter row": (text([*lines()[:9], lines()[9].rpartition(",")[0], *lines()[10:]]), ["10", "4 cells"]),
    "one column": (text(["fuel", *(str(value) for value in FUEL)]), ["one column"]),
    "a formula": (with_cell(5, 2, "=SUM(A1:A3)"), ["=SUM(A1:A3)", "line 6"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", RIGHT)
def test_a_file_of_this_kind_comes_out_right(imported, kind):
    content, truth = RIGHT[kind]
    table, report = imported(content)
    again, _ = imported(content, plan=Plan.model_validate(tomllib.loads(report.plan.to_toml(report.why))))
    assert str(again) == str(table)
    for name, values in truth.items():
        missing = [row for row, value in enumerate(values) if value is None]
        assert [row for row, value in enumerate(table[name]) if value is None] == missing, name
        assert [value or 0.0 for value in table[name]] == pytest.approx(
            [value or 0.0 for value in values], rel=1e-12
        ), name


@pytest.mark.parametrize("kind", REFUSED)
def test_a_file_that_can_be_read_in_two_ways_is_refused(imported, tmp_path, kind):
    content, words = REFUSED[kind]
    with pytest.raises(DataError) as refusal:
        imported(content)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert [path.name for path in tmp_path.iterdir()] == ["drive-0.csv"]
