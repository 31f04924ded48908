"""A vehicle's data: what is read, what is said when it cannot be, and files as people have them become rows."""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from console.main import run
from edge_agent.live.adapters import is_table
from edge_agent.live.port import SampleRequest
from edge_agent.live.rows import Samples
from edge_agent.sources import read_source, read_table, readers
from edge_agent.sources.location import Location, Reader
from edge_agent.sources.readers import vehicle_files
from edge_agent.sources.window import WindowStore
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
    source = read_source(path, hold_back=True)
    assert np.array_equal(source.train.X, table[:3951, :2])
    assert np.array_equal(source.test.y, table[4001:, 2])


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("a,y\n1,2\n3,4\n", "z", "there is no column 'z'. The columns are: a, y. Name the target with --target"),
        ("a,y\n1,2\nred,4\n", None, "a: 'red' (line 3) is no number, where the others are"),
        ("a,y\n1,2\n3,high\n", None, "y: 'high' (line 3) is no number, where the others are"),
        ("a,y\n1,2\n3,\n", None, "row 2 of the data, column 'y': the cell is empty"),
        ("a,y\n1,2\nnan,4\n", None, "row 2 of the data, column 'a': nan is not a finite number"),
        ("a,y\n1,inf\n3,4\n", None, "row 1 of the data, column 'y': the cell is empty (the column has 1 'inf')"),
        ("a,y\n1,2\n", None, "only one row; an agent needs at least 2 rows"),
        ("a,y\n", None, "there are columns but no rows"),
        ("", None, "the file is empty"),
        ("split,a,y\ntest,1,2\ntest,3,4\n", None, "no rows with split 'train'; an agent"),
        (
            "split,a,y\ntrain,1,2\nvalid,3,4\n",
            None,
            "row 2 of the data, column 'split': 'valid' is neither 'train' nor 'test'",
        ),
        ("a,a,y\n1,2,3\n1,3,3\n", None, "a: two columns have this name, 1 and 2; line 2 has '1' and '2'"),
        ("a,y\n1,2\n3\n", None, "row 2 of the data has 1 cells, and there are 2 columns"),
        ("1,2\n3,4\n5,6\n", None, "the first row (line 1) holds values, no names"),
        ("split,y\ntrain,1\ntrain,2\n", None, "no input column beside the target 'y'"),
        ("split\ntrain\n", None, "no separator parts its lines into columns"),
        ("split,a\ntrain,1\n", "split", "it cannot be the target"),
        (b"SQLite format 3\x00\x04\xff", None, "an SQLite database, not a table of text. Name its rows: sqlite:///"),
        (b"PAR1\xff\xff", None, "not a readable table of Parquet or Arrow"),
        (b"PK\x03\x04\xff", None, "the zip archive cannot be read"),
        (b"\x1f\x8b\x08\xff", None, "the gzip file is damaged"),
    ],
)
def test_source_names_fault_place_and_way_out_when_data_cannot_be_used(write, text, target, message):
    path = write(text)
    with pytest.raises(DataError) as caught:
        read_source(path, target=target)
    assert str(caught.value).startswith(f"{path}")
    assert message in str(caught.value)


def test_source_says_so_when_a_file_is_not_there_or_a_directory_or_no_gzip_and_takes_one_that_was_cut(write, tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_source(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="is a directory"):
        read_source(tmp_path)
    path = tmp_path / "plain.csv.gz"
    path.write_text(GOOD)
    with pytest.raises(DataError, match="not compressed, in spite of its name"):
        read_source(path)
    whole = write("a,y\n" + "".join(f"{index * 3},{index * 7}\n" for index in range(2000)), "data.csv.gz")
    whole.write_bytes(whole.read_bytes()[:-100])
    assert "1 compressed file cut short left out" in read_source(whole).notes[0]


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
@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ([0, 1], ["0", "1"]),
        ([0.5, 1.0], ["0.5", "1"]),
        ([True, False], ["True", "False"]),
        (["007", "7.0"], ["007", "7"]),
    ],
)
def test_equal_numbers_are_equal_labels_and_all_else_is_its_text(
    tmp_path: Path, kind: str, given: list[Any], labels: list[str]
) -> None:
    place, rows = str(tmp_path / f"rows.{kind}"), list(enumerate(given, 3))
    if kind == "csv":
        Path(place).write_text("a,y\n" + "".join(f"{a},{y}\n" for a, y in rows))
    elif kind == "parquet":
        pyarrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"a": [3, 4], "y": given}), place)
    elif kind == "window":
        WindowStore(Path(place)).append([{"a": a, "y": y} for a, y in rows])
    else:
        place = write_database(Path(place), ("a", "y"), rows)
        labels = ["1", "0"] if given[0] is True else labels  # SQLite knows no truth values
    for categories in (False, True):
        source = read_source(place, labels=True, categories=categories)
        assert source.train.y.tolist() == labels


@pytest.mark.parametrize("name", ["rows.CSV", "rows.Csv.GZ"])
def test_ending_of_a_name_may_be_written_in_any_case(write: Write, name: str) -> None:
    path = write("a,y\n1,2\n3,4\n", name)
    assert read_source(path).train.X.tolist() == [[1.0], [3.0]]
    assert (vehicle_files(path.parent), is_table(str(path))) == ([("rows", path)], True)


OBJECTS = '{"a": 1, "y": 2}\n{"a": 3, "y": 4}\n'
ARRAY = '[\n{"a": 1, "y": 2},\n{"a": 3, "y": 4}\n]\n'


@pytest.mark.parametrize("name", ["drive.ndjson", "drive.ndjson.gz", "drive.csv"])
@pytest.mark.parametrize("text", [OBJECTS, ARRAY])
def test_objects_of_json_are_rows(write: Write, name: str, text: str) -> None:
    source = read_source(write(text, name))
    assert (source.train.X.tolist(), source.train.y.tolist()) == ([[1.0], [3.0]], [2.0, 4.0])
    assert "JSON, one object a row" in source.notes[0]


@pytest.mark.parametrize("text", ["{", "null", '"x"', "{'a': 1}", "\n"])
def test_file_whose_name_says_json_is_told_to_be_none(write: Write, text: str) -> None:
    with pytest.raises(DataError, match="JSON"):
        read_table(write(text, "rows.jsonl"))


def test_what_is_asked_of_a_model_may_be_a_column_that_an_import_leaves_out(write: Write) -> None:
    text = "speed,load\n" + "".join(f"{row},{row % 3}\n" for row in range(30))
    assert read_table(write(text)).names == ("speed", "load")
    assert read_source(write(f"y,{text}".replace("\n", "\n5,").removesuffix("5,")), target="y").train.features == (
        "load",
    )
    assert read_table(write("a,b\n1,1\n")).rows == 1
    assert read_table(write('{"a": "\\ud800", "b": 2}', "rows.jsonl")).text == ("a",)


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
    return [
        sample if isinstance(sample, str) else sample.values for sample in Samples(SampleRequest(str(path), speed=0.0))
    ]


def test_new_kind_of_source_is_read_followed_and_replayed_when_its_reader_is_registered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("a\ty\n1\t2\n3\t4\n")
    monkeypatch.setattr(readers, "READERS", (*readers.READERS, Reader("tabs", tabbed_rows, endings=(".tsv",))))

    assert read_source(path).train.X.tolist() == [[1.0], [3.0]]
    assert read_table(path).column("y").tolist() == [2.0, 4.0]
    assert samples_of(path) == [{"a": 1.0, "y": 2.0}, {"a": 3.0, "y": 4.0}]

    moving = Reader("tabs", tabbed_rows, endings=(".tsv",), mark=lambda place: Path(place.text).read_bytes)
    monkeypatch.setattr(readers, "READERS", (*readers.READERS[:-1], moving))
    source = read_source(path)
    assert source.current().train is source.current().train, "it is not read again while nothing changes"
    path.write_text("a\ty\n1\t2\n3\t4\n5\t6\n")
    assert source.current().train.rows == 3


def test_help_and_faults_name_every_kind_of_source(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readers, "READERS", (*readers.READERS, Reader("of tabs", tabbed_rows, endings=(".tsv",))))
    assert run(["data", "--help"]) == 0
    assert re.search(r"\.tsv +of tabs\n", capsys.readouterr().out)
    with pytest.raises(DataError, match=r"holds no \.csv, \.csv\.gz, \.parquet or \.tsv files"):
        vehicle_files(tmp_path)
