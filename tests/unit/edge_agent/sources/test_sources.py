"""A vehicle's data: what is read, and what is said when it cannot be."""

import sys

import numpy as np
import pytest

from edge_agent.sources import read_source, read_table
from schemas.errors import DataError

GOOD = "split,a,b,y\ntrain,1,2,3\ntest,4,5,6\ntrain,7,8.5,-9e1\n"


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz"])
def test_source_reads_train_and_test_rows_when_there_is_a_split_column(write, name):
    source = read_source(write(GOOD, name))
    assert source.train.features == ("a", "b")
    assert source.train.target == "y"
    assert source.train.X.tolist() == [[1, 2], [7, 8.5]]
    assert source.train.y.tolist() == [3, -90]
    assert (source.test.X.tolist(), source.test.y.tolist()) == ([[4, 5]], [6])


def test_source_keeps_text_labels_when_asked(write):
    source = read_source(write("a,kind\n1, red\n2,blue\n"), labels=True)
    assert source.train.y.tolist() == ["red", "blue"]
    assert source.train.y.dtype.kind == "U"


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
        ("a,y\n1,2\nred,4\n", None, "row 2 (after the header), column 'a': 'red' is not a number"),
        ("a,y\n1,2\n3,high\n", None, "row 2 (after the header), column 'y': 'high' is not a number"),
        ("a,y\n1,2\n3,\n", None, "row 2 (after the header), column 'y': the cell is empty"),
        ("a,y\n1,2\nnan,4\n", None, "row 2 (after the header), column 'a': nan is not a finite number"),
        ("a,y\n1,inf\n3,4\n", None, "row 1 (after the header), column 'y': inf is not a finite number"),
        ("a,y\n1,2\n", None, "only one row; an agent needs at least 2 rows"),
        ("a,y\n", None, "there are columns but no rows"),
        ("", None, "the file is empty"),
        ("split,a,y\ntest,1,2\ntest,3,4\n", None, "no rows with split 'train'; an agent"),
        ("split,a,y\ntrain,1,2\nvalid,3,4\n", None, "row 2, column 'split': 'valid' is neither 'train' nor 'test'"),
        ("a,a,y\n1,2,3\n1,2,3\n", None, "two columns are called 'a' (1 and 2)"),
        ("a,,y\n1,2,3\n1,2,3\n", None, "column 2 has no name"),
        ("a,y\n1,2\n3\n", None, "row 2 (after the header) has 1 cells, the header has 2 columns"),
        ("1,2\n3,4\n5,6\n", None, "the first row holds numbers only"),
        ("a;y\n1;2\n3;4\n", None, "separated by semicolons"),
        ("split,y\ntrain,1\ntrain,2\n", None, "no input column beside the target 'y'"),
        ("split\ntrain\n", None, "no column beside 'split'"),
        ("split,a\ntrain,1\n", "split", "it cannot be the target"),
        (b"a,y\n\xff,2\n", None, "not UTF-8 text"),
    ],
)
def test_source_names_fault_place_and_way_out_when_data_cannot_be_used(write, text, target, message):
    path = write(text)
    with pytest.raises(DataError) as caught:
        read_source(path, target=target)
    assert str(caught.value).startswith(f"{path}")
    assert message in str(caught.value)


def test_source_says_so_when_there_is_no_such_file_or_it_is_a_directory(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        read_source(tmp_path / "absent.csv")
    with pytest.raises(DataError, match="is a directory"):
        read_source(tmp_path)


def test_source_says_so_when_a_gzip_is_none_or_is_cut(write, tmp_path):
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


def test_source_reads_a_real_vehicle(glassfleet_data):
    source = read_source(glassfleet_data / "qoe" / "vehicle_0.csv.gz")
    assert (source.train.rows, source.test.rows, len(source.train.features)) == (2222, 486, 15)
    assert source.train.target == "y"


def test_table_reports_text_columns_and_reads_numbers_as_floats(write):
    table = read_table(write("a,kind,y\n1,red,2\n3,7,4\n"))
    assert (table.names, table.text, table.rows) == (("a", "kind", "y"), ("kind",), 2)
    assert table.column("a").tolist() == [1, 3]
    assert table.column("kind").tolist() == ["red", "7"]
    assert table.matrix(["y", "a"]).tolist() == [[2, 1], [4, 3]]
    with pytest.raises(DataError, match="column 'kind': 'red' is not a number"):
        table.matrix(["kind"])
    with pytest.raises(DataError, match="there is no column 'z'"):
        table.column("z")
