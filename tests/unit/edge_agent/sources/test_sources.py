"""A vehicle's data: what is read, what is said when it cannot be, and files as people have them become rows."""

from __future__ import annotations

import csv
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from console.main import run
from edge_agent.live.adapters import is_table
from edge_agent.live.port import Asked
from edge_agent.live.samples import Samples
from edge_agent.sources import read_source, read_table, readers
from edge_agent.sources.check import examine
from edge_agent.sources.folder import vehicle_files
from edge_agent.sources.location import Location, Reader
from edge_agent.sources.proposal import propose
from edge_agent.sources.window import WindowStore
from lab.demo.vehicles import real_files
from schemas.errors import DataError
from tests.support.agent_bench import write_database

Write = Callable[..., Path]

GOOD = "split,a,b,y\ntrain,1,2,3\ntest,4,5,6\ntrain,7,8.5,-9e1\n"


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz"])
def test_source_reads_train_and_test_rows_when_there_is_a_split_column(write, name):
    source = read_source(write(GOOD, name))
    assert source.train.features == ("a", "b")
    assert source.train.target == "y"
    assert source.train.X.tolist() == [[1, 2], [7, 8.5]]
    assert source.train.y.tolist() == [3, -90]
    assert (source.test.X.tolist(), source.test.y.tolist()) == ([[4, 5]], [6])


def test_source_reads_windows_line_ends_a_byte_order_mark_quotes_and_blank_lines(write):
    source = read_source(write('\ufeff"a",y\r\n"1",2\r\n\r\n3,4\r\n'))
    assert source.train.features == ("a",)
    assert source.train.X.tolist() == [[1], [3]]


def test_source_reads_many_rows_in_blocks_as_numpy_does(write):
    table = np.random.default_rng(0).random((5001, 3))
    path = write("")
    np.savetxt(path, table, delimiter=",", header="a,b,y", comments="", fmt="%.17g")
    source = read_source(path)
    assert np.array_equal(source.train.X, table[:, :2])
    assert np.array_equal(source.train.y, table[:, 2])


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("a,y\n1,2\n3,4\n", "z", "there is no column 'z'. The columns are: a, y. Name the target with --target"),
        ("a,y\n1,2\nred,4\n", None, "row 2 of the data, column 'a': 'red' is not a number"),
        ("a,y\n1,2\n3,high\n", None, "row 2 of the data, column 'y': 'high' is not a number"),
        ("a,y\n1,2\n3,\n", None, "row 2 of the data, column 'y': the cell is empty"),
        ("a,y\n1,2\nnan,4\n", None, "row 2 of the data, column 'a': nan is not a finite number"),
        ("a,y\n1,inf\n3,4\n", None, "row 1 of the data, column 'y': inf is not a finite number"),
        ("a,y\n1,2\n", None, "only one row; an agent needs at least 2 rows"),
        ("a,y\n", None, "there are columns but no rows"),
        ("", None, "the file is empty"),
        ("split,a,y\ntest,1,2\ntest,3,4\n", None, "no rows with split 'train'; an agent"),
        (
            "split,a,y\ntrain,1,2\nvalid,3,4\n",
            None,
            "row 2 of the data, column 'split': 'valid' is neither 'train' nor 'test'",
        ),
        ("a,a,y\n1,2,3\n1,2,3\n", None, "two columns are called 'a' (1 and 2)"),
        ("a,,y\n1,2,3\n1,2,3\n", None, "column 2 has no name"),
        ("a,y\n1,2\n3\n", None, "row 2 of the data has 1 cells, and there are 2 columns"),
        ("1,2\n3,4\n5,6\n", None, "the first row holds numbers only"),
        ("a;y\n1;2\n3;4\n", None, "separated by semicolons"),
        ("split,y\ntrain,1\ntrain,2\n", None, "no input column beside the target 'y'"),
        ("split\ntrain\n", None, "no column beside 'split'"),
        ("split,a\ntrain,1\n", "split", "it cannot be the target"),
        (b"a,y\n\xff,2\n", None, "not UTF-8 text"),
        (b"SQLite format 3\x00\x04\xff", None, "an SQLite database, not a CSV file. Name its rows: sqlite:///"),
        (b"PAR1\xff\xff", None, "a Parquet file, not a CSV file. Let its name end in .parquet"),
        (b"PK\x03\x04\xff", None, "a spreadsheet or a zip archive, not a CSV file. Save the table as CSV"),
        (b"\x1f\x8b\x08\xff", None, "a file compressed with gzip, not a CSV file. Let its name end in .csv.gz"),
    ],
)
def test_source_names_fault_place_and_way_out_when_data_cannot_be_used(write, text, target, message):
    path = write(text)
    with pytest.raises(DataError) as caught:
        read_source(path, target=target)
    assert str(caught.value).startswith(f"{path}")
    assert message in str(caught.value)


def test_source_says_so_when_a_file_is_not_there_or_a_directory_or_no_gzip_or_cut(write, tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_source(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="is a directory"):
        read_source(tmp_path)
    path = tmp_path / "plain.csv.gz"
    path.write_text(GOOD)
    with pytest.raises(DataError, match="not a gzip file, in spite of its name"):
        read_source(path)
    whole = write("a,y\n" + "".join(f"{index},{index * 7}\n" for index in range(2000)), "data.csv.gz")
    whole.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(DataError, match="damaged or cut short"):
        read_source(whole)


def test_source_reads_parquet_or_names_the_command_that_makes_it_possible(tmp_path, monkeypatch):
    path = tmp_path / "data.parquet"
    path.touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'glassfleet\[parquet\]'"):
        read_source(path)
    monkeypatch.undo()
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"split": ["train", "test", "train"], "a": [1.0, 2.0, 3.0], "y": [4, 5, 6]}), path)
    source = read_source(path)
    assert (source.train.X.tolist(), source.train.y.tolist(), source.test.rows) == ([[1], [3]], [4, 6], 1)
    parquet.write_table(pa.table({"a": [1.0, None], "y": [4, 5]}), path)
    with pytest.raises(DataError, match=r"row 2 .* column 'a'"):
        read_source(path)
    path.write_bytes(b"not parquet")
    with pytest.raises(DataError, match="not a readable Parquet file"):
        read_source(path)


@pytest.mark.parametrize("kind", ["csv", "parquet", "window", "database"])
@pytest.mark.parametrize("given", [[0, 1], [0.5, 1.0], [True, False], ["007", "7.0"]])
def test_labels_are_the_text_that_stands_in_the_table_with_and_without_categories(
    tmp_path: Path, kind: str, given: list[Any]
) -> None:
    place, rows = str(tmp_path / f"rows.{kind}"), list(enumerate(given))
    if kind == "csv":
        Path(place).write_text("a,y\n" + "".join(f"{a},{y}\n" for a, y in rows))
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"a": [0, 1], "y": given}), place)
    elif kind == "window":
        WindowStore(Path(place)).append([{"a": a, "y": y} for a, y in rows])
    else:
        place = write_database(Path(place), ("a", "y"), rows)
        given = list(map(int, given)) if given[0] is True else given  # SQLite knows no truth values
    for categories in (False, True):
        source = read_source(place, labels=True, categories=categories)
        assert source.train.y.tolist() == list(map(str, given))
    assert list(examine(place, labels=True).columns[-1].common) == list(map(str, given))


@pytest.mark.parametrize("name", ["rows.CSV", "rows.Csv.GZ"])
def test_ending_of_a_name_may_be_written_in_any_case(write: Write, name: str) -> None:
    path = write("a,y\n1,2\n3,4\n", name)
    assert read_source(path).train.X.tolist() == [[1.0], [3.0]]
    assert (vehicle_files(path.parent), is_table(str(path))) == ([("rows", path)], True)


@pytest.mark.parametrize(
    "text", ['{"split": "test", "a": 1}\n', '\ufeff{\n  "a": 1}', '[\n{"a": 1}]', f'{{"a": "{"x" * 9000}"}}\n', "{}"]
)
def test_json_is_not_read_as_csv_and_the_way_out_is_told(
    write: Write, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    what = f"{'a JSON array' if text.startswith('[') else 'JSON'}, not a CSV file"
    for name in ("v0.ndjson", "v0.csv.gz", "v0.CSV"):
        path = write(text, name)
        with pytest.raises(DataError, match=rf": {what}\. Save .* data collect --source "):
            read_source(path)
        assert run(["data", "prepare", str(path)]) == 3
        assert f": {what}" in capsys.readouterr().err
    assert not list(path.parent.glob("*.plan"))
    assert read_source(write("[s],{a},y\n1,2,3\n4,5,6\n")).train.features == ("[s]", "{a}")


OBJECTS = '{"a": 1, "y": 2}\n{"a": 3, "y": 4}\n'
ARRAY = '[\n{"a": 1, "y": 2},\n{"a": 3, "y": 4}\n]\n'


@pytest.mark.usefixtures("structlog_defaults")
@pytest.mark.parametrize("name", ["my drive.ndjson", "my drive.ndjson.gz", "my drive.csv", "my drive.csv.gz"])
@pytest.mark.parametrize(
    "text", [pytest.param(OBJECTS, id="lines"), pytest.param(ARRAY, id="array", marks=pytest.mark.needs("jq"))]
)
def test_way_out_of_json_leads_to_a_window(
    write: Write, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, text: str
) -> None:
    path = write(text, name)
    monkeypatch.chdir(path.parent)
    with pytest.raises(DataError) as fault:
        read_source(path)
    make, _, collect = fault.value.mend.partition("window: ")[2].rpartition("glassfleet ")
    assert ("jq" in make) == (text is ARRAY)
    subprocess.run(f"{make} true", shell=True, check=True)
    assert run(shlex.split(collect)) == 0
    assert capsys.readouterr().err.startswith("2 samples taken, 0 refused")
    assert read_source("my drive.window").train.X.tolist() == [[1.0], [3.0]]


@pytest.mark.usefixtures("structlog_defaults")
def test_wrong_source_leaves_no_window(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    for name, words in (
        ("array.json", "it is a JSON array. Write each of its objects on a line of its own"),
        ("packed.ndjson.gz", "it had no sample to take"),
    ):
        path = write(ARRAY, name)
        store = path.with_suffix(".window")
        assert run(["data", "collect", "--source", str(path), "--store", str(store)]) == 3
        assert words in capsys.readouterr().err
        assert not list(path.parent.glob("*.window*"))


def test_fault_of_a_database_speaks_of_no_header(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    write_database(tmp_path / "rows.db", ("a", "y"), [(1, 2), ("red", 3)])
    for query, words in (
        ("SELECT 1, 2", "the columns' names are numbers: 1, 2. Name the columns"),
        ("SELECT 1 AS ' ', y FROM rows", "column 1 has no name. Give it one"),
        ("SELECT y AS 'a;b' FROM rows", "there is no input column beside the target 'a;b'"),
        ("SELECT a, y FROM rows", "row 2 of the data, column 'a': 'red' is not a number"),
    ):
        with pytest.raises(DataError) as fault:
            read_source(f"sqlite:///{tmp_path}/rows.db?query={query}")
        assert words in str(fault.value)
        assert "header" not in str(fault.value)


def test_compressed_file_of_another_coding_is_told_as_that(write: Write) -> None:
    with pytest.raises(DataError, match=r"not UTF-8 text \(byte 4\)\. Save it as UTF-8 CSV$"):
        read_source(write(b"a,y\n\xff,2\n", "data.csv.gz"))


@pytest.mark.parametrize("size", [400, 5000])
def test_whole_number_beyond_a_float_is_told_with_its_place(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    huge = Reader("huge", lambda _: nullcontext((("a", "y"), iter([[[1, 2], [10**size, 4]]]))), endings=(".huge",))
    monkeypatch.setattr(readers, "READERS", (*readers.READERS, huge))
    for categories in (False, True):
        with pytest.raises(DataError, match=r"row 2 .* column 'a': inf is not a finite number"):
            read_source("rows.huge", categories=categories)


@contextmanager
def tabbed_rows(place: Location) -> Iterator[tuple[tuple[str, ...], Iterator[list[list[Any]]]]]:
    with Path(place.text.removeprefix("tabs://")).open() as file:
        names, *rows = csv.reader(file, delimiter="\t")
        yield tuple(names), iter([rows])


def samples_of(path: Path) -> list[Any]:
    return [sample if isinstance(sample, str) else sample.values for sample in Samples(Asked(str(path), speed=0.0))]


def test_new_kind_of_source_is_read_checked_followed_and_replayed_when_its_reader_is_registered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("a\ty\n1\t2\n3\t4\n")
    monkeypatch.setattr(readers, "READERS", (*readers.READERS, Reader("tabs", tabbed_rows, endings=(".tsv",))))

    assert read_source(path).train.X.tolist() == [[1.0], [3.0]]
    assert read_table(path).column("y").tolist() == [2.0, 4.0]
    findings = examine(path)
    assert (findings.rows, findings.place, findings.usable) == (2, "row", True)
    short = tmp_path / "short.tsv"
    short.write_text("a\ty\n1\t2\n3\n")
    assert [fault.what for fault in examine(short).faults] == ["row 2 of the data has 1 cells, and there are 2 columns"]
    assert samples_of(path) == [{"a": 1.0, "y": 2.0}, {"a": 3.0, "y": 4.0}]

    moving = Reader("tabs", tabbed_rows, endings=(".tsv",), mark=lambda place: Path(place.text).read_bytes)
    monkeypatch.setattr(readers, "READERS", (*readers.READERS[:-1], moving))
    source = read_source(path)
    assert source.current().train is source.current().train, "it is not read again while nothing changes"
    path.write_text("a\ty\n1\t2\n3\t4\n5\t6\n")
    assert source.current().train.rows == 3


def test_kind_of_table_whose_lines_are_samples_is_a_vehicles_file_and_a_stream(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = Reader("a JSON object per line", tabbed_rows, endings=(".jsonl",), is_stream=True)
    monkeypatch.setattr(readers, "READERS", (*readers.READERS, lines))
    path = tmp_path / "v0.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')

    assert vehicle_files(tmp_path) == [("v0", path)]
    assert samples_of(path) == [{"a": 1}, {"a": 2}], "it is not replayed"
    assert not is_table(str(path)), "data collect follows it"


def test_help_and_faults_name_every_kind_of_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readers, "READERS", (*readers.READERS, Reader("of tabs", tabbed_rows, endings=(".tsv",))))
    assert run(["data", "--help"]) == 0
    assert re.search(r"\.tsv +of tabs\n", capsys.readouterr().out)
    with pytest.raises(DataError, match=r"holds no \.csv, \.csv\.gz, \.parquet, \.plan or \.tsv files"):
        vehicle_files(tmp_path)


HEAD = "when;speed;lights;id;price;city;day;remark;q;\n"
LINES = [
    f"{row % 28 + 1:02d}.03.2026 {row % 24:02d}:30;{row * 7 % 50},{row % 10} km/h;{'Ja' if row % 3 else 'Nein'};"
    f"{10**18 + row};{row % 9 + 1}.{100 + row},50;{'Campinas' if row % 2 else 'Santos'};2026-03-{row % 28 + 1:02d};"
    f"remark {row};{row * 11 % 13};\n"
    for row in range(60)
]
EXPORT = HEAD + "".join(LINES)


def prepared(path: Path, *words: str) -> Path:
    assert run(["data", "prepare", str(path), *words]) == 0
    return path.with_suffix(".plan")


def test_export_of_a_spreadsheet_is_read_as_its_plan_says(write: Write) -> None:
    path = write(EXPORT.replace(";7,1 km/h", ";", 1))
    source = read_source(prepared(path), categories=True)
    rows = [row for row in range(60) if row != 1]
    assert source.train.features == ("when", "speed", "lights", "price", "city")
    expected = [
        [
            row % 24 + 0.5,
            row * 7 % 50 + row % 10 / 10,
            row % 3 > 0,
            1000 * (row % 9 + 1) + 100 + row + 0.5,
            row % 2 == 0,
        ]
        for row in rows
    ]
    assert np.array_equal(source.train.X, np.array(expected, dtype=np.float64))
    assert source.train.categories == {"city": ("Campinas", "Santos")}
    assert source.train.y.tolist() == [row * 11 % 13 for row in rows]


def test_each_column_is_told_what_becomes_of_it(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(EXPORT.replace(";7,1 km/h", ";", 1))
    prepared(path, "--json")
    text = json.loads(capsys.readouterr().out)
    assert (text["rows"], text["usable"]) == (60, 59)
    assert text["reasons"] == {
        "when": "the hour of the day",
        "speed": "numbers in km/h; 1 row without a value left out",
        "lights": "ja is 1, nein is 0",
        "id": "left out: it numbers the rows, like an id",
        "price": "numbers",
        "city": "text, 2 different (agents need --categories)",
        "day": "left out: dates; a model does not learn from a date",
        "remark": "left out: 60 different texts in 60 rows, like names or ids",
        "q": "numbers (the target)",
    }


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (["1/2/2026", "3/4/2026", "5/6/2026"], "left out: day and month cannot be told apart"),
        (["", "NA", "7"], "left out: 2 of 3 cells have no value"),
        (["3.5", "1.5", "2.5"], "left out: it is the target 'y' once more"),
        (["1,200.5", "3.25", "2"], "numbers"),
        (["4,107", "1,100", "5,000"], "numbers; 4,107 is read as 4107"),
        (["1.100", "4.107", "5.000"], "numbers; 1.100 is read as 1.1"),
        (["1,200.5", "1,5", "2"], "left out: 3 different texts"),
        (["192.168.1.0", "192.168.1.1", "10.0.0.1"], "left out: 3 different texts"),
        (["01.02.2024", "02.02.2024", "31.12.2024"], "left out: dates"),
        (["80 %", "75 %", "3 %"], "numbers in %"),
        (["80 %", "75 km", "3 %"], "left out: 3 different texts in 3 rows, like names or ids"),
        (
            ["2026-01-02T10:00:00+02:00", "2026-01-02T11:00:00+02:00", "2026-01-02T12:30:00+02:00"],
            "the hour of the day",
        ),
        (["TRUE", "FALSE", "TRUE"], "true is 1, false is 0"),
        (["1.5", "nan", "2.5"], "numbers; 1 row without a value left out"),
        (["1.5", "inf", "2.5"], "left out: 3 different texts in 3 rows"),
        (["1", "2", "3"], "left out: it numbers the rows"),
    ],
)
def test_column_is_converted_or_left_out_with_the_reason(write: Write, column: list[str], reason: str) -> None:
    rows = "".join(f'"{cell}",{y}\n' for cell, y in zip(column, ("3.5", "1.5", "2.5"), strict=True))
    assert propose(write("a,y\n" + rows)).reasons["a"].startswith(reason)


def test_plan_is_applied_to_every_file_of_its_name_and_names_what_does_not_fit(write: Write, tmp_path: Path) -> None:
    plan = prepared(write(EXPORT)).read_bytes()
    other = tmp_path / "other"
    other.mkdir()
    (other / "data.plan").write_bytes(plan)
    (other / "data.csv").write_text(HEAD + LINES[3] + LINES[4] + LINES[5])
    assert read_source(other / "data.plan", categories=True).train.rows == 3
    (other / "data.csv").write_text(HEAD + LINES[3] + LINES[4].replace(" km/h", " mph"))
    with pytest.raises(DataError, match=r"row 2 .*, column 'speed': '28,4 mph' cannot be taken as number"):
        read_source(other / "data.plan", categories=True)
    (other / "data.csv").write_text((HEAD + LINES[3]).replace("city;", "town;"))
    with pytest.raises(DataError, match=r"the plan says nothing of the column 'town'\."):
        read_source(other / "data.plan", categories=True)


def test_vehicle_whose_file_has_other_marks_is_told_and_not_read_wrongly(write: Write) -> None:
    plan = prepared(write("a;y\n1.100,5;3,5\n1.200,5;4,5\n1.150,25;5,5\n"))
    assert read_source(plan).train.X[:, 0].tolist() == [1100.5, 1200.5, 1150.25]
    for cell in ("1200.75", "3.2", "12.34.567"):
        write(f"a;y\n{cell};3,5\n1.200,5;4,5\n")
        with pytest.raises(DataError, match=f"'{cell}' cannot be taken as number"):
            read_source(plan)


def test_file_that_a_plan_reads_is_no_vehicle_of_its_own(write: Write) -> None:
    plan = prepared(write(EXPORT))
    (plan.parent / "v2.csv").write_text("a,y\n1,2\n3,4\n")
    assert {name: path.name for name, path in real_files(plan.parent).items()} == {"data": "data.plan", "v2": "v2.csv"}


def test_hour_is_the_one_that_the_clock_showed(write: Write) -> None:
    rows = "".join(f"2024-07-0{day}T0{day}:30:00+02:00,{day}\n" for day in (1, 2, 3))
    assert read_source(prepared(write("at,y\n" + rows))).train.X[:, 0].tolist() == [1.5, 2.5, 3.5]


@pytest.mark.parametrize(
    ("document", "what"),
    [
        ('{"data": "data.csv", "columns": {"q": {"take": "half"}}}', "columns.q.take: "),
        ('{"data": "data.csv", "decimal": ",", "thousands": ",", "columns": {}}', "thousands "),
        ('{"data": "data.csv", "columns": {"a": {"take": "hour", "format": "%d%d"}}}', "columns.a.format: "),
        ('{"data": "x\\u0000.csv", "columns": {}}', "data: "),
    ],
)
def test_plan_that_cannot_be_meant_is_refused(write: Write, document: str, what: str) -> None:
    with pytest.raises(DataError, match=rf"data\.plan: not a plan \({what}"):
        read_source(write(document, "data.plan"))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("split\ntrain\n", "says which rows train and test; it cannot be the target"),
        ("", "the file is empty. A header row"),
        ("a,b\n", "there are columns but no rows"),
        ("a;b\n1;2;3\n", "row 1 of the data has 3 cells, the header has 2"),
        ("a;b\n1;2\n", "there is no column 'q'. The columns are: a, b"),
    ],
)
def test_file_of_which_no_plan_can_be_made_is_told_why(
    write: Write, capsys: pytest.CaptureFixture[str], text: str, result: str
) -> None:
    assert run(["data", "prepare", str(write(text)), *(["--target", "q"] if "'q'" in result else [])]) == 3
    assert result in capsys.readouterr().err


def test_file_that_is_no_csv_gets_no_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("b.parquet", "w.window", "p.plan"):
        path = tmp_path / name
        path.write_bytes(b"PAR1")
        assert run(["data", "prepare", str(path), "--out", str(tmp_path / "new.plan")]) == 3
        assert f"{path}: no CSV file; it is read without a plan" in capsys.readouterr().err
    assert not (tmp_path / "new.plan").exists()


def test_plan_that_is_there_is_not_written_over(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(EXPORT)
    before = prepared(path).read_bytes()
    assert run(["data", "prepare", str(path), "--target", "price"]) == 2
    assert "is there already: remove it, or name another --out" in capsys.readouterr().err
    assert run(["data", "prepare", str(path), "--target", "price", "--out", str(path.with_name("two.plan"))]) == 0
    assert path.with_suffix(".plan").read_bytes() == before
    assert run(["data", "prepare", str(path), "--out", str(path.with_name("two.json"))]) == 2
